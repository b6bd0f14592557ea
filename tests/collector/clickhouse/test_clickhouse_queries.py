"""Every query of the commands and of the dashboard, on both stores, with equal answers.

The functions below are run with a reader that asks both. At the end every function of the two
wings that takes a reader must have had a part in a query that agreed, so a new one that nobody
drives here fails by its name.
"""

import json
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from longpole import cli
from longpole_analytics import (
    alerts,
    commands,
    compare_loading,
    loading,
    measuring,
    related,
    trace_facts,
)
from longpole_analytics.cache import loading as cache_loading
from longpole_analytics.price_overrides import configured_prices
from longpole_analytics.report import reading as report_reading
from longpole_analytics.report.weeks import Window
from longpole_analytics.slo.objectives import from_tables
from longpole_collector import stores
from longpole_dashboard.model import (
    advisor,
    budgets,
    cache,
    compare,
    engine,
    engine_asked,
    explore,
    health,
    heatmap,
    overview,
    population,
    rolled,
    sampled,
    scope,
    slo,
    slo_counting,
    stages,
    trace,
    trace_kin,
    trace_span,
    verdict,
    window,
)
from longpole_dashboard.model.box import Box
from longpole_dashboard.model.clock import UTC_CLOCK, Clock
from longpole_dashboard.model.grid import grid
from longpole_dashboard.model.window import Filters, Match

from .both import Both, readers
from .conftest import SERIAL

ROOT = Path(__file__).parents[3]
NOT_HERE = {
    "longpole_analytics.loading._paged": "pages of a collector's answers: compared by all_rows",
    "longpole_dashboard.demo.report._frame": "the demo's own collector",
    "longpole_dashboard.demo.report.look": "the demo's own collector",
    "longpole_dashboard.demo.report.objective_ms": "the demo's own collector",
}
"""What never asks a ClickHouse store, and why."""
COMMANDS = (
    "explain {trace}",
    "explain {serial}",
    "explain {part} --overhang clip",
    "top --metric e2e_ms",
    "slices --by route,prompt_version --metric ttft_ms",
    "slices --by route --metric e2e_ms --rolled",
    "cache",
    "whatif --stage prefill --faster-by 0.5",
    "measures",
    "advise",
)
"""As a person types them; a command that has too little to say still has asked."""


def objectives() -> tuple[Any, ...]:
    return tuple(
        from_tables(
            {
                "fast": {"metric": "ttft_ms", "threshold": 2000, "target": 0.9, "period": "1d"},
                "quality": {"metric": "quality", "threshold": 0.5, "target": 0.9, "period": "1d"},
                "tokens": {
                    "metric": "tpot_ms", "threshold": 50, "target": 0.9, "period": "1d",
                    "where": "prefill_ms >= 0",
                },
            }
        )
    )  # fmt: skip


def _setup() -> report_reading.Setup:
    return report_reading.Setup(
        "default", "--db elsewhere", configured_prices(), objectives=objectives()
    )


class Scene:
    """The reader, and what the stored spans are about."""

    def __init__(self, both: Both) -> None:
        self.both = both
        bounds = window.bounds(both)
        assert bounds.first_ns is not None
        assert bounds.last_ns is not None
        newest = both.sql(
            "SELECT trace_id, start_ns, route FROM traces WHERE route IS NOT NULL "
            "ORDER BY num_calls DESC, start_ns DESC, trace_id LIMIT 2"
        ).to_pylist()
        self.traces = [row["trace_id"] for row in newest]
        self.route = newest[0]["route"]
        hour = 3_600 * 10**9
        self.filters = Filters(newest[0]["start_ns"] - 24 * hour, newest[0]["start_ns"] + hour)
        self.narrow = Filters(
            self.filters.start_ns,
            self.filters.end_ns,
            (Match("route", self.route), Match("request_model", None, True)),
        )


