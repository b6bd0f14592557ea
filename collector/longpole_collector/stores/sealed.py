"""How a file that was rewritten in order keeps its rows: the same values in fewer bytes.

What another column tells already is not stored again, and the large texts of a span lie in one
column, as each compressed one costs four bytes a row even where it is null. A row that was put
in as it is (by a later roll-up, or by an older longpole) reads the same, so either may be there.
"""

from typing import Final

import duckdb

from longpole_collector.stores.schema import (
    MINUTES,
    PACKED,
    SPANS,
    STAGES,
    TRACES,
    TableOf,
    ddl,
)
from longpole_collector.stores.settle import CALLS

BLOCK_SIZE: Final = 65_536
"""A quarter of the engine's own: less is lost in the last block of each column."""
_BUCKET_ROWS: Final = 65_536
_LEAST: Final = "round(min_ms * 1e6)"
_MOST: Final = "round(max_ms * 1e6)"
"""What the two are in whole nanoseconds, which is what most of them are made of."""
_LARGEST: Final = "greatest(abs(min_ms), abs(max_ms)) * 1e6"
_WHOLE: Final = (
    f"num > 0 AND {_LEAST} / 1e6 = min_ms AND {_MOST} / 1e6 = max_ms "
    f"AND {_LARGEST} < {1 << 52} AND {_LARGEST} * num < {1 << 62}"
)
"""Whether that gives back the very numbers, and no sum of them is too large."""


def _expected(least: str, most: str) -> str:
    """About what ``num`` values sum up to of which the ends are known; of one or two just that."""
    ends = f"({least} + {most})::HUGEINT"
    return f"({ends} + (abs(num) - 2) * ({ends} // 2))"


_WRITTEN: Final = {
    SPANS.name: (
        # no text holds the separator: JSON escapes it
        "concat(attributes, chr(30), events, chr(30), links) AS attributes",
        "NULL AS events",
        "NULL AS links",
        "CASE WHEN first_chunk_ns = ttft_ns THEN -1 ELSE first_chunk_ns END AS first_chunk_ns",
    ),
    TRACES.name: (
        "nullif(end_ns, start_ns + wall_ns) AS end_ns",
        "CASE WHEN first_start_ns = start_ns THEN -1 ELSE first_start_ns END AS first_start_ns",
    ),
    STAGES.name: ("nullif(total_ns, critical_ns) AS total_ns",),
    # a negative count tells that the others are in nanoseconds, and from what they are counted
    MINUTES.name: (
        f"CASE WHEN {_WHOLE} THEN -num ELSE num END AS num",
        f"CASE WHEN {_WHOLE} THEN {_LEAST} ELSE min_ms END AS min_ms",
        f"CASE WHEN {_WHOLE} THEN {_MOST} - {_LEAST} ELSE max_ms END AS max_ms",
        f"CASE WHEN {_WHOLE} THEN sum_ns - {_expected(_LEAST, _MOST)} ELSE sum_ns END AS sum_ns",
    ),
}
_READ: Final = {
    SPANS.name: (
        "nullif(split_part(attributes, chr(30), 1), '') AS attributes",
        "coalesce(events, nullif(split_part(attributes, chr(30), 2), '')) AS events",
        "coalesce(links, nullif(split_part(attributes, chr(30), 3), '')) AS links",
        "CASE WHEN first_chunk_ns = -1 THEN ttft_ns ELSE first_chunk_ns END AS first_chunk_ns",
    ),
    TRACES.name: (
        "coalesce(end_ns, start_ns + wall_ns) AS end_ns",
        "CASE WHEN first_start_ns = -1 THEN start_ns ELSE first_start_ns END AS first_start_ns",
    ),
    STAGES.name: ("coalesce(total_ns, critical_ns) AS total_ns",),
    MINUTES.name: (
        "abs(num) AS num",
        "CASE WHEN num < 0 THEN min_ms / 1e6 ELSE min_ms END AS min_ms",
        "CASE WHEN num < 0 THEN (min_ms + max_ms) / 1e6 ELSE max_ms END AS max_ms",
        f"CASE WHEN num < 0 THEN sum_ns + {_expected('min_ms', '(min_ms + max_ms)')} "
        "ELSE sum_ns END AS sum_ns",
    ),
}
_KINDS: Final = {"is_stage": "width < 0", "is_gone": "abs(width) = 2"}
_WIDTH: Final = "CASE abs(width) WHEN 60 THEN 60 ELSE 1 END"
UNCODED: Final = {**_KINDS, "width": _WIDTH}
"""Of minutes what schemas before 7 tell by ``width`` alone."""
_ORDER: Final = {
    CALLS.name: "ORDER BY start_ns",
    TRACES.name: "ORDER BY start_ns",
    STAGES.name: "ORDER BY trace_hi, trace_lo, stage",
    # what one value or two tell wholly comes together
    MINUTES.name: "ORDER BY is_stage, is_gone, width, metric, least(num, 3), start_ns",
}
_MANY_ANSWERS: Final = 0.45
"""Share of spans with an answer's id from which on packed ids are smaller, for all that a null
then costs four bytes: such an id is random letters, of which a dictionary makes nothing."""


def columns(connection: duckdb.DuckDBPyConnection, catalog: str, table: TableOf) -> dict[str, str]:
    """Column name -> SQL type of the table that takes a file's rows; see :func:`written`."""
    found = ddl(table)
    if table is SPANS:
        source = f"{catalog}.{table.name}"
        present = {row[0] for row in connection.execute(f"DESCRIBE {source}").fetchall()}
        if "response_id" in present:
            ((num, num_answers),) = connection.execute(
                f"SELECT count(*), count(response_id) FROM {source}"  # noqa: S608
            ).fetchall()
            if num_answers > _MANY_ANSWERS * num:
                found["response_id"] += PACKED
    return found


def read(table: TableOf, *, is_sorted: bool = True, is_coded: bool = False) -> str:
    """What to SELECT from a table of a file to have its columns as they are elsewhere.

    Args:
        table: which one.
        is_sorted: whether the file was rewritten in order.
        is_coded: whether it is of a schema whose minutes tell by ``width`` what they count.
    """
    replaced = _READ.get(table.name, ()) if is_sorted else ()
    if is_coded and table is MINUTES:
        kinds = ", ".join(f"{value} AS {name}" for name, value in _KINDS.items())
        return f"{_star((*replaced, f'{_WIDTH} AS width'))}, {kinds}"
    return _star(replaced)


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
