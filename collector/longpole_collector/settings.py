"""The collector's settings: the table ``[collector]`` of ``longpole.toml`` and its defaults.

Imports nothing heavy, so that listing the settings needs no extra installed; values are checked
by pydantic when they are used.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from ipaddress import ip_address
from pathlib import Path
from typing import Final, Literal

from longpole.config import Scalar, find_file, read_file, resolved, settings, subtables
from longpole.errors import UsageError
from longpole_collector.keys import DEFAULT_PROJECT, check_project, has_keys
from longpole_collector.sampling_rules import SamplingRules

DEFAULTS: dict[str, Scalar | None] = {
    "db": "./.longpole",
    "http": "127.0.0.1:4318",
    "grpc": "127.0.0.1:4317",
    "allowed_hosts": "",
    "beacon_origins": "",
    "insecure_no_auth": False,
    "api_key": None,
    "key_bytes_per_s": 64 << 20,
    "max_body_bytes": 20 << 20,
    "max_queue_bytes": 128 << 20,
    "body_timeout_s": 30.0,
    "query_rows": 100_000,
    "query_timeout_s": 30.0,
    "query_memory": "480MB",
    "store": None,
    "max_log_bytes": 4 << 30,
    "settle": True,
    "retention_days": 30,
    "retention_bytes": 50 << 30,
}
"""Every key with its default."""

LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")
PROJECTS_FOLDER: Final = "projects"
_ORIGIN: Final = re.compile(r"https?://[a-z0-9_.-]+(:\d+)?|https?://\[[0-9a-f:.]+\](:\d+)?")


def project_folder(folder: Path, project: str | None) -> Path:
    """Where a project's data lies: in the data folder itself, or below ``projects`` in it.

    Raises:
        UsageError: no project can have that name.
    """
    if project is None or project == DEFAULT_PROJECT:
        return folder
    return folder / PROJECTS_FOLDER / check_project(project)


@dataclass(frozen=True)
class Address:
    """A host and a port; port 0 means any free one."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> "Address":
        """``HOST:PORT``, an IPv6 host in brackets.

        Raises:
            UsageError: not of that form.
        """
        host, colon, port = text.rpartition(":")
        if not colon or not host or not port.isdigit() or int(port) > 65535:
            raise UsageError(f"address '{text}': expected HOST:PORT, e.g. 127.0.0.1:4318")
        return cls(host, int(port))

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine reaches it."""
        if self.host == "localhost":
            return True
        try:
            return ip_address(self.host.strip("[]")).is_loopback
        except ValueError:
            return False

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True)
class ProjectSettings:
    """One project's settings: the table ``[collector.projects.NAME]``."""

    __pydantic_config__ = {"extra": "forbid"}  # noqa: RUF012 - pydantic reads it, no import needed

    content: Literal["drop", "redact", "keep"] = "drop"
    """What is done with prompts, answers, tool arguments and documents that senders put in."""
    redact: tuple[str, ...] = ()
    """RE2 expressions that ``redact`` takes out besides its own rules."""
    redact_hook: str | None = None
    """``module:function`` that ``redact`` calls last, with an attribute's key and its text."""
    keep_days: int = 7
    """What ``keep`` stored is taken out of days of receipt that are older; the spans stay."""


