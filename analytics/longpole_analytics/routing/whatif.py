"""Other rules of routing on the traffic that was recorded: what times, costs and outcomes then.

Requests that already went where the new rules would send them stand for those that did not, within
strata of the choice that would be made and of prompt length (direct standardisation, as in inverse
probability weighting; Hernan & Robins, Causal Inference, 2020, chapter 2). Where nothing like it
was recorded nothing is said. Base and projection share their requests, which are drawn together.
"""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import polars as pl

from longpole.errors import NotEnoughData
from longpole_analytics.routing.policy import Policy, Route
from longpole_analytics.routing.tiers import tier_name
from longpole_analytics.scorecard.card import Card, scorecard
from longpole_analytics.scorecard.rules import CardRules, Plan

ASSUMPTIONS: Final = (
    "requests of equal choice and prompt length went to their model as if by chance",
    "load stays what it was: a model that gets more traffic is as fast as it was",
    "users and prompts stay the same",
    "a request over its timeout is not seen to end: what the fallback answers is not known",
)
MIN_SUPPORT: Final = 20
"""Recorded requests that may stand for a stratum."""
MAX_FACTOR: Final = 50.0
"""Requests that one may stand for."""
_BINS: Final = 5
_NO_BIN: Final = -1
_SAID: Final = ("service_tier", "provider", "route_chosen", "policy_version")


@dataclass(frozen=True)
class Projection:
    """What other rules would do to a route.

    Attributes:
        route: its name.
        version: of the rules.
        n: recorded requests of the route.
        moved_share: share that would go elsewhere.
        supported_share: share of which something alike is recorded; numbers are of these.
        choices: by choice: requests, share that already goes there, whether it can be told.
        num_replayed: recorded decisions of this very version.
        num_other: of these, how many the rules decide otherwise now.
        card: the projection against what is, over the supported requests; ``None`` without any.
    """

    route: str
    version: str
    n: int
    moved_share: float
    supported_share: float
    choices: tuple[dict[str, Any], ...]
    num_replayed: int
    num_other: int
    card: Card | None

    def document(self) -> dict[str, Any]:
        """One route of the document."""
        card = None if self.card is None else self.card.document()
        kept = ("metrics", "rates", "means", "n", "notes")
        return {
            "route": self.route,
            "version": self.version,
            "n": self.n,
            "moved_share": self.moved_share,
            "supported_share": self.supported_share,
            "choices": list(self.choices),
            "replayed": {"num": self.num_replayed, "num_other": self.num_other},
            "projected": None if card is None else {name: card[name] for name in kept},
            "assumptions": list(ASSUMPTIONS),
        }


def projected(
    requests: pl.DataFrame, policy: Policy, name: str, rules: CardRules | None = None
) -> Projection:
    """What a policy would do to a route, from its recorded requests.

    Args:
        requests: a table of requests with ``request_model``, the inputs of the route as columns,
            and ``cost_usd`` and ``quality`` where they are known.
        policy: the rules.
        name: the route.
        rules: of the intervals.

    Raises:
        NotEnoughData: no request of the route says which model it went to.
    """
    route = policy.routes[name]
    own = requests
    if "route" in requests.columns:
        own = own.filter(pl.col("route") == name)
    if "request_model" not in own.columns and "model" in own.columns:
        own = own.rename({"model": "request_model"})
    if "request_model" in own.columns:
        own = own.filter(pl.col("request_model").is_not_null())
    if not own.height or "request_model" not in own.columns:
        raise NotEnoughData(f"route '{name}': no recorded request says which model it went to")
    own = _decided(own, route)
    weights, supported = _weights(own)
    base = own.filter(pl.Series(supported))
    cand = own.with_columns(weight=_own_weight(own) * pl.Series(weights)).filter(
        pl.Series(weights > 0)
    )
    same = own["is_there"].to_numpy()
    card = None
    if cand.height:
        plan = Plan(cluster="__row", is_randomised=True)
        card = scorecard(base, _timed_out(cand), plan, rules)
    replayed = own.filter(pl.col("__said").is_not_null())
    return Projection(
        name,
        route.version,
        own.height,
        float(1 - same.mean()),
        float(supported.mean()),
        _choices(own, route, supported),
        replayed.height,
        replayed.filter(pl.col("__said") != pl.col("__choice")).height,
        card,
    )


