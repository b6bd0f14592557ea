"""The schema of a day file, and how older ones become it.

A column added to a record needs nothing here: it is added when a file is next opened for
writing, one of a span's that may be null with the first span that has it; it reads as null
before. What else changes raises :data:`SCHEMA_VERSION` and gets a
step in :data:`_STEPS`.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import duckdb
import pyarrow as pa

from longpole_collector.stores.schema import (
    EVENTS,
    GONE,
    KEPT,
    MINUTES,
    SPANS,
    STAGES,
    STALE,
    TRACES,
    TableOf,
    ddl,
    first_ddl,
)
from longpole_collector.stores.sealed import UNCODED
from longpole_collector.stores.settle import CALLS
from longpole_collector.stores.stale import mark_where

if TYPE_CHECKING:
    from longpole_collector.stores.days import Days

SCHEMA_VERSION: Final = 7
OF_TRACES: Final = (SPANS, CALLS, TRACES, STAGES, EVENTS)
"""Tables whose rows belong to a trace."""
DAY_TABLES: Final = (*OF_TRACES, MINUTES, STALE, GONE, KEPT)
SINGLE_FILE: Final = "spans.duckdb"
"""Where schema 1 kept everything."""
NO_STAGES: Final = "stages_uncounted_from"
"""Fact of a file that is counted without stages: from which hour on; empty when it is done."""
_ADOPTED: Final = "adopted"


class TooNew(Exception):
    """A newer longpole wrote the file."""


def _nothing(_connection: duckdb.DuckDBPyConnection, _catalog: str) -> None:
    """Versions 3 and 5 say that rows may be kept as in :mod:`~longpole_collector.stores.sealed`."""


def _uncounted(connection: duckdb.DuckDBPyConnection, catalog: str) -> None:
    """Version 4 counts by minute: what older ones stored is counted soon."""
    mark_where(connection, catalog, SPANS.name, "is_model_call")
    mark_where(connection, catalog, CALLS.name)
    mark_where(connection, catalog, TRACES.name)


def _stageless(connection: duckdb.DuckDBPyConnection, catalog: str) -> None:
    """Version 6 counts the stages of workflows too: those of what is counted are counted soon."""
    note(connection, catalog, NO_STAGES, "0")


def _coded(connection: duckdb.DuckDBPyConnection, catalog: str) -> None:
    """Version 7 has columns for what rows of minutes count, which ``width`` alone told before."""
    told = ", ".join(f"{name} = {value}" for name, value in UNCODED.items())
    connection.execute(f"UPDATE {catalog}.{MINUTES.name} SET {told}")  # noqa: S608


_STEPS: Final[dict[int, Callable[[duckdb.DuckDBPyConnection, str], None]]] = {
    3: _nothing,
    4: _uncounted,
    5: _nothing,
    6: _stageless,
    7: _coded,
}
"""Version -> what brings a file of the version before to it, when it has all tables."""


def schema_of(table: TableOf) -> str:
    """All columns of a table for CREATE TABLE."""
    return listed(ddl(table))


def listed(columns: Mapping[str, str]) -> str:
    """Columns as CREATE TABLE wants them."""
    return ", ".join(f"{name} {sql_type}" for name, sql_type in columns.items())


def migrate(connection: duckdb.DuckDBPyConnection, catalog: str) -> bool:
    """Make or bring up to date the tables of an attached file, in one transaction.

    Returns:
        Whether it was of an older version.

    Raises:
        TooNew: a newer longpole wrote it; nothing was changed.
    """
    connection.execute("BEGIN TRANSACTION")
    try:
        connection.execute(
            f"CREATE TABLE IF NOT EXISTS {catalog}.meta (key VARCHAR, value VARCHAR)"
        )
        version = int(noted(connection, catalog, "schema_version", str(SCHEMA_VERSION)))
        if version > SCHEMA_VERSION:
            raise TooNew(f"has schema {version}, this longpole knows {SCHEMA_VERSION}: upgrade it")
        for table in DAY_TABLES:
            name = f"{catalog}.{table.name}"
            columns = first_ddl(table)
            connection.execute(f"CREATE TABLE IF NOT EXISTS {name} ({listed(columns)})")
            _add_columns(connection, name, columns)
        for step in range(version + 1, SCHEMA_VERSION + 1):
            _STEPS[step](connection, catalog)
        note(connection, catalog, "schema_version", str(SCHEMA_VERSION))
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")
    return version < SCHEMA_VERSION


def widen(connection: duckdb.DuckDBPyConnection, catalog: str, rows: pa.Table) -> list[str]:
    """Make room in a file for rows of the span table.

    Returns:
        The columns of which a row has a value; the file has them now.
    """
    known = [name for name in rows.column_names if rows[name].null_count < rows.num_rows]
    types = {name: sql_type for name, sql_type in ddl(SPANS).items() if name in known}
    _add_columns(connection, f"{catalog}.{SPANS.name}", types)
    return known


def _add_columns(
    connection: duckdb.DuckDBPyConnection, name: str, columns: Mapping[str, str]
) -> None:
    present = {row[0] for row in connection.execute(f"DESCRIBE {name}").fetchall()}
    for column, sql_type in columns.items():
        if column not in present:
            plain = sql_type.removesuffix(" NOT NULL")
            connection.execute(f"ALTER TABLE {name} ADD COLUMN {column} {plain}")


def note(connection: duckdb.DuckDBPyConnection, catalog: str, key: str, value: str) -> None:
    """Write down one fact in a file."""
    updated = connection.execute(
        f"UPDATE {catalog}.meta SET value = $2 WHERE key = $1",  # noqa: S608
        [key, value],
    )
    if updated.fetchall() == [(0,)]:
        connection.execute(f"INSERT INTO {catalog}.meta VALUES ($1, $2)", [key, value])  # noqa: S608


def noted(connection: duckdb.DuckDBPyConnection, catalog: str, key: str, default: str) -> str:
    """A fact written down in a file."""
    query = f"SELECT value FROM {catalog}.meta WHERE key = $1"  # noqa: S608
    rows = connection.execute(query, [key]).fetchall()
    return str(rows[0][0]) if rows else default


def adopt(connection: duckdb.DuckDBPyConnection, folder: Path, days: "Days") -> None:
    """Move what schema 1 kept in one file into day files, and remove that file.

    Each day is one transaction that also notes that it is done, so a crash half-way only means
    that the rest is moved at the next start. Roll-ups are left to be computed anew.
    """
    path = folder / SINGLE_FILE
    quoted = str(path).replace("'", "''")
    connection.execute(f"ATTACH '{quoted}' AS single (READ_ONLY)")
    try:
        stored = noted(connection, "single", "stored", "0:0")
        found = connection.execute(
            "SELECT received_ns // 86400000000000 AS day, max(received_ns) "
            "FROM single.span_rows GROUP BY day ORDER BY day"
        ).fetchall()
        for number, received_ns in found:
            catalog = days.of(received_ns).catalog
            if noted(connection, catalog, _ADOPTED, ""):
                continue
            connection.execute("BEGIN TRANSACTION")
            _add_columns(connection, f"{catalog}.{SPANS.name}", ddl(SPANS))
            connection.execute(
                f"INSERT INTO {catalog}.{SPANS.name} BY NAME "  # noqa: S608
                "SELECT * REPLACE (to_json(attributes)::VARCHAR AS attributes), "
                "is_model_call::TINYINT AS call_role FROM single.span_rows "
                f"WHERE received_ns // 86400000000000 = {number} ORDER BY start_ns"
            )
            mark_where(connection, catalog, SPANS.name, "is_model_call")
            note(connection, catalog, "stored", stored)
            note(connection, catalog, _ADOPTED, "1")
            connection.execute("COMMIT")
            connection.execute(f"CHECKPOINT {catalog}")
    finally:
        connection.execute("DETACH single")
    path.unlink()
    path.with_name(path.name + ".wal").unlink(missing_ok=True)
