"""What is stored of traces beside their spans: roll-ups, merged calls, and how far they go.

A trace's rows lie in one file, its home: the file that was written when it was first rolled up.
Later spans of it may lie in later files; the roll-up stays at home and goes with it.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Final, NamedTuple

import pyarrow as pa

from longpole_collector.stores.connection import registered
from longpole_collector.stores.days import Day
from longpole_collector.stores.duckdb import DuckStore
from longpole_collector.stores.migrations import note, widen
from longpole_collector.stores.narrow import Place
from longpole_collector.stores.schema import (
    SPANS,
    STAGES,
    TRACE_HI,
    TRACE_LO,
    TRACES,
    hex_ids,
    matching,
    trace_numbers,
)
from longpole_collector.stores.settle import CALLS
from longpole_collector.stores.stale import mark, mark_where

_SETTLED: Final = "settled_ns"
_VERSION: Final = "rollup_version"
_KEYS: Final = f"{TRACE_HI}, {TRACE_LO}"
_KNOWN: Final = f"({_KEYS}) IN (SELECT ({_KEYS}) FROM known)"  # noqa: S608


class Unsettled(NamedTuple):
    """A trace with spans newer than its roll-up."""

    trace_id: str
    first_start_ns: int
    last_start_ns: int
    first_received_ns: int


class Rollups:
    """The roll-ups in a store; used by the writing thread."""

    def __init__(self, store: DuckStore) -> None:
        self._store = store
        self._version = 0

    def places(self, trace_ids: Sequence[str]) -> dict[str, Place]:
        """Where those of these traces lie that have a roll-up."""
        if not trace_ids:
            return {}
        with self._store.writing(wanted=trace_numbers(trace_ids)) as writer:
            rows = writer.execute(
                f"SELECT trace_hex({_KEYS}), first_start_ns, last_start_ns, day "  # noqa: S608
                f"FROM {TRACES.name} SEMI JOIN wanted USING ({_KEYS})"
            ).fetchall()
        return {row[0]: Place(*row[1:]) for row in rows}

    def replace(
        self,
        traces: pa.Table,
        stages: pa.Table,
        places: Mapping[str, Place],
        calls: pa.Table | None = None,
        roles: pa.Table | None = None,
        settled_ns: int | None = None,
    ) -> None:
        """Put the new roll-ups of some traces in place of their old ones.

        Args:
            traces: their rows, with the starts of their first and last spans.
            stages: the rows of their stages.
            places: of those that have a roll-up already, where it lies.
            calls: all merged calls of these traces; rows of the table of calls.
            roles: which spans are calls: trace, span id, start and ``call_role``.
            settled_ns: every span received up to then is rolled up; noted for the next start.
        """
        latest = self._store.latest_day()
        at_home: dict[str, list[int]] = defaultdict(list)
        known: dict[str, list[str]] = defaultdict(list)
        if places:
            for row, trace_id in enumerate(hex_ids(traces)):
                place = places.get(trace_id)
                home = latest.catalog if place is None or place.home is None else place.home
                at_home[home].append(row)
                if place is not None:
                    known[home].append(trace_id)
        else:
            at_home[latest.catalog] = list(range(traces.num_rows))
        role_days = self._days_of(roles)
        for catalog in sorted({*at_home, *role_days}):
            ours = traces.take(pa.array(at_home.get(catalog, []), pa.int64()))
            ids = ours.select([TRACE_HI, TRACE_LO])
            parts = {TRACES.name: ours}
            for table, part in ((STAGES, stages), (CALLS, calls)):
                if part is not None and part.num_rows and ours.num_rows:
                    parts[table.name] = matching(part, ids, is_in=True)
            self._replace_in(
                self._store.days.named(catalog),
                parts,
                known.get(catalog, []),
                roles if catalog in role_days else None,
            )
        if settled_ns is not None:
            with self._store.transaction(latest) as writer:
                note(writer, latest.catalog, _SETTLED, str(settled_ns))
                note(writer, latest.catalog, _VERSION, str(self._version))

    def put_attempts(self, attempts: pa.Table) -> None:
        """Write into the spans of calls how often they were tried.

        Args:
            attempts: trace, span id, start, ``num_attempts`` and ``retry_ns``.
        """
        for catalog in self._days_of(attempts):
            day = self._store.days.named(catalog)
            starts = attempts["start_ns"].to_numpy()
            with self._store.transaction(day) as writer, registered(writer, attempts=attempts):
                known = set(widen(writer, day.catalog, attempts)) & {"num_attempts", "retry_ns"}
                told = ", ".join(f"{name} = a.{name}" for name in sorted(known))
                writer.execute(
                    f"UPDATE {day.catalog}.{SPANS.name} AS s SET {told} FROM attempts AS a "  # noqa: S608
                    f"WHERE s.start_ns BETWEEN {starts.min()} AND {starts.max()} "
                    "AND s.trace_hi = a.trace_hi AND s.trace_lo = a.trace_lo "
                    "AND s.span_id = a.span_id AND s.start_ns = a.start_ns"
                )

    def unsettled(self, rollup_version: int, margin_ns: int) -> list[Unsettled]:
        """The traces with spans that came after the last noted ``settled_ns``, less a margin.

        A roll-up of another version than noted makes every trace unsettled.
        """
        store = self._store
        self._version = rollup_version
        versions = {store.noted(day, _VERSION, "") for day in store.days} - {""}
        settled = max((int(store.noted(day, _SETTLED, "0")) for day in store.days), default=0)
        since_ns = settled - margin_ns
        if versions != {str(rollup_version)}:
            since_ns = -1
            for day in store.days:
                with store.transaction(day) as writer:
                    note(writer, day.catalog, _SETTLED, "0")
                    note(writer, day.catalog, _VERSION, str(rollup_version))
        with store.writing() as writer:
            rows = writer.execute(
                f"SELECT trace_hex({_KEYS}), min(start_ns), max(start_ns), min(received_ns) "  # noqa: S608
                f"FROM {SPANS.name} WHERE received_ns > {since_ns} GROUP BY {_KEYS}"
            ).fetchall()
        return [Unsettled._make(row) for row in rows]

    # --- inside ---------------------------------------------------------------------------------
    def _days_of(self, roles: pa.Table | None) -> set[str]:
        """The files that hold spans whose role changes."""
        if roles is None or roles.num_rows == 0:
            return set()
        starts = roles["start_ns"].to_numpy()
        with self._store.writing(roles=roles) as writer:
            found = writer.execute(
                f"SELECT DISTINCT day FROM {SPANS.name} "  # noqa: S608
                f"SEMI JOIN roles USING ({_KEYS}, span_id, start_ns) "
                f"WHERE start_ns BETWEEN {starts.min()} AND {starts.max()}"
            ).fetchall()
        return {row[0] for row in found}

    def _replace_in(
        self,
        day: Day,
        new: Mapping[str, pa.Table],
        known: Sequence[str],
        roles: pa.Table | None,
    ) -> None:
        """Replace what one file has of some traces: ``new`` by table, old ones of ``known``."""
        with self._store.transaction(day) as writer, ExitStack() as tables:
            if known:
                tables.enter_context(registered(writer, known=trace_numbers(known)))
                for table in (TRACES, CALLS):
                    mark_where(writer, day.catalog, table.name, _KNOWN)
                for table in (TRACES, STAGES, CALLS):
                    writer.execute(
                        f"DELETE FROM {day.catalog}.{table.name} AS old USING known "  # noqa: S608
                        "WHERE old.trace_hi = known.trace_hi AND old.trace_lo = known.trace_lo"
                    )
            changed = [new[name] for name in (TRACES.name, CALLS.name) if name in new]
            day.extent.widen([rows["start_ns"] for rows in changed])
            changed += [] if roles is None else [roles]
            mark(writer, day.catalog, [rows["start_ns"] for rows in changed])
            day.num_unsaved_traces += new[TRACES.name].num_rows
            for name, rows in new.items():
                if rows.num_rows:
                    with registered(writer, incoming=rows):
                        writer.execute(
                            f"INSERT INTO {day.catalog}.{name} BY NAME SELECT * FROM incoming"  # noqa: S608
                        )
            if roles is not None:
                tables.enter_context(registered(writer, roles=roles))
                starts = roles["start_ns"].to_numpy()
                writer.execute(
                    f"UPDATE {day.catalog}.{SPANS.name} AS s SET call_role = roles.call_role "  # noqa: S608
                    f"FROM roles WHERE s.start_ns BETWEEN {starts.min()} AND {starts.max()} "
                    "AND s.trace_hi = roles.trace_hi AND s.trace_lo = roles.trace_lo "
                    "AND s.span_id = roles.span_id AND s.start_ns = roles.start_ns"
                )
