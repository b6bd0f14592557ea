"""Every number of a comparison with its interval: quantiles, rates, means."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np

from longpole_analytics.scorecard import rates
from longpole_analytics.scorecard.interval import MIN_CLUSTERS, Interval, finite
from longpole_analytics.scorecard.mix import Mix, equal_length
from longpole_analytics.scorecard.resample import Clusters, Sample, resampled
from longpole_analytics.scorecard.rules import QUANTILES, CardRules, Plan
from longpole_analytics.scorecard.sides import METRICS, Side, weighted
from longpole_analytics.scorecard.survival import (
    Floats,
    Times,
    pessimistic_quantiles,
    quantiles,
)
from longpole_analytics.stats import rank_interval

EQUAL_LENGTH: Final = "e2e_at_equal_length_ms"
_LENGTH_SHIFT: Final = 0.05
_MAX_DRAWS: Final = 500_000_000
"""Requests times resamples."""
_MIN_RESAMPLES: Final = 400
_COLUMNS: Final = ("cost_usd", "is_accepted", "quality", "output_tokens", "reasoning_tokens")


class Ratio(NamedTuple):
    """A quantile on both sides, in the metric's unit, and candidate / baseline.

    ``low`` and ``high`` are the interval's ends, ``high`` infinite where a resample of the
    candidate does not reach the quantile. ``reason`` says why something is missing: ``too_few``,
    ``not_reached``, ``zero``. ``pessimistic`` are both quantiles if what did not end never does,
    ``None`` where nothing is open; ``raw`` both as they were before the mix was evened out.
    """

    name: str
    quantile: float
    base: float | None
    cand: float | None
    ratio: float | None
    low: float | None
    high: float | None
    n_base: int
    n_cand: int
    reason: str | None
    last: tuple[float | None, float | None]
    pessimistic: tuple[float | None, float | None] | None
    raw: tuple[float | None, float | None] | None
    interval: Interval | None

    def document(self) -> dict[str, Any]:
        """One row of the document."""
        return {
            "name": self.name,
            "quantile": self.quantile,
            "base": self.base,
            "cand": self.cand,
            "ratio": self.ratio,
            "ci95": None if self.low is None else [self.low, finite(self.high)],
            "n": [self.n_base, self.n_cand],
            "reason": self.reason,
            "last": list(self.last) if self.reason == "not_reached" else None,
            "pessimistic": None if self.pessimistic is None else list(self.pessimistic),
            "raw": None if self.raw is None else list(self.raw),
        }


class Rated(NamedTuple):
    """A rate on both sides and its difference."""

    base: rates.Share
    cand: rates.Share
    difference: rates.Difference


class Mean(NamedTuple):
    """A mean on both sides and how they compare: ``kind`` is ``ratio`` or ``difference``."""

    name: str
    kind: str
    base: float | None
    cand: float | None
    value: float | None
    interval: Interval | None
    known: tuple[float, float]
    n: tuple[int, int]
    num_clusters: tuple[int, int]


@dataclass(frozen=True)
class Compared:
    """All numbers of a comparison."""

    ratios: list[Ratio]
    rates: dict[str, Rated]
    means: dict[str, Mean]
    alpha: float
    one_sided: frozenset[str]
    """Rates that one side alone records."""

    def ratio(self, name: str, q: float) -> Ratio | None:
        """The row of a quantile; ``None`` if there is none."""
        return next((r for r in self.ratios if r.name == name and r.quantile == q), None)


def compared(
    base: Side, cand: Side, clusters: Clusters, mix: Mix, plan: Plan, rules: CardRules
) -> Compared:
    """Compare two sides in everything.

    Args:
        base: the baseline.
        cand: the candidate.
        clusters: those of :func:`longpole_analytics.scorecard.sides.sides`.
        mix: how to weigh them alike.
        plan: the target, whose quantile is told too, the confidence and the seed.
        rules: how many resamples.
    """
    asked = [weighted(side, f) for side, f in zip((base, cand), mix.asked, strict=True)]
    answered = [weighted(side, f) for side, f in zip((base, cand), mix.answered, strict=True)]
    shares = tuple(sorted({*QUANTILES, plan.quantile or QUANTILES[0]}))
    pairs = {name: (answered[0].times[name], answered[1].times[name]) for name in METRICS
             if name in base.times}  # fmt: skip
    even = equal_length(*asked) if _differ(*asked) else None
    if even is not None:
        pairs[EQUAL_LENGTH] = even[:2]
    samples = tuple(
        [Sample.of(pair[at], side.cluster) for pair in pairs.values()]
        for at, side in enumerate((base, cand))
    )
    sums, known = zip(*(_sums(side, clusters, at) for at, side in enumerate(asked)), strict=True)
    drawn, totals = resampled(
        (samples[0], samples[1]), (sums[0], sums[1]), clusters, shares, _num(rules, base, cand),
        plan.seed,
    )  # fmt: skip
    raw = (base.times, cand.times) if mix.is_standardised else None
    ratios = []
    for at, name in enumerate(pairs):
        before = (raw[0][name], raw[1][name]) if raw is not None and name in raw[0] else None
        found = _read(pairs[name], shares, (base, cand), before)
        ratios += [
            _ratio(name, q, k, found, drawn[:, at, :, k], plan.alpha) for k, q in enumerate(shares)
        ]
    rated = _rated(asked[0], asked[1], clusters, plan.alpha)
    one_sided = (base.rates.keys() | cand.rates.keys()) - rated.keys()
    means = _means(sums, totals, known)
    return Compared(ratios, rated, means, plan.alpha, frozenset(one_sided))


def _num(rules: CardRules, base: Side, cand: Side) -> int:
    """Resamples: of very many requests fewer are drawn, which vary less."""
    most = max(_MAX_DRAWS // max(base.n + cand.n, 1), _MIN_RESAMPLES)
    return min(rules.num_resamples, most)


# --- quantiles ----------------------------------------------------------------------------------
class _Read(NamedTuple):
    """What a metric's times say by themselves, on both sides; lists are by quantile."""

    n: list[int]
    last: list[float | None]
    found: list[list[float | None]]
    extreme: list[list[float | None]] | None
    before: list[list[float | None]] | None
    num_clusters: int


