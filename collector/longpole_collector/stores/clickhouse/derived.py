"""Rows of calls and traces: what a local store's views say, in the columns over there."""

from collections.abc import Sequence
from functools import cache
from typing import Final

import pyarrow as pa

from longpole_collector.stores.clickhouse.client import Client
from longpole_collector.stores.clickhouse.schema import table_columns
from longpole_collector.stores.duckdb import DuckStore
from longpole_collector.stores.views import views

TABLES: Final = ("call_rows", "trace_rows")
"""In the order in which they are written: a trace is done when its own row is there."""
_NUM_ROWS: Final = "(SELECT trace_id, count(*) AS num_rows FROM spans GROUP BY trace_id)"
_STAGES: Final = (
    "(SELECT trace_id, list(stage ORDER BY stage) AS stages, "
    "list(critical_ns ORDER BY stage) AS stages_critical_ns, "
    "list(total_ns ORDER BY stage) AS stages_total_ns FROM trace_stages GROUP BY trace_id)"
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
_OURS: Final = frozenset(("version", "is_gone", "rollup_version"))


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
            self._insert(table, store.sql(f"{asked} WHERE {where}"))

    def replace(
        self, store: DuckStore, trace_ids: Sequence[str], since_ns: int, until_ns: int
    ) -> None:
        """Put what a local store says of some traces in place of what was said.

        Args:
            store: it has these traces alone.
            trace_ids: all of them.
            since_ns: no span of them starts before.
            until_ns: nor after.
        """
        for table in TABLES:
            new = store.sql(_select(table))
            old = self._client.ask(
                f"SELECT {', '.join(_KEYS[table])} FROM {table} FINAL "  # noqa: S608
                "WHERE trace_id IN {ids:Array(String)} "
                "AND start_ns >= {since:Int64} AND start_ns <= {until:Int64}",
                ids=trace_ids,
                since=since_ns,
                until=until_ns,
            )
            names = _KEYS[table]
            gone = sorted(_rows(old, names) - _rows(new, names))
            self._insert(table, new)
            if gone:
                columns = map(pa.array, zip(*gone, strict=True))
                self._insert(table, pa.table(dict(zip(names, columns, strict=True))), is_gone=True)

    def _insert(self, table: str, rows: pa.Table, *, is_gone: bool = False) -> None:
        if not rows.num_rows:
            return
        told = {"version": (self._version, pa.uint64()), "is_gone": (int(is_gone), pa.uint8())}
        if table == "trace_rows":
            told["rollup_version"] = (self._rollup_version, pa.uint32())
        for name, (value, kind) in told.items():
            rows = rows.append_column(name, pa.repeat(pa.scalar(value, kind), rows.num_rows))
        self._client.insert(table, rows)


@cache
def _select(table: str) -> str:
    """What the local store's views say, in the columns of a table over there."""
    known = views()[_VIEW[table]].columns
    parts: list[str] = []
    for name in table_columns(table):
        in_ms = name.removesuffix("_ns") + "_ms"
        if name in _OURS:
            continue
        if name not in known and in_ms in known:
            parts.append(f"TRY_CAST(round({in_ms} * 1e6) AS BIGINT) AS {name}")
        else:
            parts.append(name)
    return f"SELECT {', '.join(parts)} FROM {_FROM[table]}"  # noqa: S608 - our own columns


def _rows(table: pa.Table, names: Sequence[str]) -> set[tuple[object, ...]]:
    return set(zip(*(table[name].to_pylist() for name in names), strict=True))