def _decided(own: pl.DataFrame, route: Route) -> pl.DataFrame:
    """The requests with the choice the rules make, and whether they went there already."""
    missing = [
        pl.lit(None, pl.String).alias(n)
        for n in (*_SAID, "outcome", "error_type")
        if n not in own.columns
    ]
    own = (
        own.with_columns(missing)
        .with_row_index("__row")
        .with_columns(pl.col("__row").cast(pl.String))
    )
    names = [name for name in route.inputs if name in own.columns]
    # equal inputs choose the same: each combination is decided once
    if names:
        combos = own.select(names).unique(maintain_order=True)
        made = [route.choose(row) for row in combos.iter_rows(named=True)]
        rows = combos.with_columns(
            pl.Series("__choice", [c.name for c in made]),
            pl.Series("__model", [c.model for c in made]),
            pl.Series("__provider", [c.provider for c in made], pl.String),
            pl.Series("__tier", [c.tier for c in made], pl.String),
            pl.Series("__timeout", [c.timeout_ms for c in made], pl.Float64),
        )
        own = own.join(rows, on=names, how="left", nulls_equal=True, maintain_order="left")
    else:
        choice = route.choose({})
        own = own.with_columns(
            __choice=pl.lit(choice.name),
            __model=pl.lit(choice.model),
            __provider=pl.lit(choice.provider, pl.String),
            __tier=pl.lit(choice.tier, pl.String),
            __timeout=pl.lit(float(choice.timeout_ms)),
        )
    is_there = (
        (pl.col("request_model") == pl.col("__model"))
        & (pl.col("__provider").is_null() | (pl.col("provider") == pl.col("__provider")))
        & (pl.col("__tier").is_null() | (tier_name("service_tier") == tier_name("__tier")))
    )
    is_recorded = (pl.col("policy_version") == route.version).fill_null(False)
    by_model = {choice.model: choice.name for choice in route.choices}
    told = pl.col("route_chosen")
    chosen = (
        pl.when(told.is_in([c.name for c in route.choices]))
        .then(told)
        .otherwise(told.replace_strict(by_model, default=None, return_dtype=pl.String))
    )
    return own.with_columns(
        is_there=is_there.fill_null(False), __said=pl.when(is_recorded).then(chosen)
    ).with_columns(_bin(own))


def _bin(own: pl.DataFrame) -> pl.Series:
    """A bin of the prompt's length; unknown is one of its own."""
    if "input_tokens" not in own.columns or not own["input_tokens"].count():
        return pl.Series("__bin", [_NO_BIN] * own.height)
    values = own["input_tokens"].cast(pl.Float64).fill_null(float("nan")).to_numpy()
    known = values[~np.isnan(values)]
    edges = np.unique(np.quantile(known, np.arange(1, _BINS) / _BINS, method="inverted_cdf"))
    places = np.where(np.isnan(values), _NO_BIN, np.searchsorted(edges, values, "left"))
    return pl.Series("__bin", places)


def _weights(own: pl.DataFrame) -> tuple["np.ndarray[Any, Any]", "np.ndarray[Any, Any]"]:
    """How many requests each stands for, 0 for those that would go elsewhere; which are told."""
    own = own.with_columns(__weight=_own_weight(own))
    there = pl.col("is_there")
    total = pl.col("__weight").sum().over("__choice", "__bin")
    matched = (pl.col("__weight") * there).sum().over("__choice", "__bin")
    num = there.sum().over("__choice", "__bin")
    is_all = there.all().over("__choice", "__bin")
    found = own.select(
        factor=pl.when(there & (matched > 0)).then(total / matched).otherwise(0.0),
        is_told=is_all | ((num >= MIN_SUPPORT) & (total / matched <= MAX_FACTOR)),
    )
    told = found["is_told"].fill_null(False).to_numpy().astype(np.bool_)
    return found["factor"].to_numpy() * told, told


def _own_weight(own: pl.DataFrame) -> pl.Series:
    if "weight" not in own.columns:
        return pl.Series("weight", [1.0] * own.height, pl.Float64)
    return own["weight"].cast(pl.Float64).fill_null(1.0)


def _timed_out(cand: pl.DataFrame) -> pl.DataFrame:
    """The requests as the new timeouts leave them."""
    if "e2e_ms" not in cand.columns:
        return cand
    is_over = (pl.col("e2e_ms") > pl.col("__timeout")).fill_null(False)
    return cand.with_columns(
        e2e_ms=pl.when(is_over).then("__timeout").otherwise("e2e_ms"),
        outcome=pl.when(is_over).then(None).otherwise("outcome"),
        error_type=pl.when(is_over).then(pl.lit("timeout")).otherwise("error_type"),
    )


def _choices(
    own: pl.DataFrame, route: Route, supported: "np.ndarray[Any, Any]"
) -> tuple[dict[str, Any], ...]:
    table = own.with_columns(is_told=pl.Series(supported)).group_by("__choice").agg(
        n=pl.len(), there=pl.col("is_there").mean(), told=pl.col("is_told").mean()
    )  # fmt: skip
    rows = {row["__choice"]: row for row in table.iter_rows(named=True)}
    return tuple(
        {
            "name": choice.name,
            "model": choice.model,
            "tier": choice.tier,
            "n": rows[choice.name]["n"] if choice.name in rows else 0,
            "already_there": rows[choice.name]["there"] if choice.name in rows else None,
            "supported_share": rows[choice.name]["told"] if choice.name in rows else None,
            "longest_ms": route.longest_ms(choice),
        }
        for choice in route.choices
    )
