"""What calls cost: the price table joined to a table of calls, and sums of it that mean something.

The join is by whole columns; only each different pair of provider and model is looked up by
itself. A price that is not known gives null, with the reason. What a provider says a call cost
wins over the table. Which prices applied is stamped on every cost.
"""

from collections.abc import Collection, Sequence
from typing import Final

import numpy as np
import polars as pl

from longpole_analytics.prices import CLASSES, TIER_NAMES, Prices

COUNTS: Final = (
    "start_ns",
    "input_tokens",
    "cached_input_tokens",
    "cache_write_tokens",
    "cache_write_1h_tokens",
    "output_tokens",
    "reasoning_tokens",
    "total_tokens",
)
TEXTS: Final = ("provider", "request_model", "response_model", "service_tier", "reported_currency")
NUMBERS: Final = ("reported_cost_usd", "cache_storage_token_hours")
"""Columns of calls that decide a cost; those that are missing are unknown."""
REPORTED: Final = "reported by the provider"
"""The version stamped on a cost that the provider said itself."""
PRICE_NAMES: Final = tuple(f"{name}_usd_per_mtok" for name in CLASSES)
_NAMED: Final = ["provider", "request_model", "response_model", "service_tier"]
_DAY_MINUTES: Final = 1440
_PARTS: Final = ("input_cost_usd", "cached_cost_usd", "write_cost_usd", "output_cost_usd")
WASTES: Final = (
    "unused_speculation",
    "cancelled_branch",
    "abandoned",
    "retried",
    "failed",
    "not_accepted",
)
"""Kinds of wasted cost, first that applies: a guess nobody used; a branch that was called off; an
answer closed before its end; a call that failed and was made again; one that failed for good; a
call of a workflow whose outcome was rejected or failed."""


def priced(calls: pl.DataFrame, prices: Prices) -> pl.DataFrame:
    """The calls with what each cost, in their order.

    Adds ``cost_usd`` and its parts ``input_cost_usd``, ``cached_cost_usd``, ``write_cost_usd``,
    ``output_cost_usd``; ``price_version``, what priced it; ``cost_problem``, why there is no cost;
    ``cost_note``, a doubt about the counts; the prices that applied, ``<class>_usd_per_mtok``.

    Args:
        calls: rows as of the view ``calls``, or with some of its columns. Tokens written for an
            hour (``cache_write_1h_tokens``) are part of ``cache_write_tokens``; without them
            writes are taken as the short kind. Unknown cache counts are billed as plain input.
            ``cache_storage_token_hours`` is what an explicit cache kept on the call's account.
        prices: the table in force.
    """
    added = {
        *("cost_usd", *_PARTS, "price_version", "cost_problem", "cost_note", *PRICE_NAMES),
        *("model_key",),
    }
    kept = calls.drop(name for name in calls.columns if name in added)
    wanted = _wanted(kept)
    cells = _cells(prices)
    groups = _groups(wanted, prices, cells)
    keyed = wanted.join(groups, on=_NAMED, how="left", nulls_equal=True, maintain_order="left")
    keyed = keyed.with_columns(_cell(keyed, groups, cells))
    costs = keyed.join(cells, on="cell", how="left", maintain_order="left")
    return pl.concat([kept, _costs(costs)], how="horizontal")


def unpriced(costs: pl.DataFrame) -> pl.DataFrame:
    """Calls without a cost: how many by provider, model, tier and reason, the most first."""
    by = [name for name in TEXTS[:4] if name in costs.columns]
    return (
        costs.filter(pl.col("cost_usd").is_null())
        .group_by(*by, "cost_problem")
        .agg(num_calls=pl.len())
        .sort("num_calls", *by, "cost_problem", descending=[True, *[False] * (len(by) + 1)])
    )


def _wanted(calls: pl.DataFrame) -> pl.DataFrame:
    """The columns that decide a cost, of one type each."""
    kinds: dict[str, pl.DataType] = {
        **dict.fromkeys(COUNTS, pl.Int64()),
        **dict.fromkeys(TEXTS, pl.String()),
        **dict.fromkeys(NUMBERS, pl.Float64()),
    }
    missing = [pl.lit(None).alias(name) for name in kinds if name not in calls.columns]
    table = calls.with_columns(missing).select(pl.col(n).cast(kind) for n, kind in kinds.items())
    return table.with_columns(
        pl.when(pl.col("reported_cost_usd").is_finite()).then("reported_cost_usd")
    )


