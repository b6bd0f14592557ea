"""Millisecond budgets: what each stage of a route may take, who owns it, and how it does.

A budget is checked on the time that the stage takes on the critical path, as only that is waited
for. The p95 of a sum is not the sum of the p95s, so what the stages of a route come to together is
taken from the requests themselves. In ``longpole.toml``::

    [budget."rag.search"]
    retrieval = {p95_ms = 300, owner = "search"}
    prefill = {p95_ms = 400, owner = "platform"}
    prefill-cold = {p95_ms = 2500, owner = "platform"}
    e2e = {p95_ms = 3000, owner = "app"}

A key is a stage, ``ttft``, ``model``, or ``e2e`` for all of the request; with ``-cold``,
``-warm``, ``-cached``, ``-uncached``, ``-tool``, ``-no_tool``, ``-foreground`` or ``-background``
it is for such requests only. Requests of the class ``offline`` are in the background.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Final, NamedTuple

import polars as pl

from longpole.errors import UsageError
from longpole.vocab import Stage
from longpole_analytics.measures import Share
from longpole_analytics.slices import SliceQuantile, SliceRules, slices
from longpole_analytics.weighted import weighted_share

SCHEMA: Final = "longpole.budgets/1"
TABLE: Final = "budget"
WHOLE: Final = "e2e"
SPANS: Final = ("ttft", "model", WHOLE)
"""Segments that several stages make together."""
_QUANTILES: Final = {"p50_ms": 0.5, "p90_ms": 0.9, "p95_ms": 0.95, "p99_ms": 0.99}
_IS_CACHED: Final = (
    pl.when(pl.col("cache_state").is_in(["hit", "partial"]))
    .then(pl.lit(value=True))
    .when(pl.col("cache_state") == "miss")
    .then(pl.lit(value=False))
    .otherwise(pl.col("cached_input_tokens") > 0)
)
_HAS_TOOL: Final = pl.coalesce(pl.col("num_tools") > 0, pl.col("tool_ms") > 0)
_IS_BACKGROUND: Final = pl.col("slo_class") == "offline"
STATES: Final[dict[str, pl.Expr]] = {
    "warm": ~pl.col("is_cold"),
    "cold": pl.col("is_cold"),
    "cached": _IS_CACHED,
    "uncached": ~_IS_CACHED,
    "tool": _HAS_TOOL,
    "no_tool": ~_HAS_TOOL,
    "foreground": ~_IS_BACKGROUND,
    "background": _IS_BACKGROUND,
}
"""Kinds of requests that are looked at apart; one whose kind is unknown is in neither."""


class Budget(NamedTuple):
    """What a stage of a route may take at a quantile; ``state`` is ``None`` for all requests."""

    route: str
    stage: str
    state: str | None
    q: float
    limit_ms: float
    owner: str | None

    @property
    def column(self) -> str:
        """The column of a table of requests that holds its time."""
        return f"{self.stage}_ms"


class Spent(NamedTuple):
    """How requests do against a budget.

    Attributes:
        state: which of them; ``None`` for all that it is for.
        over: share of the requests that took longer, with its interval by their number.
        burn: this share over the one allowed: 1 spends the budget exactly.
        above_ms: what they took above the limit, in all.
        at: the stage's quantile and its interval; unknown where there are too few.
    """

    state: str | None
    over: Share
    burn: float | None
    above_ms: float
    at: SliceQuantile


class Checked(NamedTuple):
    """One budget: all of its requests, the same by state, and a verdict.

    ``over`` when even the lower end of the quantile's interval is above the limit, ``within`` when
    the upper end is not, ``undecided`` between, ``too few`` where the quantile is unknown.
    """

    budget: Budget
    whole: Spent
    by_state: tuple[Spent, ...]
    verdict: str


class Composed(NamedTuple):
    """The budgeted stages of a route together, as real requests have them.

    Attributes:
        route: the route.
        state: which of its requests; ``None`` for all.
        stages: its stages with a budget for all requests.
        q: the quantile.
        n: its requests.
        at: that quantile of what the stages take together in one request.
        sum_ms: the sum of the stages' own quantiles; ``None`` where one is unknown.
        whole: the quantile of the whole request.
        by_state: the same of the kinds of requests there are.
    """

    route: str
    state: str | None
    stages: tuple[str, ...]
    q: float
    n: int
    at: SliceQuantile
    sum_ms: float | None
    whole: SliceQuantile
    by_state: "tuple[Composed, ...]" = ()


class Owned(NamedTuple):
    """What one owner answers for; ``None`` is what nobody owns.

    Attributes:
        owner: who.
        num_budgets: their budgets.
        num_over: those that are over for sure.
        worst: the one that burns fastest; ``None`` where no requests tell.
        above_ms: what requests took above all their limits.
    """

    owner: str | None
    num_budgets: int
    num_over: int
    worst: Checked | None
    above_ms: float


@dataclass(frozen=True)
class Budgets:
    """All budgets, the fastest burning first, and what each route comes to."""

    checked: tuple[Checked, ...]
    composed: tuple[Composed, ...]

    @property
    def owners(self) -> tuple[Owned, ...]:
        """By owner, whose requests took most above their limits first; what nobody owns last."""
        found = []
        for owner in dict.fromkeys(each.budget.owner for each in self.checked):
            own = [each for each in self.checked if each.budget.owner == owner]
            burning = [each for each in own if each.whole.burn is not None]
            found.append(
                Owned(
                    owner,
                    len(own),
                    sum(each.verdict == "over" for each in own),
                    max(burning, key=lambda each: each.whole.burn or 0.0, default=None),
                    math.fsum(each.whole.above_ms for each in own),
                )
            )
        found.sort(key=lambda each: (each.owner is None, -each.above_ms, each.owner or ""))
        return tuple(found)

    def document(self) -> dict[str, Any]:
        """The document ``longpole.budgets/1``."""
        return {
            "schema": SCHEMA,
            "budgets": [
                {
                    "route": found.budget.route,
                    "stage": found.budget.stage,
                    "owner": found.budget.owner,
                    "quantile": found.budget.q,
                    "budget_ms": found.budget.limit_ms,
                    **_spent(found.whole),
                    "state": found.budget.state,
                    "verdict": found.verdict,
                    "by_state": [_spent(part) for part in found.by_state],
                }
                for found in self.checked
            ],
            "routes": [
                {
                    "route": found.route,
                    **_together(found),
                    "by_state": [_together(part) for part in found.by_state],
                }
                for found in self.composed
            ],
            "owners": [
                {
                    "owner": found.owner,
                    "num_budgets": found.num_budgets,
                    "num_over": found.num_over,
                    "above_ms": found.above_ms,
                    "worst": found.worst
                    and {
                        "route": found.worst.budget.route,
                        "stage": found.worst.budget.stage,
                        "state": found.worst.budget.state,
                        "burn": found.worst.whole.burn,
                    },
                }
                for found in self.owners
            ],
        }


def parse(table: Mapping[str, object]) -> list[Budget]:
    """The budgets of the table ``[budget]``, in its order.

    Raises:
        UsageError: a key or value that is not known, with what to write.
    """
    found: list[Budget] = []
    for route, stages in table.items():
        where = f'[budget."{route}"]'
        if not isinstance(stages, dict):
            raise UsageError(f"{where}: expected stages, as {where} prefill = {{p95_ms = 400}}")
        for key, given in stages.items():
            found.append(_parsed(where, route, key, given))
    return found


def check(requests: pl.DataFrame, budgets: Iterable[Budget]) -> Budgets:
    """How a table of requests does against budgets.

    Args:
        requests: a table of requests.
        budgets: what to check; those of a route without requests have ``n`` 0.
    """
    missing = [name for name in ("route", "slo_class") if name not in requests.columns]
    requests = requests.with_columns(pl.lit(None, pl.String).alias(name) for name in missing)
    given = list(budgets)
    checked: list[Checked] = []
    for budget in given:
        ours = requests.filter(pl.col("route") == budget.route)
        if budget.state is not None:
            ours = ours.filter(STATES[budget.state])
        whole = _spend(ours, budget, None)
        states = [] if budget.state else list(STATES)
        parts = [_spend(ours.filter(STATES[name]), budget, name) for name in states]
        by_state = tuple(part for part in parts if part.over.n)
        checked.append(Checked(budget, whole, by_state, _verdict(whole, budget)))
    checked.sort(key=lambda found: -(found.whole.burn or 0.0))
    routes = dict.fromkeys((budget.route, budget.q) for budget in given)
    composed = [_composed(requests, given, route, q) for route, q in routes]
    return Budgets(tuple(checked), tuple(found for found in composed if found is not None))


# --- inside ------------------------------------------------------------------------------------
def _parsed(where: str, route: str, key: str, given: object) -> Budget:
    stage, dash, state = key.partition("-")
    known = [*(stage.value for stage in Stage), *SPANS]
    if stage not in known or (dash and state not in STATES):
        names = [*known, *(f"{stage}-{state}" for state in STATES)]
        close = get_close_matches(key, names, n=1)
        hint = f"; did you mean {close[0]}?" if close else f"; stages: {', '.join(known)}"
        raise UsageError(f"{where} {key}: no such stage{hint}")
    example = f'{key} = {{p95_ms = 400, owner = "team"}}'
    if not isinstance(given, dict):
        raise UsageError(f"{where} {key}: write {example}")
    limits = [name for name in given if name in _QUANTILES]
    unknown = [name for name in given if name not in (*_QUANTILES, "owner")]
    if unknown or len(limits) != 1:
        what = f"unknown '{unknown[0]}'" if unknown else "one of p50_ms, p90_ms, p95_ms, p99_ms"
        raise UsageError(f"{where} {key}: {what}: write {example}")
    limit, owner = given[limits[0]], given.get("owner")
    is_number = isinstance(limit, int | float) and not isinstance(limit, bool)
    if not is_number or not math.isfinite(limit) or limit < 0:
        raise UsageError(f"{where} {key} {limits[0]}: expected milliseconds, not {limit!r}")
    if owner is not None and not isinstance(owner, str):
        raise UsageError(f"{where} {key} owner: expected a name, not {owner!r}")
    return Budget(route, stage, state or None, _QUANTILES[limits[0]], float(limit), owner)


def _spend(requests: pl.DataFrame, budget: Budget, state: str | None) -> Spent:
    known = requests.filter(pl.col(budget.column).is_finite())
    weights = _weights(known)
    is_over = known[budget.column] > budget.limit_ms
    over = weighted_share(is_over.to_numpy(), weights.to_numpy())
    all_weight = float(weights.sum())
    burn = None
    if all_weight > 0:
        burn = float((weights * is_over).sum()) / all_weight / (1 - budget.q)
    above = ((known[budget.column] - budget.limit_ms).clip(lower_bound=0.0) * weights).sum()
    return Spent(state, over, burn, float(above), _at(known, budget.column, budget.q))


def _weights(requests: pl.DataFrame) -> pl.Series:
    if "weight" not in requests.columns:
        return pl.Series("weight", [1.0] * requests.height)
    return requests["weight"].cast(pl.Float64).fill_null(1.0)


def _at(requests: pl.DataFrame, column: str, q: float) -> SliceQuantile:
    found = slices(requests, [], column, rules=SliceRules(quantiles=(q,))).slices
    return found[0].quantiles[0] if found else SliceQuantile(q, None, None, None)


def _verdict(spent: Spent, budget: Budget) -> str:
    if spent.at.value is None:
        return "too few"
    if spent.at.low is not None and spent.at.low > budget.limit_ms:
        return "over"
    if spent.at.high is not None and spent.at.high <= budget.limit_ms:
        return "within"
    return "undecided"


def _composed(
    requests: pl.DataFrame, budgets: list[Budget], route: str, q: float
) -> Composed | None:
    """What a route's stages with a budget at a quantile come to; ``None`` below two stages.

    A state's stages are those with a budget for it, or for all requests.
    """
    ours = [each for each in budgets if (each.route, each.q) == (route, q)]
    ours = [each for each in ours if each.stage not in SPANS]
    own = requests.filter(pl.col("route") == route)
    by_state = []
    for state, is_in in STATES.items():
        stages = dict.fromkeys(each.stage for each in ours if each.state in (None, state))
        rows = own.filter(is_in)
        if len(stages) >= 2 and rows.height:
            by_state.append(_compose(rows, tuple(stages), route, state, q))
    stages = dict.fromkeys(each.stage for each in ours if each.state is None)
    if len(stages) < 2:
        return None
    whole = _compose(own, tuple(stages), route, None, q)
    return whole._replace(by_state=tuple(by_state))


def _compose(
    requests: pl.DataFrame, stages: tuple[str, ...], route: str, state: str | None, q: float
) -> Composed:
    columns = [f"{stage}_ms" for stage in stages]
    ours = requests.filter(*(pl.col(name).is_finite() for name in columns)).with_columns(
        pl.sum_horizontal(columns).alias("composed_ms")
    )
    own = [_at(ours, name, q).value for name in columns]
    known = [value for value in own if value is not None]
    return Composed(
        route,
        state,
        stages,
        q,
        ours.height,
        _at(ours, "composed_ms", q),
        math.fsum(known) if len(known) == len(own) else None,
        _at(ours, f"{WHOLE}_ms", q),
    )


def _together(found: Composed) -> dict[str, Any]:
    return {
        "state": found.state,
        "stages": list(found.stages),
        "quantile": found.q,
        "n": found.n,
        "composed_ms": found.at.value,
        "composed_ci95": [found.at.low, found.at.high],
        "sum_of_quantiles_ms": found.sum_ms,
        "e2e_ms": found.whole.value,
    }


def _spent(found: Spent) -> dict[str, Any]:
    return {
        "state": found.state,
        "n": found.over.n,
        "num_over": found.over.k,
        "over_share": found.over.value,
        "over_ci95": [found.over.low, found.over.high],
        "burn": found.burn,
        "above_ms": found.above_ms,
        "value_ms": found.at.value,
        "value_ci95": [found.at.low, found.at.high],
    }
