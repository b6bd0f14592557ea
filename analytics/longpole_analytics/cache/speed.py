"""Time to first token that a prompt cache really saved, measured in two ways.

By a model: the median of the time to first token (of the prefill where the engine tells it) as a
line or a parabola in the tokens that were not cached, with the load and the hour beside it, by
least absolute deviations (median regression: Koenker & Bassett, Econometrica 46, 1978; solved by
reweighted least squares). By matching: hits against misses of the same prompt length within
10 %, the same hour and the same third of the load. Time is only claimed where both agree and the
slope is surely above 0; a hit rate alone claims nothing.
"""

from typing import Final, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from longpole_analytics.cache.rules import CacheRules
from longpole_analytics.weighted import median_of, weights_of

Floats = NDArray[np.float64]
NUM_DRAWS: Final = 200
MAX_CALLS: Final = 4000
"""Calls of a group that are fitted, evenly spread over time."""
MIN_FOR_CURVE: Final = 500
NUM_FOLDS: Final = 5
_STEPS: Final = 30
_SEED: Final = 20261130
_LENGTH_STEP: Final = float(np.log(1.1))
SAVES: Final = "saves"
NO_SPEEDUP: Final = "no measurable speedup"


class Estimate(NamedTuple):
    """Milliseconds saved a hit, in the median, with its 95 % interval, of ``n`` hits or pairs."""

    ms: float
    low_ms: float
    high_ms: float
    n: int


class Speed(NamedTuple):
    """What the cache of one model, tier and service saved.

    Attributes:
        model: provider's name and model.
        service_tier: tier received.
        service: service that called.
        metric: ``prefill_ms`` or ``ttft_ms``, what was measured.
        num_hits: calls with tokens read from the cache.
        num_misses: without.
        by_model: by the fitted line; ``None`` where there are too few calls.
        by_matching: by matched pairs; ``None`` where too few match.
        slope_ms_per_1k: milliseconds of a thousand tokens that are not cached, and its interval.
        verdict: ``saves``, ``no measurable speedup``, or ``None`` of too few calls.
        reason: why there is none, or which measure is missing.
    """

    model: str
    service_tier: str | None
    service: str | None
    metric: str
    num_hits: int
    num_misses: int
    by_model: Estimate | None
    by_matching: Estimate | None
    slope_ms_per_1k: tuple[float, float, float] | None
    verdict: str | None
    reason: str | None


def model_name(calls: pl.DataFrame) -> pl.Expr:
    """The one name of each call's model: the price table's, else provider and model as told.

    Null where nothing tells it. Columns may be missing.
    """
    there = calls.columns
    parts = [
        pl.coalesce(known)
        for names in (("provider",), ("response_model", "request_model"))
        if (known := [name for name in names if name in there])
    ]
    told = pl.concat_str(parts, separator="/", ignore_nulls=True) if parts else pl.lit("")
    told = pl.when(told != "").then(told)
    return pl.coalesce("model_key", told) if "model_key" in there else told


def speeds(calls: pl.DataFrame, rules: CacheRules) -> list[Speed]:
    """The time saved of each model, tier and service that has hits, the most calls first."""
    names = ("provider", "response_model", "request_model", "service_tier", "service")
    numbers = ("start_ns", "input_tokens", "cached_input_tokens", "ttft_ms", "prefill_ms")
    table = calls.with_columns(
        *(pl.lit(None, pl.String).alias(n) for n in names if n not in calls.columns),
        *(pl.lit(None, pl.Float64).alias(n) for n in numbers if n not in calls.columns),
    )
    if "in_flight" not in table.columns:
        table = table.with_columns(in_flight=pl.lit(None, pl.Float64))
    if "is_cold_start" in table.columns:
        table = table.filter(~pl.col("is_cold_start").fill_null(False))
    is_sound = (pl.col("cached_input_tokens") >= 0) & (
        pl.col("input_tokens") >= pl.col("cached_input_tokens")
    )
    table = table.with_columns(model=model_name(table)).filter(is_sound)
    groups = table.group_by("model", "service_tier", "service", maintain_order=True)
    found = [_speed(key, group.sort("start_ns"), rules) for key, group in groups]
    known = [speed for speed in found if speed.num_hits]
    return sorted(known, key=lambda s: (-s.num_hits - s.num_misses, s.model, s.service or ""))


