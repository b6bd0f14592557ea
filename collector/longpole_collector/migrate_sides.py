"""What spans are moved between: a data folder, and a ClickHouse store, asked the same way."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple, Protocol

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from longpole.errors import Unreachable, UsageError
from longpole_collector.recovery import has_data, recover
from longpole_collector.rollup import load_rollup
from longpole_collector.stores import clickhouse
from longpole_collector.stores.connection import Limits
from longpole_collector.stores.duckdb import DuckStore
from longpole_collector.stores.schema import SPANS, TRACE_HI, TRACE_LO, arrow_schema, hex_ids
from longpole_collector.writer import Writer

KEY: Final = (TRACE_HI, TRACE_LO, "span_id", "start_ns")
"""What makes a span."""
MINUTE_NS: Final = 60_000_000_000
DAY_NS: Final = 1440 * MINUTE_NS
_NAMES: Final = arrow_schema(SPANS).names
_LIMITS: Final = Limits(max_rows=1 << 40, timeout_s=3600.0, memory="1GB")
_HASHED: Final = {
    "attributes": "list_sort(map_entries(coalesce(attributes, '{}')::JSON::MAP(VARCHAR, VARCHAR)))",
    "flags": "coalesce(flags, [])",
}
"""What two stores write down differently, though it means the same."""
Hashes = npt.NDArray[np.uint64]


class Chunk(NamedTuple):
    """Spans received in [since, until) whose trace id leaves ``part`` when divided by ``of``."""

    since_ns: int
    until_ns: int
    part: int = 0
    of: int = 1


class Side(Protocol):
    """A store that spans are moved from or to."""

    name: str
    """How messages call it."""

    def days(self) -> dict[int, int]:
        """Spans by the day (UTC) when they were received, counted from the epoch; in order."""
        ...

    def minutes(self, day: int) -> list[tuple[int, int]]:
        """Spans of a day by the minute of the epoch when they were received; in order."""
        ...

    def rows(self, chunk: Chunk) -> pa.Table:
        """Rows of the local span table."""
        ...

    def num_known(self, rows: pa.Table) -> int:
        """How many of these spans are stored, on whatever day."""
        ...

    def add(self, rows: pa.Table) -> None:
        """Store spans; those of which one is stored are passed over."""
        ...

    def end_day(self) -> None:
        """All of a day was added: bring it to where a crash cannot take it away."""
        ...

    def settle(self) -> int:
        """Settle what is due; returns how many traces were."""
        ...

    def close(self) -> None:
        """Let go of the store."""
        ...


class Folder:
    """A data folder that nobody else has open."""

    def __init__(self, folder: Path, *, is_written: bool) -> None:
        """Open it.

        Raises:
            StoreBusy: a collector runs on it.
            Unreachable: there is no data to read, or no roll-up to write with.
        """
        self.name = str(folder)
        if not is_written:
            if folder.is_dir():
                recover(folder)
            if not folder.is_dir() or not has_data(folder):
                raise Unreachable(f"no data in {folder}")
        self._store = DuckStore(folder, is_read_only=not is_written, limits=_LIMITS)
        self._writer: Writer | None = None
        if is_written:
            rollup = load_rollup()
            if rollup is None:
                raise Unreachable("traces get no roll-up: pip install 'longpole[analytics]'")
            self._writer = Writer(self._store, rollup)

    def days(self) -> dict[int, int]:
        """As :class:`Side` says."""
        return dict(self._counted(f"received_ns // {DAY_NS}", "true"))

    def minutes(self, day: int) -> list[tuple[int, int]]:
        """As :class:`Side` says."""
        return self._counted(f"received_ns // {MINUTE_NS}", _received(Chunk(*_edges(day))))

    def rows(self, chunk: Chunk) -> pa.Table:
        """As :class:`Side` says."""
        where = f"{_received(chunk)} AND {TRACE_LO} % {chunk.of} = {chunk.part}"
        with self._store.writing() as reader:
            asked = f"SELECT {', '.join(_NAMES)} FROM span_rows WHERE {where}"  # noqa: S608
            return reader.sql(asked).to_arrow_table()

    def num_known(self, rows: pa.Table) -> int:
        """As :class:`Side` says."""
        with self._store.writing(wanted=rows.select(KEY)) as reader:
            asked = f"SELECT count(*) FROM wanted SEMI JOIN span_rows USING ({', '.join(KEY)})"  # noqa: S608
            return int(reader.execute(asked).fetchall()[0][0])

    def add(self, rows: pa.Table) -> None:
        """As :class:`Side` says."""
        assert self._writer is not None  # noqa: S101 - it was opened to be written
        while rows.num_rows:  # the store takes one span of an id at a time, whatever their starts
            ids = np.stack([rows[name].to_numpy() for name in KEY[:3]], axis=1)
            _, first = np.unique(ids, axis=0, return_index=True)
            is_first = np.zeros(rows.num_rows, np.bool_)
            is_first[first] = True
            self._writer.write(rows.filter(pa.array(is_first)))
            rows = rows.filter(pa.array(~is_first))
        if self._store.is_heavy():
            self.end_day()

    def end_day(self) -> None:
        """As :class:`Side` says: traces and spans reach the disk together."""
        assert self._writer is not None  # noqa: S101 - as above
        self._writer.settle(everything=True)
        self._writer.save()

    def settle(self) -> int:
        """As :class:`Side` says: nothing is left."""
        return 0

    def close(self) -> None:
        """As :class:`Side` says."""
        self._store.close()

    def _counted(self, unit: str, where: str) -> list[tuple[int, int]]:
        with self._store.writing() as reader:
            return reader.execute(
                f"SELECT {unit} AS unit, count(*) FROM span_rows WHERE {where} "  # noqa: S608
                "GROUP BY unit ORDER BY unit"
            ).fetchall()


class Server:
    """A ClickHouse store."""

    def __init__(self, address: str, *, is_written: bool) -> None:
        """Connect; where it is written, make what is missing.

        Raises:
            UsageError, Unreachable: it cannot be used.
        """
        from longpole_collector.stores.clickhouse.opening import open_reader, open_store

        store = open_store(address) if is_written else open_reader(address)
        self.name = str(store.client.address)
        self._store = store
        self._address = address

    def days(self) -> dict[int, int]:
        """As :class:`Side` says."""
        return dict(self._counted(DAY_NS, "1"))

    def minutes(self, day: int) -> list[tuple[int, int]]:
        """As :class:`Side` says."""
        return self._counted(MINUTE_NS, _received(Chunk(*_edges(day))))

    def rows(self, chunk: Chunk) -> pa.Table:
        """As :class:`Side` says."""
        from longpole_collector.stores.clickhouse.rows import READ, from_clickhouse

        low = "reinterpretAsUInt64(reverse(unhex(substring(trace_id, 17))))"
        where = f"{_received(chunk)} AND {low} % {chunk.of} = {chunk.part}"
        asked = f"SELECT {READ} FROM span_rows FINAL WHERE {where}"  # noqa: S608
        return from_clickhouse(self._store.client.ask(asked))

    def num_known(self, rows: pa.Table) -> int:
        """As :class:`Side` says."""
        return int(rows.num_rows - self._new(rows).num_rows)

    def add(self, rows: pa.Table) -> None:
        """As :class:`Side` says."""
        from longpole_collector.stores.clickhouse.store import ClickStore

        assert isinstance(self._store, ClickStore)  # noqa: S101 - it was opened to be written
        new = self._new(rows)
        if new.num_rows:
            self._store.insert(new)

    def end_day(self) -> None:
        """As :class:`Side` says: what was taken is there."""

    def settle(self) -> int:
        """As :class:`Side` says."""
        from longpole_collector.stores.clickhouse.opening import settle
        from longpole_collector.stores.clickhouse.store import ClickStore

        assert isinstance(self._store, ClickStore)  # noqa: S101 - as above
        return settle(self._store)

    def close(self) -> None:
        """As :class:`Side` says."""
        self._store.close()

    def _counted(self, unit_ns: int, where: str) -> list[tuple[int, int]]:
        found = self._store.client.ask(
            f"SELECT intDiv(received_ns, {unit_ns}) AS unit, toInt64(count()) AS num "  # noqa: S608
            f"FROM span_rows FINAL WHERE {where} GROUP BY unit ORDER BY unit"
        )
        return list(zip(found["unit"].to_pylist(), found["num"].to_pylist(), strict=True))

    def _new(self, rows: pa.Table) -> pa.Table:
        """Those of which none is stored."""
        from longpole_collector.stores.clickhouse.due import LONG, of_traces
        from longpole_collector.stores.clickhouse.rows import from_clickhouse

        if not rows.num_rows:
            return rows
        starts = rows["start_ns"].to_numpy()
        where = of_traces(sorted({*hex_ids(rows)}), int(starts.min()), int(starts.max()))
        found = self._store.client.ask(
            f"SELECT DISTINCT trace_id, span_id, start_ns FROM span_rows WHERE {where}",  # noqa: S608
            LONG,
        )
        known = _keys(from_clickhouse(found))
        is_new = [key not in known for key in _key_rows(rows)]
        return rows.filter(pa.array(is_new, pa.bool_()))


def open_side(place: str, *, is_written: bool) -> Side:
    """A data folder or an address of a ClickHouse store."""
    if clickhouse.is_address(place):
        return Server(place, is_written=is_written)
    if "://" in place:
        raise UsageError(f"'{place.partition('://')[0]}://' is neither a folder nor clickhouse://")
    return Folder(Path(place), is_written=is_written)


class Hasher:
    """Hashes rows so that equal spans are equal, whichever store they are from."""

    def __init__(self) -> None:
        """Make the small database that hashes."""
        self._database = duckdb.connect(":memory:", config={"threads": "1"})
        parts = ", ".join(_HASHED.get(name, name) for name in _NAMES)
        self._query = f"SELECT hash({parts}) AS h FROM incoming"  # noqa: S608 - our own columns

    def hashes(self, rows: pa.Table) -> Hashes:
        """One number a row, in their order."""
        self._database.register("incoming", rows.select(_NAMES))
        try:
            found = self._database.sql(self._query).to_arrow_table()["h"].to_numpy()
        finally:
            self._database.unregister("incoming")
        made: Hashes = found.astype(np.uint64)
        return made

    def close(self) -> None:
        """Let go of it."""
        self._database.close()


def date_of(day: int) -> str:
    """A day of the epoch as people write it."""
    return f"{datetime.fromtimestamp(day * 86_400, UTC):%Y-%m-%d}"


def _edges(day: int) -> tuple[int, int]:
    return day * DAY_NS, (day + 1) * DAY_NS


def _received(chunk: Chunk) -> str:
    return f"received_ns >= {chunk.since_ns} AND received_ns < {chunk.until_ns}"


def _key_rows(rows: pa.Table) -> Sequence[tuple[int, ...]]:
    return list(zip(*(rows[name].to_pylist() for name in KEY), strict=True))


def _keys(rows: pa.Table) -> set[tuple[int, ...]]:
    return set(_key_rows(rows))
