"""What a report reads of a store or of one flat table: each table once, then windows of it.

A window holds what the commands load for the same time, so that their figures are the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import polars as pl

from longpole.errors import BadInput
from longpole_analytics import loading, related
from longpole_analytics.attribution import CauseRules
from longpole_analytics.cache.hits import hit_rates, wasted_writes
from longpole_analytics.cache.loading import Calls, calls_of
from longpole_analytics.cache.rules import CacheRules
from longpole_analytics.cache.worth import break_evens
from longpole_analytics.changes import ChangeRules
from longpole_analytics.cost import cost_by, priced, unpriced, waste_by_kind, wasted
from longpole_analytics.explain import document as explained
from longpole_analytics.frames import spans_from_table
from longpole_analytics.outcome_facts import outcome_facts, with_outcome_facts
from longpole_analytics.prepare import distinct
from longpole_analytics.report.base import Earlier, Inputs
from longpole_analytics.report.blame import blame
from longpole_analytics.report.weeks import Window, earlier
from longpole_analytics.requests import from_flat, from_views
from longpole_analytics.rollup import workflow_span
from longpole_analytics.serial import SerialRules, opportunities
from longpole_analytics.slo.check import Standing, check, num_minutes
from longpole_analytics.stages import TracePartition, partition
from longpole_analytics.top import Slow, Top, top
from longpole_analytics.weighted import sampling

if TYPE_CHECKING:
    from longpole.vocab import Span
    from longpole_analytics.budgets import Budget
    from longpole_analytics.prices import Prices
    from longpole_analytics.slo.objectives import Objective
    from longpole_collector.stores.base import Reader

MINUTE_NS: Final = 60 * 10**9
NUM_EARLIER: Final = 3
"""Windows before, in which causes are looked for too."""
MAX_LANES: Final = 60
_VIEWS: Final = ("traces", "trace_stages", "calls")
_IS_INCOMPLETE: Final = pl.col("flags").list.contains("incomplete_trace").fill_null(False)


@dataclass(frozen=True)
class Setup:
    """What a report is asked for, and by which rules.

    Attributes:
        project: the project's name.
        source: the options that name the data to a command.
        config: the file of promises, if one was named.
        where: the condition that requests meet.
        metric: how slow a request is.
        slow: what is slow.
        objectives: what is promised.
        budgets: what stages may take.
        prices: what calls cost.
        dashboard: the address that links begin with; ``None`` makes no links.
        cause_rules: what a slice must show to be blamed.
        change_rules: what is a change.
        cache_rules: thresholds of the cache's findings.
        serial_rules: what follows what.
    """

    project: str
    source: str
    prices: Prices
    config: str | None = None
    where: str | None = None
    metric: str = "e2e_ms"
    slow: Slow = field(default_factory=Slow)
    objectives: Sequence[Objective] = ()
    budgets: Sequence[Budget] = ()
    dashboard: str | None = None
    cause_rules: CauseRules = field(default_factory=CauseRules)
    change_rules: ChangeRules = field(default_factory=ChangeRules)
    cache_rules: CacheRules = field(default_factory=CacheRules)
    serial_rules: SerialRules = field(default_factory=SerialRules)


def read(source: Reader | pl.DataFrame, setup: Setup, window: Window) -> Inputs:
    """All that a report of a window is made from.

    Args:
        source: a store, or a flat table of requests.
        setup: what is asked for.
        window: the time.

    Raises:
        BadInput: the condition, or the table, cannot be read.
        Unreachable: the store cannot be asked.
    """
    held = _Flat(source) if isinstance(source, pl.DataFrame) else _Store(source, setup, window)
    windows = [window, *(earlier(window, num) for num in range(1, NUM_EARLIER + 1))]
    tables = [loading.select(held.requests(w.since_ns, w.until_ns), setup.where) for w in windows]
    now, before = tables[0], tables[1] if tables[1].height else None
    found = _top(now, setup)
    kept_ns = held.kept_since_ns()
    behind = blame(now, found, setup.cause_rules)
    standings, about, broken = _standings(held, setup, window.until_ns, now)
    was, _, _ = _standings(held, setup, window.since_ns, None)
    calls = held.calls(window, setup.where)
    middle = behind.causes[0].median_id if behind.causes else None
    return Inputs(
        project=setup.project,
        window=window,
        source=setup.source,
        config=setup.config,
        where=setup.where,
        metric=setup.metric,
        slow=setup.slow,
        requests=now,
        before=before,
        top=found,
        blame=behind,
        earlier=tuple(
            Earlier(w, _top(table, setup) if table.height else None)
            for w, table in zip(windows[1:], tables[1:], strict=True)
        ),
        standings=standings,
        standings_before=tuple(each for each in was if each.total),
        about=about,
        broken=broken,
        budgets=tuple(setup.budgets),
        cache=_cache(calls, setup),
        calls=calls.calls,
        example=held.example(middle, setup) if middle is not None else None,
        kept_since_ns=kept_ns,
        num_incomplete=held.num_incomplete(window),
        dashboard=setup.dashboard,
    )


def _top(requests: pl.DataFrame, setup: Setup) -> Top:
    return top(
        requests,
        setup.metric,
        slow=setup.slow,
        cause_rules=setup.cause_rules,
        change_rules=setup.change_rules,
    )


def _standings(
    held: _Flat | _Store, setup: Setup, at_ns: int, now: pl.DataFrame | None
) -> tuple[tuple[Standing, ...], dict[str, pl.DataFrame], dict[str, str]]:
    """Where objectives stand, which of the window's requests they are about, and what is wrong."""
    if not setup.objectives:
        return (), {}, {}
    requests = held.promised(_first_ns(setup.objectives, at_ns), at_ns)
    own: dict[str, pl.DataFrame] = {}
    about: dict[str, pl.DataFrame] = {}
    broken: dict[str, str] = {}
    for objective in setup.objectives:
        try:
            own[objective.id] = loading.select(requests, objective.where)
            if now is not None:
                about[objective.id] = loading.select(now, objective.where)
        except BadInput as error:
            broken[objective.id] = str(error).partition("; columns:")[0]
    known = [each for each in setup.objectives if each.id not in broken]
    return tuple(check(known, lambda each: own[each.id], at_ns)), about, broken


