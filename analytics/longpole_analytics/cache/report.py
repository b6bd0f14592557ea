"""All that is said of the caches of some calls, as one document."""

from collections.abc import Sequence
from typing import Any, Final

import polars as pl

from longpole_analytics.cache.achievable import achievable
from longpole_analytics.cache.hits import hit_rates, wasted_writes
from longpole_analytics.cache.hot import hot_keys
from longpole_analytics.cache.lookups import Lookups, answer_caches
from longpole_analytics.cache.misses import by_cause, examples, miss_causes
from longpole_analytics.cache.rules import CacheRules
from longpole_analytics.cache.speed import Speed, model_name, speeds
from longpole_analytics.cache.worth import break_evens, expected
from longpole_analytics.cost import cost_by, unpriced, waste_by_kind, wasted
from longpole_analytics.prices import Prices
from longpole_analytics.weighted import is_sampled, sampling, weights_of

SCHEMA: Final = "longpole.cache/1"
TTLS_S: Final = (60.0, 300.0, 3600.0)
SLICES: Final = ("route", "prompt_version", "model_key")
OF_KEPT: Final = ("misses", "achievable", "wasted_writes", "hot_keys", "answer_caches.stale")
"""What depends on other calls, before or beside: where traces were sampled, on those kept."""
_NEEDED: Final = {
    **dict.fromkeys(("start_ns", "input_tokens", "cached_input_tokens"), pl.Int64()),
    **dict.fromkeys(("trace_id", "route", "provider", "request_model"), pl.String()),
}


def report(
    costs: pl.DataFrame,
    lookups: pl.DataFrame,
    prices: Prices,
    rules: CacheRules,
    ttls_s: Sequence[float] = TTLS_S,
    outcomes: pl.DataFrame | None = None,
    by: Sequence[str] = ("route",),
) -> dict[str, Any]:
    """The document of ``longpole cache --json``.

    Where traces were sampled its numbers, sums, shares and medians are those of all calls that
    came, and ``sampling`` names the parts that only the kept calls tell of.

    Args:
        costs: rows of :func:`longpole_analytics.cost.priced`.
        lookups: looks into caches of answers, as :mod:`longpole_analytics.cache.lookups` has them.
        prices: the table that priced the calls.
        rules: the thresholds.
        ttls_s: times to live of the ideal cache.
        outcomes: ``trace_id`` and ``outcome`` of the workflows.
        by: columns of the calls that costs are summed by, too.
    """
    missing = [n for n in _NEEDED if n not in costs.columns]
    costs = costs.with_columns(pl.lit(None, _NEEDED[name]).alias(name) for name in missing)
    evens = break_evens(costs, rules)
    misses = miss_causes(costs, rules)
    if is_sampled(costs):
        misses = misses.with_columns(weight=pl.Series(weights_of(costs)).gather(misses["row"]))
    traces = examples(misses, costs)
    whole = next(iter(hit_rates(costs).to_dicts()), None)
    named = costs.with_columns(model_key=model_name(costs))
    slices = [name for name in SLICES if name in named.columns]
    sampled = sampling(costs, OF_KEPT)
    return {
        "schema": SCHEMA,
        "prices": {
            "version": prices.version,
            "own_version": prices.own_version,
            "unpriced": unpriced(costs).to_dicts(),
        },
        "hits": {"all": whole, "slices": hit_rates(named, slices).to_dicts()},
        "break_even": evens,
        "expected_reads": expected(costs, rules, evens),
        "wasted_writes": wasted_writes(costs, rules).to_dicts(),
        "speed": [_speed(each) for each in speeds(costs, rules)],
        "achievable": [each._asdict() for each in achievable(costs, rules, ttls_s)],
        "misses": [
            {**row, "trace_ids": traces.get(row["cause"], [])}
            for row in by_cause(misses).to_dicts()
        ],
        "hot_keys": hot_keys(named, rules).to_dicts(),
        "answer_caches": [_answers(each) for each in answer_caches(lookups)],
        "cost": {
            "all": next(iter(cost_by(costs, (), outcomes).to_dicts()), None),
            "routes": cost_by(costs, ["route"], outcomes).to_dicts(),
            "wasted": waste_by_kind(wasted(costs, outcomes)).to_dicts(),
        },
        "cost_by": cost_by(costs, by, outcomes).to_dicts(),
        **({} if sampled is None else {"sampling": sampled}),
    }


def _answers(found: Lookups) -> dict[str, Any]:
    told = found._asdict()
    return {**told, "hits": found.hits._asdict(), "stale": found.stale._asdict()}


def _speed(found: Speed) -> dict[str, Any]:
    told: dict[str, Any] = found._asdict()
    for name in ("by_model", "by_matching"):
        told[name] = None if told[name] is None else told[name]._asdict()
    slope = told.pop("slope_ms_per_1k")
    told["slope_ms_per_1k"] = None if slope is None else slope[0]
    told["slope_ci95"] = None if slope is None else list(slope[1:])
    return told