def _read(
    pair: tuple[Times, Times],
    shares: Sequence[float],
    both: tuple[Side, Side],
    before: tuple[Times, Times] | None,
) -> _Read:
    known = [times.known() for times in pair]
    used = [~np.isnan(times.value) & (times.weight > 0) for times in pair]
    is_open = any(not times.is_event.all() for times in known)
    raw = None if before is None else [quantiles(times.known(), shares) for times in before]
    return _Read(
        [len(times.value) for times in known],
        [float(times.value[-1]) if len(times.value) else None for times in known],
        [quantiles(times, shares) for times in known],
        [pessimistic_quantiles(times, shares) for times in known] if is_open else None,
        raw,
        min(
            int(np.count_nonzero(np.bincount(side.cluster[rows])))
            for side, rows in zip(both, used, strict=True)
        ),
    )


def _ratio(name: str, q: float, k: int, read: _Read, drawn: Floats, alpha: float) -> Ratio:
    n, last, num_clusters = read.n, read.last, read.num_clusters
    found = [side[k] for side in read.found]
    extreme, before = (
        None if table is None else (table[0][k], table[1][k])
        for table in (read.extreme, read.before)
    )
    row = Ratio(
        name, q, found[0], found[1], None, None, None, n[0], n[1], None, (last[0], last[1]),
        extreme, before, None,
    )  # fmt: skip
    is_thin = not min(n) or None in rank_interval(min(n), q) or num_clusters < MIN_CLUSTERS
    if is_thin:
        return row._replace(reason="too_few")
    if (found[0] is not None and found[0] <= 0) or (found[1] is not None and found[1] <= 0):
        return row._replace(reason="zero")
    interval = _log_ratio(drawn, (found[0], found[1]), (last[0], last[1]), num_clusters)
    ratio = None if None in found else math.exp(interval.point)
    low, high = (_exp(end) for end in interval.ends(alpha))
    return row._replace(
        reason=None if ratio is not None else "not_reached",
        ratio=ratio,
        low=low,
        high=high,
        interval=interval,
    )


def _log_ratio(
    drawn: Floats,
    found: tuple[float | None, float | None],
    last: tuple[float | None, float | None],
    num_clusters: int,
) -> Interval:
    """The logarithm of candidate / baseline in each resample, at the least and at the most.

    A quantile that a resample does not reach lies beyond the last time that was seen.
    """
    ends = []
    for side, latest in zip(drawn, last, strict=True):
        at_least = np.where(np.isinf(side), latest, side)
        ends.append(
            (np.where(np.isnan(side), 0.0, at_least), np.where(np.isnan(side), np.inf, side))
        )
    (base_least, base_most), (cand_least, cand_most) = ends
    with np.errstate(divide="ignore", invalid="ignore"):
        least = np.log(cand_least) - np.log(base_most)
        most = np.log(cand_most) - np.log(base_least)
    least, most = (
        np.nan_to_num(least, nan=-np.inf, neginf=-np.inf, posinf=np.inf),
        np.nan_to_num(most, nan=np.inf, neginf=-np.inf, posinf=np.inf),
    )
    base, cand = found
    if base is not None and cand is not None:
        point = math.log(cand) - math.log(base)
    else:  # between what is sure: only the ends are told
        finite_ends = [
            x for x in (float(np.median(least)), float(np.median(most))) if np.isfinite(x)
        ]
        point = finite_ends[0] if finite_ends else 0.0
    return Interval(point, np.sort(least), np.sort(most), num_clusters)


def _exp(value: float) -> float:
    return math.exp(value) if value < 700 else math.inf


def _differ(base: Side, cand: Side) -> bool:
    """Whether mean answers are so different that times at an equal length are worth telling."""
    means = []
    for side in (base, cand):
        tokens = side.number("output_tokens")
        known = ~np.isnan(tokens) & (side.weight > 0)
        if not known.any():
            return False
        means.append(float(np.average(tokens[known], weights=side.weight[known])))
    return min(means) > 0 and abs(math.log(means[1] / means[0])) > _LENGTH_SHIFT