def _cache(given: Calls, setup: Setup) -> dict[str, Any] | None:
    """The parts of ``longpole cache`` that a report tells; ``None`` without calls."""
    if not given.calls.height:
        return None
    costs = priced(given.calls, setup.prices)
    if "route" not in costs.columns:
        costs = costs.with_columns(pl.lit(None, pl.String).alias("route"))
    outcomes, rules = given.outcomes, setup.cache_rules
    sampled = sampling(costs, ("wasted_writes",))
    return {
        "prices": {
            "version": setup.prices.version,
            "own_version": setup.prices.own_version,
            "unpriced": unpriced(costs).to_dicts(),
        },
        "hits": {"all": next(iter(hit_rates(costs).to_dicts()), None)},
        "break_even": break_evens(costs, rules),
        "wasted_writes": wasted_writes(costs, rules).to_dicts(),
        "cost": {
            "all": next(iter(cost_by(costs, (), outcomes).to_dicts()), None),
            "routes": cost_by(costs, ["route"], outcomes).to_dicts(),
            "wasted": waste_by_kind(wasted(costs, outcomes)).to_dicts(),
        },
        **({} if sampled is None else {"sampling": sampled}),
    }


class _Flat:
    """A flat table of requests."""

    def __init__(self, table: pl.DataFrame) -> None:
        self._flat = table
        self._requests = from_flat(table)
        if not self._requests["start_ns"].count():
            raise BadInput("no column start_ns, so no report of a time")

    def requests(self, since_ns: int, until_ns: int) -> pl.DataFrame:
        """Those that began in [since, until)."""
        return loading.select(self._requests, None, since_ns, until_ns)

    promised = requests

    def calls(self, window: Window, where: str | None) -> Calls:
        """The rows of the window, each as a call."""
        chosen = loading.select(self._flat, where, window.since_ns, window.until_ns)
        return Calls(chosen, pl.DataFrame(schema={"start_ns": pl.Int64}), None)

    def kept_since_ns(self) -> int | None:
        """When the first one began."""
        return _whole(self._requests["start_ns"].min())

    def num_incomplete(self, _window: Window) -> int:
        """None is."""
        return 0

    def example(self, _trace_id: str, _setup: Setup) -> None:
        """A flat table has no spans."""


