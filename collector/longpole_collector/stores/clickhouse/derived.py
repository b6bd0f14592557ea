"""Rows of calls and traces: what a local store's views say, in the columns over there."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from longpole_collector.stores.clickhouse.client import Client
from longpole_collector.stores.clickhouse.due import LONG, of_traces
from longpole_collector.stores.clickhouse.schema import stored_columns
from longpole_collector.stores.duckdb import DuckStore
from longpole_collector.stores.views import views

TABLES: Final = ("call_rows", "trace_rows")
"""In the order in which they are written: a trace is done when its own row is there."""
_NUM_ROWS: Final = "(SELECT trace_id, count(*) AS num_rows FROM spans GROUP BY trace_id)"
_STAGES: Final = (
    "(SELECT trace_id, list(stage ORDER BY stage) AS stages, "
    "list(critical_ns ORDER BY stage) AS stages_critical_ns, "
    "list(total_ns - critical_ns ORDER BY stage) AS stages_rest_ns FROM trace_stages "
    "GROUP BY trace_id)"
)
_VIEW: Final = {"call_rows": "calls", "trace_rows": "traces"}
_FROM: Final = {
    "call_rows": "calls",
    "trace_rows": f"traces JOIN {_NUM_ROWS} USING (trace_id) LEFT JOIN {_STAGES} USING (trace_id)",
}
_KEYS: Final = {
    "call_rows": ("trace_id", "span_id", "start_ns"),
    "trace_rows": ("trace_id", "start_ns"),
}
_OURS: Final = frozenset(("version", "is_gone", "rollup_version", "other_response_id"))
_TOLD: Final = {
    "length_ns": "end_ns - start_ns",
    "end_lag_ns": "end_ns - start_ns - wall_ns",
    "first_chunk_lag_ns": "coalesce({ttft}, 0) - {first_chunk}",
}
"""What the views do not say in these words."""
_NS: Final = "TRY_CAST(round({name}_ms * 1e6) AS BIGINT)"
_MERGED: Final = (
    "SELECT trace_hex(trace_hi, trace_lo) || span_hex(span_id) AS id, response_id FROM call_rows "
    "WHERE response_id IS NOT NULL"
)
"""Calls that several spans tell of: the answer's id may be another span's than the one that stands
for the call."""


class Derived:
    """Writes rows of calls and traces of one version."""

    def __init__(self, client: Client, version: int, rollup_version: int) -> None:
        """Nothing is done yet.

        Args:
            client: the connection.
            version: rows of a later one replace those of an earlier one.
            rollup_version: of the roll-up that the rows are from.
        """
        self._client = client
        self._version = version
        self._rollup_version = rollup_version

    def copy(self, store: DuckStore, where: str) -> None:
        """Add the calls and traces of a local store that meet a condition on their start."""
        chosen = f"(SELECT trace_id, num_spans AS num_rows FROM traces WHERE {where})"  # noqa: S608
        own = f"trace_id IN (SELECT trace_id FROM traces WHERE {where})"  # noqa: S608
        for table in TABLES:
            asked = _select(table).replace(_NUM_ROWS, chosen)
            asked = asked.replace("FROM trace_stages", f"FROM trace_stages WHERE {own}")
            new = store.sql(f"{asked} WHERE {where}")
            if table == "call_rows":
                new = _with_answers(store, new)
            self._insert(table, new, self._version)

    def replace(
        self, store: DuckStore, trace_ids: Sequence[str], since_ns: int, until_ns: int
    ) -> None:
        """Put what a local store says of some traces in place of what was said.

        The rows of a trace are all of one version: others beside them go. A trace's own row is
        written last. Whoever finds a newer version beside his own takes his own away.

        Args:
            store: it has these traces alone.
            trace_ids: all of them.
            since_ns: no span of them starts before.
            until_ns: nor after.
        """
        where = of_traces(trace_ids, since_ns, until_ns)
        for table in TABLES:
            new = store.sql(_select(table))
            if table == "call_rows":
                new = _with_answers(store, new)
            self._insert(table, new, self._version)
            oldest, newest = self._versions(table, where)
            if oldest < self._version:
                self._sweep(table, where, {})
        if newest > self._version:
            self._make_way(where, since_ns, until_ns)

    def _versions(self, table: str, where: str) -> tuple[int, int]:
        """The least and the greatest version of some traces' rows, replaced ones too."""
        found = self._client.ask(
            f"SELECT min(version) AS oldest, max(version) AS newest FROM {table} WHERE {where}",  # noqa: S608
            LONG,
        ).to_pylist()[0]
        return found["oldest"] or self._version, found["newest"] or self._version

    def _make_way(self, where: str, since_ns: int, until_ns: int) -> None:
        """Take away the rows of traces that somebody else has written in a newer version."""
        newer = self._client.ask(
            "SELECT trace_id, max(version) AS newest FROM trace_rows "  # noqa: S608
            f"WHERE {where} AND version > {self._version} GROUP BY trace_id",
            LONG,
        ).to_pydict()
        newest = dict(zip(newer["trace_id"], newer["newest"], strict=True))
        where = of_traces(sorted(newest), since_ns, until_ns)
        for table in TABLES:
            self._sweep(table, where, newest)

    def _sweep(self, table: str, where: str, newest: Mapping[str, int]) -> None:
        """Take away the rows of some traces that are of an older version than the newest."""
        keys = ", ".join(_KEYS[table])
        found = self._client.ask(
            f"SELECT {keys}, version FROM {table} FINAL WHERE {where}",  # noqa: S608
            LONG,
        )
        if newest:
            of_each = [newest.get(each, self._version) for each in found["trace_id"].to_pylist()]
            told = pa.array(of_each, pa.uint64())
        else:
            told = pa.repeat(pa.scalar(self._version, pa.uint64()), found.num_rows)
        gone = found.set_column(found.num_columns - 1, "newest", told)
        gone = gone.filter(pc.less(found["version"], told))
        self._insert(table, gone.drop_columns("newest"), gone["newest"], is_gone=True)

    def _insert(
        self, table: str, rows: pa.Table, version: int | pa.ChunkedArray, *, is_gone: bool = False
    ) -> None:
        if not rows.num_rows:
            return
        told = {"is_gone": pa.scalar(int(is_gone), pa.uint8())}
        if table == "trace_rows":
            told["rollup_version"] = pa.scalar(self._rollup_version, pa.uint32())
        if isinstance(version, int):
            told["version"] = pa.scalar(version, pa.uint64())
        else:
            rows = rows.append_column("version", version)
        for name, value in told.items():
            rows = rows.append_column(name, pa.repeat(value, rows.num_rows))
        self._client.insert(table, rows)


