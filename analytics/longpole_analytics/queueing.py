"""Queues: what the requests themselves say of load, saturation and the capacity they need.

Little's law checks the data (Operations Research 9, 1961). Of a wait, :func:`load_curve` and
:func:`servers_needed` look at real requests and are to be preferred to the formulas in
:mod:`longpole_analytics.queue_theory`.
"""

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import polars as pl

from longpole.errors import BadInput
from longpole_analytics.queue_theory import Floats, allen_cunneen, variation2
from longpole_analytics.queue_weighted import busy, known_mean, quantile_of, rate_of, spread2
from longpole_analytics.stats import quantile, rank
from longpole_analytics.weighted import num_of, sums_of, weights_of
from longpole_analytics.weighted import quantile as weighted_quantile

_NS_PER_S: Final = 1e9


@dataclass(frozen=True)
class QueueRules:
    """When a queue is called saturated, and how capacity is found.

    Attributes:
        max_little_gap: further apart, in-flight and rate x time contradict each other.
        max_rho: above it a server has no room for bursts.
        knee: a bin whose p95 is so many times that of the lowest third is past the knee.
        num_bins: bins of the curve by in-flight.
        min_bin: fewest requests of a bin.
        growth: how much of itself a wait gains over the window to be called growing.
        window_s: stretches in which the arrival rate is looked at.
        burst_margin: further servers, as a share.
        max_servers: the search for capacity ends there.
    """

    max_little_gap: float = 0.1
    max_rho: float = 0.8
    knee: float = 2.0
    num_bins: int = 10
    min_bin: int = 20
    growth: float = 0.25
    window_s: float = 300.0
    burst_margin: float = 0.2
    max_servers: int = 100_000


# --- requests ----------------------------------------------------------------------------------
class Little(NamedTuple):
    """L = lambda W, checked. ``gap`` is how far observed and expected are apart, of the larger."""

    observed: float
    expected: float
    gap: float
    is_consistent: bool


def little(
    observed: float, rate: float, mean_time: float, rules: QueueRules | None = None
) -> Little:
    """Whether a mean in-flight that was observed fits the rate and the mean time in the system.

    More than 10 % apart over a steady window: spans are missing, or clocks are wrong.
    """
    rules = rules or QueueRules()
    expected = rate * mean_time
    larger = max(observed, expected)
    gap = abs(observed - expected) / larger if larger > 0 else 0.0
    return Little(observed, expected, gap, gap <= rules.max_little_gap)


def mean_in_flight(starts: Floats, ends: Floats, since: float, until: float) -> float | None:
    """Mean number of requests in the system over a window; ``None`` of an empty window."""
    if until <= since:
        return None
    inside = np.clip(ends, since, until) - np.clip(starts, since, until)
    return float(np.maximum(inside, 0).sum() / (until - since))


class Load(NamedTuple):
    """One bin of the curve: requests that began with so many in flight, p50 and p95 of a metric."""

    low: float
    high: float
    n: int
    p50: float
    p95: float


class Curve(NamedTuple):
    """A metric over in-flight; ``knee`` is the in-flight at which it turns up, if it does."""

    bins: tuple[Load, ...]
    knee: float | None


