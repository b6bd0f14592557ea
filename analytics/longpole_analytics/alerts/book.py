"""Who is to be told what: a pure function of where objectives stand and what was told before.

One alert for each objective, severity and slice. Those who have been told are told again only
after a while, when it has ended, or when somebody has taken it on. A page keeps the ticket of the
same objective quiet; a silence keeps all quiet but the end of what was told.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, NamedTuple

from longpole_analytics.alerts.event import burning, fingerprint
from longpole_analytics.slo.check import Standing
from longpole_analytics.slo.floors import promise_of
from longpole_analytics.slo.objectives import SEVERITIES

Kind = Literal["firing", "repeat", "resolved", "ack"]
NEVER: Final = -1.0


@dataclass(frozen=True)
class Entry:
    """An alert that fires. Times are seconds since the Unix epoch.

    Attributes:
        fingerprint: its name.
        slo: id of the objective.
        severity: ``page`` or ``ticket``.
        started_s: since when.
        told_s: when it was last told of; below 0 if it never was.
        ack_told_s: the acknowledgement that was told of; below 0 if none was.
        is_quiet: it is kept quiet now: by a page, a silence, or who has taken it on.
        is_held: the requests have stopped coming, so that it is not known to be over.
    """

    fingerprint: str
    slo: str
    severity: str
    started_s: float
    told_s: float = NEVER
    ack_told_s: float = NEVER
    is_quiet: bool = False
    is_held: bool = False

    @property
    def is_told(self) -> bool:
        """Whether anybody knows of it."""
        return self.told_s >= 0


class Silence(NamedTuple):
    """What is not told of until a moment; an empty text stands for all."""

    slo: str
    severity: str
    until_s: float


class Ack(NamedTuple):
    """Somebody has taken an alert on, until a moment."""

    at_s: float
    until_s: float


class Turn(NamedTuple):
    """Something to be told."""

    kind: Kind
    entry: Entry
    standing: Standing


class Decision(NamedTuple):
    """What is to be told now, and the alerts that fire, by fingerprint."""

    turns: tuple[Turn, ...]
    entries: dict[str, Entry]


def decide(
    project: str,
    standings: Sequence[Standing],
    entries: Mapping[str, Entry],
    *,
    now_s: float,
    repeat_s: float,
    silences: Sequence[Silence] = (),
    acks: Mapping[str, Ack] | None = None,
    may_end: bool = True,
) -> Decision:
    """What is to be told after a look at all objectives.

    Args:
        project: its name.
        standings: where the objectives stand; an alert of one that is not there stays as it is.
        entries: the alerts that fired after the last look.
        now_s: the moment.
        repeat_s: how long after it was told of an alert is told of again.
        silences: what is kept quiet.
        acks: who has taken what on, by fingerprint.
        may_end: false where the clock cannot be trusted: then nothing is over.
    """
    turns: list[Turn] = []
    left = dict(entries)
    for standing in standings:
        has_page = False
        for severity in SEVERITIES:  # a page first: it keeps its ticket quiet
            if not any(each.rule.severity == severity for each in standing.rules):
                continue
            name = fingerprint(project, standing.objective, severity)
            before = left.pop(name, None)
            is_firing, is_held = _burns(standing, severity, before)
            is_held |= before is not None and not is_firing and not may_end
            if not is_firing and not is_held:
                if before is not None and before.is_told:
                    turns.append(Turn("resolved", before, standing))
                continue
            entry = before or Entry(name, standing.objective.id, severity, now_s)
            quiet = has_page or any(_covers(silence, entry, now_s) for silence in silences)
            turn, entry = _turn(entry, quiet, (acks or {}).get(name), now_s, repeat_s)
            left[name] = entry = replace(entry, is_held=is_held)
            if turn is not None:
                turns.append(Turn(turn, entry, standing))
            has_page = severity == "page"
    return Decision(tuple(turns), left)


def untold(entries: Mapping[str, Entry], names: Collection[str]) -> dict[str, Entry]:
    """Those of the names as nobody was told of them after all: it is their turn again."""
    return {n: replace(each, told_s=NEVER) for n, each in entries.items() if n in names}


def _burns(standing: Standing, severity: str, before: Entry | None) -> tuple[bool, bool]:
    """Whether an alert fires, and whether one is held that did: silence is not health.

    It is held while no requests come in the short window and those of the long one still burn.
    """
    rule = burning(standing, severity)
    if rule.status == "firing":
        return True, False
    is_held = before is not None and any(
        each.rule.severity == severity
        and each.burn_short is None
        and each.burn_long is not None
        and each.burn_long > each.factor_used
        for each in standing.rules
    )
    return False, is_held


def _turn(
    entry: Entry, is_silenced: bool, ack: Ack | None, now_s: float, repeat_s: float
) -> tuple[Kind | None, Entry]:
    has_taken = ack is not None and ack.at_s >= entry.started_s and now_s < ack.until_s
    if has_taken and ack is not None and ack.at_s > entry.ack_told_s and entry.is_told:
        return "ack", replace(entry, ack_told_s=ack.at_s, told_s=now_s, is_quiet=True)
    entry = replace(entry, is_quiet=is_silenced or has_taken)
    if entry.is_quiet:
        return None, entry
    if not entry.is_told:
        return "firing", replace(entry, told_s=now_s)
    lapsed = ack is not None and ack.at_s == entry.ack_told_s and entry.told_s < ack.until_s
    if lapsed or now_s - entry.told_s >= repeat_s:
        return "repeat", replace(entry, told_s=now_s)
    return None, entry


def _covers(silence: Silence, entry: Entry, now_s: float) -> bool:
    return (
        now_s < silence.until_s
        and silence.slo in ("", entry.slo, promise_of(entry.slo))
        and silence.severity in ("", entry.severity)
    )