def _cells(prices: Prices) -> pl.DataFrame:
    """All prices with a number ``cell`` each, the user's own after the shipped ones."""
    own_version = f"{prices.version}, {prices.own_version}"
    return pl.concat(
        [
            prices.cells.with_columns(price_version=pl.lit(prices.version), is_own=False),
            prices.own.with_columns(price_version=pl.lit(own_version), is_own=True),
        ]
    ).select(
        pl.int_range(pl.len(), dtype=pl.Int64).alias("cell"),
        pl.col("model_key").alias("cell_key"),
        pl.col("service_tier").alias("tier"),
        pl.exclude("model_key", "service_tier", *CLASSES),
        pl.col(CLASSES).name.suffix("_usd_per_mtok"),
    )


def _groups(calls: pl.DataFrame, prices: Prices, cells: pl.DataFrame) -> pl.DataFrame:
    """What is priced alike but for time and size: provider, models and tier, with their keys.

    The model that answered decides; if no price is known by its name, the one asked for.
    """
    named = calls.select(_NAMED).unique(maintain_order=True)
    pairs = {(provider, model) for provider, *models, _ in named.iter_rows() for model in models}
    keys = {(row[0], row[1]): row[2:] for row in prices.keys(pairs).iter_rows()}
    tiers = set(cells.select("cell_key", "tier").iter_rows())
    rows: list[tuple[object, ...]] = []
    for provider, asked, answered, said in named.iter_rows():
        found = keys[provider, answered]
        if not any(found):
            found = keys[provider, asked]
        tier = (said or "").lower().strip()
        tier = TIER_NAMES.get(tier, tier)
        has_tier = any((key, tier) in tiers for key in found)
        rows.append((len(rows), provider, asked, answered, said, *found, tier, has_tier))
    schema = {
        "group": pl.Int64(),
        **dict.fromkeys((*_NAMED, "model_key", "own_key", "tier"), pl.String()),
        "has_tier": pl.Boolean(),
    }
    return pl.DataFrame(rows, schema, orient="row")


