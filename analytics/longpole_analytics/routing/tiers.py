"""The service tier asked for against the one received, and what a tier is worth."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import polars as pl

from longpole_analytics.prices import STANDARD, TIER_NAMES
from longpole_analytics.scorecard.card import scorecard
from longpole_analytics.scorecard.rules import CardRules, Plan
from longpole_analytics.weighted import part

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
    of ``num_unknown`` nothing is known. ``share`` is of those that are known, each by its weight
    where traces were sampled; numbers are of the calls that were looked at.
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
    table = table.with_columns(is_down=is_down, is_other=is_other, is_known=known)
    found = []
    for key, group in table.group_by(*_KEYS, "asked", maintain_order=True):
        told, down = group.filter("is_known"), group.filter("is_down")
        received = (
            told["received"].value_counts().sort("count", "received", descending=[True, False])
        )
        share = part(down, told)
        first_ns = down["start_ns"].min()
        route, provider, model, asked = (None if each is None else str(each) for each in key)
        found.append(
            Asked(
                route,
                provider,
                model,
                asked or "",
                group.height,
                dict(received.iter_rows()),
                down.height,
                int(group["is_other"].sum()),
                group.height - told.height,
                share.value,
                None if share.low is None or share.high is None else (share.low, share.high),
                first_ns if isinstance(first_ns, int) else None,
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
