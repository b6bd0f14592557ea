"""Marks of the minutes in which something changed: they are to be counted anew."""

from collections.abc import Iterable

import duckdb
import numpy as np
import pyarrow as pa

from longpole_collector.stores.schema import MINUTE_NS, STALE


def mark(
    writer: duckdb.DuckDBPyConnection, catalog: str, starts: Iterable[pa.ChunkedArray]
) -> None:
    """Mark the minutes of what starts then; within the transaction that changes it.

    Args:
        writer: has the transaction open.
        catalog: the file.
        starts: columns of ``start_ns``.
    """
    found = [np.unique(column.to_numpy() // MINUTE_NS) for column in starts]
    minutes = np.unique(np.concatenate(found)).tolist() if found else []
    if minutes:
        writer.execute(
            f"INSERT INTO {catalog}.{STALE.name} SELECT unnest($1::BIGINT[]), false",
            [minutes],
        )


def mark_where(
    writer: duckdb.DuckDBPyConnection, catalog: str, table: str, where: str = "true"
) -> None:
    """Mark the minutes of a table's rows ``old`` that meet a condition, as :func:`mark`."""
    writer.execute(
        f"INSERT INTO {catalog}.{STALE.name} SELECT DISTINCT start_ns // {MINUTE_NS}, false "  # noqa: S608
        f"FROM {catalog}.{table} AS old WHERE {where}"
    )
