"""The side panel of a trace: attributes, the span among its kind, token gaps, who delayed it."""

import json

import pytest

from longpole.errors import UsageError
from longpole.vocab import Span, Stage, keys
from longpole_dashboard import settings
from longpole_dashboard.components.waterfall import panel
from longpole_dashboard.model import trace as model
from longpole_dashboard.model import trace_span
from longpole_dashboard.model.trace_rows import SpanRow
from longpole_dashboard.model.trace_span import Delayer, Detail, detail

from .conftest import MemoryStore
from .sample import MS, Builder, agent_trace

FIRST = f"{1:032x}"


def row_of(store: MemoryStore, name: str, trace_id: str = FIRST) -> SpanRow:
    view = model.trace(trace_id, store)
    assert view is not None
    return next(row for row in view.rows if row.name == name)


def with_attributes(spans: list[Span], name: str, **more: str) -> list[Span]:
    told = {getattr(keys, key): value for key, value in more.items()}
    return [
        s._replace(attributes=s.attributes | told, response_id="cmpl-own") if s.name == name else s
        for s in spans
    ]


def tools(durations_ms: list[float]) -> list[Span]:
    """One trace each, with one tool."""
    spans = []
    for number, ms in enumerate(durations_ms, start=1):
        made = Builder(number)
        root = made.span("root", 0, 1_000)
        made.span("tool", 0, ms, root, stage=Stage.TOOL)
        spans += made.spans
    return spans


def test_attributes_are_shown_as_stored_with_units(store: MemoryStore) -> None:
    store.add(agent_trace())
    found = detail(FIRST, row_of(store, "chat smollm2"), store)
    pairs = dict(found.pairs)
    assert pairs["ttft"] == "304 ms"
    assert pairs["input_tokens"] == "812"
    assert pairs["is_streamed"] == "yes"
    assert pairs["app.tenant"] == "acme"
    assert "cached_input_tokens" not in pairs
    assert dict(found.engine_pairs)["scope"] == "longpole.engine"


def test_a_row_of_no_span_and_a_span_that_is_gone_have_no_detail(store: MemoryStore) -> None:
    store.add(agent_trace())
    row = row_of(store, "turn 1")
    assert detail(FIRST, row._replace(span_id=""), store) == Detail()
    assert detail(FIRST, row._replace(span_id="f" * 16), store) == Detail()


def test_a_huge_attribute_is_cut_and_says_so_and_all_are_bounded(store: MemoryStore) -> None:
    spans = agent_trace(turns=1)
    huge = {f"blob.{i:03}": "A" * 10_000 for i in range(60)}
    store.add([s._replace(attributes=huge) if s.name == "turn 1" else s for s in spans])
    pairs = detail(FIRST, row_of(store, "turn 1"), store).pairs
    shown = dict(pairs)
    assert len(shown) > 60
    assert shown["blob.000"] == "A" * trace_span.MAX_VALUE_CHARS + "… (cut: 10,000 characters)"
    assert shown["blob.059"] == "… (cut: 10,000 characters)"
    assert sum(len(value) for value in shown.values()) < trace_span.MAX_CHARS + 60 * 40


@pytest.mark.parametrize("num_others", [19, 20])
def test_a_percentile_is_hidden_under_twenty_of_its_kind(
    store: MemoryStore, num_others: int
) -> None:
    store.add(tools([100.0, *(10.0 * (i + 1) for i in range(num_others))]))
    found = detail(FIRST, row_of(store, "tool"), store).standing
    assert found is not None
    # 10 to 90 ms are nine; its equal of 100 ms does not count as faster.
    assert (found.n, found.num_below) == (num_others, 9)
    assert found.is_shown == (num_others >= 20)
    assert found.percentile == (9 / 20 if num_others >= 20 else None)
    said = panel.payload(row_of(store, "tool"), Detail(standing=found), 10**9)["standing"]
    assert said.startswith("Slower than 45 % of 20" if num_others >= 20 else "No percentile: 19")


def test_a_kind_is_a_name_of_one_service_within_a_day(store: MemoryStore) -> None:
    spans = tools([100.0, *[50.0] * 25])
    others = [
        *(s._replace(service="elsewhere") for s in spans[4:6]),
        *(s._replace(name="another") if s.name == "tool" else s for s in spans[6:8]),
        *(s._replace(start_ns=s.start_ns - 90_000_000 * MS, end_ns=s.end_ns - 90_000_000 * MS)
          for s in spans[8:10] if s.end_ns),
    ]  # fmt: skip
    store.add([*spans[:4], *others, *spans[10:]])
    found = detail(FIRST, row_of(store, "tool"), store).standing
    assert found is not None
    assert found.n == 22


