"""Where a ClickHouse store is, as one address: ``clickhouse://HOST:PORT/DATABASE?...``.

User and password may stand in the address (``clickhouse://user:word@host``) or, better, in the
environment (``LONGPOLE_CLICKHOUSE_USER``, ``LONGPOLE_CLICKHOUSE_PASSWORD``). Neither is ever part
of a message, a log line or the text of an :class:`Address`.
"""

import os
import re
from dataclasses import dataclass, field, replace
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit

from longpole.errors import UsageError
from longpole_collector.keys import DEFAULT_PROJECT
from longpole_collector.stores.clickhouse import SCHEMES

_PORTS: Final = {"clickhouse": 8123, "clickhouses": 8443, "chdb": 0}
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_TABLE: Final = re.compile(rf"{_NAME.pattern}\.{_NAME.pattern}")
_CLUSTER: Final = re.compile(r"[A-Za-z0-9_.{}-]{1,64}")
_USER: Final = "LONGPOLE_CLICKHOUSE_USER"
_PASSWORD: Final = "LONGPOLE_CLICKHOUSE_PASSWORD"  # noqa: S105 - a name
OWN: Final = "own"
OTEL: Final = "otel"


@dataclass(frozen=True)
class Address:
    """One store.

    Attributes:
        scheme: of :data:`~longpole_collector.stores.clickhouse.SCHEMES`, without its slashes.
        host: the server; empty in process.
        port: of its HTTP interface.
        database: where our tables are; the only one that is written to.
        user: who asks.
        password: their word; never shown.
        folder: in process, where data lie; ``None`` keeps them in memory.
        schema: ``own``, or ``otel`` where spans come from the OpenTelemetry collector's table.
        source: that table with its database; only read.
        cluster: make the tables on all servers of this cluster, sharded by trace, or on one.
        is_replicated: make tables that keep copies of each other.
        ttl_days: spans and roll-ups go after so many days; ``None`` keeps them.
        timeout_s: how long one query may take.
    """

    scheme: str
    host: str
    port: int
    database: str
    user: str = "default"
    password: str = field(default="", repr=False)
    folder: str | None = None
    schema: str = OWN
    source: str = ""
    cluster: str | None = None
    is_replicated: bool = False
    ttl_days: int | None = None
    timeout_s: float = 30.0

    def __str__(self) -> str:
        """The address without its credentials, for messages."""
        where = self.folder or "" if self.scheme == "chdb" else f"{self.host}:{self.port}"
        return f"{self.scheme}://{where}/{self.database}"


def parse(text: str) -> Address:
    """The address that a text names.

    In process it is ``chdb:///FOLDER?database=NAME`` or ``chdb://?database=NAME``. After the
    question mark may stand: ``cluster=NAME``, ``replicated=1``, ``ttl_days=N``, ``timeout_s=N``,
    and ``schema=otel``: then the database is where the OpenTelemetry collector's table lies,
    ``table=NAME`` what it is called, and ``own=NAME`` the database of our own beside it.

    Raises:
        UsageError: it names none; the message holds no credentials.
    """
    if not text.startswith(SCHEMES):
        raise UsageError(f"a ClickHouse store is named by one of {', '.join(SCHEMES)}")
    try:
        parts = urlsplit(text)
        port = parts.port or _PORTS[parts.scheme]
    except ValueError as error:  # its text may hold the word
        raise UsageError("the ClickHouse address cannot be read: HOST:PORT is broken") from error
    given = _words(parts.query)
    path = unquote(parts.path)
    in_process = parts.scheme == "chdb"
    schema = given.pop("schema", OWN)
    named = given.pop("database", "" if in_process else path.strip("/"))
    database = named or "longpole"
    source = ""
    if schema == OTEL:
        source = f"{named or 'default'}.{given.pop('table', 'otel_traces')}"
        database = given.pop("own", "longpole")
    found = Address(
        scheme=parts.scheme,
        host="" if in_process else parts.hostname or "localhost",
        port=port,
        database=database,
        user=unquote(parts.username or "") or os.environ.get(_USER, "default"),
        password=unquote(parts.password or "") or os.environ.get(_PASSWORD, ""),
        folder=(path or None) if in_process else None,
        schema=schema,
        source=source,
        cluster=given.pop("cluster", None),
        is_replicated=_flag("replicated", given.pop("replicated", "0")),
        ttl_days=_number("ttl_days", given.pop("ttl_days", None)),
        timeout_s=float(_number("timeout_s", given.pop("timeout_s", None)) or 30),
    )
    if given:
        raise UsageError(
            f"the ClickHouse address says '{min(given)}': it may say database, schema, "
            "table, own, cluster, replicated, ttl_days, timeout_s"
        )
    _check(found)
    return found


def of_schema(text: str, schema: str) -> str:
    """An address with its schema, where that was said beside it."""
    return f"{text}{'&' if '?' in text else '?'}schema={schema}"


def of_project(address: Address, project: str) -> Address:
    """Where a project's data are: those of others than the default one in databases beside it.

    Raises:
        UsageError: no database can be named after it.
    """
    if project == DEFAULT_PROJECT:
        return address
    named = replace(address, database=f"{address.database}__{project}", schema=OWN, source="")
    _check(named)
    return named


def _words(query: str) -> dict[str, str]:
    """What stands after the question mark.

    Raises:
        UsageError: a word is given twice, and not the same.
    """
    given: dict[str, str] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if given.setdefault(name, value) != value:
            raise UsageError(f"the ClickHouse address says {name} twice: {given[name]} and {value}")
    return given


def _check(address: Address) -> None:
    """Names go into statements as they are, so they must be plain."""
    if not _NAME.fullmatch(address.database):
        raise UsageError(f"'{address.database}' is no plain name of a database")
    if address.schema not in (OWN, OTEL):
        raise UsageError(f"schema '{address.schema}' is not known: {OWN} or {OTEL}")
    if address.schema == OTEL:
        if not _TABLE.fullmatch(address.source):
            raise UsageError(f"'{address.source}' is no plain name of a table")
        if address.source.startswith(f"{address.database}."):
            raise UsageError(
                f"own={address.database} is the collector's database too: give another one"
            )
    if address.cluster is not None and not _CLUSTER.fullmatch(address.cluster):
        raise UsageError(f"'{address.cluster}' is no plain name of a cluster")


def _flag(name: str, text: str) -> bool:
    if text not in ("0", "1"):
        raise UsageError(f"{name}={text} in the ClickHouse address: 0 or 1")
    return text == "1"


def _number(name: str, text: str | None) -> int | None:
    if text is None:
        return None
    if not text.isascii() or not text.isdigit() or not 0 < int(text) < 100_000:
        raise UsageError(f"{name}={text} in the ClickHouse address: a whole number from 1 on")
    return int(text)
