"""What a shape rule gets and gives, the names there are, and the thresholds.

A rule is a file with a constant ``RULE``: from the measures of one slice it says whether its
shape is there, how many milliseconds of a request it explains, and by what evidence.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from longpole.errors import UsageError
from longpole.vocab import Stage

if TYPE_CHECKING:
    from longpole_analytics.shapes._measures import Measures
    from longpole_analytics.stages import TracePartition

Floats = NDArray[np.float64]

NORMAL: Final = "normal"
NAMES: Final = (
    NORMAL,
    "bad_tail",
    "high_ttft_queue",
    "high_ttft_prefill",
    "high_ttft_cold_start",
    "high_ttft_retrieval",
    "high_ttft_opaque",
    "high_tpot",
    "load_saturation",
    "client_slow",
    "workflow_slow_serial_tools",
    "workflow_slow_retries",
    "workflow_slow_wait",
    "cache_hit_no_speedup",
    "mix_longer_inputs",
    "mix_longer_outputs",
)
"""The closed set of names; a sub-cause refines, never renames."""
MIN_REPLICATES: Final = 100
_MIN_N: Final = {0.5: 6, 0.9: 36, 0.95: 72, 0.99: 368}
"""From so many samples on a quantile has a two-sided 95 % order-statistic interval."""


@dataclass(frozen=True)
class ShapeRules:
    """Thresholds of the rules; ``[analytics.shapes]`` in ``longpole.toml`` overrides them.

    Attributes:
        min_ratio: a change counts from this ratio on.
        min_change_ms: and from so many milliseconds.
        min_change_share: and from this share of the baseline's median end-to-end time.
        min_change_share_ttft: the same for the wait before the first token, which is felt on its
            own, however long the answer then takes.
        min_change_tpot_ms: the same for time per output token.
        normal_ratio: below it a median counts as unchanged in front of a bad tail.
        tail_growth: growth of p99/p50 that makes a tail bad.
        false_discovery_rate: Benjamini and Hochberg's, over all tests of a run.
        num_replicates: bootstrap replicates.
        seed: of the bootstrap.
        bootstrap_min_n: smaller samples get order-statistic intervals.
        queue_share: of the change of TTFT, from which on it is the queue's.
        cold_points: rise of the share of cold requests.
        cold_multiple: a request so many times slower than the median is taken for a cold one
            where that is not told.
        cold_tail_share: and if so large a share of requests is.
        cold_usual_share: and if at least this share still takes what is usual.
        affected_points: rise of the share of requests beyond the usual p95 from which on a stage
            is a shape of its own, and not a tail.
        load_rho: rank correlation of load and waiting.
        load_slope_growth: growth of the slope of waiting over load.
        contention_rho: rank correlation of load and time per token.
        stall_share: of the decode time, that long gaps carry.
        buffered_tokens_per_chunk: chunks this large come from a buffer.
        buffered_ttft_share: of the model's time, from which on the answer came in one burst.
        min_hits: cache hits from which on their speed is judged.
        max_cache_gain: share of the time that cached tokens should save, below which they do
            not help.
        cache_loss_points: fall of the share of input tokens that come from the cache.
        retries_of_slow: share of slow requests with retries that makes a storm.
        retries_of_rest: and of the others, at most.
        prefill_exponent: growth of prefill with the prompt's length beyond it is superlinear.
        tpot_tail_ratio: p99/p50 of TPOT that points to eviction or preemption.
        acceptance_loss_points: fall of the share of drafted tokens that are accepted.
        draft_cost_ratio: time of one drafted token over that of one step of the model.
        least_speedup: drafts that speed up less are not worth it.
        least_guesses: share of guesses that must be used for them to pay.
        least_used_branches: share of branches that must be used.
        preempted_points: rise of the share of requests that are preempted.
        place_ratio: one place is slow where requests are so many times likelier to be slow.
        min_place: slow requests it must hold.
        model_share: of the time; below it the workflow, not the model, is slow.
    """

    min_ratio: float = 1.25
    min_change_ms: float = 10.0
    min_change_share: float = 0.05
    min_change_share_ttft: float = 0.02
    min_change_tpot_ms: float = 2.0
    normal_ratio: float = 1.15
    tail_growth: float = 1.5
    false_discovery_rate: float = 0.05
    num_replicates: int = 1000
    seed: int = 1
    bootstrap_min_n: int = 200
    queue_share: float = 0.5
    cold_points: float = 0.10
    cold_multiple: float = 5.0
    cold_tail_share: float = 0.05
    cold_usual_share: float = 0.25
    affected_points: float = 0.10
    load_rho: float = 0.4
    load_slope_growth: float = 1.25
    contention_rho: float = 0.3
    stall_share: float = 0.30
    buffered_tokens_per_chunk: float = 8.0
    buffered_ttft_share: float = 0.9
    min_hits: int = 30
    max_cache_gain: float = 0.10
    cache_loss_points: float = 0.10
    retries_of_slow: float = 0.30
    retries_of_rest: float = 0.10
    prefill_exponent: float = 1.15
    tpot_tail_ratio: float = 3.0
    acceptance_loss_points: float = 0.10
    draft_cost_ratio: float = 0.1
    least_speedup: float = 1.05
    least_guesses: float = 0.3
    least_used_branches: float = 0.5
    preempted_points: float = 0.02
    place_ratio: float = 2.0
    min_place: int = 10
    model_share: float = 0.4

    def __post_init__(self) -> None:
        """Refuse what no interval can be made of.

        Raises:
            UsageError: too few replicates.
        """
        if self.num_replicates < MIN_REPLICATES:
            raise UsageError(
                f"num_replicates = {self.num_replicates}: expected at least {MIN_REPLICATES}"
            )

    def min_n(self, q: float) -> int:
        """Samples a side needs for a quantile."""
        return _MIN_N[q]


@dataclass(frozen=True)
class Evidence:
    """One number behind a verdict. Unknown is ``None``; ``n`` is the smaller side's sample.

    A metric named ``..._adjusted_ms`` compares at equal lengths: ``baseline`` is what the baseline
    would have been with the current requests.
    """

    metric: str
    quantile: float | None
    current: float | None
    baseline: float | None
    ratio: float | None
    ci95: tuple[float, float] | None
    n: int

    def document(self) -> dict[str, Any]:
        """As ``longpole.shapes/1`` has it; what is not finite is unknown."""
        return {
            "metric": self.metric,
            "quantile": self.quantile,
            "current": _finite(self.current),
            "baseline": _finite(self.baseline),
            "ratio": _finite(self.ratio),
            "ci95": [_finite(end) for end in self.ci95] if self.ci95 else None,
            "n": self.n,
        }


def plain(metric: str, current: float, baseline: float, n: int) -> Evidence:
    """A mean or a share on both sides, without interval."""
    ratio = current / baseline if baseline > 0 else None
    return Evidence(metric, None, current, baseline, ratio, None, n)


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


@dataclass(frozen=True)
class Finding:
    """A shape that a rule has found in a slice.

    Attributes:
        name: one of :data:`NAMES`.
        sub_cause: what within it, in a few words.
        excess_ms: mean milliseconds of a request that it explains.
        evidence: the numbers behind it, the decisive one first.
        next_check: what to look at next, one sentence.
    """

    name: str
    sub_cause: str
    excess_ms: float
    evidence: tuple[Evidence, ...]
    next_check: str


@dataclass(frozen=True)
class Shape:
    """The verdict on a slice or a trace.

    Attributes:
        where: the slice by column, ``None`` where its value is unknown; empty for all requests.
        name: one of :data:`NAMES`; ``None`` if the samples are too few to tell.
        sub_cause: refines the name; ``None`` if nothing is known.
        evidence: the numbers behind it, the decisive one first.
        next_check: what to look at next, one sentence.
        also: further shapes that are there, the largest first.
        excess_ms: mean milliseconds of a request that the shape explains.
    """

    where: dict[str, str | None] = field(default_factory=dict)
    name: str | None = None
    sub_cause: str | None = None
    evidence: tuple[Evidence, ...] = ()
    next_check: str | None = None
    also: tuple[Finding, ...] = ()
    excess_ms: float = 0.0

    def document(self) -> dict[str, Any]:
        """The slice as ``longpole.shapes/1`` has it."""
        return {
            "where": self.where,
            "shape": self.name,
            "sub_cause": self.sub_cause,
            "evidence": [row.document() for row in self.evidence],
            "next_check": self.next_check,
            "excess_ms": _finite(self.excess_ms) if self.name else None,
            "also": [
                {
                    "shape": other.name,
                    "sub_cause": other.sub_cause,
                    "excess_ms": _finite(other.excess_ms),
                    "evidence": [row.document() for row in other.evidence],
                    "next_check": other.next_check,
                }
                for other in self.also
            ],
        }


class Refined(NamedTuple):
    """What a sub-cause says within a shape: a few words, the numbers, and what to check.

    Without a check of its own, the shape's stays.
    """

    text: str
    evidence: tuple[Evidence, ...]
    next_check: str | None


class TraceCase(NamedTuple):
    """One trace that has a shape: its split, the stage, its facts, and requests of its length."""

    split: TracePartition
    stage: Stage
    facts: Mapping[str, Any]
    like: pl.DataFrame
    rules: ShapeRules

    def number(self, name: str) -> float | None:
        """A fact of the trace that is a number; ``None`` if it is unknown."""
        value = self.facts.get(name)
        return None if value is None else float(value)

    def others(self, name: str) -> Floats:
        """What is known of a column of the like requests."""
        if name not in self.like.columns:
            return np.empty(0)
        values: Floats = self.like[name].drop_nulls().cast(pl.Float64).to_numpy()
        return values[np.isfinite(values)]


@dataclass(frozen=True)
class SubCause:
    """What may stand behind a shape.

    Attributes:
        order: the lower is named first.
        shapes: names of the shapes that it refines.
        test: what is found in a slice; ``None`` if it is not there.
        of_trace: the same for one trace.
    """

    order: int
    shapes: tuple[str, ...]
    test: Callable[[Measures, Finding], Refined | None]
    of_trace: Callable[[TraceCase], Refined | None]


@dataclass(frozen=True)
class Rule:
    """A shape rule.

    Attributes:
        order: at equal excess the lower comes first; rules of a higher order may ask what was
            found before.
        needs: metrics of which at least one must be measured on both sides.
        test: the shape found in a slice, given what earlier rules found; ``None`` if it is not
            there.
    """

    order: int
    needs: tuple[str, ...]
    test: Callable[[Measures, tuple[Finding, ...]], Finding | None]
