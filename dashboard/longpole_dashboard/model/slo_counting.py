"""Good and bad requests of promises by the minute, kept between two looks at a page.

What is counted is what ``longpole slo check`` counts. A look reads only the minutes of which the
store has something else than was read before, the latest first, and stops after a while: the
rest is left to the next look, and how much that is is said.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Final, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from longpole_analytics.alerts import reading
from longpole_analytics.alerts.rings import Held
from longpole_analytics.minutes import MINUTE_NS
from longpole_analytics.outcome_facts import outcome_facts
from longpole_analytics.slo.check import num_minutes
from longpole_analytics.slo.counting import COLUMNS, Bools, counted
from longpole_analytics.slo.objectives import Objective
from longpole_analytics.slo.series import Ints, Series
from longpole_collector.stores.base import Reader

LOOK_S: Final = 2.0
"""One look reads for so long, then the page is drawn with what there is."""
MAX_STRETCH_MIN: Final = 7 * 1440
"""Minutes that are read at once, unless they hold too many requests."""
MAX_AGAIN: Final = 500
"""Requests that may be read again, as they lie between two minutes that must be read."""
SLACK_MIN: Final = 15
"""Minutes kept besides, for who asks a moment later for a moment earlier."""
MAX_TALLIES: Final = 3
"""Kept for each store: now, and moments that somebody looks back from."""


class Counted(NamedTuple):
    """What was counted.

    Attributes:
        series: the minutes of each promise; all begin and end together.
        num_requests: requests in all these minutes.
        num_uncounted: those of them that are left to the next look.
        broken: why a promise's condition cannot be asked, by the promise's place.
    """

    series: tuple[Series, ...]
    num_requests: int
    num_uncounted: int
    broken: dict[int, str]


def promises_of(objectives: Sequence[Objective]) -> tuple[Objective, ...]:
    """The objectives, then each one's floors, all of them, as promises about the same requests."""
    floors = (
        Objective(
            objective.id,
            floor.metric,
            floor.target,
            floor.threshold,
            objective.period_min,
            where=objective.where,
            rules=objective.rules,
        )
        for objective in objectives
        for floor in objective.floors
    )
    return (*objectives, *floors)


