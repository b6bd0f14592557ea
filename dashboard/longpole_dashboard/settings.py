"""The keys of ``[dashboard]`` in ``longpole.toml`` and their defaults; imports nothing heavy."""

from typing import Final

from longpole import config
from longpole.errors import UsageError

DEFAULTS: Final[dict[str, config.Scalar | None]] = {
    "host": "127.0.0.1",
    "port": 8501,
    "ttft_objective_ms": None,
}
"""``ttft_objective_ms``: TTFT that a workflow's slowest call should stay under; without it a
workflow is slow when it is among the slowest of its route."""


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
