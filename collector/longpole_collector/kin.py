"""Which traces tell of one call together: remembered from the spans that came lately.

An application that opens no trace of its own around its calls sends each span as the root of
another trace: the SDK's and the library's, the two halves of a stream. Such traces must be
settled together, whichever comes last, and are found here, in memory, not in the store. The
rules are those of ``sql/settle/beside.sql``, for spans without a parent.
"""

from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from collections.abc import Collection, Iterable
from itertools import islice
from typing import Final, NamedTuple

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from longpole_collector.stores.schema import TRACE_HI, TRACE_LO, hex_ids
from longpole_collector.stores.settle import marked

MAX_ANSWERS: Final = 200_000
MAX_HALVES: Final = 20_000
MAX_TOLD: Final = 8
"""An answer's id that more traces tell is no answer's own (a stub gives each the same one)."""
_GAP_NS: Final = 60_000_000_000
"""Longest time from the headers to the rest of a stream."""
_CLOCKS_NS: Final = 5_000_000
"""The library may read two clocks for the two halves of a stream."""


class _Half(NamedTuple):
    """Half of a stream: when the first ended or the second began, and which it is."""

    at_ns: int
    is_rest: bool
    trace_id: str
    span_id: int


_Pair = tuple[_Half, _Half]

_COLUMNS: Final = [
    *(TRACE_HI, TRACE_LO, "span_id", "parent_id", "start_ns", "end_ns", "service", "scope"),
    *("is_model_call", "is_engine", "request_model", "response_id", "flags"),
]