@cache
def _select(table: str) -> str:
    """What the local store's views say, in the columns of a table over there."""
    known = views()[_VIEW[table]].columns
    told = {name: _NS.format(name=name) for name in ("ttft", "first_chunk")}
    parts: list[str] = []
    for name in stored_columns(table):
        if name in _TOLD:
            parts.append(f"{_TOLD[name].format(**told)} AS {name}")
        elif name not in known and name.removesuffix("_ns") + "_ms" in known:
            parts.append(f"{_NS.format(name=name.removesuffix('_ns'))} AS {name}")
        elif name not in _OURS:
            parts.append(name)
    return f"SELECT {', '.join(parts)} FROM {_FROM[table]}"  # noqa: S608 - our own columns


def _with_answers(store: DuckStore, calls: pa.Table) -> pa.Table:
    """With the answers' ids that are not those of the calls' own spans."""
    with store.writing() as reader:
        merged = reader.sql(_MERGED).to_arrow_table()
    if not merged.num_rows:
        return calls
    ids = pc.binary_join_element_wise(calls["trace_id"], calls["span_id"], "")
    found = pc.index_in(ids, merged["id"].combine_chunks())
    answers = pc.take(merged["response_id"].combine_chunks(), found.combine_chunks())
    return calls.append_column("other_response_id", answers)
