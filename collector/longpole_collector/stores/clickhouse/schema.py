"""Tables and views from the ``.sql`` files, and how older ones become today's.

A file holds one CREATE TABLE or one SELECT. In tables ``{engine:ARGUMENTS}`` becomes the engine
of the kind that the address asks for (one server, copies, a cluster sharded by trace) and
``{ttl:COLUMN}`` the time to live. In views ``{columns}`` are those of the local store's view of
that name, so that both have the same; in tables those of them that the file does not say itself.
A column that a table lacks is added; what else changes raises :data:`SCHEMA_VERSION` and gets
statements in :data:`_STEPS`.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Final

from longpole.errors import Unreachable
from longpole.vocab import Span, Trace, columns
from longpole_collector.stores.clickhouse.address import Address
from longpole_collector.stores.clickhouse.client import Client
from longpole_collector.stores.views import GAMMA, views

SCHEMA_VERSION: Final = 2
STRETCH_NS: Final = 600_000_000_000
"""Rows of spans, calls and traces are sorted first by the stretch in which they begin."""
META: Final = "meta"
FOLLOWED: Final = "followed_rows"
GONE_MINUTES: Final = "gone_minute_rows"
TABLES: Final = (META, "span_rows", "call_rows", "trace_rows", FOLLOWED, GONE_MINUTES)
_SHARD_BY: Final = {META: "key", FOLLOWED: "minute", GONE_MINUTES: "start_ns"}
"""What says on which shard a row lies; the others go by their trace."""
LEAN: Final = "calls_lean"
"""The view ``calls`` without :data:`NOT_LEAN`, and without the join that gives it."""
NOT_LEAN: Final = "response_id"
VIEWS: Final = (
    *("spans", LEAN, "calls", "traces", "trace_stages"),
    *("minutes", "hours", "stage_minutes", "stage_hours", "quality"),
)
"""In an order in which each needs only earlier ones."""
COUNTING: Final = ("minutes", "hours", "stage_minutes", "stage_hours")
NEAR: Final = "_near"
"""A view that counts has one beside it whose name ends so: it takes ``since`` and ``until`` (Unix
ns) and reads what begins in between alone. In the former ClickHouse does not see that it may."""
_SINCE: Final = "{since:Int64}"
_UNTIL: Final = f"({{until:Int64}} + {60 * 60_000_000_000})"
"""A row of an hour is that of its begin."""
_MADE_OF: Final = {
    "spans": "span_rows", "calls": "call_rows", LEAN: "call_rows", "traces": "trace_rows",
}  # fmt: skip
"""Views whose columns are, one by one, those of the local store's."""
_TYPES: Final[dict[type, str]] = {
    str: "Nullable(String) CODEC(ZSTD(1))",
    int: "Nullable(Int64) CODEC(T64, ZSTD(1))",
    float: "Nullable(Float64) CODEC(ZSTD(1))",
    bool: "Nullable(Bool)",
    list: "Array(String) CODEC(ZSTD(1))",
}
"""Of a column that the record has and no file says."""
_TEXTS: Final = (str, list)
_MADE: Final = "made"
LOCAL: Final = "_local"
"""Of a cluster's table the name ends so on each server."""
_MINUTE_NS: Final = 60_000_000_000
_STEPS: Final[dict[int, tuple[str, ...]]] = {2: ()}
"""Version -> the statements that bring a database of the version before to it; tables and views
that are missing are made anyhow: 2 has those of windows."""
_ENGINE: Final = re.compile(r"\{engine:([^}]*)\}")
_TTL: Final = re.compile(r"\{ttl:(\w+)\}\n")
_COLUMN: Final = re.compile(r"^    ([a-z]\w*) ((?:.|\n {8})+?)(?:,$|$(?=\n\)))", re.MULTILINE)
_SETTINGS: Final = (
    "index_granularity = 8192, non_replicated_deduplication_window = 100, ttl_only_drop_parts = 1"
)


def prepare(client: Client) -> None:
    """Make what is missing, and bring an older database up to date; the same again does nothing.

    Raises:
        Unreachable: a newer longpole made it, or it may not be changed.
    """
    address = client.address
    if _is_as_made(client):
        client.use()
        return
    client.tell(f"CREATE DATABASE IF NOT EXISTS {address.database}{_on_cluster(address)}")
    client.use()
    version = version_of(client)
    if version is not None and version > SCHEMA_VERSION:
        raise too_new(address, version)
    for statement in statements(address):
        client.tell(statement)
    for table in TABLES:
        _add_columns(client, table)
    for step in range((version or SCHEMA_VERSION) + 1, SCHEMA_VERSION + 1):
        for statement in _STEPS[step]:
            client.tell(statement.format(database=address.database, on=_on_cluster(address)))
    for statement in _view_statements(address):
        client.tell(statement)
    remember(client)