@dataclass(frozen=True)
class Settings:
    """The collector's settings, checked; the names are the keys of :data:`DEFAULTS`."""

    db: Path = Path("./.longpole")
    http: str = "127.0.0.1:4318"
    grpc: str = "127.0.0.1:4317"
    allowed_hosts: str = ""
    """Host names besides loopback's that requests may be addressed to, comma-separated."""
    beacon_origins: str = ""
    """Origins whose pages may send spans, comma-separated, as in ``https://shop.example``."""
    insecure_no_auth: bool = False
    """Listen beyond loopback although nobody has to show a key."""
    api_key: str | None = field(default=None, repr=False)
    """The key that commands show to a collector they ask; better given by environment."""
    key_bytes_per_s: int = 64 << 20
    """What one key may send; a burst may take two seconds' worth."""
    max_body_bytes: int = 20 << 20
    max_queue_bytes: int = 128 << 20
    body_timeout_s: float = 30.0
    query_rows: int = 100_000
    query_timeout_s: float = 30.0
    query_memory: str = "480MB"
    """What the database may take for queries and inserts, in each project; more goes to disk."""
    store: str | None = field(default=None, repr=False)
    """Address of a ClickHouse store that spans go to instead of the data folder."""
    max_log_bytes: int = 4 << 30
    """What may wait in the log, in each project, while a ClickHouse store takes nothing."""
    settle: bool = True
    """Settle what is in a ClickHouse store; false where `longpole work` does."""
    retention_days: int = 30
    """A day of receipt is dropped when it is older."""
    retention_bytes: int = 50 << 30
    """The oldest days are dropped while a project takes more than this on disk."""
    projects: Mapping[str, ProjectSettings] = field(default_factory=dict)
    sampling: SamplingRules = field(default_factory=SamplingRules)
    """Which traces are kept: the table ``[collector.sampling]``."""

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        for name in (known.name for known in fields(self)):
            value = getattr(self, name)
            if isinstance(value, int | float) and not isinstance(value, bool) and value <= 0:
                raise ValueError(f"{name} must be more than 0, not {value}")
        if self.max_queue_bytes < self.max_body_bytes:
            raise ValueError("max_queue_bytes must be at least max_body_bytes")
        if self.max_log_bytes < self.max_body_bytes:
            raise ValueError("max_log_bytes must be at least max_body_bytes")
        for origin in self.origins:
            if not _ORIGIN.fullmatch(origin):
                raise ValueError(f"beacon_origins: '{origin}' is not SCHEME://HOST or with :PORT")
        for name, own in self.projects.items():
            check_project(name)
            if own.keep_days <= 0:
                raise ValueError(f"projects.{name}: keep_days must be more than 0")
        for address in (self.http_address, self.grpc_address):
            if not self.is_open(address) and not has_keys(self.db):
                raise UsageError(
                    f"{address} is reachable from other machines and nobody has to show a key: "
                    "bind 127.0.0.1, or make one with `longpole keys create`, or pass "
                    "--insecure-no-auth if that is meant"
                )

    def is_open(self, address: Address) -> bool:
        """Whether who comes in there without a key is let in."""
        return address.is_loopback or self.insecure_no_auth

    def project(self, name: str) -> ProjectSettings:
        """A project's own settings; the defaults if it has none."""
        return self.projects.get(name, ProjectSettings())

    @property
    def http_address(self) -> Address:
        """Where HTTP is served."""
        return Address.parse(self.http)

    @property
    def grpc_address(self) -> Address:
        """Where gRPC is served."""
        return Address.parse(self.grpc)

    @property
    def hosts(self) -> frozenset[str]:
        """Host names that requests may carry, lower case."""
        named = (name.strip().lower() for name in self.allowed_hosts.split(","))
        own = self.http_address.host.lower()
        return frozenset((*LOOPBACK_NAMES, own, *filter(None, named)))

    @property
    def origins(self) -> frozenset[str]:
        """Origins whose pages may send spans, lower case."""
        named = (origin.strip().lower() for origin in self.beacon_origins.split(","))
        return frozenset(filter(None, named))


def configured_folder(db: Path | None, project: str | None = None) -> Path:
    """The folder a command works on: of the flags, else of the configuration.

    Args:
        db: the data folder, if it was given.
        project: the project in it; default is the default one.

    Raises:
        UsageError: no project can have that name, or the configuration cannot be used.
    """
    folder = db or Path(str(settings("collector", DEFAULTS)["db"].value))
    return project_folder(folder, project)


def chosen_folder(db: Path | None, project: str | None, other: object) -> Path | None:
    """The folder that a command reads; ``db`` as given if ``other`` says where the data is.

    Args:
        db: the data folder, if it was given.
        project: the project in it, if one was given.
        other: an address or files, if they were given.

    Raises:
        UsageError: a project is named where that says nothing, or none can have that name.
    """
    if not other:
        return configured_folder(db, project)
    if project:
        raise UsageError(
            "--project goes with a data folder: with --url the key (LONGPOLE_COLLECTOR_API_KEY) "
            "decides the project, and files have none"
        )
    return db


def named_store(store: str | None, schema: str | None) -> str | None:
    """The address of a ClickHouse store, with its schema if that was said beside it.

    Args:
        store: the address, if one was given.
        schema: ``own``, or ``otel`` for the OpenTelemetry collector's table, if one was given.

    Raises:
        UsageError: it is no such address, says another schema, or there is none.
    """
    if store is None:
        if schema is not None:
            raise UsageError("--schema says whose tables are at --store: give both")
        return None
    from longpole_collector.stores.clickhouse.address import of_schema, parse

    named = of_schema(store, schema) if schema is not None else store
    parse(named)
    return named


def load_settings(**flags: Scalar | Path | None) -> Settings:
    """Settings from file, environment and flags; a flag that is ``None`` was not given.

    Raises:
        UsageError: an unknown key or a value that cannot be.
    """
    from pydantic import TypeAdapter, ValidationError  # heavy, and not needed for DEFAULTS

    values: dict[str, object] = {
        key: setting.value for key, setting in settings("collector", DEFAULTS).items()
    }
    values["projects"] = subtables("collector", "projects")
    sampling = read_file(find_file()).get("collector", {}).get("sampling", {})
    if not isinstance(sampling, dict):
        raise UsageError("[collector] sampling: expected a table, as in [collector.sampling]")
    values["sampling"] = resolved(sampling, "collector.sampling")
    values |= {key: value for key, value in flags.items() if value is not None}
    try:
        return TypeAdapter(Settings).validate_python(values)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise UsageError(f"[collector] {where}: {first['msg']}") from error
