"""Slow requests and what they may be compared with: same route, like prompts and answers.

A slice must not be blamed for sending longer prompts, nor a route for being slow by nature. So
slow is told per route, and every comparison is made within strata of input decile and output
tercile of one route (fewer bins where there are few requests), methods as in Mantel & Haenszel,
Journal of the National Cancer Institute 22 (1959).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from longpole_analytics.stats import rank

Floats = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
_MAX_BINS: Final = 64
UNKNOWN: Final = 0
"""Code of a value that is null, or that is left out of the coding."""


@dataclass(frozen=True)
class StratumRules:
    """How requests are grouped.

    Attributes:
        min_route: routes with fewer requests are taken together.
        max_routes: so are those beyond the most frequent.
        num_input_bins: bins of prompt length, by quantile; the top one is halved on.
        num_output_bins: bins of answer length, likewise.
        per_bin: fewest requests of a route for each bin.
        max_strata: about so many strata at most, routes apart.
        min_bin_ratio: lengths closer than this are the same length: finer strata only lose
            comparable requests.
    """

    min_route: int = 20
    max_routes: int = 1000
    num_input_bins: int = 10
    num_output_bins: int = 3
    per_bin: int = 50
    max_strata: int = 2000
    min_bin_ratio: float = 1.1


@dataclass(frozen=True)
class Cohort:
    """Requests whose metric is known; row by row whether slow, in which stratum, its weight.

    ``weight`` is ``None`` where every request stands for itself alone.
    """

    requests: pl.DataFrame
    metric: str
    values: Floats
    is_slow: Mask
    stratum: Codes
    weight: Floats | None

    @property
    def num_slow(self) -> int:
        """Slow requests, not weighted."""
        return int(self.is_slow.sum())


class Coded(NamedTuple):
    """A text column as numbers: 0 is unknown, ``code`` stands for ``names[code - 1]``."""

    codes: Codes
    names: list[str]


def cohort(
    requests: pl.DataFrame,
    metric: str,
    *,
    objective_ms: float | None = None,
    slow_quantile: float = 0.95,
    rules: StratumRules | None = None,
) -> Cohort:
    """The requests that have the metric; slow above the objective, else above the route's quantile.

    Args:
        requests: a table of ``longpole_analytics.requests``.
        metric: a column of it in milliseconds.
        objective_ms: what the metric should stay under; ``None`` if there is no objective.
        slow_quantile: see above.
        rules: how requests are grouped.
    """
    rules = rules or StratumRules()
    known = requests.filter(pl.col(metric).is_finite())
    values = known[metric].cast(pl.Float64).to_numpy()
    weight = _weights(known)
    routes = list(groups_of(_routes(known, rules)))
    if objective_ms is not None:
        is_slow = values > objective_ms
    else:
        is_slow = np.zeros(len(values), bool)
        for rows in routes:
            own = None if weight is None else weight[rows]
            is_slow[rows] = values[rows] > quantile_of(values[rows], slow_quantile, own)
    return Cohort(known, metric, values, is_slow, _strata(known, routes, rules), weight)


def coded(column: pl.Series) -> Coded:
    """A text column as numbers, its values in the order of their names."""
    encoded = column.cast(pl.String).to_arrow().dictionary_encode()
    found: list[str] = encoded.dictionary.to_pylist()
    order = sorted(range(len(found)), key=found.__getitem__)
    codes = np.empty(len(found) + 1, np.int64)
    codes[order] = np.arange(1, len(found) + 1)
    codes[-1] = UNKNOWN
    indices = encoded.indices.fill_null(len(found)).to_numpy(zero_copy_only=False)
    return Coded(codes[indices], [found[index] for index in order])


def numbers(requests: pl.DataFrame, name: str) -> Floats:
    """A numeric column; not a number where unknown."""
    return requests[name].cast(pl.Float64).fill_null(float("nan")).to_numpy()


def groups_of(codes: Codes) -> Iterator[Codes]:
    """The rows of each group, by ascending code; rows ascend too."""
    if not len(codes):
        return
    order = np.argsort(codes, kind="stable")
    ends = np.flatnonzero(np.diff(codes[order])) + 1
    yield from np.split(order, ends)


def quantile_of(values: Floats, q: float, weight: Floats | None = None) -> float:
    """The element of nearest rank among at least one value, each counted by its weight."""
    if weight is None:
        place = rank(len(values), q) - 1
        return float(np.partition(values, place)[place])
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(weight[order])
    # What rounding adds up to must not move a rank.
    place = int(np.searchsorted(reached, q * reached[-1] * (1 - 1e-12)))
    return float(values[order[min(place, len(values) - 1)]])


def _weights(requests: pl.DataFrame) -> Floats | None:
    """How many requests each row stands for; what is no positive number counts once."""
    if "weight" not in requests.columns or not requests["weight"].count():
        return None
    weight = requests["weight"].fill_null(1.0).to_numpy()
    return np.where((weight > 0) & np.isfinite(weight), weight, 1.0)


def _routes(requests: pl.DataFrame, rules: StratumRules) -> Codes:
    """The route's code; 0 for none, and for routes too rare to be looked at alone."""
    if "route" not in requests.columns:
        return np.zeros(requests.height, np.int64)
    codes = coded(requests["route"]).codes
    sizes = np.bincount(codes)
    kept = np.argsort(-sizes, kind="stable")[: rules.max_routes]
    is_kept = np.zeros(len(sizes), bool)
    is_kept[kept] = sizes[kept] >= rules.min_route
    return np.where(is_kept[codes], codes, UNKNOWN)


def _strata(requests: pl.DataFrame, routes: list[Codes], rules: StratumRules) -> Codes:
    """A number for each group of one route, prompts and answers of like length."""
    per_bin = max(rules.per_bin, requests.height // rules.max_strata)
    inputs, outputs = (numbers(requests, name) for name in ("input_tokens", "output_tokens"))
    strata = np.zeros(requests.height, np.int64)
    for number, rows in enumerate(routes):
        num_input = min(rules.num_input_bins, len(rows) // per_bin)
        num_output = min(rules.num_output_bins, len(rows) // (per_bin * rules.num_input_bins))
        of_input = _bins(inputs[rows], num_input, per_bin, rules.min_bin_ratio)
        of_output = _bins(outputs[rows], num_output, per_bin, rules.min_bin_ratio)
        strata[rows] = (number * _MAX_BINS + of_input) * _MAX_BINS + of_output
    dense: Codes = np.unique(strata, return_inverse=True)[1]
    return dense


def _bins(values: Floats, num_bins: int, per_bin: int, min_ratio: float) -> Codes:
    """Bin of each value by quantile, from 1; 0 where it is unknown.

    The top bin, which has no upper end and most of what is slow, is halved while its halves are
    large enough.
    """
    ordered = np.sort(values[~np.isnan(values)])
    quantiles = [step / num_bins for step in range(1, num_bins)]
    top = 1 / num_bins if quantiles else 0.0
    while top * len(ordered) >= 2 * per_bin and len(quantiles) < _MAX_BINS - 2:
        top /= 2
        quantiles.append(1 - top)
    edges: list[float] = []
    for q in quantiles if len(ordered) else []:
        edge = float(ordered[rank(len(ordered), q) - 1])
        if edge >= min_ratio * (edges[-1] if edges else ordered[0]):
            edges.append(edge)
    found = 1 + np.searchsorted(np.array(edges), values, "left")
    return np.where(np.isnan(values), UNKNOWN, found)
