"""The keys of ``[dashboard]`` in ``longpole.toml`` and their defaults; imports nothing heavy."""

from typing import Final
from urllib.parse import quote, urlsplit

from longpole import config
from longpole.errors import UsageError

DEFAULTS: Final[dict[str, config.Scalar | None]] = {
    "host": "127.0.0.1",
    "port": 8501,
    "allowed_hosts": "",
    "login": None,
    "trusted_proxies": "",
    "user_header": "x-forwarded-user",
    "oidc_issuer": "",
    "oidc_client_id": "",
    "oidc_client_secret": None,
    "oidc_claim": "email",
    "tls_certificate": None,
    "tls_key_file": None,
    "ttft_objective_ms": None,
    "jaeger_url": None,
    "tempo_url": None,
}
"""Who is let in, and how: ``login.settings``.

``ttft_objective_ms``: TTFT that a workflow's slowest call should stay under; without it a
workflow is slow when it is among the slowest of its route. ``jaeger_url``, ``tempo_url``: where the
same traces can be opened besides."""

_VIEWERS: Final = {
    "jaeger_url": ("Jaeger", "/trace/{trace_id}"),
    "tempo_url": ("Tempo", "/api/traces/{trace_id}"),
}
"""Key -> the viewer's name, and the path of a trace where the address does not name its place."""


def ttft_objective_ms() -> float | None:
    """The objective as configured; ``None`` if there is none.

    Raises:
        UsageError: it is not a positive number.
    """
    value = config.settings("dashboard", DEFAULTS)["ttft_objective_ms"].value
    if value is None:
        return None
    try:
        objective_ms = float(value)
    except ValueError:
        objective_ms = 0.0
    if not 0 < objective_ms < float("inf"):
        raise UsageError(f"[dashboard] ttft_objective_ms: '{value}' is not a positive number")
    return objective_ms


def viewers(trace_id: str) -> tuple[tuple[str, str], ...]:
    """Name and address of a trace in each other viewer that is configured.

    An address may hold ``{trace_id}`` where the id belongs; else it is the viewer's base address.

    Raises:
        UsageError: an address is none of http or https.
    """
    known = config.settings("dashboard", DEFAULTS)
    found = []
    for key, (name, path) in _VIEWERS.items():
        value = known[key].value
        if value is None or value == "":
            continue
        address = str(value)
        if not _is_web(address):
            raise UsageError(f"[dashboard] {key}: '{address}' is no http or https address")
        if "{trace_id}" not in address:
            address = address.rstrip("/") + path
        found.append((name, address.replace("{trace_id}", quote(trace_id, safe=""))))
    return tuple(found)


def _is_web(address: str) -> bool:
    try:
        parts = urlsplit(address)
        parts.port  # noqa: B018 - raises for a port that is none
    except ValueError:
        return False
    is_plain = address.isprintable() and " " not in address
    return is_plain and parts.scheme in ("http", "https") and bool(parts.hostname)
