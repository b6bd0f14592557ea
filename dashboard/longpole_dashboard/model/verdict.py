"""The sentences on top of the Overview: what is slow, where, for whom, since when, what to do."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal, NamedTuple

import polars as pl

from longpole_analytics.finding import Finding, find_among
from longpole_analytics.requests import ALIASES, from_views
from longpole_analytics.wording import quantile_name, where_text
from longpole_collector.stores.base import Reader, Value
from longpole_dashboard.model import text
from longpole_dashboard.model.heatmap import MIN_BOXED
from longpole_dashboard.model.window import AMONG, DAY_NS, STAGES_AMONG, Filters, overlapping
from longpole_dashboard.theme import look

METRICS: Final = ("ttft_ms", "wall_ms")
"""What routes are looked at by."""
MAX_VERDICTS: Final = 3
MAX_TRACES: Final = 5_000
"""A finding rests on at most so many of the window's newest workflows, and on
``MAX_CALLS`` of their calls: what one query of a store may return."""
MAX_CALLS: Final = 50_000
_LATE: Final = 0.05
"""What is slow from so early in the window on has no beginning in it."""
_LABELS: Final = {"ttft_ms": "TTFT", "wall_ms": "workflow"}

Objectives = Mapping[tuple[str, str | None], float]
"""(metric, route, ``None`` for any) -> what it should stay under, in ms."""


@dataclass(frozen=True)
class Verdict:
    """A sentence, the facts behind it, and whether it says that something is wrong.

    Attributes:
        line: the sentence.
        facts: what it rests on, since when, what to do next.
        tone: ``worse`` says that something is wrong.
        exemplar: a trace that shows it; ``None`` when there is no finding.
        route: that it is about.
        metric: of the map that shows it.
        limit_ms: what is slow lies above; ``None`` when there is no finding.
        since_ns: when the first slow workflow of the slice began, if not at once.
        box_ms: where the box of the slow ones begins on the map: at ``limit_ms``, or lower where
            too few lie above it to be compared.
    """

    line: str
    facts: tuple[str, ...] = ()
    tone: Literal["worse", "grey"] = "grey"
    exemplar: str | None = None
    route: str | None = None
    metric: str = "ttft_ms"
    limit_ms: float | None = None
    since_ns: int | None = None
    box_ms: float | None = None


_OF_TRACES: Final = (
    *("trace_id", "start_ns", "wall_ms", "flags", "weight"),
    *("route", "route_version", "prompt_version", "slo_class"),
)
_OF_STAGES: Final = ("trace_id", "stage", "critical_ms")
_OF_CALLS: Final = (
    *("trace_id", "start_ns", "end_ns", "provider", "request_model"),
    *("route", "route_version", "prompt_version", "cache_state", "is_cold_start", "prefix_hash"),
    *("input_tokens", "cached_input_tokens", "output_tokens", "num_chunks", "tokens_per_chunk"),
    *("ttft_ms", "ttfv_ms", "tpot_ms", "stall_ms", "chunk_gap_max_ms"),
    *("num_attempts", "error_type"),
)
"""Columns of each view: what a table of requests is made of, and what a finding is told by."""
_NEWEST: Final = "ORDER BY start_ns DESC LIMIT $most"


class _Newest(NamedTuple):
    """The newest workflows of a window as a table of requests, and their calls."""

    requests: pl.DataFrame
    calls: pl.DataFrame


def _chosen(filters: Filters) -> str:
    return f"FROM traces WHERE {filters.on('traces')}"


def _since(filters: Filters, reader: Reader) -> int:
    """When the oldest of the newest workflows began; of a long window the last day is asked first.

    That is enough where it has that many, and lies in one or two files.
    """
    newest = f"SELECT start_ns {_chosen(filters)} {_NEWEST}"
    asked = f"SELECT count(*) AS n, min(start_ns) AS ns FROM ({newest})"  # noqa: S608 - ours
    given = {**filters.params, "most": MAX_TRACES}
    since: int | None = None
    for start_ns in sorted({filters.start_ns, filters.end_ns - DAY_NS}, reverse=True):
        if start_ns >= filters.start_ns:
            (row,) = reader.sql(asked, {**given, "start": start_ns}).to_pylist()
            since = row["ns"]
            if row["n"] == MAX_TRACES:
                break
    return since or 0


def _newest(filters: Filters, reader: Reader) -> _Newest:
    # first when the oldest of them began: few files, and of few rows these columns, are left
    since = _since(filters, reader)
    asked = f"SELECT {', '.join(_OF_TRACES)} {_chosen(filters)} AND start_ns >= $since {_NEWEST}"
    traces = _frame(reader, asked, {**filters.params, "since": since, "most": MAX_TRACES})
    starts = traces["start_ns"]
    first, last = (starts.min(), starts.max()) if len(starts) else (0, 0)
    assert isinstance(first, int)  # noqa: S101 - a column of whole numbers
    assert isinstance(last, int)  # noqa: S101 - likewise
    given: dict[str, Value] = {"start": first, "end": last + 1}
    given["ids"] = ",".join(traces["trace_id"])
    asked = f"SELECT {', '.join(_OF_STAGES)} FROM trace_stages WHERE {STAGES_AMONG}"  # noqa: S608 - ours
    stages = _frame(reader, asked, given)
    asked = f"SELECT {', '.join(_OF_CALLS)} FROM calls WHERE {AMONG} AND {overlapping()}"  # noqa: S608 - ours
    calls = _frame(reader, f"{asked} LIMIT {MAX_CALLS}", given)
    return _Newest(from_views(traces, stages, calls), calls)


def verdicts(filters: Filters, objectives: Objectives, reader: Reader) -> tuple[Verdict, ...]:
    """At most three findings, worst first; one that says so when there is none.

    Beyond the first, only what is wrong is told: a slice to blame, or a broken objective.

    Args:
        filters: which workflows; of many, the newest 5,000.
        objectives: what metrics of routes should stay under.
        reader: the store.
    """
    newest = _newest(filters, reader)
    found = [each for metric in METRICS for each in _findings(newest, metric, objectives)]
    if not found:
        return (
            Verdict(
                "No finding: no route has 20 workflows with a TTFT and a slow one among them here."
            ),
        )
    found.sort(key=_lost_ms, reverse=True)
    told: list[Verdict] = []
    seen: set[tuple[object, ...]] = set()
    for each in found:
        key = (each.route, tuple(each.where.items()))
        is_wrong = each.cause is not None or each.objective_ms is not None
        if key not in seen and (is_wrong or not told):
            told.append(_told(each, newest.requests))
        seen.add(key)
    told.sort(key=lambda each: each.tone != "worse")
    return tuple(told[:MAX_VERDICTS])


def _findings(newest: _Newest, metric: str, objectives: Objectives) -> list[Finding]:
    """The findings of a metric: of each route that has an objective, and of the worst others."""

    def find(requests: pl.DataFrame, limit_ms: float | None) -> Finding | None:
        return find_among(requests, newest.calls, objective_ms=limit_ms, metric=metric)

    found: list[Finding | None] = []
    left = newest.requests
    for (of, route), limit_ms in objectives.items():
        if of == metric and route is not None:
            own = left.filter(pl.col("route") == route)
            left = left.filter(pl.col("route").ne_missing(route))
            found.append(find(own, limit_ms))
    for _ in range(MAX_VERDICTS):
        worst = find(left, objectives.get((metric, None)))
        found.append(worst)
        if worst is None:
            break
        left = left.filter(pl.col("route").ne_missing(worst.route))
    return [each for each in found if each is not None]


def _lost_ms(found: Finding) -> float:
    """What is lost: by the slice to blame, else above the limit at the quantile."""
    if found.cause is not None:
        return found.cause.excess_ms_total
    return found.num_slow * max(found.value_ms - (found.objective_ms or 0.0), 0.0) / 1e3


def _told(found: Finding, requests: pl.DataFrame) -> Verdict:
    column = ALIASES.get(found.metric, found.metric)
    limit_ms = found.value_ms if found.objective_ms is None else found.objective_ms
    own = requests.filter(pl.col("route").eq_missing(found.route), pl.col(column).is_finite())
    inside = [pl.col(name).eq_missing(value) for name, value in found.where.items()]
    slow = own.filter(pl.col(column) > limit_ms, *inside)["start_ns"].sort()
    since_ns = None
    if found.cause is not None and slow.len() and own.height:
        first, last = int(own["start_ns"][0]), int(own["start_ns"][-1])
        is_late = slow[0] - first > _LATE * (last - first)
        since_ns = int(slow[0]) if is_late else None
    box_ms = limit_ms if found.objective_ms is not None else _enough_above(own[column], limit_ms)
    return replace(told(found, limit_ms, since_ns), box_ms=box_ms)


def _enough_above(values: pl.Series, limit_ms: float) -> float:
    """``limit_ms``, or the round number below it that as many lie above as a box needs to tell."""
    ordered = values.sort(descending=True)
    if len(ordered) < MIN_BOXED or ordered[MIN_BOXED - 1] > limit_ms or not ordered[0] > 0:
        return limit_ms
    last = max(float(ordered[MIN_BOXED - 1]), 1e-9)
    step = 10.0 ** (math.floor(math.log10(last)) - 2)
    return math.floor(last / step) * step


def told(found: Finding, limit_ms: float | None = None, since_ns: int | None = None) -> Verdict:
    """A finding in words; see :class:`Verdict` for the rest."""
    label = _LABELS[found.metric]
    name = quantile_name(found.quantile)
    quantile = f"{name} {label} {text.duration(found.value_ms)}"
    route = found.route or "workflows without a route"
    stage = look(found.stage).label
    share = text.percent(found.share_of_excess, 0)
    base = f"{text.count(found.num_slow)} of {text.counted(found.num_traces, 'workflow')}"
    if found.objective_ms is None:
        head, base = f"{route}: {quantile}", f"{base} above it"
    else:
        limit = text.duration(found.objective_ms)
        head, base = f"{route}: {base} over the {label} objective of {limit}", quantile
    if found.cause is None:
        line = f"{head}; {stage} holds {share} of the excess; no slice explains the slow ones."
    else:
        of_slow, of_rest = (text.percent(s, 0) for s in (found.cause.of_slow, found.cause.of_rest))
        line = (
            f"{head}; {stage} holds {share} of the excess; {where_text(found.where)} is "
            f"{of_slow} of the slow, {of_rest} of the others."
        )
    saved = f" ({name} down {text.duration(found.what_if_ms)} at most)" if found.what_if_ms else ""
    return Verdict(
        line,
        (*found.why, f"Next: {found.do}{saved}", base),
        "worse" if found.cause or (found.objective_ms is not None and found.num_slow) else "grey",
        found.exemplars[0] if found.exemplars else None,
        found.route,
        ALIASES.get(found.metric, found.metric),
        limit_ms,
        since_ns,
    )


def _frame(reader: Reader, query: str, params: Mapping[str, Value]) -> pl.DataFrame:
    frame = pl.from_arrow(reader.sql(query, params))
    assert isinstance(frame, pl.DataFrame)  # noqa: S101 - a table gives a frame
    return frame
