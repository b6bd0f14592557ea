"""Which traces the collector keeps: the table ``[collector.sampling]`` of ``longpole.toml``.

Imports nothing, so that listing the settings needs no extra installed.
"""

from dataclasses import dataclass, fields
from typing import Final

CLASSES: Final = ("error", "rejected", "violation", "rare", "slow", "rest")
"""Why a trace is kept; where several apply, the one that keeps most."""
_SHARES: Final = (*CLASSES, "slow_share")


@dataclass(frozen=True)
class SamplingRules:
    """What is kept of the traces that came; off unless ``is_on``.

    Each class has the share of its traces that is kept. Durations and counts are of a trace's
    route, and of its route with each value of the columns in ``slices``.

    Attributes:
        is_on: whether any trace is dropped.
        error: a span of it failed.
        rejected: its outcome is rejected or failed.
        violation: it breaks an objective of ``[slo.NAME]``.
        rare: its slice had fewer than ``rare_traces`` traces in the last ``window_s``, or is new.
        slow: it is among the slowest ``slow_share`` of its route or slice. What is faster is kept
            less, down to ``rest``: where twice as many are slower, half as often, so that every
            percentile of the tail is told as surely.
        rest: all others; above 0, or what is usual could not be told at all.
        slow_share: see ``slow``.
        rare_traces: see ``rare``.
        slices: columns of the view ``traces``, or ``request_model``.
        quiet_s: a trace is decided when it got no span for so long.
        window_s: how far back durations and counts are looked at: one to two times that.
        remember_s: how long the id of a dropped trace is known, for spans that come late.
        max_slices: slices that are looked at; of more, the later ones are neither rare nor slow.
    """

    __pydantic_config__ = {"extra": "forbid"}  # noqa: RUF012 - pydantic reads it, no import needed

    is_on: bool = False
    error: float = 1.0
    rejected: float = 1.0
    violation: float = 1.0
    rare: float = 1.0
    slow: float = 1.0
    rest: float = 0.02
    slow_share: float = 0.004
    rare_traces: int = 50
    slices: tuple[str, ...] = ("prompt_version", "request_model")
    quiet_s: float = 30.0
    window_s: float = 600.0
    remember_s: float = 3600.0
    max_slices: int = 2000

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        for name in _SHARES:
            share = getattr(self, name)
            least = "above 0" if name == "rest" else "from 0"
            if not 0 <= share <= 1 or (name == "rest" and share == 0):
                raise ValueError(f"sampling.{name} must be {least} to 1, not {share}")
        for field in fields(self):
            value = getattr(self, field.name)
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if is_number and field.name not in _SHARES and not value > 0:
                raise ValueError(f"sampling.{field.name} must be more than 0, not {value}")
