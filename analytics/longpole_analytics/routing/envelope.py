"""Which options of a route no other beats: the envelope of latency, quality and cost.

An option beats another if it is at least as good in all three and better in one (Pareto). What is
recorded of none of a route's options is left out of its comparison, and told; an option that lacks
what others have cannot be placed.
"""

import math
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import polars as pl

from longpole.errors import BadInput
from longpole_analytics.scorecard.interval import MIN_CLUSTERS
from longpole_analytics.scorecard.rates import share, wilson
from longpole_analytics.scorecard.rules import Plan
from longpole_analytics.scorecard.sides import METRICS, Side, sides
from longpole_analytics.scorecard.survival import quantile
from longpole_analytics.stats import rank_interval

OPTIONS: Final = ("request_model", "service_tier")
"""What an option is by default."""
_OBJECTIVES: Final = ("latency", "quality", "cost")
_Z: Final = 1.959964


class Measured(NamedTuple):
    """A number and its 95 % interval; ``None`` where it is unknown or open."""

    value: float | None
    low: float | None
    high: float | None


class Option(NamedTuple):
    """One option of a route.

    ``quality`` is the mean quality where it is recorded, else the accepted rate; ``cost`` is per
    accepted outcome, or per request where no outcome is known. ``is_on_envelope`` is ``None`` where
    it cannot be said, for ``reason``; ``is_sure`` says that intervals alone tell it from the option
    that beats it.
    """

    route: str | None
    where: dict[str, str | None]
    n: int
    latency: Measured
    quality: Measured
    quality_kind: str | None
    cost: Measured
    cost_kind: str | None
    is_on_envelope: bool | None
    beaten_by: dict[str, str | None] | None
    is_sure: bool | None
    reason: str | None

    def document(self) -> dict[str, Any]:
        """One row of the document."""
        found = self._asdict()
        for name in _OBJECTIVES:
            measured: Measured = found[name]
            found[name] = {"value": measured.value, "ci95": [measured.low, measured.high]}
        return found


def envelope(
    requests: pl.DataFrame,
    by: Sequence[str] = OPTIONS,
    metric: str = "e2e_ms",
    q: float = 0.95,
) -> list[Option]:
    """The options of each route, the fastest first, and which of them no other beats.

    Args:
        requests: a table of requests with ``cost_usd`` and ``quality`` where they are known.
        by: columns that make an option.
        metric: which time.
        q: which quantile of it; failures and timeouts count as not seen to end.

    Raises:
        BadInput: a column is not there.
    """
    for name in by:
        if name not in requests.columns:
            raise BadInput(f"no column '{name}'; there are: {', '.join(requests.columns)}")
    if metric not in METRICS:
        raise BadInput(f"no metric '{metric}'; there are: {', '.join(METRICS)}")
    route = pl.col("route") if "route" in requests.columns else pl.lit(None, pl.String)
    frame = requests.with_columns(__route=route.cast(pl.String))
    keys = ["__route", *by]
    found: dict[str | None, list[Option]] = {}
    for key, group in frame.group_by(keys, maintain_order=True):
        own, *values = (None if each is None else str(each) for each in key)
        where = dict(zip(by, values, strict=True))
        found.setdefault(own, []).append(_option(own, where, group.drop("__route"), metric, q))
    ordered = sorted(found, key=lambda name: (name is None, name or ""))
    return [option for name in ordered for option in _placed(found[name], q)]


def _option(
    route: str | None, where: dict[str, str | None], group: pl.DataFrame, metric: str, q: float
) -> Option:
    side = sides(group, group.clear(), Plan(target=metric))[0]
    quality, quality_kind = _quality(side)
    cost, cost_kind = _cost(side)
    return Option(
        route, where, side.n, _latency(side, metric, q), quality, quality_kind, cost, cost_kind,
        None, None, None, None,
    )  # fmt: skip


def _latency(side: Side, metric: str, q: float) -> Measured:
    """The quantile with its interval of order statistics; open where these did not end."""
    times = side.times.get(metric)
    if times is None:
        return Measured(None, None, None)
    known = times.known()
    n = len(known.value)
    if not n:
        return Measured(None, None, None)
    ends = rank_interval(n, q)
    places = [None if rank is None else rank / n for rank in ends]
    low, high = (None if place is None else quantile(known, place) for place in places)
    return Measured(quantile(times, q), low, high)


def _quality(side: Side) -> tuple[Measured, str | None]:
    quality = side.number("quality")
    if not np.isnan(quality).all():
        return _mean(quality, side), "quality"
    rate = side.rates.get("accepted_rate")
    num = int(side.cluster.max()) + 1 if side.n else 1
    found = None if rate is None else share(rate, side.weight, side.cluster, num)
    if found is None:
        return Measured(None, None, None), None
    return Measured(found.value, *wilson(found.value, found.worth, 0.05)), "accepted_rate"


