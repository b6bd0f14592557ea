"""What a page looks at: a stretch of time, a route, a model, slices; and what it is compared with.

The conditions that filters put on each view are defined here once: :meth:`Filters.on`.
"""

from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from longpole_collector.stores.base import Reader, Value

SECOND_NS: Final = 1_000_000_000
HOUR_NS: Final = 3_600 * SECOND_NS
DAY_NS: Final = 24 * HOUR_NS

View = Literal["traces", "calls", "minutes"]

AMONG: Final = "trace_id IN (SELECT unnest(string_split($ids, ',')))"
"""The condition on rows of the traces that ``$ids`` lists."""
STAGES_AMONG: Final = (
    "trace_id IN (SELECT trace_id FROM traces "  # noqa: S608 - our own words
    f"WHERE start_ns >= $start AND start_ns < $end AND {AMONG})"
)
"""The same on stages, which do not tell when they start, of traces that start in the window."""
MAX_NAMES: Final = 1_000
"""Routes, models and versions that the bar offers, at most of each."""
_MANY: Final = 100_000
"""Workflows of which names are looked for one by one."""
_OF_BOTH: Final = ("route", "route_version", "prompt_version", "service", "failure_class")
_OF_TRACES: Final = ("slo_class", "root_name", "long_pole", "shape", "outcome")
_OF_CALLS: Final = (
    *("request_model", "response_model", "provider", "operation", "dialect", "cache_state"),
    *("prefix_hash", "finish_reason", "service_tier", "error_type", "stream_state"),
    *("is_cold_start", "is_streamed", "price_version"),
)
_OF_MINUTES: Final = ("route", "prompt_version", "request_model", "service")
COLUMNS: Final = (*_OF_BOTH, *_OF_TRACES, *_OF_CALLS)
"""What traces may be chosen by."""
_DIRECT: Final[dict[View, tuple[str, ...]]] = {
    "traces": (*_OF_BOTH, *_OF_TRACES),
    "calls": (*_OF_BOTH, *_OF_CALLS),
    "minutes": _OF_MINUTES,
}


class Match(NamedTuple):
    """A column that has a value, or (``is_not``) has not; ``None`` is what is unknown."""

    column: str
    value: str | None
    is_not: bool = False


@dataclass(frozen=True)
class Bounds:
    """What the store holds: first start, last end (ns; ``None`` when empty), traces, names."""

    first_ns: int | None
    last_ns: int | None
    num_traces: int
    routes: tuple[str, ...]
    models: tuple[str, ...] = ()
    prompt_versions: tuple[str, ...] = ()
    route_versions: tuple[str, ...] = ()


@dataclass(frozen=True)
class Filters:
    """Traces that start in ``[start_ns, end_ns)`` and meet all matches.

    Attributes:
        start_ns: first moment.
        end_ns: first moment after.
        where: what must hold besides, the route and the model of the bar among it.
        baseline: what these are compared with; ``None`` when there is nothing.
        versus: what that is called, as ``previous 1 h``.
        asked: the selection that this stands for while it moves with the clock: two of the same
            are the same question, asked a moment apart. ``None`` where the times are fixed.
    """

    start_ns: int
    end_ns: int
    where: tuple[Match, ...] = ()
    baseline: "Filters | None" = None
    versus: str = ""
    asked: str | None = None

    @property
    def params(self) -> dict[str, Value]:
        """The parameters of :meth:`on`, the same for every view."""
        values: dict[str, Value] = {"start": self.start_ns, "end": self.end_ns}
        known = ((number, match.value) for number, match in enumerate(self.where))
        return values | {f"is{number}": value for number, value in known if value is not None}

    def on(self, view: View) -> str:
        """The condition on a view, for :attr:`params`; a trace's calls count by their trace.

        Raises:
            ValueError: the view ``minutes`` cannot tell; see :meth:`fits_minutes`.
        """
        return " AND ".join(["start_ns >= $start AND start_ns < $end", *self._matching(view)])

    def matching(self, view: View) -> tuple[str, dict[str, Value]]:
        """The condition without the stretch of time, and the parameters of that alone."""
        params = {name: v for name, v in self.params.items() if name not in ("start", "end")}
        return " AND ".join(self._matching(view)) or "true", params

    def _matching(self, view: View) -> list[str]:
        return [_condition(match, number, view) for number, match in enumerate(self.where)]

    def fits_minutes(self, *, of_calls: bool) -> bool:
        """Whether the rolled up views can answer: of workflows they know no model."""
        known = [name for name in _OF_MINUTES if of_calls or name != "request_model"]
        return all(match.column in known for match in self.where)

    def value_of(self, column: str) -> str | None:
        """The one value that a column must have; ``None`` if any may be."""
        chosen = [m.value for m in self.where if m.column == column and not m.is_not]
        return chosen[0] if len(chosen) == 1 else None