class Kin:
    """The traces that tell of one call, as far as is remembered; used by one thread."""

    def __init__(self) -> None:
        self._links: defaultdict[str, list[str]] = defaultdict(list)
        self._answers: dict[int, tuple[str, ...]] = {}
        self._streams: defaultdict[tuple[str | None, ...], _Streams] = defaultdict(_Streams)
        self._num_halves = 0

    def note(self, rows: pa.Table) -> set[str]:
        """Take in new spans; returns the traces whose calls they may change, by their own or not.

        Args:
            rows: columns of the span table.
        """
        is_root = pc.and_(
            pc.and_not(rows["is_model_call"], rows["is_engine"]), rows["parent_id"].is_null()
        )
        roots = rows.select(_COLUMNS).filter(is_root)
        if not roots.num_rows:
            return set()
        trace_ids = hex_ids(roots)
        self._note_answers(zip(roots["response_id"].to_pylist(), trace_ids, strict=True))
        halves = np.flatnonzero(marked(roots["flags"]))
        if not len(halves):
            return set()
        return self._note_halves(roots.take(halves), [trace_ids[half] for half in halves])

    def of(self, trace_ids: Collection[str]) -> set[str]:
        """The traces that must be settled with these, these left out."""
        found = set(trace_ids)
        if not self._links:
            return set()
        waiting = [trace_id for trace_id in trace_ids if trace_id in self._links]
        for trace_id in waiting:
            more = set(self._links.get(trace_id, ())) - found
            found |= more
            waiting += more
        return found.difference(trace_ids)

    def _note_answers(self, told: Iterable[tuple[str | None, str]]) -> None:
        answers = self._answers
        for response_id, trace_id in told:
            if response_id is None:
                continue
            key = hash(response_id)  # two with one hash are settled together, which does no harm
            known = answers.get(key)
            if known is None:
                answers[key] = (trace_id,)
            elif trace_id not in known and len(known) < MAX_TOLD:
                answers[key] = (*known, trace_id)
                self._link(known[0], trace_id)
        if len(answers) > MAX_ANSWERS:
            for key in list(islice(answers, MAX_ANSWERS // 2)):
                first, *others = answers.pop(key)
                for other in others:
                    self._unlink(first, other)

    def _note_halves(self, rows: pa.Table, trace_ids: list[str]) -> set[str]:
        new: defaultdict[tuple[str | None, ...], list[_Half]] = defaultdict(list)
        names = ("service", "scope", "request_model", "flags", "start_ns", "end_ns", "span_id")
        facts = zip(*(rows[name].to_pylist() for name in names), strict=True)
        for trace_id, fact in zip(trace_ids, facts, strict=True):
            *where, flags, start_ns, end_ns, span_id = fact
            if "stream_summary" in flags:
                half = _Half(start_ns + _CLOCKS_NS, True, trace_id, span_id)
            elif "stream_head" in flags:
                half = _Half(start_ns if end_ns is None else end_ns, False, trace_id, span_id)
            else:
                continue
            new[tuple(where)].append(half)
        changed: set[str] = set()
        for stream, halves in new.items():
            gone, made = self._streams[stream].add(halves)
            self._num_halves += len(halves)
            for one, other in gone:
                self._unlink(one.trace_id, other.trace_id)
            for one, other in made:
                self._link(one.trace_id, other.trace_id)
            changed |= {half.trace_id for pair in gone | made for half in pair}
        if self._num_halves > MAX_HALVES:
            for one, other in self._forget():
                self._unlink(one.trace_id, other.trace_id)
        return changed

    def _forget(self) -> set[_Pair]:
        gone: set[_Pair] = set()
        for where in list(self._streams):
            gone |= self._streams[where].forget()
            if not self._streams[where].halves:
                del self._streams[where]
        self._num_halves = sum(len(streams.halves) for streams in self._streams.values())
        return gone

    def _link(self, one: str, other: str) -> None:
        if one != other:
            self._links[one].append(other)
            self._links[other].append(one)

    def _unlink(self, one: str, other: str) -> None:
        if one != other:
            for here, there in ((one, other), (other, one)):
                self._links[here].remove(there)
                if not self._links[here]:
                    del self._links[here]


class _Streams:
    """The halves of streams of one service, scope and model, by time, and which are one stream.

    The last stream that opened is the first to be told, as with brackets. So a new half changes
    only pairs that lie around it, and those are at most a gap away.
    """

    def __init__(self) -> None:
        self.halves: list[_Half] = []
        self._rests: dict[_Half, _Half] = {}

    def add(self, halves: list[_Half]) -> tuple[set[_Pair], set[_Pair]]:
        """Put halves in; returns the pairs that are no more, and the new ones."""
        for half in halves:
            insort(self.halves, half)
        first = bisect_left(self.halves, min(halves)[0] - _GAP_NS, key=_at)
        last = bisect_right(self.halves, max(halves)[0] + _GAP_NS, key=_at)
        near = self.halves[first:last]
        old = {
            (half, self._rests[half])
            for half in near
            if half in self._rests and self._rests[half] <= near[-1]
        }
        new: set[_Pair] = set()
        opened: list[_Half] = []
        for half in near:
            if not half.is_rest:
                opened.append(half)
            elif opened:
                head = opened.pop()
                if half.at_ns - head.at_ns <= _GAP_NS:
                    new.add((head, half))
        for head, _ in old - new:
            del self._rests[head]
        self._rests.update(new - old)
        return old - new, new - old

    def forget(self) -> set[_Pair]:
        """Drop the earlier half of what is remembered; returns the pairs that were in it."""
        dropped = self.halves[: (len(self.halves) + 1) // 2]
        del self.halves[: len(dropped)]
        return {(half, self._rests.pop(half)) for half in dropped if half in self._rests}


def _at(half: _Half) -> int:
    return half.at_ns


def recent(cursor: duckdb.DuckDBPyConnection, window_ns: int, limit: int) -> pa.Table:
    """The stored spans that may be kin of one still to come, the latest first.

    Args:
        cursor: reads ``span_rows``.
        window_ns: how far back from the last arrival.
        limit: most rows.
    """
    ((last_ns,),) = cursor.execute("SELECT max(received_ns) FROM span_rows").fetchall()
    since_ns = (last_ns or 0) - window_ns
    return cursor.sql(
        f"SELECT {', '.join(_COLUMNS)} FROM span_rows WHERE received_ns >= {since_ns} "  # noqa: S608
        f"AND is_model_call AND NOT is_engine AND parent_id IS NULL "
        f"ORDER BY received_ns DESC LIMIT {limit}"
    ).to_arrow_table()
