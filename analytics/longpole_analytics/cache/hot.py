"""Keys of a prompt cache that are asked for more often than a provider advises.

Providers send calls with one key to one machine and spread what is too much for it, so the hit
rate of a key falls while it is busy.
"""

import polars as pl

from longpole_analytics.cache.rules import CacheRules

_MINUTE_NS = 60 * 10**9
_MIN_CALLS = 20


def hot_keys(costs: pl.DataFrame, rules: CacheRules) -> pl.DataFrame:
    """The keys that were ever too busy, the busiest first.

    One row a key: ``cache_key`` (the call's own, else the hash of its stable prefix),
    ``model_key``, ``num_calls``, ``per_minute_max``, ``num_busy_minutes``, the hit rate by
    requests in busy minutes and in the others (``hit_rate_busy``, ``hit_rate_calm``; null below
    20 calls), and ``is_hot``: it falls by more than the rules allow, null where that is unknown.
    """
    names = ("cache_key", "prefix_hash", "model_key")
    table = costs.with_columns(
        pl.lit(None, pl.String).alias(name) for name in names if name not in costs.columns
    ).with_columns(
        cache_key=pl.coalesce("cache_key", "prefix_hash"),
        minute=pl.col("start_ns") // _MINUTE_NS,
        is_hit=pl.col("cached_input_tokens") > 0,
    )
    known = table.drop_nulls(["cache_key", "minute", "is_hit"])
    key = ["cache_key", "model_key"]
    minutes = known.group_by(*key, "minute").agg(n=pl.len(), hits=pl.col("is_hit").sum())
    is_busy = pl.col("n") > rules.hot_per_minute

    def rate(rows: pl.Expr) -> pl.Expr:
        calls = pl.col("n").filter(rows).sum()
        return pl.when(calls >= _MIN_CALLS).then(pl.col("hits").filter(rows).sum() / calls)

    found = (
        minutes.group_by(key)
        .agg(
            num_calls=pl.col("n").sum(),
            per_minute_max=pl.col("n").max(),
            num_busy_minutes=is_busy.sum(),
            hit_rate_busy=rate(is_busy),
            hit_rate_calm=rate(~is_busy),
        )
        .filter(pl.col("num_busy_minutes") > 0)
    )
    fall = pl.col("hit_rate_calm") - pl.col("hit_rate_busy")
    return found.with_columns(is_hot=fall > rules.hot_drop).sort(
        "per_minute_max", *key, descending=[True, False, False]
    )