def _speed(key: tuple[object, ...], group: pl.DataFrame, rules: CacheRules) -> Speed:
    model, tier, service = key
    has_prefill = group["prefill_ms"].count() >= group["ttft_ms"].count() > 0 or (
        not group["ttft_ms"].count() and group["prefill_ms"].count() > 0
    )
    metric = "prefill_ms" if has_prefill else "ttft_ms"
    known = group.drop_nulls(metric)
    is_hit = (known["cached_input_tokens"] > 0).to_numpy()
    num_hits, num_misses = int(is_hit.sum()), int((~is_hit).sum())
    few = min(num_hits, num_misses) < rules.min_requests
    fitted = None if few else _fitted(known, metric)
    matched = None if few else _matched(known, metric, rules.min_requests)
    by_model, slope = fitted if fitted is not None else (None, None)
    verdict, reason = _verdict(by_model, matched, slope, rules)
    said = str(model or "unknown"), None if tier is None else str(tier)
    return Speed(
        *said,
        None if service is None else str(service),
        metric,
        num_hits,
        num_misses,
        by_model,
        matched,
        slope,
        verdict,
        reason,
    )


def _verdict(
    by_model: Estimate | None,
    by_matching: Estimate | None,
    slope: tuple[float, float, float] | None,
    rules: CacheRules,
) -> tuple[str | None, str | None]:
    if by_model is None or slope is None:
        return None, f"fewer than {rules.min_requests} hits or misses"
    if by_matching is None:
        return None, "too few hits and misses of equal length, hour and load to compare"
    if slope[1] <= 0:
        return NO_SPEEDUP, "the slope's interval holds 0"
    larger = max(abs(by_model.ms), abs(by_matching.ms))
    if abs(by_model.ms - by_matching.ms) > rules.max_disagreement * larger:
        return NO_SPEEDUP, "the two measures disagree"
    return SAVES, None


# --- by a model ---------------------------------------------------------------------------------
def _fitted(group: pl.DataFrame, metric: str) -> tuple[Estimate, tuple[float, float, float]] | None:
    if group.height > MAX_CALLS:
        group = group[np.linspace(0, group.height - 1, MAX_CALLS).round().astype(np.int64)]
    y = group[metric].cast(pl.Float64).to_numpy()
    size = group["input_tokens"].cast(pl.Float64).to_numpy() / 1000
    fresh = size - group["cached_input_tokens"].cast(pl.Float64).to_numpy() / 1000
    beside, num = _beside(group), weights_of(group)
    is_curved = len(y) >= MIN_FOR_CURVE and _is_curve_better(fresh, beside, y, num)
    design = _design(fresh, beside, is_curved)
    is_hit = fresh < size
    rng = np.random.default_rng(_SEED)
    weights = _lad(design, y, num)
    if weights is None:
        return None
    saved = _saved(weights, size[is_hit], fresh[is_hit], num[is_hit], is_curved)
    draws, slopes = [], []
    for _ in range(NUM_DRAWS):
        rows = rng.integers(0, len(y), len(y))
        drawn = _lad(design[rows], y[rows], num[rows], weights)
        if drawn is None:
            continue
        draws.append(_saved(drawn, size[is_hit], fresh[is_hit], num[is_hit], is_curved))
        slopes.append(_slope(drawn, fresh, num, is_curved))
    if len(draws) < NUM_DRAWS // 2:
        return None
    low, high = np.quantile(draws, (0.025, 0.975))
    slope = (
        _slope(weights, fresh, num, is_curved),
        *map(float, np.quantile(slopes, (0.025, 0.975))),
    )
    return Estimate(saved, float(low), float(high), int(is_hit.sum())), slope  # type: ignore[return-value]