# --- rates and means ----------------------------------------------------------------------------
def _rated(base: Side, cand: Side, clusters: Clusters, alpha: float) -> dict[str, Rated]:
    num = sum(clusters)
    found: dict[str, Rated] = {}
    for name in base.rates.keys() & cand.rates.keys():
        first, second = (rates.share(s.rates[name], s.weight, s.cluster, num) for s in (base, cand))
        if first is not None and second is not None:
            first, second = first.like(second), second.like(first)
            found[name] = Rated(first, second, rates.difference(first, second, alpha))
    return {name: found[name] for name in base.rates if name in found}


class _Known(NamedTuple):
    share: dict[str, float]
    n: dict[str, int]
    num_clusters: dict[str, int]


def _sums(side: Side, clusters: Clusters, at: int) -> tuple[Floats, _Known]:
    """By cluster of a side, for each column the sum of what is known and how much is known."""
    first = 0 if at == 0 else clusters.first
    num = clusters.first + clusters.both if at == 0 else clusters.both + clusters.second
    own = side.cluster.astype(np.int64) - first
    columns, known = [], _Known({}, {}, {})
    total = float(side.weight.sum())
    for name in _COLUMNS:
        if name == "is_accepted":
            rate = side.rates.get("accepted_rate")
            is_known = np.zeros(side.n, np.bool_) if rate is None else rate.is_known
            values = np.zeros(side.n) if rate is None else rate.is_so.astype(np.float64)
        else:
            values = side.number(name)
            is_known = ~np.isnan(values)
            values = np.where(is_known, values, 0.0)
        columns.append(np.bincount(own, side.weight * values * is_known, num))
        columns.append(np.bincount(own, side.weight * is_known, num))
        used = is_known & (side.weight > 0)
        known.share[name] = float(side.weight[used].sum()) / total if total else 0.0
        known.n[name] = int(used.sum())
        known.num_clusters[name] = len(np.unique(own[used]))
    return np.ascontiguousarray(np.stack(columns, 1)), known


def _means(sums: tuple[Floats, ...], totals: Floats, known: tuple[_Known, ...]) -> dict[str, Mean]:
    """The means that both sides know; costs per accepted outcome from their two parts."""
    whole = [side.sum(0)[None, :] for side in sums]
    spread = [totals[0], totals[1]]

    def mean(table: Floats, name: str) -> Floats:
        at = 2 * _COLUMNS.index(name)
        with np.errstate(divide="ignore", invalid="ignore"):
            found: Floats = table[:, at] / table[:, at + 1]
        return found

    def per_accepted(table: Floats) -> Floats:
        with np.errstate(divide="ignore", invalid="ignore"):
            found: Floats = mean(table, "cost_usd") / mean(table, "is_accepted")
        return found

    wanted = {
        "cost_per_accepted_usd": ("ratio", per_accepted, ("cost_usd", "is_accepted")),
        "cost_per_request_usd": ("ratio", lambda t: mean(t, "cost_usd"), ("cost_usd",)),
        "quality": ("difference", lambda t: mean(t, "quality"), ("quality",)),
        "output_tokens": ("ratio", lambda t: mean(t, "output_tokens"), ("output_tokens",)),
        "reasoning_tokens": ("ratio", lambda t: mean(t, "reasoning_tokens"), ("reasoning_tokens",)),
    }
    found = {}
    for name, (kind, of, columns) in wanted.items():
        base, cand = (float(of(side)[0]) for side in whole)
        n, num_clusters, shares = (
            [min(getattr(side, what)[column] for column in columns) for side in known]
            for what in ("n", "num_clusters", "share")
        )
        if not max(n):
            continue
        drawn = [of(side) for side in spread]
        value, interval = _contrast(kind, base, cand, (drawn[0], drawn[1]), min(num_clusters))
        found[name] = Mean(
            name, kind, finite(base), finite(cand), value, interval,
            (shares[0], shares[1]), (n[0], n[1]), (num_clusters[0], num_clusters[1]),
        )  # fmt: skip
    return found


def _contrast(
    kind: str, base: float, cand: float, drawn: tuple[Floats, Floats], num_clusters: int
) -> tuple[float | None, Interval | None]:
    if not math.isfinite(base) or not math.isfinite(cand):
        return None, None
    if kind == "difference":
        change = drawn[1] - drawn[0]
        value = point = cand - base
    else:
        if base <= 0 or cand <= 0:
            return None, None
        with np.errstate(divide="ignore", invalid="ignore"):
            change = np.log(drawn[1]) - np.log(drawn[0])
        value, point = cand / base, math.log(cand / base)
    least = np.sort(np.where(np.isfinite(change), change, -np.inf))
    most = np.sort(np.where(np.isfinite(change), change, np.inf))
    return value, Interval(point, least, most, num_clusters)
