"""What sampling does to a store: weights on what is kept, and the rest taken out but counted.

What goes from a file is counted into rows of minutes of their own in the same transaction, so the
counts of a minute are the same before and after. The ids of what went are kept for a while in the
file. Of a relay (:mod:`longpole_collector.relay`) those of what stayed are kept too.
"""

from collections.abc import Sequence
from time import time_ns
from typing import Any, Final

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from longpole_collector.stores.connection import registered
from longpole_collector.stores.days import Day
from longpole_collector.stores.duckdb import DuckStore
from longpole_collector.stores.migrations import OF_TRACES, note, widen
from longpole_collector.stores.minutes import count_gone
from longpole_collector.stores.schema import (
    GONE,
    KEPT,
    SPANS,
    TRACE_HI,
    TRACE_LO,
    TRACES,
)
from longpole_collector.stores.settle import CALLS
from longpole_collector.stores.stale import mark_where

_KEYS: Final = f"{TRACE_HI}, {TRACE_LO}"
_SINCE: Final = "sampled_since_ns"
_IN_WANTED: Final = f"({_KEYS}) IN (SELECT ({_KEYS}) FROM wanted)"  # noqa: S608
_OF_TRACES: Final = (
    *("route", "route_version", "prompt_version", "service", "slo_class", "outcome"),
    *("failure_class", "root_name", "long_pole"),
)
_OF_SPANS: Final = ("provider", "request_model", "response_model", "cache_state")
_SLOWEST: Final = ("ttft_ns", "ttfv_ns")
_FACTS: Final = f"""
SELECT
    t.trace_hi, t.trace_lo, t.start_ns, t.wall_ns, t.weight,
    {", ".join(f"t.{n}" for n in _OF_TRACES)},
    t.wall_ns / 1e6 AS e2e_ms, t.time_to_useful_ns / 1e6 AS time_to_useful_ms,
    t.time_to_accepted_ns / 1e6 AS time_to_accepted_ms, s.* EXCLUDE (trace_hi, trace_lo)
FROM (FROM trace_rows SEMI JOIN wanted USING ({_KEYS})) AS t
LEFT JOIN (
    SELECT
        {_KEYS}, bool_or(status = 'error' OR error_type IS NOT NULL) AS is_error,
        max(randomness) AS randomness, max(tpot_ms) AS tpot_ms,
        {", ".join(f"max({n}) / 1e6 AS {n[:-3]}_ms" for n in _SLOWEST)},
        {", ".join(f"arg_max({n}, end_ns) FILTER (WHERE call_role > 0) AS {n}" for n in _OF_SPANS)}
    FROM span_rows SEMI JOIN wanted USING ({_KEYS})
    WHERE start_ns BETWEEN $1 AND $2
    GROUP BY {_KEYS}
) AS s USING ({_KEYS})
ORDER BY t.start_ns + t.wall_ns, t.trace_hi, t.trace_lo
"""  # noqa: S608