class _Store:
    """The views of a store over all the time that a report needs."""

    def __init__(self, reader: Reader, setup: Setup, window: Window) -> None:
        self._reader = reader
        since_ns = earlier(window, NUM_EARLIER).since_ns
        if setup.objectives:
            reach_ns = (num_minutes(setup.objectives) + 1) * MINUTE_NS
            since_ns = min(since_ns, window.since_ns - reach_ns)
        views = [
            loading.view_rows(reader, view, max(since_ns, 0), window.until_ns) for view in _VIEWS
        ]
        self._whole = from_views(*views)
        self._facts = outcome_facts(setup.objectives)
        traces, _, calls = views
        self._incomplete = traces.filter(_IS_INCOMPLETE)["start_ns"]
        near = _across(traces, calls, _edges(setup, window))
        self._traces, self._stages, self._calls = (
            view.join(near, on="trace_id", how="semi") for view in views
        )

    def requests(self, since_ns: int, until_ns: int) -> pl.DataFrame:
        """Those that began in [since, until), told from the calls that did so too.

        Like the commands, which load no others; so what has calls on both sides is told anew.
        Both are :func:`_edges`.
        """
        inside = pl.col("start_ns").is_between(since_ns, until_ns, closed="left")
        found, traces = self._whole.filter(inside), self._traces.filter(inside)
        beyond = self._calls.filter(~inside).join(traces, on="trace_id", how="semi")
        if beyond.is_empty():
            return found
        ids = beyond.select(pl.col("trace_id").unique())
        parts = [
            table.join(ids, on="trace_id", how="semi")
            for table in (traces, self._stages, self._calls.filter(inside))
        ]
        anew = from_views(*parts).select(found.columns)
        kept = found.join(ids, on="trace_id", how="anti", maintain_order="left")
        return pl.concat([kept, anew]).sort("start_ns", "trace_id")

    def promised(self, since_ns: int, until_ns: int) -> pl.DataFrame:
        """The same with what objectives are about besides, as ``longpole slo check`` loads them."""
        return with_outcome_facts(self.requests(since_ns, until_ns), self._reader, self._facts)

    def calls(self, window: Window, where: str | None) -> Calls:
        """The window's calls, as ``longpole cache`` loads them."""
        return calls_of(
            self._reader,
            where=where,
            since_ns=window.since_ns,
            until_ns=window.until_ns,
            has_prompts=False,
        )

    def kept_since_ns(self) -> int | None:
        """When the oldest request that the store holds began."""
        rows = self._reader.sql("SELECT min(start_ns) AS first FROM traces").to_pylist()
        return _whole(rows[0]["first"])

    def num_incomplete(self, window: Window) -> int:
        """Traces of the window that are not complete."""
        starts = self._incomplete
        return int(starts.is_between(window.since_ns, window.until_ns, closed="left").sum())

    def example(self, trace_id: str, setup: Setup) -> dict[str, Any] | None:
        """A trace as ``longpole explain`` tells it, with its spans; ``None`` if it is gone."""
        rows = self._reader.sql("SELECT * FROM spans WHERE trace_id = ?", [trace_id])
        if not rows.num_rows:
            return None
        spans = distinct(found := spans_from_table(rows))
        split = partition(found)
        place = related.place_of(self._reader, trace_id)
        apart, shape = {}, None
        if place is not None:
            apart = related.apart(self._reader, place, split, spans, setup.serial_rules)
            shape = related.shape(self._reader, place, split, spans)
        stated = workflow_span(spans, split.root_id)
        told = explained(
            split,
            stated.outcome if stated else None,
            shape=shape,
            serial=opportunities(split, spans, apart, setup.serial_rules),
        )
        return told | _lanes(split, spans)