def _condition(match: Match, number: int, view: View) -> str:
    if match.column in _DIRECT[view]:
        return _direct(match, number)
    if view == "minutes":
        raise ValueError(f"no column {match.column} in the rolled up views")
    other: View = "calls" if view == "traces" else "traces"
    # what is unknown of a trace is what none of its calls tells
    is_not = match.is_not != (match.value is None)
    told = _direct(match._replace(is_not=match.value is None), number)
    known = f"SELECT trace_id FROM {other} WHERE {overlapping(other)} AND {told}"  # noqa: S608
    return f"trace_id {'NOT ' if is_not else ''}IN ({known} AND trace_id IS NOT NULL)"


def _direct(match: Match, number: int) -> str:
    column = f"coalesce(CAST({match.column} AS VARCHAR), '')"
    if match.value is None:
        return f"{column} {'<>' if match.is_not else '='} ''"
    if not match.is_not and not match.column.startswith("is_"):
        return f"{match.column} = $is{number}"
    return f"{column} {'<>' if match.is_not else '='} $is{number}"


def overlapping(view: View = "calls") -> str:
    """The condition on rows of ``view`` that belong to traces, or calls, of the window.

    A call starts after its trace and, so that not every day has to be read, within a day of it.
    """
    if view == "calls":
        return f"start_ns >= $start AND start_ns < $end + {DAY_NS}"
    return f"start_ns >= $start - {DAY_NS} AND start_ns < $end"


def bounds(reader: Reader) -> Bounds:
    """What the store holds now; all ``None`` and 0 when it is empty."""
    row = reader.sql(
        "SELECT min(start_ns) AS first_ns, max(end_ns) AS last_ns, count(*) AS n, "
        "max(start_ns) AS newest_ns FROM traces"
    ).to_pylist()[0]
    if not row["n"]:
        return Bounds(None, None, 0, ())
    counted = _counted(row["newest_ns"], reader) if row["n"] > _MANY else None
    names = {
        (view, column): _names(reader, view, column, counted)
        for view, column in (
            *(("traces", "route"), ("calls", "request_model")),
            *(("traces", "prompt_version"), ("traces", "route_version")),
        )
    }
    return Bounds(row["first_ns"], row["last_ns"], row["n"], *names.values())


class _Counted(NamedTuple):
    """What is counted by the hour: since when some workflows perhaps are not, and all names."""

    since_ns: int
    names: dict[str, set[str]]


_COUNTED: Final = """
SELECT coalesce(sum(num), 0)
         = (SELECT count(*) FROM traces WHERE start_ns < $since) AS is_counted,
       list(DISTINCT route) AS route, list(DISTINCT prompt_version) AS prompt_version
FROM (SELECT route, prompt_version, sum(num) FILTER (start_ns < $since) AS num
      FROM stage_hours WHERE stage IS NULL GROUP BY route, prompt_version)
"""
"""A row without a stage counts all workflows of its hour and slice."""
_UNCOUNTED: Final = """
SELECT list(DISTINCT route) AS route, list(DISTINCT prompt_version) AS prompt_version
FROM traces WHERE start_ns >= $since
"""


def _counted(newest_ns: int, reader: Reader) -> _Counted | None:
    """The names of what is counted, and of what is not yet; ``None`` if that is not only new."""
    since_ns = newest_ns // HOUR_NS * HOUR_NS - HOUR_NS
    (known,) = reader.sql(_COUNTED, {"since": since_ns}).to_pylist()
    if not known.pop("is_counted"):
        return None
    (new,) = reader.sql(_UNCOUNTED, {"since": since_ns}).to_pylist()
    names = {
        name: {*filter(None, known[name] or ()), *filter(None, new[name] or ())} for name in new
    }
    return _Counted(since_ns, names)


def _names(reader: Reader, view: str, column: str, counted: _Counted | None) -> tuple[str, ...]:
    """The values of a column; of a large store from what is counted, and what is not yet."""
    if counted is not None and column in counted.names:
        return tuple(sorted(counted.names[column])[:MAX_NAMES])
    source, given = f"SELECT {column} FROM {view}", dict[str, Value]()  # noqa: S608 - ours
    if counted is not None and column == "request_model":
        given["since"] = counted.since_ns
        source = f"SELECT DISTINCT {column} FROM hours UNION ALL {source} WHERE start_ns >= $since"  # noqa: S608
    # unknown ones are left out here: there every row would be looked at for that
    query = f"SELECT {column} AS name FROM ({source}) GROUP BY 1 ORDER BY 1 LIMIT $most"  # noqa: S608 - ours
    found = reader.sql(query, {**given, "most": MAX_NAMES + 2}).column("name").to_pylist()
    return tuple(filter(None, found))[:MAX_NAMES]
