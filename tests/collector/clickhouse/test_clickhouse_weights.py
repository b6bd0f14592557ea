"""What pages ask of sampled traces, on both stores, with equal answers."""

from collections.abc import Iterator

import pytest

from longpole.vocab import Kind, Rollup, Span, Stage
from longpole_collector.stores.clickhouse.address import parse
from longpole_collector.stores.clickhouse.client import Client
from longpole_collector.stores.clickhouse.settling import Settling
from longpole_collector.stores.clickhouse.store import ClickStore
from longpole_collector.stores.connection import Limits
from longpole_collector.stores.duckdb import DuckStore
from longpole_collector.stores.minutes import refresh
from longpole_collector.writer import Writer
from longpole_dashboard.model import (
    engine,
    engine_asked,
    explore,
    heatmap,
    overview,
    population,
)
from longpole_dashboard.model.box import Box
from longpole_dashboard.model.clock import UTC_CLOCK, Clock
from longpole_dashboard.model.window import Filters, Match

from .both import Both
from .conftest import spans_of

T0 = 1_790_000_000_000_000_000
MS = 10**6
NUM = 120


def spans() -> list[Span]:
    """Workflows of a call that its engine tells of too; the fast ones stand for four or seven."""
    found: list[Span] = []
    for number in range(NUM):
        wait = 10 + 7 * number % 90
        weight = 1.0 if wait > 60 else 4.0 + 3 * (number % 2)
        start = T0 + number * 10**9
        shared = {
            "trace_id": f"{0xFEED0000 + number:032x}", "received_ns": start + 10**10,
            "service": "app", "instance_id": "app", "scope": "longpole", "dialect": "longpole",
            "status": "unset", "route": f"r{number % 3}", "weight": weight,
        }  # fmt: skip
        call = {"is_model_call": True, "operation": "chat", "request_model": f"m{number % 2}"}
        found += [
            Span(
                span_id=f"{1:016x}", parent_id=None, name="root", kind=Kind.INTERNAL,
                start_ns=start, end_ns=start + (wait + 300) * MS,
                outcome="accepted" if number % 4 else None, **shared,
            ),
            Span(
                span_id=f"{2:016x}", parent_id=f"{1:016x}", name="chat", kind=Kind.CLIENT,
                start_ns=start, end_ns=start + (wait + 200) * MS, is_streamed=True,
                ttft_ns=(wait + 20) * MS, last_content_ns=(wait + 190) * MS, tpot_ms=2.0,
                output_tokens=50, **call, **shared,
            ),
            Span(
                span_id=f"{3:016x}", parent_id=f"{2:016x}", name="llm_request", kind=Kind.SERVER,
                start_ns=start + MS, end_ns=start + (wait + 180) * MS, is_engine=True,
                queue_ns=wait * MS, engine_ttft_ns=(wait + 10) * MS, engine_decode_ns=98 * MS,
                input_tokens=900, cached_input_tokens=9 * number, output_tokens=50,
                **call, **{**shared, "weight": None if number % 5 else 2 * weight},
            ),
            Span(
                span_id=f"{4:016x}", parent_id=f"{1:016x}", name="tool", kind=Kind.INTERNAL,
                start_ns=start + (wait + 200) * MS, end_ns=start + (wait + 290) * MS,
                stage=Stage.TOOL, **shared,
            ),
        ]  # fmt: skip
    return found


@pytest.fixture(scope="module")
def both(engine: Client, rollup: Rollup) -> Iterator[Both]:
    duck = DuckStore(limits=Limits(memory="1GB"))
    writer = Writer(duck, rollup)
    writer.write_spans(spans())
    writer.settle(everything=True)
    refresh(duck, 1 << 62)
    click = ClickStore(Client(parse("chdb://?database=weights")))
    click.insert(spans_of(duck))
    Settling(click.client, rollup).settle()
    yield Both(duck, click)
    click.close()
    duck.close()


WINDOW = Filters(T0, T0 + NUM * 10**9)
PART = Filters(T0, T0 + NUM * 10**9, (Match("route", "r1"), Match("request_model", None, True)))


@pytest.mark.parametrize("filters", [WINDOW, PART])
def test_the_overview_weighs_alike(both: Both, filters: Filters) -> None:
    shown = overview.overview(filters, both)
    assert shown.size.is_sampled
    assert not shown.is_rolled
    assert shown.slices
    for width_s in (60, 3_600):
        assert overview.stage_bins(filters, width_s, shown.size, UTC_CLOCK, both).bins
    before = Filters(T0 + 60 * 10**9, filters.end_ns, filters.where, filters, "before")
    assert overview.overview(before, both).cards[4].change is not None


@pytest.mark.parametrize("name", ["ttft_ms", "e2e_ms", "cost_usd"])
def test_the_map_and_its_cut_weigh_alike(both: Both, name: str) -> None:
    found = heatmap.heatmap(WINDOW, name, 60.0, both)
    box = Box(T0 + 10**10, None, 40.0, 1e6)
    picked = explore.picked(WINDOW, name, box, both)
    if name == "cost_usd":
        assert (found.num, found.num_kept, picked.num) == (0, 0, 0)
        return
    assert found.num > (found.num_kept or 0) > 0
    assert found.threshold is not None
    assert (picked.stood_for or 0) > picked.num > 0
    assert population.population(WINDOW, name, None, both).is_weighed


@pytest.mark.parametrize("clock", [UTC_CLOCK, Clock("America/New_York")])
def test_engines_weigh_alike(both: Both, clock: Clock) -> None:
    for filters in (WINDOW, PART):
        view = engine.engine(filters, clock, both)
        assert view.num_came > (view.num_kept or 0) > 0
        assert both.sql(engine_asked.statement(filters, is_weighed=True)).num_rows
