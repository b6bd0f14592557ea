"""The view of calls and the roll-up count the same calls, whatever the spans are like."""

from collections.abc import Sequence
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from longpole.vocab import Kind, Span, Stage, Status
from longpole_analytics.rollup import ROLLUP
from longpole_collector.stores.duckdb import DuckStore

IDS = [f"{number:016x}" for number in range(1, 9)]
START_NS = 1_790_000_000_000_000_000
FACTS = ("input_tokens", "cached_input_tokens", "output_tokens")
FLAGS = ([], [], [], ["stream_head"], ["stream_summary"], ["failed_attempt"])
NUM_TRACES = 60


def one_span(random: Random, number: int, span_id: str, parents: Sequence[str]) -> Span:
    """A span of a model call, mostly, of few services, scopes, models and answers."""
    start_ns = START_NS + random.randrange(2_000)
    length_ns = random.choice([None, -5, 0, 3, 40, 900, 1_000, 60_000])
    is_call = random.random() < 0.75
    return Span(
        trace_id=f"{number + 1:032x}",
        span_id=span_id,
        parent_id=random.choice([None, "f" * 16, *parents[-3:], *parents[-3:]]),
        name="span",
        kind=Kind.CLIENT,
        start_ns=start_ns,
        end_ns=None if length_ns is None else start_ns + length_ns,
        received_ns=0,
        service=f"app-{number}",
        instance_id="app",
        scope=random.choice(["a", "a", "b", None]),
        dialect=random.choice(["otel_genai", "anthropic_sdk"]),
        status=random.choice([Status.UNSET, Status.ERROR]),
        stage=None if is_call else random.choice([None, None, None, Stage.TOOL.value]),
        operation=random.choice(["chat", "chat", "chat", "embeddings", None])
        if is_call
        else random.choice([None, None, None, "invoke_agent"]),
        is_model_call=is_call,
        is_engine=is_call and random.random() < 0.25,
        request_model=random.choice(["m", "m", "m", None]),
        response_id=random.choice([None, f"one-{number}", f"two-{number}"]),
        num_attempts=random.choice([None, None, 1, 3]),
        flags=random.choice(FLAGS),
        **{fact: random.choice([None, random.randrange(50)]) for fact in FACTS},
    )


def nestings(seed: int, *, is_cyclic: bool) -> list[list[Span]]:
    """Traces of up to eight spans that have nothing to do with one another."""
    random = Random(seed)
    return [
        [
            one_span(random, number, span_id, IDS if is_cyclic else IDS[:i])
            for i, span_id in enumerate(IDS[: random.randint(1, len(IDS))])
        ]
        for number in range(NUM_TRACES)
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


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 2**32), st.booleans())
def test_calls_retries_and_tokens_of_any_nesting_are_equal(seed, is_cyclic):
    traces = nestings(seed, is_cyclic=is_cyclic)
    assert by_view(traces) == by_roll_up(traces)
