"""When the demo's requests come: the arrivals of a public chat trace, scaled to this machine.

Arrivals are open loop: a request is sent at its time whether or not earlier ones came back, as
real users do, so a slow server cannot hide its own queue.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files
from itertools import accumulate

import polars as pl

MIN_OUTPUT_TOKENS = 5
MEAN_OUTPUT_TOKENS = 12
MAX_OUTPUT_TOKENS = 24
_RECORDED_MEAN_OUTPUT_TOKENS = 203
_SEED_STRIDE = 397


@dataclass(frozen=True)
class Arrival:
    """One request: when it is due, and how long an answer may get.

    ``output_tokens`` keeps the recorded answer's length relative to the mean, in small.
    """

    due_s: float
    output_tokens: int


@dataclass(frozen=True)
class Workload:
    """Arrivals, and how fast the recorded clock runs for them (1 is as recorded)."""

    arrivals: tuple[Arrival, ...]
    speed: float

    @property
    def duration_s(self) -> float:
        """When the last request is due."""
        return self.arrivals[-1].due_s


def plan(num_requests: int, rate_per_s: float, seed: int = 0) -> Workload:
    """``num_requests`` arrivals at a mean of ``rate_per_s``; the recording starts over at its end.

    The recorded clock is scaled so that the part played has that mean rate; its bursts stay what
    they were, relative to the mean. ``seed`` picks where in the recording to start.
    """
    recorded = _recorded()
    start = seed * _SEED_STRIDE % recorded.height
    gaps_s = recorded["t_s"].diff().fill_null(0.0).to_list()
    tokens = recorded["output_tokens"].to_list()
    chosen = [(start + index) % recorded.height for index in range(num_requests)]
    due_s = list(accumulate((gaps_s[index] for index in chosen[1:]), initial=0.0))
    if not due_s[-1]:  # recorded at one moment, which no clock can stretch: evenly then
        due_s = [float(index) for index in range(num_requests)]
    speed = due_s[-1] * rate_per_s / num_requests or 1.0
    arrivals = (
        Arrival(due / speed, _scaled(tokens[index]))
        for due, index in zip(due_s, chosen, strict=True)
    )
    return Workload(tuple(arrivals), speed)


def _scaled(output_tokens: int) -> int:
    scaled = round(output_tokens * MEAN_OUTPUT_TOKENS / _RECORDED_MEAN_OUTPUT_TOKENS)
    return min(max(scaled, MIN_OUTPUT_TOKENS), MAX_OUTPUT_TOKENS)


def _recorded() -> pl.DataFrame:
    path = files("longpole_dashboard.demo").joinpath("data/arrivals.parquet")
    return pl.read_parquet(path.read_bytes())
