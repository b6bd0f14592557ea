"""One connection to ClickHouse, and its errors in longpole's words.

The same client speaks HTTP to a server and calls the engine in this process, so tests of one try
the other's code too.
"""

import logging
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import pyarrow as pa

from longpole.errors import BadInput, LongpoleError, StoreBusy, Unreachable, UsageError
from longpole_collector.stores.clickhouse.address import Address

try:
    import clickhouse_connect
    from clickhouse_connect.driver.exceptions import ClickHouseError
except ImportError as error:  # pragma: no cover - the extra is not installed
    raise UsageError(
        "a ClickHouse store needs the extra: pip install 'longpole[clickhouse]'"
    ) from error

_log = logging.getLogger("longpole.collector.clickhouse")
SETTINGS: Final[Mapping[str, Any]] = {
    "join_use_nulls": 1,
    "aggregate_functions_null_for_empty": 1,
    "prefer_column_name_to_alias": 1,
    "least_greatest_legacy_null_behavior": 0,
    "output_format_arrow_string_as_string": 1,
    "output_format_arrow_low_cardinality_as_dictionary": 0,
    "distributed_product_mode": "global",
}
"""What makes a query mean the same as in DuckDB."""
_INSERT: Final[Mapping[str, Any]] = {
    "min_insert_block_size_rows": 1 << 20,
    "optimize_on_insert": 0,  # rows that replace others do so at a merge: half of the work
}
_CONNECT_S: Final = 10
_CODE: Final = re.compile(r"Code: (\d+)")
_CREDENTIALS: Final = frozenset((192, 193, 194, 516))
_FORBIDDEN: Final = frozenset((164, 497))
_BUSY: Final = frozenset((202, 209, 210, 241, 242, 252, 279, 319, 999))
"""Too many queries, network trouble, memory, read-only tables, too many parts, no quorum."""
_FULL: Final = frozenset((243,))
_SLOW: Final = frozenset((159, 160))
_MANY: Final = frozenset((158, 396))
_NO_TABLE: Final = frozenset((60, 81))


class Client:
    """Asks and inserts; safe for several threads."""

    def __init__(self, address: Address) -> None:
        """Connect.

        Raises:
            Unreachable: nobody answers there.
            UsageError: the credentials are wrong.
        """
        self.address = address
        self._is_closed = False
        with self._in_our_words():
            self._client = self._connected(address)

    def ask(
        self, query: str, settings: Mapping[str, Any] = SETTINGS, **parameters: Any
    ) -> pa.Table:
        """The rows of one statement.

        Raises:
            BadInput, StoreBusy, Unreachable, UsageError: as the server says.
        """
        given = {**settings, "max_execution_time": self.address.timeout_s}
        with self._in_our_words():
            found: pa.Table = self._client.query_arrow(
                query, parameters=parameters or None, settings=given, use_strings=True
            )
        return found

    def tell(self, statement: str, **parameters: Any) -> None:
        """Run a statement that has no rows."""
        with self._in_our_words():
            self._client.command(statement, parameters=parameters or None)

    def insert(self, table: str, rows: pa.Table, token: str | None = None) -> None:
        """Store rows of some of a table's columns in one block, wholly or not at all.

        Args:
            table: its name.
            rows: columns by the names of the table's.
            token: a block of the same token is stored once, however often it is sent.
        """
        settings: dict[str, Any] = dict(_INSERT)
        if token is not None:
            settings["insert_deduplication_token"] = token
        with self._in_our_words():
            self._client.insert_arrow(
                table, rows, database=self.address.database, settings=settings
            )

    def use(self) -> None:
        """From now on names without a database are of the address's; it exists."""
        with self._in_our_words():
            self._client.database = self.address.database

    def close(self) -> None:
        """Let go of it; twice is fine."""
        self._is_closed = True
        self._client.close()

    @staticmethod
    def _connected(address: Address) -> Any:
        if address.scheme == "chdb":
            return clickhouse_connect.get_client(interface="chdb", path=address.folder)
        return clickhouse_connect.get_client(
            host=address.host,
            port=address.port,
            interface="https" if address.scheme == "clickhouses" else "http",
            username=address.user,
            password=address.password,
            connect_timeout=_CONNECT_S,
            send_receive_timeout=address.timeout_s + _CONNECT_S,
            query_retries=1,
            autogenerate_session_id=False,
        )

    @contextmanager
    def _in_our_words(self) -> Iterator[None]:
        if self._is_closed:
            raise Unreachable("the store is closed")
        try:
            yield
        except ClickHouseError as error:
            # without its chain: the client's own words may hold the address with its credentials
            raise told(str(error), self.address) from None


def told(text: str, address: Address) -> LongpoleError:
    """What a server's error means to the one who asked; credentials are taken out."""
    found = _CODE.search(text)
    code = int(found[1]) if found else None
    said = _sentence(text, address)
    if code in _CREDENTIALS:
        return UsageError(
            f"{address} refuses user or password: set LONGPOLE_CLICKHOUSE_USER and "
            "LONGPOLE_CLICKHOUSE_PASSWORD"
        )
    if code in _FORBIDDEN:
        return Unreachable(f"{address} does not let this user do that: {said}")
    if code in _FULL:
        return Unreachable(f"the disk of {address} is full: {said}")
    if code in _BUSY:
        return StoreBusy(f"{address} is busy: {said}")
    if code in _SLOW:
        return BadInput(f"the query took longer than {address.timeout_s:g} s (timeout_s)")
    if code in _MANY:
        return BadInput("more rows than are given at once: aggregate, or narrow the query")
    if code in _NO_TABLE:
        return Unreachable(f"{address} has no such table or database: {said}")
    if code is None:
        return Unreachable(f"no ClickHouse answers at {address}: {said}")
    return BadInput(said)


def _sentence(text: str, address: Address) -> str:
    """The first sentence of a server's error."""
    line = text.split("\n", 1)[0]
    line = re.sub(r"^.*?DB::Exception: ", "", line)
    line = re.sub(r"( \(version .*| \(official build\).*| In scope .*)$", "", line)
    line = re.sub(r"://[^/@\s]*@", "://", line)
    for secret in (address.password, address.user if address.user != "default" else ""):
        if secret:
            line = line.replace(secret, "***")
    return line[:500].strip()
