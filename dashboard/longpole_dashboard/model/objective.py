"""What a metric of a route should stay under, as the configuration promises it."""

from longpole_analytics.alerts.event import route_of
from longpole_analytics.slo.objectives import LATENCIES
from longpole_dashboard import settings
from longpole_dashboard.model.slo import configured


def objectives() -> dict[tuple[str, str | None], float]:
    """(metric, route) -> what it should stay under, in ms; route ``None`` is for any.

    Of several the lowest counts. An objective about anything else than one route is none here.

    Raises:
        UsageError: an objective cannot be read.
    """
    found: dict[tuple[str, str | None], float] = {}
    for each in configured():
        route = route_of(each)
        is_plain = each.where is None or route is not None
        if each.metric in LATENCIES and each.threshold is not None and is_plain:
            key = (each.metric, route)
            found[key] = min(each.threshold, found.get(key, each.threshold))
    usual = settings.ttft_objective_ms()
    if usual is not None:
        found.setdefault(("ttft_ms", None), usual)
    return found


def objective_for(metric: str, route: str | None) -> float | None:
    """What a metric of a route (``None``: of several) should stay under; ``None`` if nothing."""
    known = objectives()
    return known.get((metric, route), known.get((metric, None)))


def of_findings(
    known: dict[tuple[str, str | None], float],
) -> dict[tuple[str, str | None], float]:
    """The same by the names that findings call metrics by."""
    names = {"ttft_ms": "ttft_ms", "e2e_ms": "wall_ms"}
    return {(names[of], route): ms for (of, route), ms in known.items() if of in names}