class Sampled:
    """A store whose traces are sampled, ``since_ns`` on; used by the writing thread."""

    def __init__(self, store: DuckStore, slices: Sequence[str], *, is_relay: bool = False) -> None:
        """Note from when on traces are decided, if it is not noted yet.

        Args:
            store: the store.
            slices: columns that facts must have.
            is_relay: what is kept leaves for another store: every trace is decided, and one that
                was kept once stays so.

        Raises:
            ValueError: facts cannot have one of these.
        """
        known = (*_OF_TRACES, *_OF_SPANS)
        unknown = [name for name in slices if name not in known]
        if unknown:
            raise ValueError(f"sampling.slices: no '{unknown[0]}'; there are {', '.join(known)}")
        self._store = store
        self._is_relay = is_relay
        self.last_ns = 0
        """When it was last decided what is kept; in a relay no two decisions have the same."""
        self.since_ns = 0
        if is_relay:
            with store.writing() as writer:
                query = f"SELECT coalesce(max(decided_ns), 0) FROM {TRACES.name}"  # noqa: S608
                self.last_ns = int(writer.execute(query).fetchall()[0][0])
            return
        noted = [store.noted(day, _SINCE, "") for day in store.days]
        self.since_ns = min((int(value) for value in noted if value), default=time_ns())
        day = store.latest_day()
        if not store.noted(day, _SINCE, ""):
            with store.transaction(day) as writer:
                note(writer, day.catalog, _SINCE, str(self.since_ns))
            store.save()  # a crash must not forget it: what came before is never sampled

    def undecided(self, since_ns: int) -> pa.Table:
        """Traces that began since traces are sampled, with a span since then, not decided yet.

        Columns are ``trace_hi, trace_lo, first_start_ns, last_start_ns, first_received_ns``.
        """
        with self._store.writing() as writer:
            found: Any = writer.sql(
                f"SELECT {_KEYS}, first_start_ns, last_start_ns, "  # noqa: S608
                f"first_start_ns AS first_received_ns FROM {TRACES.name} "
                f"WHERE first_start_ns >= {self.since_ns} AND last_start_ns >= {since_ns} "
                "AND decided_ns IS NULL"
            ).to_arrow_table()
        return found

    def decided(self, since_ns: int, most: int) -> pa.Table:
        """What is to be known of traces that were kept since then: the latest of them."""
        with self._store.writing() as writer:
            wanted: Any = writer.sql(
                f"SELECT {_KEYS}, first_start_ns, last_start_ns FROM {TRACES.name} "  # noqa: S608
                f"WHERE start_ns >= {since_ns} AND decided_ns IS NOT NULL "
                f"ORDER BY start_ns DESC LIMIT {most}"
            ).to_arrow_table()
        return self.facts(wanted)

    def facts(self, ids: pa.Table) -> pa.Table:
        """What decides about traces, those that ended first first; none of those not there.

        Args:
            ids: ``trace_hi, trace_lo, first_start_ns, last_start_ns``.
        """
        ends = [0, 0]
        if ids.num_rows:
            ends = [pc.min(ids["first_start_ns"]).as_py(), pc.max(ids["last_start_ns"]).as_py()]
        with self._store.writing(wanted=ids.select([TRACE_HI, TRACE_LO])) as writer:
            found: Any = writer.sql(_FACTS, params=ends).to_arrow_table()
        return found

    def gone(self, ids: pa.Table) -> pa.Table:
        """Those of these traces of which earlier spans were taken out."""
        with self._store.writing(wanted=ids.select([TRACE_HI, TRACE_LO])) as writer:
            found: Any = writer.sql(
                f"SELECT DISTINCT {_KEYS} FROM {GONE.name} SEMI JOIN wanted USING ({_KEYS})"  # noqa: S608
            ).to_arrow_table()
        return found

    def kept_before(self, ids: pa.Table) -> pa.Table:
        """Those of these traces that were kept for another store, and their ``weight``."""
        with self._store.writing(wanted=ids.select([TRACE_HI, TRACE_LO])) as writer:
            found: Any = writer.sql(
                f"SELECT {_KEYS}, max(weight) AS weight FROM {KEPT.name} "  # noqa: S608
                f"SEMI JOIN wanted USING ({_KEYS}) GROUP BY {_KEYS}"
            ).to_arrow_table()
        return found

    def apply(
        self,
        kept: pa.Table,
        gone: pa.Table,
        late: pa.Table,
        between_ns: tuple[int, int],
    ) -> int:
        """Write down what was decided, in each file in one transaction; returns when it was.

        Args:
            kept: ``trace_hi, trace_lo, weight``.
            gone: ids of those that are taken out.
            late: ids of those of which the rest was taken out earlier: their calls are counted,
                not once more a workflow.
            between_ns: starts of the first and the last span of all of these.

        Raises:
            duckdb.Error: a file refused; what is not written down is decided again.
        """
        self.last_ns = max(time_ns(), self.last_ns + 1)
        ids = pa.concat_tables([each.select([TRACE_HI, TRACE_LO]) for each in (kept, gone, late)])
        for catalog in self._days_of(ids, between_ns):
            day = self._store.days.named(catalog)
            with (
                self._store.transaction(day) as writer,
                registered(writer, kept=kept, gone=gone, late=late),
            ):
                if gone.num_rows or late.num_rows:
                    _take_out(writer, day, between_ns)
                if kept.num_rows:
                    _weigh(writer, day, between_ns, self.last_ns)
                if kept.num_rows and self._is_relay:
                    _remember(writer, day, between_ns, self.last_ns)
        return self.last_ns

    def forget(self, before_ns: int) -> None:
        """Let go of the ids of traces that were taken out, or kept for others, before then."""
        for table in (GONE, KEPT):
            with self._store.writing() as writer:
                found = writer.execute(
                    f"SELECT DISTINCT day FROM {table.name} WHERE decided_ns < {before_ns}"  # noqa: S608
                ).fetchall()
            for (catalog,) in found:
                with self._store.transaction(self._store.days.named(catalog)) as writer:
                    writer.execute(
                        f"DELETE FROM {catalog}.{table.name} WHERE decided_ns < {before_ns}"  # noqa: S608
                    )

    # --- inside ---------------------------------------------------------------------------------
    def _days_of(self, ids: pa.Table, between_ns: tuple[int, int]) -> list[str]:
        """The files that hold rows of traces, those with their roll-ups last."""
        low, high = between_ns
        with self._store.writing(wanted=ids) as writer:
            of_spans, of_traces = (
                writer.execute(
                    f"SELECT DISTINCT day FROM {table.name} SEMI JOIN wanted USING ({_KEYS}) "  # noqa: S608
                    f"WHERE start_ns BETWEEN {low} AND {high}"
                ).fetchall()
                for table in (SPANS, TRACES)
            )
        homes = {row[0] for row in of_traces}
        return [*sorted({row[0] for row in of_spans} - homes), *sorted(homes)]


