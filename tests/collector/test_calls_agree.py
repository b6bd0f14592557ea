"""The view of calls and the roll-up count the same calls, whatever the spans are like."""

from hypothesis import given, settings
from hypothesis import strategies as st

from longpole.vocab import Kind, Span, Stage, Status
from longpole_analytics.rollup import ROLLUP
from longpole_collector.stores.duckdb import DuckStore

IDS = [f"{number:016x}" for number in range(1, 9)]
START_NS = 1_790_000_000_000_000_000
TOKENS = st.one_of(st.none(), st.integers(0, 50))
FACTS = ("input_tokens", "cached_input_tokens", "output_tokens")


@st.composite
def one_trace(draw, *, is_cyclic: bool) -> list[Span]:
    """Up to eight spans of one trace, mostly of model calls, nested in any way."""
    spans = []
    for i, span_id in enumerate(IDS[: draw(st.integers(1, len(IDS)))]):
        parents = IDS if is_cyclic else IDS[:i]
        start_ns = START_NS + draw(st.integers(0, 2_000))
        length_ns = draw(st.sampled_from([None, -5, 0, 3, 40, 900, 1_000, 60_000]))
        is_call = draw(st.sampled_from([True, True, False]))
        spans.append(
            Span(
                trace_id="0" * 32,
                span_id=span_id,
                parent_id=draw(st.sampled_from([None, "f" * 16, *parents, *parents[-2:]])),
                name="span",
                kind=Kind.CLIENT,
                start_ns=start_ns,
                end_ns=None if length_ns is None else start_ns + length_ns,
                received_ns=0,
                service="app",
                instance_id="app",
                scope=draw(st.sampled_from(["a", "a", "b", None])),
                dialect=draw(st.sampled_from(["otel_genai", "anthropic_sdk"])),
                status=draw(st.sampled_from([Status.UNSET, Status.ERROR])),
                stage=None if is_call else draw(st.sampled_from([None, None, Stage.TOOL.value])),
                operation=draw(st.sampled_from(["chat", "chat", "embeddings", None]))
                if is_call
                else draw(st.sampled_from([None, None, "invoke_agent"])),
                is_model_call=is_call,
                is_engine=is_call and draw(st.sampled_from([False, False, True])),
                request_model=draw(st.sampled_from(["m", "m", None])),
                response_id=draw(st.sampled_from([None, "one", "one", "two"])),
                num_attempts=draw(st.sampled_from([None, None, 1, 3])),
                flags=draw(
                    st.sampled_from(
                        [[], [], [], ["stream_head"], ["stream_summary"], ["failed_attempt"]]
                    )
                ),
                **{fact: draw(TOKENS) for fact in FACTS},
            )
        )
    return spans


def apart(traces: list[list[Span]]) -> list[list[Span]]:
    """Traces of services that have nothing to do with one another."""
    return [
        [
            span._replace(
                trace_id=f"{number + 1:032x}",
                service=f"app-{number}",
                response_id=span.response_id and f"{span.response_id}-{number}",
            )
            for span in spans
        ]
        for number, spans in enumerate(traces)
    ]


def by_view(traces: list[list[Span]]) -> dict[str, tuple]:
    store = DuckStore()
    store.append([span for spans in traces for span in spans])
    rows = store.sql(
        "SELECT trace_id, count(*), sum(greatest(coalesce(num_attempts, 1) - 1, 0)), "
        f"{', '.join(f'sum({fact})' for fact in FACTS)} FROM calls GROUP BY trace_id"
    ).to_pylist()
    store.close()
    return {trace_id: tuple(found) for trace_id, *found in (row.values() for row in rows)}


def by_roll_up(traces: list[list[Span]]) -> dict[str, tuple]:
    found = {}
    for spans in traces:
        row, _ = ROLLUP.compute(spans)
        if row.num_calls:
            tokens = (getattr(row, fact) for fact in FACTS)
            found[row.trace_id] = (row.num_calls, row.num_retries, *tokens)
    return found


@settings(deadline=None, max_examples=30)
@given(st.lists(one_trace(is_cyclic=False), min_size=1, max_size=15).map(apart))
def test_calls_retries_and_tokens_of_any_nesting_are_equal(traces):
    assert by_view(traces) == by_roll_up(traces)


@settings(deadline=None, max_examples=15)
@given(st.lists(one_trace(is_cyclic=True), min_size=1, max_size=15).map(apart))
def test_and_of_spans_whose_parents_run_in_circles(traces):
    assert by_view(traces) == by_roll_up(traces)
