"""A quantile against one that was stored, with the interval of their ratio.

The interval comes from those of both quantiles, which are order statistics: the square-and-add
method on logarithms (Zou & Donner, Statistics in Medicine 27, 2008; Newcombe, Statistics in
Medicine 17, 1998).
"""

import math
from typing import Any, Final, NamedTuple

import polars as pl

from longpole.errors import BadInput, UsageError
from longpole_analytics.slices import SliceRules, slices

SCHEMA: Final = "longpole.baseline/1"


class Quantile(NamedTuple):
    """A quantile of ``n`` requests and its 95 % interval; ``None`` where too few carry it."""

    metric: str
    where: str | None
    q: float
    n: int
    value: float | None
    low: float | None
    high: float | None


def quantile(requests: pl.DataFrame, metric: str, q: float, where: str | None = None) -> Quantile:
    """A quantile of a table of requests, as ``longpole slices`` tells it.

    Raises:
        UsageError: no such metric.
    """
    if metric not in requests.columns:
        raise UsageError(f"no metric '{metric}' to check: write one as ttft_ms or e2e_ms")
    found = slices(requests, [], metric, rules=SliceRules(quantiles=(q,))).slices
    if not found:
        return Quantile(metric, where, q, 0, None, None, None)
    at = found[0].quantiles[0]
    return Quantile(metric, where, q, found[0].n, at.value, at.low, at.high)


class Ratio(NamedTuple):
    """How many times as long it takes, and its 95 % interval; ``None`` where that is not known."""

    value: float | None
    low: float | None
    high: float | None


def ratio(now: Quantile, base: Quantile) -> Ratio:
    """Now over the baseline; nothing is known of it where a quantile or an end of one is not."""
    if not now.value or not base.value or now.value <= 0 or base.value <= 0:
        return Ratio(None, None, None)
    at = math.log(now.value / base.value)
    low = high = None
    if now.low is not None and base.high is not None and now.low > 0:
        low = math.exp(at - math.hypot(math.log(now.value / now.low), _log(base.high, base.value)))
    if now.high is not None and base.low is not None and base.low > 0:
        high = math.exp(at + math.hypot(math.log(now.high / now.value), _log(base.value, base.low)))
    return Ratio(math.exp(at), low, high)


def n_needed(found: Ratio, n: int, most: float) -> int | None:
    """Requests that would decide whether a ratio is above ``most``, if it stays what it is."""
    if not found.value or not found.low or not found.high or found.value == most:
        return None
    end = found.high if found.value < most else found.low
    reach, room = math.log(found.value / end), math.log(found.value / most)
    return math.ceil(n * max(reach / room, 1.0) ** 2) + 1


def document(quantiles: list[Quantile], since: str | None, until: str) -> dict[str, Any]:
    """The document ``longpole.baseline/1``."""
    return {
        "schema": SCHEMA,
        "since": since,
        "until": until,
        "quantiles": [each._asdict() for each in quantiles],
    }


def stored(baseline: dict[str, Any], metric: str, q: float, where: str | None) -> Quantile:
    """The quantile in a stored baseline.

    Raises:
        BadInput: it is no baseline, or does not hold this one.
    """
    try:
        if baseline["schema"] != SCHEMA:
            raise ValueError(baseline["schema"])
        found = [Quantile(**row) for row in baseline["quantiles"]]
    except (KeyError, TypeError, ValueError) as error:
        raise BadInput(f"no {SCHEMA} document: {error}") from error
    for each in found:
        if (each.metric, each.q, each.where) == (metric, q, where):
            return each
    asked = f"p{100 * q:g} of {metric}" + (f" where {where}" if where else "")
    raise BadInput(f"the baseline holds no {asked}: save it again, by --save-baseline")


def _log(above: float, below: float) -> float:
    return math.log(above / below) if above > 0 and below > 0 else 0.0