def remember(client: Client) -> None:
    """Write down that all is there as this version makes it."""
    note(client, "schema_version", str(SCHEMA_VERSION))
    note(client, _MADE, _fingerprint(client.address))


def _is_as_made(client: Client) -> bool:
    """Whether tables, their columns and views are there as this version makes them."""
    found = client.ask(
        "SELECT table, groupArray(name) AS names FROM system.columns "
        "WHERE database = {db:String} GROUP BY table",
        db=client.address.database,
    )
    present = dict(zip(found["table"].to_pylist(), found["names"].to_pylist(), strict=True))
    if not present.keys() >= {*TABLES, *VIEWS}:
        return False
    if any(not table_columns(table).keys() <= {*present[table]} for table in TABLES):
        return False
    is_known = noted(client, "schema_version") == str(SCHEMA_VERSION)
    return is_known and noted(client, _MADE) == _fingerprint(client.address)


def _fingerprint(address: Address) -> str:
    made = "\n".join((*statements(address), *_view_statements(address)))
    return hashlib.sha256(made.encode()).hexdigest()


def _view_statements(address: Address) -> Iterator[str]:
    for view in (*VIEWS, *(name + NEAR for name in COUNTING)):
        yield (
            f"CREATE OR REPLACE VIEW {address.database}.{view}{_on_cluster(address)} "
            f"AS {view_query(view)}"
        )


def check(client: Client) -> None:
    """See that a database can be read as it is.

    Raises:
        Unreachable: there is none, or an older or a newer longpole made it.
    """
    version = version_of(client)
    if version is None:
        raise Unreachable(f"no data in {client.address}: send spans there, or import files, first")
    if version > SCHEMA_VERSION:
        raise too_new(client.address, version)
    if version < SCHEMA_VERSION:
        raise Unreachable(
            f"{client.address} has schema {version}, this longpole reads {SCHEMA_VERSION}: "
            "open it once with a user who may change tables"
        )
    client.use()


def too_new(address: Address, version: int) -> Unreachable:
    """What is said of a database that a newer longpole made."""
    return Unreachable(
        f"{address} has schema {version}, this longpole knows {SCHEMA_VERSION}: upgrade it"
    )


def version_of(client: Client) -> int | None:
    """The schema's version; ``None`` where nothing was made yet."""
    found = client.ask(
        "SELECT name FROM system.tables WHERE database = {db:String} AND name = {table:String}",
        db=client.address.database,
        table=META,
    )
    if not found.num_rows:
        return None
    noted_version = noted(client, "schema_version")
    return None if noted_version is None else int(noted_version)


def note(client: Client, key: str, value: str) -> None:
    """Write down one fact of the database."""
    client.tell(
        f"INSERT INTO {client.address.database}.{META} (key, value) "  # noqa: S608 - a checked name
        "VALUES ({key:String}, {value:String})",
        key=key,
        value=value,
    )


def noted(client: Client, key: str) -> str | None:
    """A fact that was written down."""
    found = client.ask(
        f"SELECT value FROM {client.address.database}.{META} FINAL "  # noqa: S608 - a checked name
        "WHERE key = {key:String}",
        key=key,
    )
    return str(found["value"][0].as_py()) if found.num_rows else None


def statements(address: Address) -> Iterator[str]:
    """The statements that make the tables where they are missing."""
    for table in TABLES:
        name = f"{address.database}.{table}"
        if address.cluster is None:
            yield _create(table, name, address)
            continue
        yield _create(table, name + LOCAL, address)
        key = _SHARD_BY.get(table, "trace_id")
        yield (
            f"CREATE TABLE IF NOT EXISTS {name}{_on_cluster(address)} AS {name}{LOCAL} "
            f"ENGINE = Distributed('{address.cluster}', '{address.database}', '{table}{LOCAL}', "
            f"cityHash64({key}))"
        )


def view_query(view: str) -> str:
    """The SELECT of a view."""
    is_near, view = view.endswith(NEAR), view.removesuffix(NEAR)
    near = f"start_ns >= {_SINCE} AND start_ns < {_UNTIL}"
    edges = f"{_stretch(_SINCE)} AND {_stretch(_UNTIL, '<=')}"
    is_hours = view.endswith("hours")
    query = _read("views", view.replace("hours", "minutes"))
    columns = _view_columns(view, query) if "{columns}" in query else ""
    for name, value in (
        ("columns", columns),
        ("near", f"{edges} AND {near}" if is_near else "1"),
        ("gamma", f"{GAMMA!r}"),
        ("width_name", "hour" if is_hours else "minute"),
        ("width", str((60 if is_hours else 1) * _MINUTE_NS)),
    ):
        query = query.replace(f"{{{name}}}", value)
    return query