def _dashboard(scene: Scene) -> Iterator[tuple[str, Callable[[], object]]]:
    both, some = scene.both, scene.narrow
    everything = scene.filters
    yield "bounds", lambda: window.bounds(both)
    for name, filters in (("", everything), (" of a route", some)):
        yield f"overview{name}", lambda f=filters: overview.overview(f, both)
        yield f"slowest{name}", lambda f=filters: overview.slowest(f, both)
        yield (
            f"stage bins{name}",
            lambda f=filters: overview.stage_bins(f, 60, sampled.whole(100), UTC_CLOCK, both),
        )
    year = Filters(everything.start_ns - 300 * 86_400 * 10**9, everything.end_ns)
    changed = Clock("America/New_York")
    few, many = sampled.whole(100), sampled.whole(10**7)
    yield "days of a clock", lambda: overview.stage_bins(year, 86_400, few, changed, both)
    yield "engine by a clock", lambda: engine.engine(year, changed, both)
    yield "heatmap of calls", lambda: heatmap.heatmap(everything, "ttft_ms", 2.0, both)
    yield "heatmap", lambda: heatmap.heatmap(everything, "e2e_ms", None, both)
    yield "verdicts", lambda: verdict.verdicts(everything, {}, both)
    yield "engine of a route", lambda: engine.engine(some, UTC_CLOCK, both)
    yield "few of the traces", lambda: overview.stage_bins(everything, 60, many, UTC_CLOCK, both)
    # of sampled traces: test_clickhouse_weights.py
    yield "rows of calls", lambda: sampled.calls(everything, both)
    yield "rows of workflows", lambda: sampled.workflows(everything, both)
    by_day = grid(UTC_CLOCK, 86_400, everything.start_ns, everything.end_ns)
    yield "rows of engines", lambda: engine_asked.rows(everything, by_day, both)
    yield "rolled", lambda: _rolled(scene)
    yield "population", lambda: population.population(everything, "ttft_ms", None, both)
    box = Box(low=0.5, high=1e9)
    yield "population of a box", lambda: population.population(everything, "e2e_ms", box, both)
    yield "picked", lambda: explore.picked(everything, "e2e_ms", box, both)
    yield (
        "filters as a condition",
        lambda: explore.where_of((Match("route", scene.route), Match("operation", "chat")), both),
    )
    yield "stages", lambda: stages.stages(everything, "route", None, "UTC", both)
    yield "scope", lambda: scope.scope(some, both, most=3, most_spans=20)
    yield "calls in scope", lambda: scope.condition(some.where, "calls", both)
    yield "cache", lambda: cache.cache(everything, both)
    yield "advisor", lambda: advisor.advisor(everything, both)
    yield "budgets", lambda: budgets.budgets(objectives(), everything, both)
    asked = compare.Asked("route", None, None)
    yield "compare", lambda: compare.compare(everything, asked, both)
    yield "two traces", lambda: compare.two_traces(*scene.traces[:2], both)
    before = Filters(everything.start_ns, everything.end_ns, (), everything)
    yield "compare with before", lambda: compare.compare(before, compare.Asked(), both)
    yield "overview with before", lambda: overview.overview(before, both)
    yield "has engine", lambda: engine.has_engine(0, both)
    yield "engine's requests", lambda: _engine_requests(scene)
    yield "lacks", lambda: health.lacks(both)
    yield "quality", lambda: health.quality(both)
    yield "counted names", lambda: _counted_names(scene)
    for number, trace_id in enumerate(scene.traces):
        yield f"trace {number}", lambda t=trace_id: trace.trace(t, both)
        yield f"kin {number}", lambda t=trace_id: trace_kin.kin(t, both)
        yield f"next slow {number}", lambda t=trace_id: trace_kin.next_slow(t, both)
        yield f"spans of {number}", lambda t=trace_id: _details(t, both)
    yield "delayers", lambda: trace_span._traces(["a", "b"], everything.start_ns, both)
    yield "objectives", lambda: slo.slos(objectives(), everything, both)
    yield "an objective", lambda: slo.detail(objectives(), "fast", everything, both)
    yield "counted", lambda: slo.count_on(objectives(), everything, 1, both)
    minute = everything.end_ns // 60_000_000_000
    yield "tally", lambda: slo_counting.count(objectives(), minute, both, look_s=9.0)