def test_a_call_and_its_phases_stand_among_calls_to_the_model(store: MemoryStore) -> None:
    spans = [s for i in range(1, 31) for s in agent_trace(i, turns=1)]
    queues = iter(range(1, 31))
    store.add([s._replace(queue_ns=next(queues) * MS) if s.is_engine else s for s in spans])
    last = f"{30:032x}"
    queue = detail(last, row_of(store, "queue", last), store).standing
    call = detail(last, row_of(store, "chat smollm2", last), store).standing
    assert queue == trace_span.Standing("queue of calls to smollm2", 29, 29)
    assert call == trace_span.Standing("calls to smollm2", 29, 0)
    assert queue.percentile == 1.0


def test_the_rug_has_a_dot_for_each_chunk_and_says_its_gaps(store: MemoryStore) -> None:
    offsets = [304_000, 308_000, 312_000, 512_000]
    store.add(
        with_attributes(agent_trace(turns=1), "chat smollm2", CHUNK_OFFSETS_US=json.dumps(offsets))
    )
    row = row_of(store, "chat smollm2")
    found = detail(FIRST, row, store)
    assert found.offsets_us == tuple(offsets)
    rug = panel.payload(row, found, 10**9)["rug"]
    assert rug["caption"] == "4 chunks; gap p50 4.00 ms, longest 200 ms"


NO_OFFSETS = ("", "[", "{}", '"x"', '[1.5, true, -1, null, "a"]', "[" * 100_000)


def test_offsets_that_are_none_draw_no_rug(store: MemoryStore) -> None:
    traces = [
        with_attributes(agent_trace(number, turns=1), "chat smollm2", CHUNK_OFFSETS_US=value)
        for number, value in enumerate(NO_OFFSETS, start=1)
    ]
    store.add([span for spans in traces for span in spans])
    for spans in traces:
        trace_id = spans[0].trace_id
        row = row_of(store, "chat smollm2", trace_id)
        found = detail(trace_id, row, store)
        assert found.offsets_us == ()
        assert panel.payload(row, found, 10**9)["rug"] is None


def test_who_delayed_a_call_is_said_with_their_traces_where_these_are_stored(
    store: MemoryStore,
) -> None:
    mine = with_attributes(
        agent_trace(1, turns=1),
        "llm_request",
        ENGINE_DELAYED_TIME="0.05",
        ENGINE_DELAYED_BY='["cmpl-2", "cmpl-gone"]',
        ENGINE_DELAYED_BY_TIME="[0.03, 0.015]",
    )
    theirs = [
        s._replace(response_id="cmpl-2") if s.is_engine else s for s in agent_trace(2, turns=1)
    ]
    store.add([*mine, *theirs])
    for name in ("chat smollm2", "queue"):
        row = row_of(store, name)
        found = detail(FIRST, row, store)
        assert found.delayed_ms == 50.0
        assert found.delayed_by == (
            Delayer("cmpl-2", 30.0, f"{2:032x}"),
            Delayer("cmpl-gone", 15.0, None),
        )
        said = panel.payload(row, found, 10**9)["delays"]
        assert [mate["href"] for mate in said["mates"]] == [f"trace?trace={2:032x}", None]
        assert said["rest"] == "further ones: 5.00 ms"
    assert detail(FIRST, row_of(store, "turn 1"), store).delayed_ms is None


def test_what_an_engine_says_amiss_of_delays_is_left_out(store: MemoryStore) -> None:
    store.add(
        with_attributes(
            agent_trace(turns=1),
            "llm_request",
            ENGINE_DELAYED_TIME="nan",
            ENGINE_DELAYED_BY='["x", 5, "y"]',
            ENGINE_DELAYED_BY_TIME='["a", -1]',
        )
    )
    found = detail(FIRST, row_of(store, "chat smollm2"), store)
    assert found.delayed_ms is None
    assert found.delayed_by == (Delayer("x", None, None), Delayer("y", None, None))


# --- other viewers --------------------------------------------------------------------------------
def test_other_viewers_open_the_same_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    assert settings.viewers(FIRST) == ()
    monkeypatch.setenv("LONGPOLE_DASHBOARD_JAEGER_URL", "http://jaeger:16686/")
    monkeypatch.setenv("LONGPOLE_DASHBOARD_TEMPO_URL", "https://grafana/x?q={trace_id}&o=1")
    assert settings.viewers(FIRST) == (
        ("Jaeger", f"http://jaeger:16686/trace/{FIRST}"),
        ("Tempo", f"https://grafana/x?q={FIRST}&o=1"),
    )


@pytest.mark.parametrize(
    "address",
    ["javascript:alert(1)", "ftp://x", "//x", "jaeger", "http://", "http://a b", "http://x:y"],
)
def test_an_address_of_another_kind_is_refused(
    monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.setenv("LONGPOLE_DASHBOARD_JAEGER_URL", address)
    with pytest.raises(UsageError, match="jaeger_url"):
        settings.viewers(FIRST)
