"""What is measured of a slice before any rule looks: quantiles on both sides, at equal lengths.

Residuals, not raw values, tell a regression from a shift of the mix. Time to first content is
divided by the baseline's line over uncached tokens (Theil-Sen, cold requests left out); decoding
counts per token; end-to-end time is standardised to the baseline's mix of input and output
lengths, within the strata that both sides have.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from longpole_analytics.shapes._columns import Columns, Floats, Group, mean, share
from longpole_analytics.shapes._fits import MIN_POINTS, Line, line
from longpole_analytics.shapes._samples import (
    Sample,
    Test,
    compare,
    exceedance_p_value,
    sample,
)
from longpole_analytics.shapes.base import ShapeRules

TTFT: Final = "ttft_adjusted_ms"
PREFILL: Final = "prefill_adjusted_ms"
E2E: Final = "e2e_adjusted_ms"
TPOT: Final = "tpot_ms"
TAIL: Final = "tail"
COLD: Final = "is_cold"
QUANTILES: Final = (0.5, 0.9, 0.95, 0.99)
STAGES: Final = ("retrieval_ms", "tool_ms", "retry_ms", "wait_ms", "client_ms")
"""Many requests have none of these, so p90 is looked at too: there a share shows best."""
PLAIN: Final = (
    "ttft_ms",
    TPOT,
    "e2e_ms",
    "model_ms",
    "queue_ms",
    "admission_ms",
    "network_ms",
    "retrieval_ms",
    "tool_ms",
    "retry_ms",
    "wait_ms",
    "client_ms",
)
TOKENS: Final = ("input_tokens", "uncached_tokens", "output_tokens", "in_flight")
BEFORE_FIRST_TOKEN: Final = (
    "ttft_ms",
    TTFT,
    PREFILL,
    "queue_ms",
    "admission_ms",
    "network_ms",
    "retrieval_ms",
)
TAILED: Final = (TTFT, TPOT, E2E, "e2e_ms")
Key = tuple[str, float | str]
Cells = NDArray[np.int64]
MAX_INPUT_STRATA: Final = 10
MAX_OUTPUT_STRATA: Final = 5
ROWS_PER_STRATUM: Final = 10
MAX_SUPPORT: Final = 0.95
"""Residuals are compared up to this quantile of the baseline's uncached tokens."""


@dataclass
class Measures:
    """The tests of one slice, by metric and quantile, and the columns for what else rules ask.

    ``rows`` are the current requests as they came; ``discoveries`` the tests that hold after the
    correction over the whole run.
    """

    where: dict[str, str | None]
    base: Columns
    current: Columns
    rules: ShapeRules
    rows: pl.DataFrame
    lines: dict[str, Line | None]
    tests: dict[Key, Test] = field(default_factory=dict)
    samples: dict[str, tuple[Sample, Sample]] = field(default_factory=dict)
    discoveries: set[Key] = field(default_factory=set)

    def floor(self, metric: str) -> float:
        """The least change of a metric that counts, in its unit."""
        if metric in TOKENS:
            return 0.0
        if metric == TPOT:
            return self.rules.min_change_tpot_ms
        is_ttft = metric in BEFORE_FIRST_TOKEN
        share = self.rules.min_change_share_ttft if is_ttft else self.rules.min_change_share
        usual = self.samples["e2e_ms"][0].quantile(0.5)
        return max(self.rules.min_change_ms, 0.0 if math.isnan(usual) else share * usual)

    @property
    def n(self) -> int:
        """Requests of the smaller side."""
        return min(len(self.base["e2e_ms"]), len(self.current["e2e_ms"]))

    def is_up(self, metric: str, q: float) -> bool:
        """Whether a quantile rose by the least ratio or more, and surely."""
        test = self.tests.get((metric, q))
        return (
            test is not None
            and test.is_up
            and (metric, q) in self.discoveries
            and (test.ratio is None or test.ratio >= self.rules.min_ratio)
        )

    def fires(self, metric: str) -> Test | None:
        """The lowest quantile that rose surely and by enough; ``None`` if none did."""
        floor = self.floor(metric)
        for q in QUANTILES:
            test = self.tests.get((metric, q))
            if test is not None and self.is_up(metric, q) and test.change >= floor:
                return test
        return None

    def ratio(self, metric: str, q: float = 0.5) -> float:
        """Ratio of a quantile; 1 where there is none."""
        test = self.tests.get((metric, q))
        return test.ratio if test is not None and test.ratio is not None else 1.0

    def test(self, metric: str, q: float = 0.5) -> tuple[Test, ...]:
        """The test of a quantile as a tuple of one; empty if it was not made."""
        test = self.tests.get((metric, q))
        return (test,) if test is not None else ()

    def change(self, name: str) -> float:
        """Change of the mean of a column; 0 where a side knows nothing."""
        base, current = self.base[name], self.current[name]
        if not np.isfinite(base).any() or not np.isfinite(current).any():
            return 0.0
        return mean(current) - mean(base)

    def is_known(self, name: str) -> bool:
        """Whether both sides know a column."""
        return bool(np.isfinite(self.base[name]).any() and np.isfinite(self.current[name]).any())

    def is_told(self, name: str) -> bool:
        """Whether both sides have a time above 0: a stage that nobody measured sums to 0."""
        return all(bool((side[name] > 0).any()) for side in (self.base, self.current))

    def excess(self, name: str) -> float:
        """Mean milliseconds above the baseline's line of ``ttft_ms`` or ``prefill_ms``."""
        fitted = self.lines[name]
        if fitted is None:
            return self.change(name)
        above = [side[name] - fitted.at(_x(side, self.base)) for side in (self.base, self.current)]
        return mean(above[1]) - mean(above[0])

    def decode_excess(self) -> float:
        """Mean milliseconds of decoding above the baseline's median time per token."""
        usual = sample(self.base[TPOT]).quantile(0.5)
        above = [(side[TPOT] - usual) * side["steps"] for side in (self.base, self.current)]
        return mean(above[1]) - mean(above[0])

    def share_change(self, name: str) -> float:
        """Rise of the share of requests that have a mark, or a time above 0."""
        base, current = share(self.base[name]), share(self.current[name])
        return 0.0 if base is None or current is None else current - base

    def affected(self, metric: str) -> float:
        """Rise of the share of requests beyond the baseline's p95."""
        base, current = self.samples[metric]
        if not base.n or not current.n:
            return 0.0
        limit = base.quantile(0.95)
        return float((current.values > limit).mean() - (base.values > limit).mean())