@dataclass(eq=False)
class _Tally:
    """The counts of some promises in a ring of minutes, and what they were read from."""

    promises: tuple[Objective, ...]
    size: int
    last: int
    counts: Ints = field(init=False)
    seen: Ints = field(init=False)
    broken: dict[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # what no request fell into takes no memory: these zeros are the system's
        self.counts = np.zeros((len(self.promises), self.size, len(COLUMNS)), np.int64)
        self.seen = np.zeros((self.size, 2), np.int64)

    def advance(self, minute: int) -> None:
        """Make room up to a minute; those that fall out are forgotten. Going back is nothing."""
        places = np.arange(max(self.last + 1, minute - self.size + 1), minute + 1) % self.size
        self.counts[:, places] = 0
        self.seen[places] = 0
        self.last = max(self.last, minute)

    def is_unread(self, held: Held) -> Bools:
        """Of which of these minutes something else was read, or nothing."""
        known = self.seen[held.minutes % self.size]
        differs: Bools = (known[:, 0] != held.traces) | (known[:, 1] != held.spans)
        return differs

    def put(self, counts: Ints, first: int, chunk: Held) -> None:
        """Note the counts of the minutes from ``first`` on, read from a chunk."""
        places = np.arange(first, first + counts.shape[1]) % self.size
        self.counts[:, places] = counts
        self.seen[chunk.minutes % self.size] = np.stack([chunk.traces, chunk.spans], axis=1)

    def series(self, first: int, last: int) -> tuple[Series, ...]:
        """The minutes [first, last] of every promise in order of time."""
        places = np.arange(first, last + 1) % self.size
        found = []
        for own in self.counts:
            bad, total, num_bad, left_out = np.ascontiguousarray(own[places].T)
            found.append(Series(first, bad, total, num_bad, int(left_out.sum())))
        return tuple(found)


_tallies: WeakKeyDictionary[Reader, list[_Tally]] = WeakKeyDictionary()
_lock = Lock()


def count(
    objectives: tuple[Objective, ...], minute: int, reader: Reader, *, look_s: float | None = None
) -> Counted:
    """The minutes that ``objectives`` are judged by, up to ``minute`` since the Unix epoch.

    Args:
        objectives: at least one.
        minute: the last one.
        reader: the store.
        look_s: seconds after which no further stretch of minutes is begun, by default
            :data:`LOOK_S`; one always is.

    Raises:
        LongpoleError: the store cannot be asked.
    """
    promises = promises_of(objectives)
    with _lock:
        first = minute - num_minutes(objectives) + 1
        tally = _tally(promises, first, minute, reader)
        tally.advance(minute)
        until_s = time.monotonic() + (LOOK_S if look_s is None else look_s)
        return _read(tally, first, minute, reader, until_s)


def _tally(promises: tuple[Objective, ...], first: int, minute: int, reader: Reader) -> _Tally:
    """The one that has minutes of [first, minute], else a new one in place of the oldest."""
    kept = _tallies.setdefault(reader, [])
    size = minute - first + 1 + SLACK_MIN
    for tally in kept:
        if tally.promises == promises and -SLACK_MIN <= minute - tally.last < size:
            kept.remove(tally)
            break
    else:
        tally = _Tally(promises, size, minute)
    kept.append(tally)
    del kept[:-MAX_TALLIES]
    return tally


def _read(tally: _Tally, first: int, last: int, reader: Reader, until_s: float) -> Counted:
    held = reading.held(reader, first * MINUTE_NS)
    inside = held.minutes <= last
    held = Held(*(column[inside] for column in held))
    is_unread = tally.is_unread(held)
    num_left = int(held.traces[is_unread].sum())
    stages = reading.needs_stages(tally.promises)
    conditions = reading.Conditions()
    try:
        for begin, end in _stretches(held, is_unread):
            chunk = Held(*(column[begin:end] for column in held))
            _count(tally, chunk, reader, conditions, stages=stages)
            num_left -= int(chunk.traces[is_unread[begin:end]].sum())
            if time.monotonic() >= until_s:
                break
    finally:
        conditions.close()
    return Counted(tally.series(first, last), int(held.traces.sum()), num_left, dict(tally.broken))


def _stretches(held: Held, is_unread: Bools) -> Iterator[tuple[int, int]]:
    """Places [begin, end) of minutes to read at once, the latest first.

    Between two that must be read there may be minutes that were: reading a few requests again is
    less than asking once more.
    """
    unread = np.flatnonzero(is_unread)[::-1].tolist()
    upto = np.concatenate([[0], np.cumsum(held.traces)])
    again = np.concatenate([[0], np.cumsum(np.where(is_unread, 0, held.traces))])
    while unread:
        end = begin = unread.pop(0) + 1
        begin -= 1
        while unread:
            place = unread[0]
            is_long = held.minutes[end - 1] - held.minutes[place] >= MAX_STRETCH_MIN
            is_much = upto[end] - upto[place] > reading.CHUNK_TRACES
            if is_long or is_much or again[end] - again[place] > MAX_AGAIN:
                break
            begin = unread.pop(0)
        yield begin, end


def _count(
    tally: _Tally, chunk: Held, reader: Reader, conditions: reading.Conditions, *, stages: bool
) -> None:
    first, last = int(chunk.minutes[0]), int(chunk.minutes[-1])
    requests = reading.requests_of(
        reader,
        first * MINUTE_NS,
        (last + 1) * MINUTE_NS,
        stages=stages,
        facts=outcome_facts(tally.promises),
    ).requests
    is_own: list[Bools | None]
    is_own, wrong = conditions.selected(requests, tally.promises)
    for place, promise in enumerate(tally.promises):
        if promise.id in wrong:
            tally.broken[place] = wrong[promise.id]
    tally.put(counted(requests, tally.promises, is_own, first, last - first + 1), first, chunk)
