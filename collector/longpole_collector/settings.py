"""The collector's settings: the table ``[collector]`` of ``longpole.toml`` and its defaults.

Imports nothing heavy, so that listing the settings needs no extra installed; values are checked
by pydantic when they are used.
"""

from dataclasses import dataclass, fields
from ipaddress import ip_address
from pathlib import Path

from longpole.config import Scalar, settings
from longpole.errors import UsageError

DEFAULTS: dict[str, Scalar | None] = {
    "db": "./.longpole",
    "http": "127.0.0.1:4318",
    "grpc": "127.0.0.1:4317",
    "allowed_hosts": "",
    "insecure_no_auth": False,
    "keep_content": False,
    "max_body_bytes": 20 << 20,
    "max_queue_bytes": 256 << 20,
    "body_timeout_s": 30.0,
    "query_rows": 100_000,
    "query_timeout_s": 30.0,
    "query_memory": "2GB",
}
"""Every key with its default."""

LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")


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
class Settings:
    """The collector's settings, checked; the names are the keys of :data:`DEFAULTS`."""

    db: Path = Path("./.longpole")
    http: str = "127.0.0.1:4318"
    grpc: str = "127.0.0.1:4317"
    allowed_hosts: str = ""
    """Host names besides loopback's that requests may be addressed to, comma-separated."""
    insecure_no_auth: bool = False
    """Listen beyond loopback although nobody has to show a key."""
    keep_content: bool = False
    """Store prompts, answers and tool arguments that senders put into spans."""
    max_body_bytes: int = 20 << 20
    max_queue_bytes: int = 256 << 20
    body_timeout_s: float = 30.0
    query_rows: int = 100_000
    query_timeout_s: float = 30.0
    query_memory: str = "2GB"

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, int | float) and not isinstance(value, bool) and value <= 0:
                raise ValueError(f"{field.name} must be more than 0, not {value}")
        if self.max_queue_bytes < self.max_body_bytes:
            raise ValueError("max_queue_bytes must be at least max_body_bytes")
        for address in (self.http_address, self.grpc_address):
            if not address.is_loopback and not self.insecure_no_auth:
                raise UsageError(
                    f"{address} is reachable from other machines and nobody has to show a key: "
                    "bind 127.0.0.1, or pass --insecure-no-auth if that is meant"
                )

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


def load_settings(**flags: Scalar | Path | None) -> Settings:
    """Settings from file, environment and flags; a flag that is ``None`` was not given.

    Raises:
        UsageError: an unknown key or a value that cannot be.
    """
    from pydantic import TypeAdapter, ValidationError  # heavy, and not needed for DEFAULTS

    values: dict[str, object] = {
        key: setting.value for key, setting in settings("collector", DEFAULTS).items()
    }
    values |= {key: value for key, value in flags.items() if value is not None}
    try:
        return TypeAdapter(Settings).validate_python(values)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise UsageError(f"[collector] {where}: {first['msg']}") from error
