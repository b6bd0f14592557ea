"""The life of an alert: inactive, pending, firing, as a pure function of state and minute.

What is kept between two minutes is small and can be written down, so a restart neither loses nor
repeats an alert. Requests that arrive late change the last minutes: they are gone through again,
but a minute that fired has fired.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from longpole.errors import BadInput
from longpole_analytics.slo.burn import Bools, Condition, Panel, condition
from longpole_analytics.slo.objectives import Objective, Rule

Status = Literal["inactive", "pending", "firing"]
Shown = Literal["inactive", "pending", "firing", "no_data"]
STATUSES: Final[tuple[Status, ...]] = ("inactive", "pending", "firing")
LATE_MIN: Final = 10
"""Minutes that are gone through again, for requests that arrive late."""
_VERSION: Final = 1


class Alert(NamedTuple):
    """Where a rule stands after a minute.

    Attributes:
        status: inactive, pending or firing.
        is_met: whether the rule was met in that minute.
        is_known: whether both of its windows had requests.
        run: minutes for which ``is_met`` has been the same.
    """

    status: Status = "inactive"
    is_met: bool = False
    is_known: bool = False
    run: int = 0

    @property
    def shown(self) -> Shown:
        """The status; ``no_data`` for inactive without requests, which is not known to be well."""
        return "no_data" if self.status == "inactive" and not self.is_known else self.status


def step(alert: Alert, is_met: bool, is_known: bool, rule: Rule) -> Alert:
    """The alert one minute later.

    It fires once the rule has been met for ``for_min`` further minutes, and ends once the rule
    has not been met for more than ``keep_min``.
    """
    run = alert.run + 1 if alert.is_met == is_met else 1
    status: Status = "inactive"
    if alert.status == "firing":
        status = "firing" if is_met or run <= rule.keep_min else "inactive"
    elif is_met:
        status = "firing" if run > rule.for_min else "pending"
    return Alert(status, is_met, is_known, run)


class History(NamedTuple):
    """Alerts of consecutive minutes, as columns; ``codes`` are places in :data:`STATUSES`."""

    codes: npt.NDArray[np.int8]
    runs: npt.NDArray[np.int64]
    found: Condition

    def at(self, place: int) -> Alert:
        """The alert after the minute at that place."""
        return Alert(
            STATUSES[self.codes[place]],
            bool(self.found.is_met[place]),
            bool(self.found.is_known[place]),
            int(self.runs[place]),
        )


def history(found: Condition, rule: Rule) -> History:
    """What :func:`step` gives from an inactive alert on, for all minutes at once.

    An alert fires from a minute that lights it until one that puts it out, and no minute does
    both; so it fires where the last of these lit it.
    """
    runs = _runs(found.is_met)
    place = np.arange(runs.size)
    lit = np.where(found.is_met & (runs > rule.for_min), place, -1)
    out = np.where(~found.is_met & (runs > rule.keep_min), place, -1)
    firing = np.maximum.accumulate(lit) > np.maximum.accumulate(out)
    codes = np.where(firing, 2, np.where(found.is_met, 1, 0)).astype(np.int8)
    return History(codes, runs, found)


@dataclass(frozen=True)
class Memory:
    """What is kept between two minutes.

    Attributes:
        minute: the last minute gone through, since the Unix epoch.
        alerts: by :func:`alert_key`, the alerts after the last minutes, that one included.
    """

    minute: int
    alerts: dict[str, tuple[Alert, ...]]

    def dumps(self) -> str:
        """As text; :func:`loads` reads it."""
        return json.dumps({"version": _VERSION, "minute": self.minute, "alerts": self.alerts})


def loads(text: str) -> Memory:
    """What :meth:`Memory.dumps` wrote.

    Raises:
        BadInput: it is something else.
    """
    try:
        found = json.loads(text)
        if found["version"] != _VERSION:
            raise ValueError(f"version {found['version']}")
        alerts = {
            str(key): tuple(_alert(*each) for each in kept) for key, kept in found["alerts"].items()
        }
        return Memory(int(found["minute"]), alerts)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise BadInput(f"the state of the alerts cannot be read: {error}") from error


def rewound(memory: Memory, minute: int) -> Memory:
    """The memory of a clock that was set back: the alerts stand as they are, before ``minute``.

    Without it an alert could change only when the clock had come to where it was.
    """
    if minute >= memory.minute:
        return memory
    return Memory(minute - 1, {key: kept[-1:] for key, kept in memory.alerts.items()})


def alert_key(objective: Objective, rule: Rule) -> str:
    """The name of a rule's alert in the memory."""
    return f"{objective.id}/{rule.severity}/{rule.long_min}/{rule.short_min}"