def _beside(group: pl.DataFrame) -> list[Floats]:
    """Load and hour, where they vary."""
    load = group["in_flight"].cast(pl.Float64).fill_null(strategy="mean").fill_null(0).to_numpy()
    hour = 2 * np.pi * ((group["start_ns"].fill_null(0) // (3600 * 10**9)) % 24).to_numpy() / 24
    found = [np.asarray(each, float) for each in (load, np.sin(hour), np.cos(hour))]
    return [each - each.mean() for each in found if np.ptp(each) > 1e-9]


def _design(fresh: Floats, beside: list[Floats], is_curved: bool) -> Floats:
    curve = [fresh**2] if is_curved else []
    return np.column_stack([np.ones(len(fresh)), fresh, *curve, *beside])


def _is_curve_better(fresh: Floats, beside: list[Floats], y: Floats, num: Floats) -> bool:
    """Whether a parabola misses less on calls it was not fitted to."""
    fold = np.arange(len(y)) % NUM_FOLDS
    errors = []
    for is_curved in (False, True):
        design, error = _design(fresh, beside, is_curved), 0.0
        for at in range(NUM_FOLDS):
            own, others = fold == at, fold != at
            weights = _lad(design[others], y[others], num[others])
            if weights is None:
                return False
            error += float((np.abs(y[own] - design[own] @ weights) * num[own]).sum())
        errors.append(error)
    return errors[1] < errors[0]


def _lad(design: Floats, y: Floats, num: Floats, start: Floats | None = None) -> Floats | None:
    """Weights of least absolute deviations; ``None`` where the columns do not tell them apart.

    Args:
        design: a row a call.
        y: what is explained.
        num: how many calls each stands for.
        start: weights to begin with.
    """
    weights = start
    pulled = np.empty_like(design)
    for _ in range(_STEPS):
        off = np.abs(y if weights is None else y - design @ weights)
        pull = num if weights is None else num / np.maximum(off, 1e-3)
        np.multiply(design, pull[:, None], out=pulled)
        gram = design.T @ pulled
        if _is_blind(gram):
            return None
        new: Floats = np.asarray(np.linalg.solve(gram, design.T @ (y * pull)), np.float64)
        if weights is not None and (np.abs(new - weights) <= 1e-6 + 1e-4 * np.abs(weights)).all():
            return new
        weights = new
    return weights


def _is_blind(gram: Floats) -> bool:
    """Whether the columns do not tell the weights apart; the condition is dear, so only if near."""
    sizes = np.linalg.eigvalsh(gram)
    return not sizes[0] > 1e-13 * sizes[-1] and bool(np.linalg.cond(gram) > 1e14)


def _saved(weights: Floats, size: Floats, fresh: Floats, num: Floats, is_curved: bool) -> float:
    saved = weights[1] * (size - fresh)
    if is_curved:
        saved = saved + weights[2] * (size**2 - fresh**2)
    return median_of(saved, num)


def _slope(weights: Floats, fresh: Floats, num: Floats, is_curved: bool) -> float:
    """At the median prompt."""
    return float(weights[1] + (2 * weights[2] * median_of(fresh, num) if is_curved else 0.0))


# --- by matching --------------------------------------------------------------------------------
def _matched(group: pl.DataFrame, metric: str, min_pairs: int) -> Estimate | None:
    load = group["in_flight"].cast(pl.Float64).fill_null(0).to_numpy()
    thirds = np.digitize(load, np.quantile(load, (1 / 3, 2 / 3)), right=True)
    size = np.maximum(group["input_tokens"].cast(pl.Float64).to_numpy(), 1.0)
    cells = group.select(
        y=pl.col(metric).cast(pl.Float64),
        is_hit=pl.col("cached_input_tokens") > 0,
        hour=pl.col("start_ns") // (3600 * 10**9),
    ).with_columns(
        length=pl.Series(np.floor(np.log(size) / _LENGTH_STEP).astype(np.int64)),
        load=pl.Series(thirds),
        num=pl.Series(weights_of(group)),
    )
    rng = np.random.default_rng(_SEED)
    differences: list[Floats] = []
    by = ("length", "hour", "load")
    groups = cells.group_by(by, maintain_order=True).agg("y", "is_hit", "num")
    ends = np.cumsum(groups["y"].list.len().to_numpy())[:-1]
    columns = ("y", "is_hit", "num")
    parts = (np.split(groups[name].explode().to_numpy(), ends) for name in columns)
    weights: list[Floats] = []
    for y, is_hit, num in zip(*parts, strict=True):
        pairs = min(int(is_hit.sum()), int((~is_hit).sum()))
        if pairs:
            hits, misses = (_drawn(y[side], num[side], pairs, rng) for side in (is_hit, ~is_hit))
            differences.append(misses - hits)
            stood = min(float(num[side].sum()) for side in (is_hit, ~is_hit))
            weights.append(np.full(pairs, stood / pairs))
    if sum(map(len, differences)) < min_pairs:
        return None
    every, stood_for = np.concatenate(differences), np.concatenate(weights)
    rows = rng.integers(0, len(every), (NUM_DRAWS, len(every)))
    if np.all(stood_for == 1):
        draws = np.median(every[rows], axis=1)
    else:
        draws = np.array([median_of(every[row], stood_for[row]) for row in rows])
    low, high = np.quantile(draws, (0.025, 0.975))
    return Estimate(median_of(every, stood_for), float(low), float(high), len(every))


def _drawn(values: Floats, num: Floats, size: int, rng: np.random.Generator) -> Floats:
    """So many of some values in an order by chance; of sampled ones each as often as it stands."""
    if np.all(num == 1):
        return rng.permutation(values)[:size]
    return rng.choice(values, size, p=num / num.sum())