def _cost(side: Side) -> tuple[Measured, str | None]:
    cost = side.number("cost_usd")
    if np.isnan(cost).all():
        return Measured(None, None, None), None
    each = _mean(cost, side)
    rate = side.rates.get("accepted_rate")
    if rate is None:
        return each, "cost_per_request_usd"
    weight = side.weight * rate.is_known
    accepted = float((weight * rate.is_so).sum() / weight.sum())
    if accepted <= 0:
        return Measured(None, None, None), "cost_per_accepted_usd"
    # delta method on the logarithm of cost / accepted
    known = ~np.isnan(cost) & rate.is_known
    mean = each.value or 0.0
    parts = np.zeros(side.n)
    if mean > 0 and known.any():
        parts[known] = cost[known] / mean - rate.is_so[known] / accepted
        spread = float(np.sqrt((np.bincount(side.cluster, side.weight * parts) ** 2).sum()))
        reach = _Z * spread / float(side.weight[known].sum())
        value = mean / accepted
        ends = (value * math.exp(-reach), value * math.exp(reach))
        return Measured(value, *ends), "cost_per_accepted_usd"
    return Measured(mean / accepted, None, None), "cost_per_accepted_usd"


def _mean(values: "np.ndarray[Any, Any]", side: Side) -> Measured:
    known = ~np.isnan(values) & (side.weight > 0)
    weight = side.weight[known]
    if not weight.sum():
        return Measured(None, None, None)
    mean = float(np.average(values[known], weights=weight))
    errors = np.bincount(side.cluster[known], weight * (values[known] - mean))
    num = len(np.unique(side.cluster[known]))
    if num < MIN_CLUSTERS:
        return Measured(mean, None, None)
    reach = _Z * math.sqrt(float((errors**2).sum()) * num / (num - 1)) / float(weight.sum())
    return Measured(mean, mean - reach, mean + reach)


# --- the envelope -------------------------------------------------------------------------------
def _placed(options: list[Option], q: float) -> list[Option]:
    """The options of one route, placed: the fastest first, those that cannot be placed last."""
    used = [name for name in _OBJECTIVES if any(_of(o, name).value is not None for o in options)]
    kinds = {(o.quality_kind, o.cost_kind) for o in options}
    placed = [option._replace(reason=_lack(option, used, q)) for option in options]
    able = [option for option in placed if option.reason is None]
    if len({kind for kind in kinds if kind != (None, None)}) > 1:
        used = _alike(able, used)
    found = []
    for option in placed:
        if option.reason is not None:
            found.append(option)
            continue
        beats = [other for other in able if other is not option and _beats(other, option, used)]
        if not beats:
            found.append(option._replace(is_on_envelope=True))
            continue
        best = min(beats, key=lambda other: _of(other, "latency").value or 0.0)
        is_sure = any(_is_surely(best, option, name) for name in used)
        found.append(option._replace(is_on_envelope=False, beaten_by=best.where, is_sure=is_sure))
    return sorted(found, key=lambda o: (o.reason is not None, o.latency.value or math.inf))


def _lack(option: Option, used: list[str], q: float) -> str | None:
    """Why an option cannot be placed."""
    if None in rank_interval(option.n, q):
        return f"too few samples for p{100 * q:g}: {option.n}"
    if "latency" not in used:
        return "no time is recorded"
    lacks = [name for name in used if _of(option, name).value is None]
    return f"{', '.join(lacks)} unknown or not reached" if lacks else None


def _alike(options: list[Option], used: list[str]) -> list[str]:
    """The objectives that mean the same for all options."""
    left = set(used)
    if len({option.quality_kind for option in options}) > 1:
        left.discard("quality")
    if len({option.cost_kind for option in options}) > 1:
        left.discard("cost")
    return [name for name in used if name in left]


def _of(option: Option, name: str) -> Measured:
    found: Measured = getattr(option, name)
    return found


def _loss(option: Option, name: str) -> float:
    """A number that is better when it is less."""
    value = _of(option, name).value
    assert value is not None  # noqa: S101 - only options that have all are compared
    return -value if name == "quality" else value


def _beats(one: Option, other: Option, used: list[str]) -> bool:
    pairs = [(_loss(one, name), _loss(other, name)) for name in used]
    return all(a <= b for a, b in pairs) and any(a < b for a, b in pairs)


def _is_surely(one: Option, other: Option, name: str) -> bool:
    """Whether the intervals alone say that one is better in this."""
    a, b = _of(one, name), _of(other, name)
    if name == "quality":
        return a.low is not None and b.high is not None and a.low > b.high
    return a.high is not None and b.low is not None and a.high < b.low
