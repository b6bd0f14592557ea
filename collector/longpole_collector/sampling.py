"""Which traces are kept, and what each then stands for: the decision alone, no store, no clock.

A trace is kept if R >= T, where R are 56 random bits of it (of its id, or as its sender says) and
T is the larger of its class's threshold and its sender's. That is OpenTelemetry's consistent
sampling: both draw by the same R, so a trace is kept by both with the smaller of the two
probabilities, and weighs 1 over that.

A trace's class depends on itself and on the traces decided before it, kept or not, never on R.
Given those, each is kept by itself with a known probability above 0, so sums of weights are
unbiased (Horvitz & Thompson, JASA 47, 1952).
"""

import math
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from longpole_collector.sampling_rules import CLASSES, SamplingRules
from longpole_collector.tracestate import ALL

ROUTE: Final = "route"
_REJECTED: Final = pa.array(["rejected", "failed"])
_STEP: Final = math.log(1.05)
_LOWEST: Final = -100
"""Buckets of durations: 5 % wide, from 8 us to 59 hours."""
_NUM_BUCKETS: Final = 500
_RARE_MOST: Final = 0.2
"""A column of which more traces than that are rare has other values each time: none is rare."""
_RARE_TRIAL: Final = 1000
_FIRST_TRACES: Final = 100
"""Decided together while nothing is known: the next are then compared with these."""
Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


class Decisions(NamedTuple):
    """Of each trace: is it kept, what it stands for if so, its class as a place in ``CLASSES``."""

    is_kept: Bools
    weight: Floats
    reason: Ints


class Sampler:
    """Decides about traces, in the order in which they end; for one thread.

    A table of traces has ``trace_lo`` (unsigned, the lower half of the id), ``randomness`` (null:
    the id's), ``weight`` (what the sender says; null is 1), ``wall_ns``, ``outcome``,
    ``is_error``, ``is_violation``, ``route`` and the columns of ``rules.slices``.
    """

    def __init__(self, rules: SamplingRules) -> None:
        self._rules = rules
        self._windows = [_Windows(rules) for _ in (ROUTE, *rules.slices)]
        self._began_s = -math.inf

    def decide(self, traces: pa.Table, now_s: float) -> Decisions:
        """Which of these are kept; they are then part of what later ones are compared with.

        Args:
            traces: the traces, those that ended first first.
            now_s: the time, on a clock that never goes back.
        """
        self._turn(now_s)
        parts: list[Decisions] = []
        first = 0
        while first < traces.num_rows or not parts:
            num = max(self._windows[0].num_seen(), _FIRST_TRACES)  # few have too few to be held to
            parts.append(self._decide(traces.slice(first, num)))
            first += num
        return Decisions(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))

    def learn(self, traces: pa.Table, now_s: float) -> None:
        """Compare later traces with these too, which were decided before a restart.

        Args:
            traces: those that were kept; ``weight`` is what each stands for.
            now_s: the time.
        """
        self._turn(now_s)
        walls = _places(traces)
        counts = np.maximum(np.rint(_numbers(traces["weight"], 1.0)), 1).astype(np.int64)
        for window, groups in self._grouped(traces):
            window.learn(groups, walls, counts)

    def num_slices(self) -> int:
        """Slices that are looked at now."""
        return sum(len(window) for window in self._windows)

    # --- inside ---------------------------------------------------------------------------------
    def _decide(self, traces: pa.Table) -> Decisions:
        rules, num = self._rules, traces.num_rows
        walls = _places(traces)
        is_rare, slower = np.zeros(num, np.bool_), np.ones(num)
        for window, groups in self._grouped(traces):
            own_rare, own_slower = window.take(groups, walls)
            is_rare |= own_rare
            slower = np.minimum(slower, own_slower)
        probability = {
            "error": _truth(traces["is_error"]) * rules.error,
            "rejected": _truth(pc.is_in(traces["outcome"], _REJECTED)) * rules.rejected,
            "violation": _truth(traces["is_violation"]) * rules.violation,
            "rare": is_rare * rules.rare,
            "slow": rules.slow * rules.slow_share / np.maximum(slower, rules.slow_share),
            "rest": np.full(num, rules.rest),
        }
        each = np.stack([probability[name] for name in CLASSES])
        reason = each.argmax(axis=0)
        own = ALL - np.rint(each.max(axis=0) * ALL).astype(np.int64)
        threshold = np.maximum(own, _sender_threshold(traces))
        is_kept = _randomness(traces) >= threshold
        weight = np.where(is_kept, ALL / np.maximum(ALL - threshold, 1), 0.0)
        return Decisions(is_kept, weight, reason)

    def _turn(self, now_s: float) -> None:
        if now_s - self._began_s >= self._rules.window_s:
            is_old = now_s - self._began_s >= 2 * self._rules.window_s
            for window in self._windows:
                window.turn(forget=is_old)
            self._began_s = now_s

    def _grouped(self, traces: pa.Table) -> Iterator[tuple["_Windows", list["_Group"]]]:
        """For the routes, and for each column with them: the traces of each value."""
        routes = _coded(traces[ROUTE])
        for window, name in zip(self._windows, (None, *self._rules.slices), strict=True):
            values = routes if name is None else _coded(traces[name])
            pairs = routes.codes * len(values.names) + values.codes
            distinct, of = np.unique(pairs, return_inverse=True)
            order = np.argsort(of, kind="stable")
            parts = np.split(order, np.flatnonzero(np.diff(of[order])) + 1) if len(of) else []
            groups: list[_Group] = []
            for pair, rows in zip(distinct.tolist(), parts, strict=True):
                route, value = divmod(pair, len(values.names))
                groups.append(_Group((routes.names[route], values.names[value]), rows))
            yield window, groups