def _take_out(writer: duckdb.DuckDBPyConnection, day: Day, between_ns: tuple[int, int]) -> None:
    """Count and delete what a file has of the traces in ``gone`` and ``late``."""
    low, high = between_ns
    near = f"start_ns BETWEEN {low} AND {high}"
    count_gone(writer, day, between_ns)
    late = f"{near} AND ({_KEYS}) IN (SELECT ({_KEYS}) FROM late)"  # noqa: S608
    for table in (TRACES, CALLS):
        mark_where(writer, day.catalog, table.name, late)
    for table in OF_TRACES:
        has_start = "start_ns" in {*(column.name for column in table.columns), *table.computed}
        for name in ("gone", "late"):
            writer.execute(
                f"DELETE FROM {day.catalog}.{table.name} AS old USING {name} WHERE "  # noqa: S608
                f"old.trace_hi = {name}.trace_hi AND old.trace_lo = {name}.trace_lo"
                + (f" AND old.{near}" if has_start else "")
            )
    writer.execute(
        f"INSERT INTO {day.catalog}.{GONE.name} SELECT {_KEYS}, {time_ns()} FROM gone"  # noqa: S608
    )


def _weigh(
    writer: duckdb.DuckDBPyConnection, day: Day, between_ns: tuple[int, int], now_ns: int
) -> None:
    """Write the weights of kept traces on what a file has of them."""
    low, high = between_ns
    same = (
        f"old.start_ns BETWEEN {low} AND {high} "
        "AND old.trace_hi = kept.trace_hi AND old.trace_lo = kept.trace_lo"
    )
    weight = "weight = greatest(coalesce(old.weight, 1.0), kept.weight)"
    widen(writer, day.catalog, pa.table({"weight": [1.0]}))
    for table in (SPANS, CALLS):
        writer.execute(
            f"UPDATE {day.catalog}.{table.name} AS old SET {weight} FROM kept "  # noqa: S608
            f"WHERE kept.weight > 1 AND {same}"
        )
    writer.execute(
        f"UPDATE {day.catalog}.{TRACES.name} AS old "  # noqa: S608
        f"SET {weight}, decided_ns = {now_ns} FROM kept WHERE {same}"
    )


def _remember(
    writer: duckdb.DuckDBPyConnection, day: Day, between_ns: tuple[int, int], now_ns: int
) -> None:
    """Note which traces of a file were kept."""
    low, high = between_ns
    writer.execute(
        f"INSERT INTO {day.catalog}.{KEPT.name} SELECT {_KEYS}, {now_ns}, weight FROM kept "  # noqa: S608
        f"SEMI JOIN (FROM {day.catalog}.{TRACES.name} WHERE start_ns BETWEEN {low} AND {high}) "
        f"USING ({_KEYS})"
    )
