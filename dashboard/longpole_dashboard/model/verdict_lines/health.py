"""On top of Settings and health: whether all is stored, and what is missing."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from longpole_dashboard.model import text
from longpole_dashboard.model.cards import Tone
from longpole_dashboard.model.health import RATIOS, HealthView, Lack, Quality
from longpole_dashboard.model.verdict_lines.base import Line, name

_LOSSES: Final = (
    *("requests refused", "spans rejected", "spans dropped", "damaged frames of the log"),
)
"""What counts as lost; the rest is stored, if not as it was sent, or is no span."""


class Held(NamedTuple):
    """What the stored spans tell of themselves.

    Attributes:
        lacks: what the last spans lack; ``None`` where they could not be asked.
        ledger: of all calls; ``None`` where it was not asked for.
        has_spans: whether any is stored.
    """

    lacks: Sequence[Lack] | None = None
    ledger: Sequence[Quality] | None = None
    has_spans: bool = False


def of_health(shown: HealthView, held: Held) -> Line:
    """Whether all that came is stored, and how much of what could be told is missing."""
    if shown.problem:
        return Line(
            "The store cannot be used: what comes is not seen until that is mended.", tone="worse"
        )
    said, tone = _stored(shown)
    lacking, more = _lacking(held)
    told = "; ".join(part for part in (said, lacking) if part)
    if not told:
        why = shown.missing.rstrip(".") or "no span is stored here"
        return Line(f"No verdict: {_begin(why, is_small=True)}.")
    return Line(f"{_begin(told)}.", more, tone)


def _begin(said: str, *, is_small: bool = False) -> str:
    first = said[:1].lower() if is_small else said[:1].upper()
    return f"{first}{said[1:]}"


def _stored(shown: HealthView) -> tuple[str, Tone]:
    if shown.broken:
        files = text.counted(len(shown.broken), "file")
        return f"{files} of the store cannot be read: what is in there is left out", "worse"
    if shown.missing:
        return "", "grey"
    if shown.lost:
        first, num = shown.lost[0], len(shown.lost) - 1
        why = f" ({name(first[1])})" if first[1] else ""
        rest = f", and {text.counted(num, 'more line')} below" if num else ""
        line = f"Not all that came is stored as it was sent: {first[0]} {text.count(first[2])}{why}"
        is_worse = any(each[0] in _LOSSES for each in shown.lost)
        return f"{line}{rest}", "worse" if is_worse else "grey"
    num = dict(shown.counts).get("spans received", 0)
    if not num:
        return "No span came since the collector started", "grey"
    spans = text.counted(num, "span")
    return (
        f"Nothing of {spans} that came since the collector started was refused, dropped or cut",
        "grey",
    )


def _lacking(held: Held) -> tuple[str, tuple[str, ...]]:
    lacks = held.lacks
    if lacks is None or not (lacks or held.has_spans):
        return "", ()
    if not lacks:
        return f"the last spans lack nothing{_of_ledger(held.ledger or ())}", ()
    common = [each for each in lacks if each.is_common]
    first = (common or list(lacks))[0]
    facts = f"{text.counted(len(lacks), 'fact')} {'is' if len(lacks) == 1 else 'are'} missing"
    most = f", {text.count(len(common))} of them from most" if common else ""
    where = (
        "most of the last spans" if len(common) == len(lacks) else f"some of the last spans{most}"
    )
    named = ", ".join(each.fact for each in (common or lacks)[:3])
    line = f"{facts} from {where}: {named}"
    return line, (f"Next, {first.fact}: {first.fix} ({first.told}).",)


def _of_ledger(rows: Sequence[Quality]) -> str:
    """What most calls of all senders lack, as the ledger has it."""
    cells = [
        (ratio * row.num_calls, row, title, ratio)
        for row in rows
        for (_, title), ratio in zip(RATIOS, row.ratios, strict=True)
        if ratio
    ]
    if not cells:
        return ""
    _, row, title, ratio = max(cells, key=lambda cell: cell[0])
    sender = name(row.service or "service (unknown)")
    n = text.counted(row.num_calls, "call")
    return f"; the ledger has '{title}' {text.percent(ratio)} for {sender} ({n})"