def _cell(calls: pl.DataFrame, groups: pl.DataFrame, cells: pl.DataFrame) -> pl.Series:
    """The prices that hold at each call's moment and prompt size, by number; own ones first."""
    found = np.full(calls.height, -1, np.int64)
    minute = (pl.col("start_ns") // (60 * 10**9)) % 1440
    start, size = pl.col("start_ns"), pl.col("input_tokens").fill_null(0)
    sized = calls.select("group", "start_ns", "input_tokens").with_row_index("row")
    for key, is_own in (("model_key", False), ("own_key", True)):
        here = groups.select("group", "tier", cell_key=key).join(
            cells.filter(is_own=is_own), on=["cell_key", "tier"]
        )
        candidates = here.drop("tier", "cell_key", "price_version", "is_own", *PRICE_NAMES)
        holds = (
            sized.lazy()
            .join(candidates.lazy(), on="group")
            .filter(
                (pl.col("above_tokens") == 0) | (size > pl.col("above_tokens")),
                pl.col("up_to_tokens").is_null() | (size <= pl.col("up_to_tokens")),
                pl.col("valid_from_ns").is_null() | (start >= pl.col("valid_from_ns")),
                pl.col("valid_to_ns").is_null() | (start < pl.col("valid_to_ns")),
                ((pl.col("from_minute") == 0) & (pl.col("to_minute") == _DAY_MINUTES))
                | ((minute >= pl.col("from_minute")) & (minute < pl.col("to_minute"))),
            )
            .group_by("row")
            .agg(pl.col("cell").max())
            .collect()
        )
        found[holds["row"].to_numpy()] = holds["cell"].to_numpy()
    return pl.Series("cell", found)


def _costs(calls: pl.DataFrame) -> pl.DataFrame:
    read = pl.col("cached_input_tokens").fill_null(0)
    write_1h = pl.col("cache_write_1h_tokens").fill_null(0)
    write = pl.max_horizontal(pl.col("cache_write_tokens").fill_null(0), write_1h)
    thought = pl.col("reasoning_tokens").fill_null(0)
    counted = pl.col("input_tokens") + pl.col("output_tokens")
    is_beside = (thought > 0) & (pl.col("total_tokens") == counted + thought)
    out = pl.col("output_tokens").fill_null(0) + pl.when(is_beside).then(thought).otherwise(0)
    fresh = pl.col("input_tokens") - read - write
    storage = pl.col("cache_storage_token_hours").fill_null(0.0)
    a_request = pl.col("request_usd_per_mtok").fill_null(0.0) / 1e6
    parts = {
        "input_cost_usd": _money([(fresh, "input")]) + a_request,
        "cached_cost_usd": _money([(read, "cached_input"), (storage, "cache_storage")]),
        "write_cost_usd": _money([(write - write_1h, "cache_write"), (write_1h, "cache_write_1h")]),
        "output_cost_usd": _money([(out - thought, "output"), (thought, "reasoning")]),
    }
    problem = _problem(fresh, out - thought)
    is_whole = pl.col("total_tokens").is_null() | (pl.col("total_tokens") == counted) | is_beside
    reported = pl.col("reported_cost_usd")
    is_dollars = pl.col("reported_currency").fill_null("USD").str.to_uppercase() == "USD"
    sound = pl.col("problem").is_null()
    worked = calls.with_columns(problem=problem, **parts).with_columns(
        pl.when(sound).then(pl.col(name)).alias(name) for name in _PARTS
    )
    worked = worked.with_columns(
        problem=pl.when(sound & pl.any_horizontal(pl.col(_PARTS).is_null()))
        .then(pl.lit("no_price_of_class"))
        .otherwise("problem"),
        cost=pl.sum_horizontal(_PARTS, ignore_nulls=False),
    )
    is_told = reported.is_not_null() & (reported >= 0) & is_dollars
    return worked.select(
        cost_usd=pl.when(is_told).then(reported).otherwise("cost"),
        **{name: pl.col(name) for name in _PARTS},
        price_version=pl.when(is_told)
        .then(pl.lit(REPORTED))
        .otherwise(pl.when(pl.col("cost").is_not_null()).then("price_version")),
        cost_problem=pl.when(is_told)
        .then(None)
        .when(pl.col("problem").is_not_null() & reported.is_not_null() & ~is_dollars)
        .then(pl.lit("other_currency"))
        .otherwise("problem"),
        cost_note=pl.when(~is_whole)
        .then(pl.lit("total_contradicts_parts"))
        .when(reported.is_not_null() & ~is_dollars)
        .then(pl.lit("other_currency")),
        model_key=pl.coalesce("own_key", "model_key"),
        **{name: pl.col(name) for name in PRICE_NAMES},
    )


def _money(counts: Sequence[tuple[pl.Expr, str]]) -> pl.Expr:
    """Dollars of some counts; null where a class that was used has no price."""
    whole = pl.lit(0.0)
    for count, token_class in counts:
        price = pl.col(f"{token_class}_usd_per_mtok")
        whole = whole + pl.when(count == 0).then(0.0).otherwise(count * price / 1e6)
    return whole


def _problem(fresh: pl.Expr, plain_output: pl.Expr) -> pl.Expr:
    """Why a call cannot be priced, the first reason; null if it can, as far as is seen here."""
    counts = [name for name in COUNTS if name.endswith("_tokens")]
    is_embedding = pl.col("output_tokens").is_null() & pl.col("output_usd_per_mtok").is_null()
    return (
        pl.when(pl.any_horizontal(pl.col(name) < 0 for name in counts))
        .then(pl.lit("negative_tokens"))
        .when(fresh < 0)
        .then(pl.lit("parts_exceed_input"))
        .when(plain_output < 0)
        .then(pl.lit("parts_exceed_output"))
        .when(pl.col("model_key").is_null() & pl.col("own_key").is_null())
        .then(pl.lit("unknown_model"))
        .when(pl.col("price_version").is_null() & ~pl.col("has_tier"))
        .then(pl.lit("unknown_tier"))
        .when(pl.col("price_version").is_null())
        .then(pl.lit("no_price_at_that_time"))
        .when(
            pl.col("input_tokens").is_null() | (pl.col("output_tokens").is_null() & ~is_embedding)
        )
        .then(pl.lit("unknown_tokens"))
    )


# --- sums ---------------------------------------------------------------------------------------
def cost_by(
    costs: pl.DataFrame, by: Collection[str], outcomes: pl.DataFrame | None = None
) -> pl.DataFrame:
    """What the slices of some columns cost, the dearest first.

    One row a slice: ``num_calls``, ``num_unpriced``, ``num_workflows``, ``cost_usd`` (null if no
    call has one), and per accepted outcome ``num_accepted``, ``num_unknown_outcome`` and
    ``cost_per_accepted_usd``: all that workflows with a known outcome cost, by those accepted. It
    is null without an accepted one, and where a call of those workflows has no cost.

    Args:
        costs: what :func:`priced` gave.
        by: columns; none is everything as one slice, ``trace_id`` gives workflows.
        outcomes: ``trace_id`` and ``outcome`` of the workflows; without it a workflow's outcome
            is what one of its calls says.
    """
    told = costs.drop("outcome", strict=False) if outcomes is not None else costs
    if outcomes is not None:
        told = told.join(outcomes.select("trace_id", "outcome"), on="trace_id", how="left")
    elif "outcome" in told.columns and "trace_id" in told.columns:
        told = told.with_columns(pl.col("outcome").drop_nulls().first().over("trace_id"))
    for name in ("outcome", "trace_id"):
        if name not in told.columns:
            told = told.with_columns(pl.lit(None, pl.String).alias(name))
    cost, known = pl.col("cost_usd"), pl.col("outcome").is_not_null()
    accepted = pl.col("outcome") == "accepted"
    workflow = pl.col("trace_id")
    names = list(by) or ["all"]
    whole = told if by else told.with_columns(all=pl.lit("all"))
    found = whole.group_by(names, maintain_order=True).agg(
        num_calls=pl.len(),
        num_unpriced=cost.null_count(),
        num_workflows=workflow.drop_nulls().n_unique(),
        cost_usd=pl.when(cost.count() > 0).then(cost.sum()),
        num_accepted=workflow.filter(accepted).n_unique(),
        num_unknown_outcome=workflow.filter(~known).drop_nulls().n_unique(),
        of_known=pl.when(cost.filter(known).null_count() == 0).then(cost.filter(known).sum()),
    )
    return (
        found.with_columns(
            cost_per_accepted_usd=pl.when(pl.col("num_accepted") > 0).then(
                pl.col("of_known") / pl.col("num_accepted")
            )
        )
        .drop("of_known", *([] if by else ["all"]))
        .sort("cost_usd", *by, descending=[True, *[False] * len(by)], nulls_last=True)
    )


def wasted(costs: pl.DataFrame, outcomes: pl.DataFrame | None = None) -> pl.DataFrame:
    """The calls with ``waste``, one of :data:`WASTES`, or null for what was not wasted.

    Reads, where they are there, ``speculation_state`` (expired, discarded), ``branch_state``
    (cancelled), ``stream_state``, ``error_type``, ``finish_reason`` and the workflow's outcome.
    A failed call counts as retried if a later call of its workflow to the same route and prompt
    version did not fail. Each call has one kind, so sums by kind add up.
    """
    names = (
        *("trace_id", "speculation_state", "branch_state", "stream_state", "error_type"),
        *("finish_reason", "outcome", "route", "prompt_version"),
    )
    table = costs.with_columns(
        pl.lit(None, pl.String).alias(name) for name in names if name not in costs.columns
    ).with_row_index("__row")
    if outcomes is not None:
        said = outcomes.select("trace_id", __outcome=pl.col("outcome"))
        table = table.join(said, on="trace_id", how="left", maintain_order="left")
    else:
        table = table.with_columns(
            __outcome=pl.col("outcome").drop_nulls().first().over("trace_id")
        )
    has_failed = (
        pl.col("error_type").is_not_null()
        | (pl.col("stream_state") == "error").fill_null(False)
        | (pl.col("finish_reason") == "error").fill_null(False)
    )
    again = (
        pl.when(~has_failed).then("start_ns").max().over("trace_id", "route", "prompt_version")
        > pl.col("start_ns")
    ) & pl.col("trace_id").is_not_null()
    waste = (
        pl.when(pl.col("speculation_state").is_in(["expired", "discarded"]))
        .then(pl.lit("unused_speculation"))
        .when(pl.col("branch_state") == "cancelled")
        .then(pl.lit("cancelled_branch"))
        .when(pl.col("stream_state").is_in(["abandoned", "closed_early"]))
        .then(pl.lit("abandoned"))
        .when(has_failed & again)
        .then(pl.lit("retried"))
        .when(has_failed)
        .then(pl.lit("failed"))
        .when(pl.col("__outcome").is_in(["rejected", "failed"]))
        .then(pl.lit("not_accepted"))
    )
    return table.sort("__row").with_columns(waste=waste).select(*costs.columns, "waste")


def waste_by_kind(wasted_costs: pl.DataFrame) -> pl.DataFrame:
    """Of each kind of waste: ``num_calls``, ``num_unpriced``, ``cost_usd`` and its share of all."""
    every = wasted_costs["cost_usd"].sum()
    cost = pl.col("cost_usd")
    found = (
        wasted_costs.drop_nulls("waste")
        .group_by("waste", maintain_order=True)
        .agg(
            num_calls=pl.len(),
            num_unpriced=cost.null_count(),
            cost_usd=pl.when(cost.count() > 0).then(cost.sum()),
        )
    )
    share = pl.when(pl.lit(every) > 0).then(pl.col("cost_usd") / every)
    return found.with_columns(share_of_cost=share).sort(
        "cost_usd", "waste", descending=[True, False], nulls_last=True
    )
