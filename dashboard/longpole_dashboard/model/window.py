"""What a page looks at: a stretch of time and, maybe, one route."""

from dataclasses import dataclass
from typing import Final

from longpole_collector.stores.base import Reader, Value

SECOND_NS: Final = 1_000_000_000

EVERYTHING: Final = "all"
RANGES: Final[dict[str, int | None]] = {
    "15 min": 900,
    "1 h": 3_600,
    "6 h": 21_600,
    "24 h": 86_400,
    "7 d": 604_800,
    EVERYTHING: None,
}
"""Range, as the page and the URL call it -> seconds."""
OPENING: Final = "1 h"
"""The shortest range that a live store opens with."""

MAX_ROUTES: Final = 200


@dataclass(frozen=True)
class Bounds:
    """What the store holds: first start, last end (ns; ``None`` when empty), traces, routes."""

    first_ns: int | None
    last_ns: int | None
    num_traces: int
    routes: tuple[str, ...]


@dataclass(frozen=True)
class Filters:
    """Traces that start in ``[start_ns, end_ns)``, of one route or (``None``) of all.

    ``previous_ns`` is the start of the equally long period before; ``None`` when there is none.
    """

    start_ns: int
    end_ns: int
    previous_ns: int | None = None
    route: str | None = None

    @property
    def params(self) -> dict[str, Value]:
        """The parameters ``$start``, ``$end`` and ``$route`` of a statement."""
        return {"start": self.start_ns, "end": self.end_ns, "route": self.route}


IN_WINDOW: Final = (
    "start_ns >= $start AND start_ns < $end "
    "AND (CAST($route AS VARCHAR) IS NULL OR route = CAST($route AS VARCHAR))"
)
"""The condition that goes with :attr:`Filters.params`."""


def bounds(reader: Reader) -> Bounds:
    """What the store holds now; all ``None`` and 0 when it is empty."""
    row = reader.sql(
        "SELECT min(start_ns) AS first_ns, max(end_ns) AS last_ns, count(*) AS n FROM traces"
    ).to_pylist()[0]
    routes = reader.sql(
        "SELECT DISTINCT route FROM traces WHERE route IS NOT NULL ORDER BY route LIMIT $most",
        {"most": MAX_ROUTES},
    )
    names = tuple(routes.column("route").to_pylist())
    return Bounds(row["first_ns"], row["last_ns"], row["n"], names)


def default_range(held: Bounds, now_ns: int, is_recorded: bool) -> str:
    """The range a page opens with: everything for recorded files, else the last hour.

    A live store whose newest trace is older than an hour opens with the shortest range that
    still shows it, so that the first look is never empty without need.
    """
    if is_recorded:
        return EVERYTHING
    if held.last_ns is None:
        return OPENING
    age_s = max((now_ns - held.last_ns) / SECOND_NS, RANGES[OPENING] or 0)
    return next(name for name, length_s in RANGES.items() if length_s is None or age_s <= length_s)


def resolve(
    choice: str, route: str | None, held: Bounds, now_ns: int, is_recorded: bool
) -> Filters:
    """The filters of a chosen range.

    Args:
        choice: a key of :data:`RANGES`; an unknown one (a mistyped URL) means everything.
        route: a route, or ``None`` for all.
        held: what the store holds.
        now_ns: the clock.
        is_recorded: anchor the range at the last trace instead of at the clock.
    """
    first_ns = now_ns if held.first_ns is None else held.first_ns
    last_ns = now_ns if held.last_ns is None else held.last_ns
    end_ns = last_ns + 1 if is_recorded else max(now_ns, last_ns + 1)
    seconds = RANGES.get(choice)
    if seconds is None:
        return Filters(first_ns, last_ns + 1, None, route)
    start_ns = end_ns - seconds * SECOND_NS
    previous_ns = start_ns - seconds * SECOND_NS
    return Filters(start_ns, end_ns, previous_ns if first_ns < start_ns else None, route)