def _rolled(scene: Scene) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rolled, "FROM_CALLS", 0)
        overview.overview(scene.filters, scene.both)


def _counted_names(scene: Scene) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(window, "_MANY", 0)
        window.bounds(scene.both)


def _engine_requests(scene: Scene) -> None:
    shown = engine.engine(scene.filters, UTC_CLOCK, scene.both)
    assert shown.models
    first = scene.filters.start_ns
    engine.requests(scene.filters, shown.models[0].name, first, 2 * 86_400, UTC_CLOCK, scene.both)


def _details(trace_id: str, both: Both) -> None:
    shown = trace.trace(trace_id, both)
    assert shown is not None
    for row in shown.rows[:4]:
        trace_span.detail(trace_id, row, both)


def _analytics(scene: Scene) -> Iterator[tuple[str, Callable[[], object]]]:
    both, between = scene.both, (scene.filters.start_ns, scene.filters.end_ns)
    given = {"since_ns": between[0], "until_ns": between[1]}
    yield "facts", lambda: trace_facts.load_facts(both)
    yield (
        "facts of a window",
        lambda: trace_facts.load_facts(
            both, between, where="route = ?", given=[scene.route], engine_only=True
        ),
    )
    yield "requests", lambda: loading.requests_of(both, **given)
    yield "clipped", lambda: loading.requests_of(both, **given, overhang="clip")
    yield "pieces", lambda: loading._cuts(both, "(SELECT * FROM spans)", [], "start_ns", 10**6)
    yield "calls", lambda: cache_loading.calls_of(both, **given)
    yield "steps", lambda: measuring._step_spans(both, *between)
    yield "weights", lambda: measuring._weights(both, *between)
    yield (
        "attributes",
        lambda: compare_loading._attributes(both, "is_model_call", "app.%", *between),
    )
    yield (
        "alerts",
        lambda: alerts.reading.requests_of(
            both, *between, stages=True, facts=("quality",), max_traces=50
        ),
    )
    yield "held", lambda: alerts.reading.held(both, between[0])
    yield "place", lambda: related.place_of(both, scene.traces[0])
    yield "slowest of a file", lambda: commands._slowest(both)
    yield "report", lambda: report_reading.read(both, _setup(), Window(*between, None, "UTC"))


@pytest.fixture(scope="module")
def scene(pair) -> Scene:
    return Scene(Both(*pair))


@pytest.fixture(scope="module")
def asked(scene: Scene) -> Iterator[set[str]]:
    """Runs everything; who asked without being in the way of the others."""
    patch = pytest.MonkeyPatch()
    patch.setattr(stores, "open_reader", lambda **_: scene.both)
    failures: list[str] = []
    for name, drive in [*_analytics(scene), *_dashboard(scene), *_commands(scene)]:
        try:
            drive()
        except Exception as error:  # noqa: BLE001 - all of them are told
            failures.append(f"{name}: {type(error).__name__}: {error}")
    patch.undo()
    assert not failures, "\n\n".join(failures)
    return scene.both.asked


def _commands(scene: Scene) -> Iterator[tuple[str, Callable[[], object]]]:
    for line in COMMANDS:
        words = shlex.split(
            line.format(trace=scene.traces[0], part=scene.traces[0][:20], serial=SERIAL)
        )
        yield line, lambda w=words: _run(w)


def _run(words: list[str]) -> None:
    found = CliRunner().invoke(cli.main, [*words, "--db", "elsewhere", "--json"])
    if isinstance(found.exception, AssertionError):
        raise found.exception
    assert found.exit_code in (0, 1, 3, 4), found.output
    if found.exit_code == 0:
        json.loads(found.stdout)


def test_every_query_gives_the_same_on_both_stores(asked: set[str]) -> None:
    assert len(asked) > 50


def test_every_function_that_takes_a_reader_was_tried(asked: set[str]) -> None:
    missing = readers(ROOT) - asked - set(NOT_HERE)
    assert not missing, f"not asked on both stores: {', '.join(sorted(missing))}"
