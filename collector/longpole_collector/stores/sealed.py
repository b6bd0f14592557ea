"""How a file that was rewritten in order keeps its rows: the same values in fewer bytes.

What another column tells already is not stored again, and the large texts of a span lie in one
column, as each compressed one costs four bytes a row even where it is null. A row that was put
in as it is (by a later roll-up, or by an older longpole) reads the same, so either may be there.
"""

from typing import Final

import duckdb

from longpole_collector.stores.schema import MINUTES, SPANS, STAGES, TRACES, TableOf
from longpole_collector.stores.settle import CALLS

BLOCK_SIZE: Final = 65_536
"""A quarter of the engine's own: less is lost in the last block of each column."""
_BUCKET_ROWS: Final = 32_768
_WRITTEN: Final = {
    SPANS.name: (
        # no text holds the separator: JSON escapes it
        "concat(attributes, chr(30), events, chr(30), links) AS attributes",
        "NULL AS events",
        "NULL AS links",
        "CASE WHEN first_chunk_ns = ttft_ns THEN -1 ELSE first_chunk_ns END AS first_chunk_ns",
    ),
    TRACES.name: ("nullif(end_ns, start_ns + wall_ns) AS end_ns",),
    STAGES.name: ("nullif(total_ns, critical_ns) AS total_ns",),
}
_READ: Final = {
    SPANS.name: (
        "nullif(split_part(attributes, chr(30), 1), '') AS attributes",
        "coalesce(events, nullif(split_part(attributes, chr(30), 2), '')) AS events",
        "coalesce(links, nullif(split_part(attributes, chr(30), 3), '')) AS links",
        "CASE WHEN first_chunk_ns = -1 THEN ttft_ns ELSE first_chunk_ns END AS first_chunk_ns",
    ),
    TRACES.name: ("coalesce(end_ns, start_ns + wall_ns) AS end_ns",),
    STAGES.name: ("coalesce(total_ns, critical_ns) AS total_ns",),
}
_ORDER: Final = {
    CALLS.name: "ORDER BY start_ns",
    TRACES.name: "ORDER BY start_ns",
    STAGES.name: "ORDER BY trace_hi, trace_lo, stage",
    MINUTES.name: "ORDER BY width, metric, start_ns",
}


def read(table: TableOf) -> str:
    """What to SELECT from a table of such a file to have its columns as they are elsewhere."""
    return _star(_READ.get(table.name, ()))


def written(connection: duckdb.DuckDBPyConnection, catalog: str, table: TableOf) -> str:
    """SELECT of a file's rows, in order and as such a file keeps them.

    Args:
        connection: has the file.
        catalog: its name; rows in it are kept as they came.
        table: which rows.
    """
    columns = _star(_WRITTEN.get(table.name, ()))
    source = f"{catalog}.{table.name}"
    if table.name != SPANS.name:
        return f"SELECT {columns} FROM {source} {_ORDER.get(table.name, '')}"  # noqa: S608
    ((width_ns,),) = connection.execute(
        f"SELECT coalesce(max(start_ns::HUGEINT) - min(start_ns), 0) "  # noqa: S608
        f"// (count(*) // {_BUCKET_ROWS} + 1) + 1 FROM {source}"
    ).fetchall()
    # near time order, so that times prune; there the calls together, as they fill other columns
    # than steps do; and a trace's spans side by side, where ids and parents compress to little
    return (
        f"SELECT {columns.replace('*', '* EXCLUDE (first_ns)', 1)} "  # noqa: S608
        "FROM (SELECT *, min(start_ns) OVER (PARTITION BY trace_hi, trace_lo) AS first_ns "
        f"FROM {source}) ORDER BY first_ns // {width_ns}, is_model_call, first_ns, "
        "trace_hi, trace_lo, start_ns"
    )


def _star(replaced: tuple[str, ...]) -> str:
    return f"* REPLACE ({', '.join(replaced)})" if replaced else "*"