def _stretch(start: str, sign: str = ">=") -> str:
    return f"intDiv(start_ns, {STRETCH_NS}) {sign} intDiv({start}, {STRETCH_NS})"


def _view_columns(view: str, query: str) -> str:
    """The local view's columns, in order: as the file says, as stored, or from nanoseconds."""
    stored = table_columns(_MADE_OF[view])
    parts: list[str] = []
    for name in views()["calls" if view == LEAN else view].columns:
        if view == LEAN and name == NOT_LEAN:
            continue
        if name not in stored and f" AS {name}" not in query:
            parts.append(f"{name.removesuffix('_ms')}_ns / 1e6 AS {name}")
        else:
            parts.append(name)
    return ", ".join(parts)


@cache
def table_columns(table: str) -> Mapping[str, str]:
    """Column -> its type and more: what a table's file says, and what the records have besides."""
    told = dict(_said(table))
    view = next((view for view, made_of in _MADE_OF.items() if made_of == table), None)
    if view is None:
        return told
    records = {column.name: column.type for column in (*columns(Trace), *columns(Span))}
    computed = _read("views", view)
    for name in views()[view].columns:
        in_ns = f"{name.removesuffix('_ms')}_ns"
        if name in told or in_ns in told or f" AS {name}" in computed:
            continue
        stored = name if name in records else in_ns
        if stored in records:
            told[stored] = _kind(stored, records[stored])
    return told


@cache
def _said(table: str) -> Mapping[str, str]:
    return {name: kind for name, kind in _COLUMN.findall(_read("tables", table)) if name != "INDEX"}


def _kind(name: str, record_type: type) -> str:
    """The type of a column: a text's is that in the table of spans, but never unpacked."""
    if record_type not in _TEXTS:
        return _TYPES[record_type]
    found = _said("span_rows").get(name, _TYPES[record_type])
    return found if "CODEC" in found else f"{found} CODEC(ZSTD(1))"


@cache
def stored_columns(table: str) -> tuple[str, ...]:
    """The columns that rows are inserted with: not those that are computed of others."""
    computed = (" ALIAS ", " MATERIALIZED ", " EPHEMERAL ")
    return tuple(
        name
        for name, kind in table_columns(table).items()
        if not any(word in kind for word in computed)
    )


def _create(table: str, name: str, address: Address) -> str:
    engine = _engine(table + (LOCAL if address.cluster else ""), address)
    ttl = ""
    if address.ttl_days is not None:
        ttl = (
            r"TTL toDateTime(fromUnixTimestamp64Nano(toInt64(\1))) "
            f"+ INTERVAL {address.ttl_days} DAY DELETE\n"
        )
    more = (each for each in table_columns(table).items() if each[0] not in _said(table))
    listed = "".join(f"    {column} {kind},\n" for column, kind in more)
    made = _TTL.sub(ttl, _read("tables", table).replace("    {columns}\n", listed))
    made = _ENGINE.sub(lambda found: engine.replace("ARGUMENTS", found[1]), made)
    settings = _SETTINGS
    if address.is_replicated:
        settings = settings.replace("non_replicated_deduplication_window = 100, ", "")
    made = made.replace("{name}", name).replace("{settings}", settings)
    made = made.replace(" {on_cluster}", _on_cluster(address))
    return made.replace("CREATE TABLE", "CREATE TABLE IF NOT EXISTS", 1)


def _engine(name: str, address: Address) -> str:
    if not address.is_replicated:
        return "ReplacingMergeTree(ARGUMENTS)"
    path = f"/clickhouse/tables/{{shard}}/{address.database}/{name}"
    return f"ReplicatedReplacingMergeTree('{path}', '{{replica}}', ARGUMENTS)"


def _on_cluster(address: Address) -> str:
    return "" if address.cluster is None else f" ON CLUSTER '{address.cluster}'"


def _add_columns(client: Client, table: str) -> None:
    address = client.address
    found = client.ask(
        "SELECT name FROM system.columns WHERE database = {db:String} AND table = {table:String}",
        db=address.database,
        table=table,
    )
    present = set(found["name"].to_pylist())
    for name, kind in table_columns(table).items():
        if name in present:
            continue
        for suffix in (LOCAL, "") if address.cluster else ("",):
            client.tell(
                f"ALTER TABLE {address.database}.{table}{suffix}{_on_cluster(address)} "
                f"ADD COLUMN IF NOT EXISTS {name} {kind}"
            )


def _read(folder: str, name: str) -> str:
    package = files("longpole_collector.stores.clickhouse")
    return package.joinpath("sql", folder, f"{name}.sql").read_text(encoding="utf-8")
