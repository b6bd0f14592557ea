"""Hit rates of prompt caches, the money they really saved, and the writes nobody read.

All input is rows of :func:`longpole_analytics.cost.priced`. The input of a call holds what was
read from the cache and what was written to it, whatever the provider's own counting.
"""

from collections.abc import Collection
from typing import Final

import polars as pl

from longpole_analytics.cache.rules import CacheRules
from longpole_analytics.weighted import sums_of

_COUNTS: Final = ("input_tokens", "cached_input_tokens", "cache_write_tokens")


def hit_rates(costs: pl.DataFrame, by: Collection[str] = ()) -> pl.DataFrame:
    """Hits by tokens and by requests, and money, of the slices of some columns.

    One row a slice, the largest first. ``num_calls``; ``num_known``, calls whose input and cached
    tokens are known and make sense, which alone count below; ``num_contradictory``, more read and
    written than the input held; ``input_tokens``, ``cached_tokens``, ``write_tokens``;
    ``hit_rate_tokens`` and ``hit_rate_requests``, null of no input; ``saved_usd``, what reading
    saved less what writing and storage cost beyond plain input, null where no call has prices;
    ``num_unpriced``, known calls without them. Where traces were sampled all are those of all
    calls that came.
    """
    names = list(by) or ["all"]
    table = _complete(costs)
    whole = table if by else table.with_columns(all=pl.lit("all"))
    read, write = pl.col("cached_input_tokens"), pl.col("cache_write_tokens").fill_null(0)
    has_both = pl.col("input_tokens").is_not_null() & read.is_not_null()
    is_sound = (pl.col("input_tokens") >= read + write) & (read >= 0) & (write >= 0)
    known = has_both & is_sound
    sums, saved = sums_of(table), saved_usd()

    def total(values: pl.Expr) -> pl.Expr:
        return sums.times(values).filter(known).sum()

    found = whole.group_by(names, maintain_order=True).agg(
        num_calls=sums.num(),
        num_known=sums.times(known).sum(),
        num_contradictory=sums.times(has_both & ~is_sound).sum(),
        input_tokens=total(pl.col("input_tokens")),
        cached_tokens=total(read),
        write_tokens=total(write),
        num_hits=total(read > 0),
        saved_usd=pl.when(saved.filter(known).count() > 0).then(total(saved)),
        num_unpriced=total(saved.is_null()),
    )
    tokens, calls = pl.col("input_tokens"), pl.col("num_known")
    rates = found.with_columns(
        hit_rate_tokens=pl.when(tokens > 0).then(pl.col("cached_tokens") / tokens),
        hit_rate_requests=pl.when(calls > 0).then(pl.col("num_hits") / calls),
    ).drop("num_hits", *([] if by else ["all"]))
    return rates.sort("input_tokens", *by, descending=[True, *[False] * len(by)], nulls_last=True)


def saved_usd() -> pl.Expr:
    """Dollars a call's cache saved: reads x (plain - read) - writes x (write - plain) - storage.

    Null where a price that is needed is not known.
    """
    read = pl.col("cached_input_tokens").fill_null(0)
    long = pl.col("cache_write_1h_tokens").fill_null(0)
    short = pl.col("cache_write_tokens").fill_null(0) - long
    plain = pl.col("input_usd_per_mtok")
    storage = pl.col("cache_storage_token_hours").fill_null(0.0)
    parts = (
        (read, plain - pl.col("cached_input_usd_per_mtok")),
        (short, plain - pl.col("cache_write_usd_per_mtok")),
        (long, plain - pl.col("cache_write_1h_usd_per_mtok")),
        (storage, -pl.col("cache_storage_usd_per_mtok")),
    )
    whole: pl.Expr = pl.when(plain.is_not_null()).then(0.0)
    for count, worth in parts:
        whole = whole + pl.when(count == 0).then(0.0).otherwise(count * worth / 1e6)
    return whole