def measure(group: Group, rules: ShapeRules) -> Measures:
    """The measures of a slice."""
    base, current = group.base, group.current
    warm = base["is_cold"] != 1
    lines = {
        name: line(_x(base, base)[warm], base[name][warm]) for name in ("ttft_ms", "prefill_ms")
    }
    found = Measures(group.where, base, current, rules, group.rows, lines)
    for name in (*PLAIN, *TOKENS):
        found.samples[name] = tuple(sample(side[name], _weights(side)) for side in (base, current))  # type: ignore[assignment]
    found.samples |= dict(_adjusted(found))
    found.samples[E2E] = _standardised(base, current)
    for metric, (before, now) in found.samples.items():
        for q in QUANTILES:
            if q == 0.9 and metric not in STAGES:
                continue
            test = compare(metric, before, now, q, rules)
            if test is not None:
                found.tests[metric, q] = _in_ms(test, found)
    for metric in (*TAILED, *STAGES):
        tail = _tail(metric, *found.samples[metric], rules)
        if tail is not None:
            found.tests[metric, TAIL] = tail
    cold = _cold_share(base, current)
    if cold is not None:
        found.tests[COLD, TAIL] = cold
    return found


def _cold_share(base: Columns, current: Columns) -> Test | None:
    """The share of cold requests on both sides, where it is told.

    Where only cold ones are marked, as engines do it, the others are warm.
    """
    marks = [base["is_cold"], current["is_cold"]]
    told = np.concatenate(marks)
    if np.isfinite(told).any() and not (told == 0).any():
        marks = [np.nan_to_num(side) for side in marks]
    known = [side[np.isfinite(side)] for side in marks]
    n = min(len(marks) for marks in known)
    if not n:
        return None
    before, now = (float(marks.mean()) for marks in known)
    cold = [int(marks.sum()) for marks in known]
    p_value = exceedance_p_value(cold[0], len(known[0]), cold[1], len(known[1]))
    ratio = now / before if before > 0 else None
    return Test("cold_share", math.nan, now, before, ratio, 1.0, math.inf, now - before, n, p_value)


def _x(side: Columns, base: Columns) -> Floats:
    """Uncached tokens; where almost no request tells them, the baseline's median for the others.

    An unknown length is not filled in where others are known: a longer mix would look like a
    slower engine.
    """
    x = side["uncached_tokens"]
    known = np.isfinite(x)
    if known.sum() >= MIN_POINTS:
        return x
    return np.where(known, x, sample(base["uncached_tokens"]).quantile(0.5))


def _weights(side: Columns) -> Floats | None:
    weights = side["weight"]
    return np.where(np.isfinite(weights), weights, 1.0) if np.isfinite(weights).any() else None


def _adjusted(found: Measures) -> Iterator[tuple[str, tuple[Sample, Sample]]]:
    """Residuals of warm requests: the share of what the line predicts.

    Prompts longer than the baseline's are left out: no line tells what they should take.
    """
    longest = sample(_x(found.base, found.base)).quantile(MAX_SUPPORT)
    for metric, name in ((TTFT, "ttft_ms"), (PREFILL, "prefill_ms")):
        fitted = found.lines[name]
        sides = []
        for side in (found.base, found.current):
            x, weights = _x(side, found.base), _weights(side)
            if fitted is None:
                sides.append(sample(np.empty(0)))
                continue
            values = np.where(side["is_cold"] != 1, side[name] / fitted.at(x), np.nan)
            if not math.isnan(longest):
                values[x > longest] = np.nan
            sides.append(sample(values, weights))
        yield metric, (sides[0], sides[1])