def load_curve(
    in_flight: Sequence[float | None],
    metric: Sequence[float | None],
    rules: QueueRules | None = None,
    weight: Floats | None = None,
) -> Curve:
    """The metric by in-flight, in bins of about equal numbers of requests; the first knee.

    The knee is the first bin whose p95 is more than twice that of the lowest third of the bins.
    Too few requests give no bins, and no knee. Bins hold as many requests that were kept;
    quantiles within one are weighed.
    """
    rules = rules or QueueRules()
    x, y = (np.array(values, np.float64) for values in (in_flight, metric))
    known = np.isfinite(x) & np.isfinite(y)
    weight = (np.ones(len(x)) if weight is None else weight)[known]
    x, y = x[known], y[known]
    num = min(rules.num_bins, len(x) // rules.min_bin)
    if num == 0:
        return Curve((), None)
    edges = np.unique([np.sort(x)[rank(len(x), k / num) - 1] for k in range(1, num + 1)])
    places = np.searchsorted(edges, x, "left")
    bins: list[Load] = []
    sizes: list[float] = []
    for place in range(len(edges)):
        inside = places == place
        if inside.any():
            p50, p95 = (quantile_of(y[inside], weight[inside], q) for q in (0.5, 0.95))
            ends = float(x[inside].min()), float(x[inside].max())
            bins.append(Load(*ends, int(inside.sum()), p50, p95))
            sizes.append(num_of(weight[inside]))
    third = [at.p95 * size for at, size in zip(bins, sizes, strict=True)][: max(len(bins) // 3, 1)]
    low = sum(third) / sum(sizes[: len(third)])
    knee = next((at.low for at in bins[len(third) :] if at.p95 > rules.knee * low), None)
    return Curve(tuple(bins), knee)


class Saturation(NamedTuple):
    """Whether a queue is saturated, and why; ``reasons`` are sentences."""

    is_saturated: bool
    rho: float | None
    queue_p50: float | None
    service_p50: float | None
    is_growing: bool
    reasons: tuple[str, ...]


def saturation(
    starts_s: Sequence[float],
    queue_s: Sequence[float | None],
    service_s: Sequence[float | None],
    servers: int | None = None,
    rules: QueueRules | None = None,
    weight: Floats | None = None,
) -> Saturation:
    """Whether requests queue because there is not enough capacity.

    So it is when the servers are busier than 0.8, at the lower end of its interval, or the median
    wait is longer than the median service; and the wait grows while arrivals do not fall.

    Args:
        starts_s: when each arrived.
        queue_s: how long it waited; ``None`` is unknown.
        service_s: how long it was served.
        servers: how many can be served at once, if that is known.
        rules: thresholds.
        weight: how many each stands for; ``None`` where all are there.
    """
    rules = rules or QueueRules()
    weight = np.ones(len(starts_s)) if weight is None else weight
    order = np.argsort(np.array(starts_s, np.float64), kind="stable")
    starts, queue, service, weight = (
        np.array(values, np.float64)[order] for values in (starts_s, queue_s, service_s, weight)
    )
    known = np.isfinite(starts) & np.isfinite(queue) & np.isfinite(service)
    starts, queue, service, weight = (each[known] for each in (starts, queue, service, weight))
    if len(starts) < 2 * rules.min_bin or starts[-1] <= starts[0]:
        return Saturation(False, None, None, None, False, ("too few requests with a queue time",))
    queue_p50, service_p50 = (quantile_of(values, weight, 0.5) for values in (queue, service))
    rho = low = None
    if servers is not None:
        rho, low = busy(starts, service, weight, servers)
    reasons: list[str] = []
    if low is not None and low > rules.max_rho:
        reasons.append(f"busy {rho:.0%} of the time, over {rules.max_rho:.0%}")
    if queue_p50 > service_p50:
        reasons.append("the median wait is longer than the median service")
    is_growing = _is_growing(starts, queue, weight, rules)
    if reasons and is_growing:
        reasons.append("the wait grows while arrivals do not fall")
    return Saturation(
        bool(reasons) and is_growing, rho, queue_p50, service_p50, is_growing, tuple(reasons)
    )


def _is_growing(starts: Floats, queue: Floats, weight: Floats, rules: QueueRules) -> bool:
    """Later waits beyond the interval of the earlier ones, though as many arrive."""
    is_first = starts <= (starts[0] + starts[-1]) / 2
    sizes = [num_of(weight[side]) for side in (is_first, ~is_first)]
    if is_first.sum() < rules.min_bin or sizes[1] < (1 - rules.max_little_gap) * sizes[0]:
        return False
    halves = []
    for side in (is_first, ~is_first):
        order = np.argsort(queue[side], kind="stable")
        halves.append(weighted_quantile(queue[side][order], weight[side][order], 0.5))
    first, second = halves
    if first is None or second is None or first.high is None or second.low is None:
        return False
    usual = float(np.median(queue[is_first])) if np.all(weight == 1) else first.value
    return second.low > first.high and second.low > (1 + rules.growth) * usual


# --- capacity ----------------------------------------------------------------------------------
def waits(arrivals: Floats, services: Floats, servers: int) -> Floats:
    """How long each request waits when these come to so many servers, first come first served.

    Args:
        arrivals: when each arrives, ascending.
        services: how long each is served.
        servers: how many.
    """
    found = np.zeros(len(arrivals))
    if servers >= len(arrivals):
        return found
    free = [-math.inf] * servers
    for i, (at, service) in enumerate(zip(arrivals.tolist(), services.tolist(), strict=True)):
        begun = max(at, free[0])
        heapq.heapreplace(free, begun + service)
        found[i] = begun - at
    return found


class Capacity(NamedTuple):
    """Servers that keep the wait: ``needed`` by the arrivals, ``advised`` with room for bursts.

    ``wait`` is the p95, over windows, of the mean wait with those needed.
    """

    needed: int
    advised: int
    wait: float


def servers_needed(
    arrivals_s: Sequence[float],
    services_s: Sequence[float],
    target_s: float,
    rules: QueueRules | None = None,
) -> Capacity | None:
    """The fewest servers that would have kept the mean wait in 5 min windows, at their p95.

    The arrivals are played through so many servers, as they came: bursts and silences are in it.
    ``None`` of no requests, or where not even one server each would do.

    Raises:
        BadInput: a time that is unknown, or a service below zero.
    """
    rules = rules or QueueRules()
    arrivals, services = (np.array(values, np.float64) for values in (arrivals_s, services_s))
    if not (np.isfinite(arrivals).all() and np.isfinite(services).all()):
        raise BadInput("a capacity needs every arrival and service time: leave the unknown out")
    if (services < 0).any():
        raise BadInput("a service time below zero")
    if not len(arrivals) or target_s < 0:
        return None
    order = np.argsort(arrivals, kind="stable")
    arrivals, services = arrivals[order], services[order]
    low, high = 1, min(len(arrivals), rules.max_servers)
    while low < high:  # more servers never make anybody wait longer
        middle = (low + high) // 2
        if _window_wait(arrivals, services, middle, rules) <= target_s:
            high = middle
        else:
            low = middle + 1
    wait = _window_wait(arrivals, services, low, rules)
    if wait > target_s:
        return None
    return Capacity(low, math.ceil(round(low * (1 + rules.burst_margin), 9)), wait)


def _window_wait(arrivals: Floats, services: Floats, servers: int, rules: QueueRules) -> float:
    """p95, over the windows that have arrivals, of the mean wait of those who came in them."""
    windows = ((arrivals - arrivals[0]) // rules.window_s).astype(np.int64)
    names, places = np.unique(windows, return_inverse=True)
    sums = np.bincount(places, waits(arrivals, services, servers), len(names))
    means = sums / np.bincount(places, minlength=len(names))
    return quantile(means.tolist(), 0.95) or 0.0


# --- a table of requests -----------------------------------------------------------------------
@dataclass(frozen=True)
class Queueing:
    """What a table of requests says of its queue; ``None`` is what it cannot say.

    Times are seconds; ``wait_theory_s`` is the Allen-Cunneen guess for ``servers``. ``n`` counts
    the requests looked at. Where traces were sampled rates, means and quantiles are weighed. The
    variation of arrivals, and what follows from it or from playing arrivals through servers, needs
    every one of them: ``ca2``, ``wait_theory_s`` and ``capacity`` are unknown then.
    """

    n: int
    rate_per_s: float | None
    ca2: float | None
    cs2: float | None
    little: Little | None
    wait_theory_s: float | None
    saturation: Saturation
    queue_curve: Curve
    tpot_curve: Curve
    capacity: Capacity | None


def queueing(
    requests: pl.DataFrame,
    *,
    servers: int | None = None,
    target_wait_s: float | None = None,
    rules: QueueRules | None = None,
) -> Queueing:
    """All of this file, of a table of requests.

    Service is the model call's time without its queue. Requests without a start are left out.

    Args:
        requests: a table of requests.
        servers: how many sequences are served at once, if that is known.
        target_wait_s: the wait that capacity should keep; ``None`` asks for none.
        rules: thresholds.
    """
    rules = rules or QueueRules()
    frame = requests.filter(pl.col("start_ns").is_not_null()).sort("start_ns", maintain_order=True)
    starts = frame["start_ns"].to_numpy().astype(np.float64) / _NS_PER_S
    whole = pl.coalesce(pl.col("model_ms"), pl.col("e2e_ms"))
    times = frame.select(
        (pl.col("queue_ms") / 1e3).alias("queue"),
        ((whole - pl.col("queue_ms").fill_null(0.0)).clip(lower_bound=0.0) / 1e3).alias("service"),
        (whole / 1e3).alias("whole"),
    )
    service = times["service"].to_numpy().astype(np.float64)
    weight = weights_of(frame)
    is_sampled = bool(np.any(weight != 1))
    span = float(starts[-1] - starts[0]) if len(starts) > 1 else 0.0
    rate = rate_of(starts, weight) if span > 0 else None
    ca2 = None if is_sampled else variation2(np.diff(starts))
    cs2 = spread2(service, weight)
    mean_service = known_mean(service, weight)
    theory = None
    if None not in (rate, ca2, cs2, mean_service, servers):
        theory = allen_cunneen(rate, mean_service, servers, ca2, cs2)  # type: ignore[arg-type]
    is_known = np.isfinite(service)
    capacity = None
    if target_wait_s is not None and is_known.any() and not is_sampled:
        capacity = servers_needed(starts[is_known], service[is_known], target_wait_s, rules)
    return Queueing(
        len(starts),
        rate,
        ca2,
        cs2,
        _little(frame, times, rate, rules),
        theory,
        saturation(
            starts.tolist(), times["queue"].to_list(), service.tolist(), servers, rules, weight
        ),
        load_curve(frame["in_flight"].to_list(), times["queue"].to_list(), rules, weight),
        load_curve(frame["mean_in_flight"].to_list(), frame["tpot_ms"].to_list(), rules, weight),
        capacity,
    )


def _little(
    frame: pl.DataFrame, times: pl.DataFrame, rate: float | None, rules: QueueRules
) -> Little | None:
    """In-flight as it was recorded, less the request that counted, against rate x mean time.

    What is counted in flight are model calls, so the time is the call's where it is known.
    """
    sums = sums_of(frame)
    means = [sums.mean(pl.col(name)) for name in ("in_flight", "whole")]
    observed, took = frame.with_columns(times).select(means).row(0)
    if rate is None or not isinstance(observed, float) or not isinstance(took, float):
        return None
    return little(max(observed - 1, 0.0), rate, took, rules)
