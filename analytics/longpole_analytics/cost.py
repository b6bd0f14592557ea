"""What calls cost: the price table joined to a table of calls, and sums of it that mean something.

Where traces were sampled (column ``weight``), numbers and sums are those of all calls that came,
by :class:`longpole_analytics.weighted.Sums`.

The join is by whole columns; only each different pair of provider and model is looked up by
itself. A price that is not known gives null, with the reason. What a provider says a call cost
wins over the table. Which prices applied is stamped on every cost.
"""

from collections.abc import Collection
from typing import Final

import numpy as np
import polars as pl

from longpole_analytics.prices import CLASSES, Prices
from longpole_analytics.pricing import (
    COUNTS,
    NOTES,
    NUMBERS,
    PARTS,
    PROBLEMS,
    TEXTS,
    Costs,
    tariff,
)
from longpole_analytics.weighted import sums_of

PRICE_NAMES: Final = tuple(f"{name}_usd_per_mtok" for name in CLASSES)
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
        *("cost_usd", *PARTS, "price_version", "cost_problem", "cost_note", *PRICE_NAMES),
        *("model_key",),
    }
    kept = calls.drop(name for name in calls.columns if name in added)
    wanted = _wanted(kept)
    columns = {name: wanted[name].rechunk().to_arrow() for name in wanted.columns}
    return kept.hstack(_columns(tariff(prices).costs(columns, kept.height)))


def unpriced(costs: pl.DataFrame) -> pl.DataFrame:
    """Calls without a cost: how many by provider, model, tier and reason, the most first."""
    by = [name for name in TEXTS[:4] if name in costs.columns]
    return (
        costs.filter(pl.col("cost_usd").is_null())
        .group_by(*by, "cost_problem")
        .agg(num_calls=sums_of(costs).num())
        .sort("num_calls", *by, "cost_problem", descending=[True, *[False] * (len(by) + 1)])
    )


def _wanted(calls: pl.DataFrame) -> pl.DataFrame:
    """The columns that decide a cost, as far as they are there, of one type each."""
    kinds: dict[str, pl.DataType] = {
        **dict.fromkeys(COUNTS, pl.Int64()),
        **dict.fromkeys(TEXTS, pl.String()),
        **dict.fromkeys(NUMBERS, pl.Float64()),
    }
    return calls.select(pl.col(n).cast(kind) for n, kind in kinds.items() if n in calls.columns)


def _columns(costs: Costs) -> list[pl.Series]:
    """The columns that are added."""
    numbers = {
        "cost_usd": costs.cost_usd,
        **dict(zip(PARTS, costs.parts.T, strict=True)),
        **dict(zip(PRICE_NAMES, costs.usd_per_mtok.T, strict=True)),
    }
    keys = [group.model_key for group in costs.groups]
    texts = {
        "price_version": _taken(costs.versions, costs.version),
        "cost_problem": _taken(PROBLEMS, costs.problem),
        "cost_note": _taken(NOTES, costs.note),
        "model_key": _taken(keys, costs.group),
    }
    found = {name: pl.Series(name, values).fill_nan(None) for name, values in numbers.items()}
    found |= {name: values.alias(name) for name, values in texts.items()}
    order = ("cost_usd", *PARTS, "price_version", "cost_problem", "cost_note", "model_key")
    return [found[name] for name in (*order, *PRICE_NAMES)]


def _taken(texts: Collection[str | None], places: np.ndarray) -> pl.Series:
    return pl.Series(list(texts) or [None], dtype=pl.String).gather(places)


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
    sums = sums_of(told)
    spent, is_told = sums.times(cost), pl.col("trace_id").is_not_null()
    names = list(by) or ["all"]
    whole = told if by else told.with_columns(all=pl.lit("all"))
    found = whole.group_by(names, maintain_order=True).agg(
        num_calls=sums.num(),
        num_unpriced=sums.times(cost.is_null()).sum(),
        num_workflows=sums.num_different("trace_id", is_told),
        cost_usd=pl.when(cost.count() > 0).then(spent.sum()),
        num_accepted=sums.num_different("trace_id", accepted),
        num_unknown_outcome=sums.num_different("trace_id", ~known & is_told),
        of_known=pl.when(cost.filter(known).null_count() == 0).then(spent.filter(known).sum()),
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
    sums, cost = sums_of(wasted_costs), pl.col("cost_usd")
    every = wasted_costs.select(sums.times(cost).sum()).item()
    found = (
        wasted_costs.drop_nulls("waste")
        .group_by("waste", maintain_order=True)
        .agg(
            num_calls=sums.num(),
            num_unpriced=sums.times(cost.is_null()).sum(),
            cost_usd=pl.when(cost.count() > 0).then(sums.times(cost).sum()),
        )
    )
    share = pl.when(pl.lit(every) > 0).then(pl.col("cost_usd") / every)
    return found.with_columns(share_of_cost=share).sort(
        "cost_usd", "waste", descending=[True, False], nulls_last=True
    )
