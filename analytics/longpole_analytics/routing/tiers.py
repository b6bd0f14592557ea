"""The service tier asked for against the one received, and what a tier is worth."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import polars as pl

from longpole_analytics.prices import STANDARD, TIER_NAMES
from longpole_analytics.scorecard.card import scorecard
from longpole_analytics.scorecard.rates import wilson
from longpole_analytics.scorecard.rules import CardRules, Plan

RANKS: Final[Mapping[str, int]] = {
    "batch": 0,
    "flex": 0,
    "slow": 0,
    STANDARD: 1,
    "provisioned": 2,
    "priority": 2,
    "fast": 2,
    "scale": 2,
    "reserved": 2,
}
"""How good a tier is; one that is not here is only told to differ."""
ANY: Final = "auto"
"""Asked for so, any tier is what was asked for."""
_KEYS: Final = ("route", "provider", "request_model")


class Asked(NamedTuple):
    """Calls of one route and model that asked for a tier, and what they got.

    ``num_downgraded`` got a tier of lower rank; ``num_other`` one that has no rank or a higher one;
    of ``num_unknown`` nothing is known. ``share`` is of those that are known.
    """

    route: str | None
    provider: str | None
    request_model: str | None
    asked: str
    n: int
    received: dict[str, int]
    num_downgraded: int
    num_other: int
    num_unknown: int
    share: float | None
    ci95: tuple[float, float] | None
    first_ns: int | None


class Worth(NamedTuple):
    """What a tier is worth against the standard one: times and cost, as ratios."""

    route: str | None
    provider: str | None
    request_model: str | None
    tier: str
    n: tuple[int, int]
    metric: str
    quantile: float
    ratio: float | None
    ci95: tuple[float | None, float | None] | None
    cost_ratio: float | None
    verdict: str


def tier_name(column: str) -> pl.Expr:
    """Tiers by one name each; what is not said is null."""
    lower = pl.col(column).cast(pl.String).str.to_lowercase().str.strip_chars()
    said = pl.when(lower != "").then(lower)
    return said.replace({name: to for name, to in TIER_NAMES.items() if name not in ("", ANY)})


def downgrades(calls: pl.DataFrame) -> list[Asked]:
    """Of each route, model and tier asked for, what was received; most downgraded first.

    Args:
        calls: rows as of the view ``calls``; columns may be missing.
    """
    table = _named(calls).filter(pl.col("asked").is_not_null())
    rank = pl.col("received").replace_strict(dict(RANKS), default=None, return_dtype=pl.Int64)
    wanted = pl.col("asked").replace_strict(dict(RANKS), default=None, return_dtype=pl.Int64)
    known = pl.col("received").is_not_null() & (pl.col("received") != ANY)
    is_free = pl.col("asked") == ANY
    is_down = (known & ~is_free & (rank < wanted)).fill_null(False)
    is_other = known & ~is_free & ~is_down & (pl.col("received") != pl.col("asked"))
    grouped = (
        table.with_columns(is_down=is_down, is_other=is_other, is_known=known)
        .group_by(*_KEYS, "asked", maintain_order=True)
        .agg(
            n=pl.len(),
            received=pl.col("received").filter("is_known"),
            num_downgraded=pl.col("is_down").sum(),
            num_other=pl.col("is_other").sum(),
            num_known=pl.col("is_known").sum(),
            first_ns=pl.col("start_ns").filter("is_down").min(),
        )
    )
    found = []
    for row in grouped.iter_rows(named=True):
        known_n, down = int(row["num_known"]), int(row["num_downgraded"])
        counts: dict[str, int] = {}
        for tier in row["received"]:
            counts[tier] = counts.get(tier, 0) + 1
        found.append(
            Asked(
                row["route"],
                row["provider"],
                row["request_model"],
                row["asked"],
                row["n"],
                dict(sorted(counts.items(), key=lambda item: (-item[1], item[0]))),
                down,
                int(row["num_other"]),
                row["n"] - known_n,
                down / known_n if known_n else None,
                wilson(down / known_n, known_n, 0.05) if known_n else None,
                row["first_ns"],
            )
        )
    return sorted(found, key=lambda a: (-a.num_downgraded, -a.n, str(a[:4])))


def worths(
    calls: pl.DataFrame, metric: str = "ttft_ms", q: float = 0.5, num_resamples: int = 500
) -> list[Worth]:
    """What each received tier is worth against standard, of each route and model.

    Args:
        calls: rows as of the view ``calls``, with ``cost_usd`` where it is known.
        metric: which time.
        q: which quantile.
        num_resamples: of the bootstrap; the mix of lengths is evened out as in a comparison.
    """
    table = _named(calls).filter(pl.col("received").is_not_null() & (pl.col("received") != ANY))
    found = []
    for key, group in table.group_by(*_KEYS, maintain_order=True):
        usual = group.filter(pl.col("received") == STANDARD)
        for tier in sorted(set(group["received"]) - {STANDARD}):
            own = group.filter(pl.col("received") == tier)
            card = scorecard(
                usual, own, Plan(metric, q), CardRules(num_resamples=num_resamples)
            ).document()
            row = next(
                (m for m in card["metrics"] if m["name"] == metric and m["quantile"] == q), None
            )
            cost: dict[str, Any] | None = next(
                (m for m in card["means"] if m["name"] == "cost_per_request_usd"), None
            )
            route, provider, model = (None if part is None else str(part) for part in key)
            found.append(
                Worth(
                    route, provider, model, tier, (usual.height, own.height), metric, q,
                    None if row is None else row["ratio"],
                    None if row is None or row["ci95"] is None else tuple(row["ci95"]),
                    None if cost is None else cost["value"],
                    card["target"]["verdict"],
                )
            )  # fmt: skip
    return found


def _named(calls: pl.DataFrame) -> pl.DataFrame:
    names = (*_KEYS, "service_tier_requested", "service_tier")
    missing = [pl.lit(None, pl.String).alias(name) for name in names if name not in calls.columns]
    table = calls.with_columns(missing)
    if "start_ns" not in table.columns:
        table = table.with_columns(start_ns=pl.lit(None, pl.Int64))
    return table.with_columns(
        asked=tier_name("service_tier_requested"),
        received=tier_name("service_tier"),
        **{name: pl.col(name).cast(pl.String) for name in _KEYS},
    )
