"""What is left of the error budgets, route by route, as ``longpole slo check`` has it."""

from typing import NamedTuple

from longpole_analytics.alerts.event import route_of
from longpole_analytics.slo.objectives import Objective
from longpole_collector.stores.base import Reader
from longpole_dashboard.model.slo import is_enough, slos
from longpole_dashboard.model.window import Filters


class Budget(NamedTuple):
    """The tightest budget of a route: its objective, and the share left (may be below 0).

    ``left`` is ``None`` where there are too few requests, or they are not all counted yet.
    """

    slo: str
    left: float | None


def budgets(
    objectives: tuple[Objective, ...], filters: Filters, reader: Reader
) -> dict[str | None, Budget]:
    """The tightest budget of each route, as of the end of the window; ``None`` is for any route.

    Args:
        objectives: at least one; those that are not about one route, or all, are left out.
        filters: the window.
        reader: the store.
    """
    plain = tuple(each for each in objectives if each.where is None or route_of(each) is not None)
    if not plain:
        return {}
    standing = slos(plain, filters, reader)
    found: dict[str | None, Budget] = {}
    for each in standing.standings:
        is_known = is_enough(each) and not standing.num_uncounted
        left = each.budget.remaining if is_known else None
        # the least comes first
        found.setdefault(route_of(each.objective), Budget(each.objective.id, left))
    return found
