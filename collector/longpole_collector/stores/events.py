"""Events that came as log records: kept until their span is there, then made part of it."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, Final

import pyarrow as pa

from longpole.vocab import Span
from longpole_collector.stores.connection import registered
from longpole_collector.stores.days import Day
from longpole_collector.stores.duckdb import DuckStore, add_rows
from longpole_collector.stores.schema import EVENTS, SPANS, arrow_schema, from_arrow, to_arrow

_KEYS: Final = "trace_hi, trace_lo, span_id"
_NEAR_NS: Final = 3_600_000_000_000
"""A span starts within this of its events."""
_MAX_ROWS: Final = 20_000
"""Events looked at in one go."""

Row = tuple[Any, ...]
"""One event, in the order of the table's columns."""


class WaitingEvents:
    """The table of events without a span; used by the writing thread."""

    def __init__(self, store: DuckStore) -> None:
        self._store = store
        self._num_waiting = self._count()
        self._num_passed = 0
        self.is_round = True
        """Whether the last look reached the latest event, and the next begins with the oldest."""

    def num_waiting(self) -> int:
        """Events that wait for their span."""
        return self._num_waiting

    def add(self, rows: pa.Table) -> None:
        """Keep events, in the columns of the table."""
        day = self._store.latest_day()
        with self._store.transaction(day) as writer, registered(writer, incoming=rows):
            writer.execute(
                f"INSERT INTO {day.catalog}.{EVENTS.name} BY NAME SELECT * FROM incoming"  # noqa: S608
            )
        self._num_waiting += rows.num_rows

    def join(self, joined: Callable[[Span, Sequence[Row]], Span]) -> pa.Table:
        """Make events part of the spans that are there by now; returns those spans' rows.

        Looks at many events, and the next time at those after them: some may wait for long, and
        hold up none.

        Args:
            joined: the span with its events; joining the same ones again changes nothing, so a
                crash between the files does no harm.
        """
        page = (
            f"SELECT {_KEYS} FROM {EVENTS.name} ORDER BY received_ns, {_KEYS} "  # noqa: S608
            f"LIMIT {_MAX_ROWS} OFFSET {self._num_passed}"
        )
        with self._store.writing() as writer:  # of each span all of its events
            events = writer.execute(
                f"SELECT {', '.join(EVENTS.computed)} FROM {EVENTS.name} "  # noqa: S608
                f"SEMI JOIN ({page}) AS page USING ({_KEYS}) ORDER BY received_ns"
            ).fetchall()
        before, passed = self._num_waiting, self._num_passed + _MAX_ROWS
        self.is_round = passed >= before
        self._num_passed = 0 if self.is_round else passed
        if not events:
            return arrow_schema(SPANS).empty_table()
        waiting: dict[tuple[int, int, int], list[Row]] = defaultdict(list)
        for row in events:
            waiting[row[:3]].append(row)
        times = [row[3] for row in events]
        found = self._spans(list(waiting), min(times) - _NEAR_NS, max(times) + _NEAR_NS)
        changed: list[Span] = []
        for catalog, spans in found.items():
            new = [joined(span, waiting[_key(span)]) for span in spans]
            self._rewrite(self._store.days.named(catalog), to_arrow(SPANS, new))
            changed += new
        self._forget([_key(span) for span in changed])
        self._num_passed = max(0, self._num_passed - (before - self._num_waiting))
        return to_arrow(SPANS, changed)

    def drop_before(self, received_ns: int) -> int:
        """Give up on the events that came before; returns how many."""
        before = self._count()
        for day in self._store.days:
            with self._store.transaction(day) as writer:
                writer.execute(
                    f"DELETE FROM {day.catalog}.{EVENTS.name} WHERE received_ns < {received_ns}"  # noqa: S608
                )
        self._num_waiting = self._count()
        return before - self._num_waiting

    def _count(self) -> int:
        with self._store.writing() as writer:
            rows = writer.execute(f"SELECT count(*) FROM {EVENTS.name}").fetchall()  # noqa: S608
        return int(rows[0][0])

    def _spans(
        self, keys: Sequence[tuple[int, int, int]], since_ns: int, until_ns: int
    ) -> dict[str, list[Span]]:
        """The spans of these keys that are stored, by file."""
        columns = ", ".join(arrow_schema(SPANS).names)
        with self._store.writing(wanted=_ids(keys)) as writer:
            rows = writer.sql(
                f"SELECT {columns}, day FROM {SPANS.name} SEMI JOIN wanted USING ({_KEYS}) "  # noqa: S608
                f"WHERE start_ns BETWEEN {since_ns} AND {until_ns}"
            ).to_arrow_table()
        found: dict[str, list[Span]] = defaultdict(list)
        spans = from_arrow(SPANS, Span, rows)
        for span, catalog in zip(spans, rows["day"].to_pylist(), strict=True):
            found[catalog].append(span)
        return found

    def _rewrite(self, day: Day, rows: pa.Table) -> None:
        target = f"{day.catalog}.{SPANS.name}"
        with self._store.transaction(day) as writer:
            with registered(writer, incoming=rows):
                writer.execute(
                    f"DELETE FROM {target} AS old USING incoming AS new WHERE "  # noqa: S608
                    "old.start_ns = new.start_ns AND old.trace_hi = new.trace_hi "
                    "AND old.trace_lo = new.trace_lo AND old.span_id = new.span_id"
                )
            add_rows(writer, day, rows)

    def _forget(self, keys: Sequence[tuple[int, int, int]]) -> None:
        if not keys:
            return
        for day in self._store.days:
            with self._store.transaction(day) as writer, registered(writer, done=_ids(keys)):
                writer.execute(
                    f"DELETE FROM {day.catalog}.{EVENTS.name} AS old USING done WHERE "  # noqa: S608
                    "old.trace_hi = done.trace_hi AND old.trace_lo = done.trace_lo "
                    "AND old.span_id = done.span_id"
                )
        self._num_waiting = self._count()


def _ids(keys: Sequence[tuple[int, int, int]]) -> pa.Table:
    names = ("trace_hi", "trace_lo", "span_id")
    columns = zip(*keys, strict=True)
    return pa.table(
        {name: pa.array(ids, pa.uint64()) for name, ids in zip(names, columns, strict=True)}
    )


def _key(span: Span) -> tuple[int, int, int]:
    return int(span.trace_id[:16], 16), int(span.trace_id[16:], 16), int(span.span_id, 16)
