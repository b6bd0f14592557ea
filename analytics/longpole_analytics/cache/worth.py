"""Whether caching pays, for each kind of write and for the prefixes that are asked for most."""

from typing import Any, Final

import polars as pl

from longpole_analytics.cache.economics import break_even, break_even_rate, expected_reads
from longpole_analytics.cache.rules import CacheRules
from longpole_analytics.weighted import sums_of

MAX_PREFIXES: Final = 20
_PRICES: Final = (
    "input_usd_per_mtok",
    "cached_input_usd_per_mtok",
    "cache_write_usd_per_mtok",
    "cache_write_1h_usd_per_mtok",
)


def break_evens(costs: pl.DataFrame, rules: CacheRules) -> list[dict[str, Any]]:
    """For each model the reads that a short and a long write need, at its latest prices.

    ``write`` is ``short`` or ``long`` (where that is priced apart); ``per_hour`` the rate of
    requests for one prefix at which writes pay on the average, if they come as a Poisson process.
    """
    table = costs.drop_nulls(["model_key", *_PRICES[:3]])
    latest = (
        table.sort("start_ns")
        .group_by("model_key", maintain_order=True)
        .agg(pl.col(_PRICES).last())
        .sort("model_key")
    )
    found = []
    for model, plain, read, short, long in latest.iter_rows():
        kinds = [("short", short, rules.ttl_of(model.split("/")[0]))]
        if long is not None and long != short:
            kinds.append(("long", long, rules.long_ttl_s))
        for kind, write, ttl_s in kinds:
            reads, threshold = break_even(plain, write, read)
            rate = None if threshold is None else break_even_rate(threshold, ttl_s, is_sliding=True)
            found.append(
                {
                    "model": model,
                    "write": kind,
                    "ttl_s": ttl_s,
                    "uncached_usd_per_mtok": plain,
                    "write_usd_per_mtok": write,
                    "read_usd_per_mtok": read,
                    "min_reads": reads,
                    "threshold": threshold,
                    "per_hour": None if rate is None else rate * 3600,
                }
            )
    return found


def expected(
    costs: pl.DataFrame, rules: CacheRules, evens: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """For the prefixes with the most input: how often they are asked for, and whether writes pay.

    ``expected_reads`` is after one write, were arrivals a Poisson process; they seldom are, so
    the replay of real arrivals is the better answer where there is one.
    """
    if "prefix_hash" not in costs.columns or not evens:
        return []
    first, last = pl.col("start_ns").min(), pl.col("start_ns").max()
    known = costs.drop_nulls(["prefix_hash", "model_key", "start_ns"])
    sums = sums_of(known)
    prefixes = (
        known.group_by("model_key", "prefix_hash")
        .agg(
            num_kept=pl.len(),
            num_calls=sums.num(),
            span_ns=last - first,
            input_tokens=sums.times(pl.col("input_tokens")).sum(),
        )
        .filter((pl.col("num_kept") > 1) & (pl.col("span_ns") > 0))
        .sort("input_tokens", "prefix_hash", descending=[True, False])
        .head(MAX_PREFIXES)
    )
    found = []
    for row in prefixes.iter_rows(named=True):
        # of n kept ones n - 1 fill the time between the first and the last
        arrived = row["num_calls"] * (row["num_kept"] - 1) / row["num_kept"]
        rate = arrived / (row["span_ns"] / 1e9)
        for even in (each for each in evens if each["model"] == row["model_key"]):
            reads = expected_reads(rate, even["ttl_s"], is_sliding=True)
            pays = even["threshold"] is not None and reads > even["threshold"]
            found.append(
                {
                    "model": row["model_key"],
                    "prefix_hash": row["prefix_hash"],
                    "write": even["write"],
                    "num_calls": row["num_calls"],
                    "per_hour": rate * 3600,
                    "expected_reads": reads if reads < float("inf") else None,
                    "pays": pays,
                }
            )
    return found