def _in_ms(test: Test, found: Measures) -> Test:
    """A residual's test in milliseconds: of the current requests, as they are and as they were."""
    if test.metric not in (TTFT, PREFILL) or test.ratio is None:
        return test
    name = "ttft_ms" if test.metric == TTFT else "prefill_ms"
    now = sample(found.current[name][found.current["is_cold"] != 1]).quantile(test.quantile)
    then = now / test.ratio
    return test._replace(current=now, baseline=then, change=now - then)


def _standardised(base: Columns, current: Columns) -> tuple[Sample, Sample]:
    """End-to-end times, the current ones weighted to the baseline's mix of lengths.

    Lengths that the baseline has never seen are left out, and unknown ones where most are known.
    Within a stratum a time is scaled from
    its own output length to the stratum's, by the baseline's line.
    """
    sides = base, current
    wanted = max(len(base["e2e_ms"]) // ROWS_PER_STRATUM, 1)
    num_out = min(MAX_OUTPUT_STRATA, max(round(math.sqrt(wanted / 2)), 1))
    num_in = min(MAX_INPUT_STRATA, max(wanted // num_out, 1))
    size = (num_in + 2) * (num_out + 2)
    cells = [
        _bins(side["input_tokens"], base["input_tokens"], num_in) * (num_out + 2)
        + _bins(side["output_tokens"], base["output_tokens"], num_out)
        for side in sides
    ]
    values = _of_known_length(sides, _at_length(sides, cells, size))
    weights = []
    for side, known in zip(sides, values, strict=True):
        own = _weights(side)
        weights.append(np.isfinite(known) * (np.ones(len(known)) if own is None else own))
    sums = [np.bincount(c, weights=w, minlength=size) for c, w in zip(cells, weights, strict=True)]
    both = (sums[0] > 0) & (sums[1] > 0)
    factor = np.divide(sums[0], sums[1], out=np.zeros(size), where=both)
    return (
        sample(values[0], weights[0] * both[cells[0]]),
        sample(values[1], weights[1] * factor[cells[1]]),
    )


def _of_known_length(sides: tuple[Columns, Columns], values: list[Floats]) -> list[Floats]:
    """Only the times of requests whose lengths are known, if both sides know enough of them."""
    for name in ("input_tokens", "output_tokens"):
        known = [np.isfinite(side[name]) for side in sides]
        if min(marks.sum() for marks in known) >= MIN_POINTS:
            values = [np.where(k, v, np.nan) for k, v in zip(known, values, strict=True)]
    return values


def _at_length(sides: tuple[Columns, Columns], cells: list[Cells], size: int) -> list[Floats]:
    """End-to-end times at the mean output length of the baseline's stratum."""
    fitted = line(sides[0]["output_tokens"], sides[0]["e2e_ms"])
    if fitted is None or fitted.slope <= 0:
        return [side["e2e_ms"] for side in sides]
    expected = [np.nan_to_num(fitted.at(side["output_tokens"]), nan=1.0) for side in sides]
    counts = np.bincount(cells[0], minlength=size)
    sums = np.bincount(cells[0], weights=expected[0], minlength=size)
    usual = np.divide(sums, counts, out=np.ones(size), where=counts > 0)
    return [
        side["e2e_ms"] * usual[cell] / at
        for side, cell, at in zip(sides, cells, expected, strict=True)
    ]


def _bins(values: Floats, base: Floats, num: int) -> Cells:
    """The stratum of each value among ``num`` of equal size in the baseline.

    Beyond the baseline's largest is a stratum of its own, and so is unknown.
    """
    known = base[np.isfinite(base)]
    if not len(known):
        return np.where(np.isfinite(values), num, num + 1).astype(np.int64)
    edges = np.quantile(known, np.arange(1, num + 1) / num, method="inverted_cdf")
    inside = np.searchsorted(edges, values, side="left")
    return np.where(np.isfinite(values), inside, num + 1).astype(np.int64)


def _tail(metric: str, base: Sample, current: Sample, rules: ShapeRules) -> Test | None:
    """Growth of p99 over p50, tested by how many lie beyond the tail as it was.

    Many requests spend nothing in a stage: there it is the growth of p99 itself.
    """
    n = min(base.size, current.size)
    if n < rules.min_n(0.95):
        return None
    is_stage = metric in STAGES
    middles = (1.0, 1.0) if is_stage else (base.quantile(0.5), current.quantile(0.5))
    if min(middles) <= 0:
        return None
    tails = base.quantile(0.99) / middles[0], current.quantile(0.99) / middles[1]
    beyond = tails[0] * math.sqrt(rules.tail_growth)
    above = [
        side.above(beyond * middle) for side, middle in zip((base, current), middles, strict=True)
    ]
    return Test(
        metric if is_stage else f"{metric.removesuffix('_ms')}_p99_over_p50",
        0.99,
        tails[1],
        tails[0],
        tails[1] / tails[0] if tails[0] > 0 else None,
        1.0,
        math.inf,
        current.quantile(0.99) - tails[0] * middles[1],
        n,
        exceedance_p_value(above[0], base.size, above[1], current.size),
    )