def wasted_writes(
    costs: pl.DataFrame, rules: CacheRules, by: Collection[str] = ("route", "prompt_version")
) -> pl.DataFrame:
    """Writes to the cache that nobody read before they expired, by route and prompt version.

    One row a slice: ``num_writes``, those of which it is known whether they were read;
    ``num_undecided``, whose life had not ended when the data does, or whose prefix is unknown;
    ``num_wasted``, ``write_tokens``, ``wasted_tokens``, ``wasted_share`` (by tokens) and
    ``wasted_usd``, what the wasted ones cost beyond plain input. A prefix is known by its keyed
    hash; a later call with the same one that read from the cache read it. Where traces were
    sampled the sums are those of all writes that came, but reads by traces that were dropped are
    not seen: what is wasted is at most that.
    """
    table = _complete(costs).with_columns(
        pl.lit(None, pl.String).alias(name)
        for name in ("prefix_hash", "model_key", *by)
        if name not in costs.columns
    )
    ordered = table.drop_nulls("start_ns").sort("start_ns")
    writes = ordered.filter(pl.col("cache_write_tokens") > 0)
    if writes.is_empty():
        return writes.group_by(by).agg(pl.len().alias("num_writes")).head(0)
    later, life_ns = _with_next_read(ordered, writes, rules)
    end_ns = ordered["start_ns"].max()
    is_read = (pl.col("read_ns") - pl.col("start_ns") <= life_ns).fill_null(False)
    is_over = (pl.lit(end_ns) - pl.col("start_ns")) > life_ns
    decided = pl.col("prefix_hash").is_not_null() & (is_read | is_over)
    lost = decided & ~is_read
    tokens = pl.col("cache_write_tokens")
    long = pl.col("cache_write_1h_tokens").fill_null(0)
    extra = (
        (tokens - long) * (pl.col("cache_write_usd_per_mtok") - pl.col("input_usd_per_mtok"))
        + long * (pl.col("cache_write_1h_usd_per_mtok") - pl.col("input_usd_per_mtok"))
    ) / 1e6
    sums = sums_of(writes)
    lost_usd = sums.times(extra).filter(lost)
    found = later.group_by(by, maintain_order=True).agg(
        num_writes=sums.times(decided).sum(),
        num_undecided=sums.times(~decided).sum(),
        num_wasted=sums.times(lost).sum(),
        write_tokens=sums.times(tokens).filter(decided).sum(),
        wasted_tokens=sums.times(tokens).filter(lost).sum(),
        wasted_usd=pl.when(lost_usd.null_count() == 0).then(lost_usd.sum()),
    )
    share = pl.when(pl.col("write_tokens") > 0).then(
        pl.col("wasted_tokens") / pl.col("write_tokens")
    )
    return found.with_columns(wasted_share=share).sort(
        "wasted_tokens", *by, descending=[True, *[False] * len(by)]
    )


def _with_next_read(
    ordered: pl.DataFrame, writes: pl.DataFrame, rules: CacheRules
) -> tuple[pl.DataFrame, pl.Expr]:
    """The writes with ``read_ns``, the next read of the same prefix; and how long each lives."""
    key = ["model_key", "prefix_hash"]
    reads = ordered.filter(pl.col("cached_input_tokens") > 0).select(*key, read_ns="start_ns")
    is_long = pl.col("cache_write_1h_tokens").fill_null(0) > 0
    provider = pl.col("model_key").str.split("/").list.first()
    short_s = provider.replace_strict(
        list(rules.provider_ttl_s),
        list(rules.provider_ttl_s.values()),
        default=rules.ttl_s,
        return_dtype=pl.Float64,
    ).fill_null(rules.ttl_s)
    life_ns = pl.when(is_long).then(rules.long_ttl_s).otherwise(short_s) * 1e9
    later = writes.with_columns(after_ns=pl.col("start_ns") + 1).join_asof(
        reads.with_columns(after_ns="read_ns"),
        on="after_ns",
        by=key,
        strategy="forward",
        check_sortedness=False,
    )
    return later, life_ns


def _complete(costs: pl.DataFrame) -> pl.DataFrame:
    """The columns of counts that are missing, as unknown."""
    kinds = {
        **dict.fromkeys((*_COUNTS, "cache_write_1h_tokens", "start_ns"), pl.Int64()),
        "cache_storage_token_hours": pl.Float64(),
    }
    return costs.with_columns(
        pl.lit(None, kind).alias(name) for name, kind in kinds.items() if name not in costs.columns
    )
