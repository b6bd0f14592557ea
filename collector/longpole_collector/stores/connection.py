"""The database of one process: in memory, locked down, with the folder of day files beside it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import duckdb
import pyarrow as pa

from longpole.errors import StoreBusy
from longpole_collector.pricing import Price, register
from longpole_collector.stores.views import macros

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

TEMP_FOLDER: Final = "tmp"
_LOCK: Final = "lock"
_NUM_THREADS: Final = max(1, (os.cpu_count() or 2) // 2)
"""Half of the cores: the database's threads cost a small insert more than they help, and the other
half serves the doors. Each query runs on a thread of its own besides."""
_CONFIG: Final[dict[str, str | bool | int | float | list[str]]] = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "python_enable_replacements": "false",
    # what was freed goes back to the system soon, and no more than needed waits to be written
    "allocator_background_threads": "true",
    "allocator_flush_threshold": "16MB",
    "allocator_bulk_deallocation_flush_threshold": "16MB",
    "write_buffer_row_group_count": 1,
    "checkpoint_threshold": "1TB",  # never by itself at a commit: the store says when to save
}


@dataclass(frozen=True)
class Limits:
    """What one query may take: rows of its result, seconds, memory and threads of the engine."""

    max_rows: int = 100_000
    timeout_s: float = 30.0
    memory: str = "480MB"
    threads: int = _NUM_THREADS


def connect(folder: Path | None, limits: Limits, price: Price | None) -> duckdb.DuckDBPyConnection:
    """A database in memory that reaches no file outside ``folder``, settings frozen.

    Args:
        folder: the only one.
        limits: bounds of one query.
        price: prices calls.

    Raises:
        duckdb.Error: the memory limit cannot be read.
    """
    config = {**_CONFIG, "memory_limit": limits.memory, "threads": limits.threads}
    if folder is not None:
        config["temp_directory"] = str(folder / TEMP_FOLDER)
    connection = duckdb.connect(":memory:", config=config)
    if folder is not None:
        quoted = str(folder).replace("'", "''")
        connection.execute(f"SET allowed_directories = ['{quoted}']")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
    connection.execute(macros())
    register(connection, price)
    return connection


def hold(folder: Path, *, is_read_only: bool) -> int | None:
    """Keep a folder for one writer or for several readers, until the handle returned is closed.

    ``None`` where that cannot be: then the database's own locks on the files have to do.

    Raises:
        StoreBusy: somebody else has it.
    """
    if fcntl is None:
        return None
    try:
        handle = os.open(folder / _LOCK, os.O_RDONLY | os.O_CREAT, 0o600)
    except OSError:  # a folder that may only be read
        if is_read_only:
            return None
        raise
    try:
        fcntl.flock(handle, (fcntl.LOCK_SH if is_read_only else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except OSError as error:
        os.close(handle)
        raise StoreBusy(f"{folder} is open elsewhere") from error
    return handle


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """DuckDB sums integers to 128 bits; as 64-bit integers they are usable everywhere."""
    for i, field in enumerate(schema):
        if pa.types.is_decimal(field.type) and field.type.scale == 0:
            schema = schema.set(i, field.with_type(pa.int64()))
    return schema


@contextmanager
def registered(
    writer: duckdb.DuckDBPyConnection, **tables: pa.Table
) -> Iterator[duckdb.DuckDBPyConnection]:
    """Arrow tables as views of one cursor."""
    for name, table in tables.items():
        writer.register(name, table)
    try:
        yield writer
    finally:
        for name in tables:
            with suppress(duckdb.TransactionException):  # aborted: it goes at the next rollback
                writer.unregister(name)