def _edges(setup: Setup, window: Window) -> list[int]:
    """The moments at which something that a report looks at begins or ends, in order."""
    windows = [window, *(earlier(window, num) for num in range(1, NUM_EARLIER + 1))]
    found = {at for each in windows for at in (each.since_ns, each.until_ns)}
    if setup.objectives:
        found |= {_first_ns(setup.objectives, at) for at in (window.since_ns, window.until_ns)}
    return sorted(found)


def _first_ns(objectives: Sequence[Objective], at_ns: int) -> int:
    """Where the minutes begin that objectives are judged by at a moment."""
    return ((at_ns - 1) // MINUTE_NS - num_minutes(objectives) + 1) * MINUTE_NS


def _across(traces: pl.DataFrame, calls: pl.DataFrame, edges: Sequence[int]) -> pl.DataFrame:
    """Ids of the traces with a call on the other side of an edge than where they begin."""
    cuts = pl.Series(edges, dtype=pl.Int64)
    starts = traces.select("trace_id", side=cuts.search_sorted(traces["start_ns"], "right"))
    own = calls.select("trace_id", own=cuts.search_sorted(calls["start_ns"], "right"))
    both = own.join(starts, on="trace_id")
    return both.filter(pl.col("own") != pl.col("side")).select(pl.col("trace_id").unique())


def _lanes(split: TracePartition, spans: Sequence[Span]) -> dict[str, Any]:
    """The spans of a trace in the order of a waterfall; those that were waited for stay longest."""
    critical: dict[str, list[dict[str, Any]]] = {}
    stages: dict[str, str] = {}
    for segment in reversed(split.segments):
        start, end = ((at - split.start_ns) / 1e6 for at in (segment.start_ns, segment.end_ns))
        part = {"stage": segment.stage.value, "start_ms": start, "end_ms": end}
        critical.setdefault(segment.span_id, []).append(part)
        stages.setdefault(segment.span_id, segment.stage.value)
    parents = {span.span_id: span.parent_id for span in spans}
    ended = [span for span in spans if span.end_ns is not None]
    ended.sort(key=lambda span: (span.span_id not in critical, span.start_ns, span.span_id))
    kept = sorted(ended[:MAX_LANES], key=lambda span: (span.start_ns, _depth(span, parents)))
    rows = [
        {
            "span_id": span.span_id,
            "name": span.name,
            "depth": _depth(span, parents),
            "stage": stages.get(span.span_id, span.stage),
            "start_ms": (span.start_ns - split.start_ns) / 1e6,
            "end_ms": ((span.end_ns or span.start_ns) - split.start_ns) / 1e6,
            "critical": critical.get(span.span_id, []),
        }
        for span in kept
    ]
    return {"spans": rows, "num_spans_left_out": len(ended) - len(rows)}


def _depth(span: Span, parents: Mapping[str, str | None]) -> int:
    """How many spans of the trace it is within; a ring of parents ends."""
    passed, at = {span.span_id}, span.parent_id
    while at is not None and at in parents and at not in passed:
        passed.add(at)
        at = parents[at]
    return len(passed) - 1


def _whole(value: object) -> int | None:
    with suppress(TypeError, ValueError):
        return int(value)  # type: ignore[call-overload, no-any-return]
    return None
