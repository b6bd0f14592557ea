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
    "optimize_move_to_prewhere_if_final": 1,
    "output_format_arrow_string_as_string": 1,
    "output_format_arrow_low_cardinality_as_dictionary": 0,
    "distributed_product_mode": "global",
}
"""What makes a query mean the same as in DuckDB."""
_BESIDE: Final = frozenset(("readonly", "max_query_size"))
"""What is told beside a statement; in its text it would come too late. The others are told in the
text: in process each one beside it costs three statements more."""
_INSERT: Final[Mapping[str, Any]] = {
    "min_insert_block_size_rows": 1 << 20,
    "optimize_on_insert": 0,  # rows that replace others do so at a merge: half of the work
    "async_insert": 0,  # what is answered is stored,
    "distributed_foreground_insert": 1,  # on its shard
}
_CONNECT_S: Final = 10
_CODE: Final = re.compile(r"Code: (\d+)")
_CAUSE: Final = re.compile(
    r"(?<=\] )(Connection refused|Name or service not known|No route to host)"
    r"|timed out|Remote end closed connection|Connection reset by peer|CERTIFICATE_VERIFY_FAILED",
)
"""What is the matter, within what the client makes of it."""
_CREDENTIALS: Final = frozenset((192, 193, 194, 516))
_FORBIDDEN: Final = frozenset((164, 497))
_BUSY: Final = frozenset((202, 209, 210, 241, 242, 252, 319, 999))
"""Too many queries, network trouble, memory, read-only tables, too many parts, no quorum."""
_NO_SHARD: Final = frozenset((279,))
_SERVER: Final = re.compile(r"\(([\w.-]+:\d+|\[[\da-f:]+\]:\d+)[,)]")
_FULL: Final = frozenset((243,))
_SLOW: Final = frozenset((159, 160))
_MANY: Final = frozenset((158, 396))
_NO_TABLE: Final = frozenset((60, 81))
_VALUES: Final = frozenset((6, 26, 27, 38, 41, 53, 69, 70, 72, 117, 349, 407))
"""What only a value can be to blame for: one that cannot be read, has no room, may not be null."""


class BadValue(BadInput):
    """A row says what its table cannot hold."""


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
        given = {"max_execution_time": self.address.timeout_s, **settings}
        words = ", ".join(f"{name} = {given[name]!r}" for name in given if name not in _BESIDE)
        with self._in_our_words(given["max_execution_time"]):
            try:
                found: pa.Table = self._client.query_arrow(
                    f"{query}\nSETTINGS {words}",
                    parameters=parameters or None,
                    settings={name: given[name] for name in given if name in _BESIDE} or None,
                    use_strings=True,
                )
            except ClickHouseError:
                if self.address.scheme == "chdb":  # what it had said before it failed comes first
                    self._client.command("SELECT 1")
                raise
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
    def _in_our_words(self, limit_s: float | None = None) -> Iterator[None]:
        if self._is_closed:
            raise Unreachable("the store is closed")
        try:
            yield
        except ClickHouseError as error:
            # without its chain: the client's own words may hold the address with its credentials
            raise told(str(error), self.address, limit_s) from None


def told(text: str, address: Address, limit_s: float | None = None) -> LongpoleError:
    """What a server's error means to the one who asked; credentials are taken out.

    ``limit_s`` is how long the statement might take, where it was less than the store's limit.
    """
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
    if code in _NO_SHARD:
        servers = ", ".join(dict.fromkeys(_SERVER.findall(text))) or said
        return StoreBusy(f"a part of {address} is missing, no server of it answers: {servers}")
    if code in _BUSY:
        return StoreBusy(f"{address} is busy: {said}")
    if code in _SLOW:
        name = " (timeout_s)" if limit_s in (None, address.timeout_s) else ""
        return BadInput(f"the query took longer than {limit_s or address.timeout_s:g} s{name}")
    if code in _MANY:
        return BadInput("more rows than are given at once: aggregate, or narrow the query")
    if code in _NO_TABLE:
        return Unreachable(f"{address} has no such table or database: {said}")
    if code in _VALUES:
        return BadValue(said)
    if code is None:
        cause = _CAUSE.search(said)
        return Unreachable(f"no ClickHouse answers at {address}: {cause[0] if cause else said}")
    return BadInput(said)


def _sentence(text: str, address: Address) -> str:
    """The first sentence of a server's error."""
    line = text.split("\n", 1)[0]
    line = re.sub(r"^.*?DB::Exception: ", "", line)
    line = re.sub(r"( \(version .*| \(official build\).*| In scope .*)$", "", line)
    line = re.sub(r"://[^/@\s]*@", "://", line)
    if address.password:
        line = line.replace(address.password, "***")
    if address.user != "default":  # a word of its own: a short one is a part of many
        line = re.sub(rf"(?<!\w){re.escape(address.user)}(?!\w)", "***", line)
    return line[:500].strip()