class _Coded(NamedTuple):
    codes: Ints
    names: list[str | None]


class _Group(NamedTuple):
    """The rows of one slice, ascending."""

    name: tuple[str | None, str | None]
    rows: Ints


class _Windows:
    """How many traces each slice had, by duration: in the window before, and in this one."""

    def __init__(self, rules: SamplingRules) -> None:
        self._rules = rules
        self._most = max(rules.max_slices // (1 + len(rules.slices)), 1)
        self._rows: dict[tuple[str | None, str | None], int] = {}
        self._counts = np.zeros((2, 8, _NUM_BUCKETS), np.int32)
        self._seen = np.zeros((2, 2), np.int64)
        """Before and now: traces, and rare ones among them."""

    def __len__(self) -> int:
        return len(self._rows)

    def num_seen(self) -> int:
        """Traces that later ones are compared with."""
        return int(self._seen[:, 0].sum())

    def take(self, groups: list[_Group], walls: Ints) -> tuple[Bools, Floats]:
        """Which traces are rare, and the share of slower ones, among what came before.

        Then they are counted too. Of slices that are rare or not looked at all are slower.
        """
        is_rare, slower = np.zeros(len(walls), np.bool_), np.ones(len(walls))
        seen, seen_rare = self._seen.sum(axis=0).tolist()
        may_be_rare = seen_rare <= _RARE_MOST * seen + _RARE_TRIAL
        for name, rows in groups:
            place = self._place(name)
            if place is None:
                continue
            before = self._counts[0, place] + self._counts[1, place]
            num = int(before.sum())
            is_new = np.arange(num, num + len(rows)) < self._rules.rare_traces
            self._seen[1] += len(rows), int(is_new.sum())
            is_rare[rows] = is_new & may_be_rare
            if num >= self._rules.rare_traces:
                slower[rows] = _share_above(before, walls[rows])
            self._add(place, walls[rows], 1)
        return is_rare, slower

    def learn(self, groups: list[_Group], walls: Ints, counts: Ints) -> None:
        """Count traces, each as so many."""
        for name, rows in groups:
            place = self._place(name)
            if place is not None:
                self._add(place, walls[rows], counts[rows])
                self._seen[1, 0] += int(counts[rows].sum())

    def turn(self, *, forget: bool) -> None:
        """Begin a new window; slices without a trace in the one before go.

        Args:
            forget: the one before is too long ago as well.
        """
        kept = {
            name: place
            for name, place in self._rows.items()
            if not forget and self._counts[1, place].any()
        }
        counts = np.zeros((2, max(len(kept), 8), _NUM_BUCKETS), np.int32)
        counts[0, : len(kept)] = self._counts[1, list(kept.values())]
        self._counts = counts
        self._rows = {name: number for number, name in enumerate(kept)}
        self._seen = np.stack([self._seen[1] * (not forget), np.zeros(2, np.int64)])

    def _add(self, place: int, walls: Ints, counts: Ints | int) -> None:
        np.add.at(self._counts[1, place], walls // _FINE, counts)

    def _place(self, name: tuple[str | None, str | None]) -> int | None:
        place = self._rows.get(name)
        if place is None and len(self._rows) < self._most:
            place = self._rows[name] = len(self._rows)
            if place == self._counts.shape[1]:
                self._counts = np.concatenate([self._counts, np.zeros_like(self._counts)], axis=1)
        return place


_FINE: Final = 64
"""A duration is told by its bucket and where in it: so many places."""


def _share_above(counts: npt.NDArray[np.int32], walls: Ints) -> Floats:
    """The share of durations above each; in a bucket they are taken to be spread evenly."""
    upto = np.cumsum(counts)
    bucket, place = np.divmod(walls, _FINE)
    found: Floats = 1 - (upto[bucket] - counts[bucket] * (1 - (place + 0.5) / _FINE)) / upto[-1]
    return np.maximum(found, 0.0)


def _places(traces: pa.Table) -> Ints:
    """Where a trace's duration lies: buckets of 5 %, and places in them."""
    wall_ms = np.maximum(_numbers(traces["wall_ns"], 0.0), 1.0) / 1e6
    places = np.floor((np.log(wall_ms) / _STEP - _LOWEST) * _FINE)
    return np.clip(places, 0, _NUM_BUCKETS * _FINE - 1).astype(np.int64)


def _sender_threshold(traces: pa.Table) -> Ints:
    weight = np.maximum(_numbers(traces["weight"], 1.0), 1.0)
    return ALL - np.rint(ALL / weight).astype(np.int64)


def _randomness(traces: pa.Table) -> Ints:
    own: Ints = (traces["trace_lo"].to_numpy() & np.uint64(ALL - 1)).astype(np.int64)
    said = traces["randomness"]
    if said.null_count < traces.num_rows:
        own = np.where(said.is_valid().to_numpy(), said.fill_null(0).to_numpy(), own)
    return own


def _coded(column: pa.ChunkedArray) -> _Coded:
    """Text as numbers; unknown is a value too."""
    encoded: Any = column.combine_chunks().dictionary_encode(null_encoding="encode")
    names = encoded.dictionary.to_pylist() or [None]
    return _Coded(encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64), names)


def _numbers(column: pa.ChunkedArray, unknown: float) -> Floats:
    found: Floats = column.cast(pa.float64()).fill_null(unknown).to_numpy()
    return found


def _truth(column: Any) -> Bools:
    found: Bools = column.fill_null(False).to_numpy(zero_copy_only=False).astype(np.bool_)
    return found