def advance(memory: Memory | None, minutes: Panel, minute: int) -> Memory:
    """The memory after a minute, with all minutes since the last one gone through.

    The last :data:`LATE_MIN` minutes are gone through again. A minute at or before the last one
    is no step back: a clock that jumped finds the alerts as they are.

    Args:
        memory: what is kept; ``None`` begins with the panel's first minute, everything inactive.
        minutes: the panel; has ``minute``, and should reach back a long window.
        minute: since the Unix epoch.
    """
    if memory is not None and minute < memory.minute:
        return memory
    known = memory.alerts if memory else {}
    before = memory.minute if memory else minute
    alerts: dict[str, tuple[Alert, ...]] = {}
    for row, rule in _rules(minutes):
        key = alert_key(minutes.objectives[row], rule)
        kept = known.get(key, ())
        first = before - len(kept) + 2  # after the oldest minute that is kept
        if not kept or first < minutes.first_minute:
            alerts[key] = _anew(minutes, row, rule, minute)
        else:
            found = condition(minutes, row, rule, first, minute)
            alerts[key] = _gone_through(kept, found, rule)
    return Memory(minute, alerts)


def _anew(minutes: Panel, row: int, rule: Rule, minute: int) -> tuple[Alert, ...]:
    found = condition(minutes, row, rule, minutes.first_minute, minute)
    if not found.is_met.any():
        return _gone_through((Alert(),), found, rule)
    told = history(found, rule)
    return tuple(told.at(place) for place in range(told.runs.size)[-LATE_MIN - 1 :])


def _gone_through(kept: tuple[Alert, ...], found: Condition, rule: Rule) -> tuple[Alert, ...]:
    """The last alerts after steps from the oldest one kept; those kept are what had been told."""
    alert = kept[0]
    alerts = [alert]
    if not found.is_met.any() and not any(each.status != "inactive" for each in kept):
        places = range(found.is_known.size)[-LATE_MIN - 1 :]
        alerts += [
            Alert("inactive", False, bool(found.is_known[place]), alert.run + place + 1)
            for place in places
        ]
        return tuple(alerts[-LATE_MIN - 1 :])
    pairs = zip(found.is_met.tolist(), found.is_known.tolist(), strict=True)
    for place, (is_met, is_known) in enumerate(pairs, start=1):
        alert = step(alert, is_met, is_known, rule)
        if place < len(kept) and kept[place].status == "firing" and alert.status != "firing":
            alert = kept[place]
        alerts.append(alert)
    return tuple(alerts[-LATE_MIN - 1 :])


def _rules(minutes: Panel) -> Iterator[tuple[int, Rule]]:
    for row, objective in enumerate(minutes.objectives):
        for rule in objective.rules:
            yield row, rule


def _runs(is_met: Bools) -> npt.NDArray[np.int64]:
    """For each minute, how many up to it have been as it is."""
    place = np.arange(is_met.size)
    is_new = np.ones(is_met.size, np.bool_)
    is_new[1:] = is_met[1:] != is_met[:-1]
    return place - np.maximum.accumulate(np.where(is_new, place, 0)) + 1


def _alert(status: str, is_met: bool, is_known: bool, run: int) -> Alert:
    if status not in STATUSES:
        raise ValueError(f"status {status}")
    return Alert(status, bool(is_met), bool(is_known), int(run))
