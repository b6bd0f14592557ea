"""Where a first span is to be sent, and with which key."""

from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

import httpx

from longpole_collector.keys import DEFAULT_PROJECT
from longpole_collector.stores.base import Reader
from longpole_dashboard.login.settings import hostname

DEFAULT_ENDPOINT: Final = "http://127.0.0.1:4318"
"""Where every OpenTelemetry SDK sends by default."""
_EVERYWHERE: Final = ("0.0.0.0", "::")  # noqa: S104 - told, not bound
_TIMEOUT_S: Final = 2.0


@dataclass(frozen=True)
class Door:
    """The collector's address as senders reach it.

    ``project`` is the one whose key they show; ``None`` where none is needed.
    """

    endpoint: str
    project: str | None


def door(url: str, project: str | None, host: str, reader: Reader | None = None) -> Door:
    """Where to send the spans that are looked at.

    Args:
        url: the collector's address as the dashboard reaches it.
        project: the project that is looked at; ``None`` is the default one.
        host: the ``Host`` header by which the page was opened; a collector that listens on all
            addresses is reached by the same name.
        reader: not asked.
    """
    parts = urlsplit(url)
    name = parts.hostname or ""
    if name in _EVERYWHERE:
        name = hostname(host) or name
    bracketed = f"[{name}]" if ":" in name else name
    endpoint = f"{parts.scheme}://{bracketed}" + (f":{parts.port}" if parts.port else "")
    if project not in (None, DEFAULT_PROJECT):
        return Door(endpoint, project)
    return Door(endpoint, DEFAULT_PROJECT if _wants_a_key(url) else None)


def lines(found: Door) -> tuple[str, ...]:
    """What a shell has to be told before the application starts; empty for nothing."""
    told = []
    if found.endpoint != DEFAULT_ENDPOINT:
        told.append(f"export OTEL_EXPORTER_OTLP_ENDPOINT={found.endpoint}")
    if found.project is not None:
        told.append(f"longpole keys create --scope ingest --project {found.project}")
        told.append("export OTEL_EXPORTER_OTLP_HEADERS=authorization=Bearer%20lp_...")
    return tuple(told)


def _wants_a_key(url: str) -> bool:
    """Whether the collector refuses who shows none; not if it does not answer."""
    try:
        # without the environment's proxies, like every other question to the collector
        with httpx.Client(timeout=_TIMEOUT_S, trust_env=False) as client:
            return client.get(f"{url.rstrip('/')}/api/v1/status").status_code == 401
    except (httpx.HTTPError, httpx.InvalidURL):
        return False
