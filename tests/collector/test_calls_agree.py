"""The settled calls, those of the whole at once, and the roll-up's are the same calls."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longpole.vocab import Kind, Span, Stage, Status
from longpole_analytics.rollup import ROLLUP
from longpole_collector.pricing import configured, register
from longpole_collector.stores.duckdb import DuckStore
from longpole_collector.stores.schema import SPANS, ddl, to_arrow
from longpole_collector.stores.views import macros
from longpole_collector.writer import Writer

ORACLE = Path(__file__).parent / "oracle"
IDS = [f"{number:016x}" for number in range(1, 9)]
START_NS = 1_790_000_000_000_000_000
FACTS = ("input_tokens", "cached_input_tokens", "output_tokens")
FLAGS = ([], [], [], ["stream_head"], ["stream_summary"], ["failed_attempt"])
NUM_TRACES = 60
SECOND_NS = 1_000_000_000


def one_span(
    random: Random, number: int, span_id: str, parents: Sequence[str], num_kin: int, length_ns: int
) -> Span:
    """A span of a model call, mostly, of few services, scopes, models and answers."""
    start_ns = START_NS + random.randrange(length_ns)
    long_ns = random.choice([None, -5, 0, 3, 40, 900, 1_000, 60_000])
    is_call = random.random() < 0.75
    group = number // num_kin
    above = [None, "f" * 16, *parents[-3:], *parents[-3:]]
    return Span(
        trace_id=f"{number + 1:032x}",
        span_id=span_id,
        parent_id=random.choice(above + [None] * 6 * (num_kin > 1)),
        name="span",
        kind=Kind.CLIENT,
        start_ns=start_ns,
        end_ns=None if long_ns is None else start_ns + long_ns,
        received_ns=START_NS,
        service=f"app-{group}",
        instance_id="app",
        scope=random.choice(["a", "a", "b", None] if num_kin == 1 else ["a", "a", "a", "b"]),
        dialect=random.choice(["otel_genai", "anthropic_sdk"]),
        status=random.choice([Status.UNSET, Status.ERROR]),
        stage=None if is_call else random.choice([None, None, None, Stage.TOOL.value]),
        operation=random.choice(["chat", "chat", "chat", "embeddings", None])
        if is_call
        else random.choice([None, None, None, "invoke_agent"]),
        is_model_call=is_call,
        is_engine=is_call and random.random() < 0.25 / num_kin,
        request_model=random.choice(["m", "m", "m", None]) if num_kin == 1 else "m",
        response_id=random.choice([None, f"one-{group}", f"two-{group}-{number // 3}"]),
        ttft_ns=random.choice([None, 2, 30]),
        engine_ttft_ns=random.choice([None, 1, 20]),
        queue_ns=random.choice([None, 7]),
        num_attempts=random.choice([None, None, 1, 3]),
        flags=random.choice(FLAGS[2:] if num_kin > 1 else FLAGS),
        **{fact: random.choice([None, random.randrange(50)]) for fact in FACTS},
        reported_cost_usd=random.choice([None, 0.5, 2.0, 2.0, 2.0]),
        reported_currency=random.choice([None, None, "USD", "EUR"]),
        weight=random.choice([None, None, 1.0, 4.0]),
    )


def nestings(
    seed: int, *, is_cyclic: bool, num_kin: int = 1, length_ns: int = 2_000
) -> list[list[Span]]:
    """Traces of up to eight spans; of ``num_kin`` at a time roots may tell of one call."""
    random = Random(seed)
    return [
        [
            one_span(random, number, span_id, IDS if is_cyclic else IDS[:i], num_kin, length_ns)
            for i, span_id in enumerate(IDS[: random.randint(1, len(IDS) if num_kin == 1 else 2)])
        ]
        for number in range(NUM_TRACES)
    ]


@pytest.fixture(scope="module")
def at_once() -> Iterator[duckdb.DuckDBPyConnection]:
    """The old views over a table of spans."""
    connection = duckdb.connect(config={"threads": 1})
    lines = ", ".join(f"{name} {sql_type}" for name, sql_type in ddl(SPANS).items())
    connection.execute(f"{macros()}; CREATE TABLE span_rows ({lines})")
    register(connection, configured())
    for view in ("call_twins", "calls"):
        query = (ORACLE / f"{view}.sql").read_text()
        if view == "calls":
            query = f"SELECT * EXCLUDE (price) FROM ({query})"
        connection.execute(f"CREATE VIEW {view} AS {query}")
    yield connection
    connection.close()


def calls_at_once(
    connection: duckdb.DuckDBPyConnection, spans: Sequence[Span]
) -> list[dict[str, Any]]:
    connection.register("incoming", to_arrow(SPANS, spans))
    connection.execute("TRUNCATE span_rows")
    connection.execute("INSERT INTO span_rows BY NAME SELECT * FROM incoming")
    connection.unregister("incoming")
    return ordered(connection.sql("SELECT * FROM calls").to_arrow_table().to_pylist())


def ordered(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows by span, with the flags in one order."""
    plain = [row | {"flags": sorted(row["flags"])} for row in rows]
    return sorted(plain, key=lambda row: (row["trace_id"], row["span_id"]))


def by_calls(rows: Sequence[dict[str, Any]]) -> dict[str, tuple[int | None, ...]]:
    """By trace: its calls, retries and tokens, as the rows of its calls have them."""
    found: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault(row["trace_id"], []).append(row)
    return {
        trace_id: (
            len(calls),
            sum(max((call["num_attempts"] or 1) - 1, 0) for call in calls),
            *(known_sum([call[fact] for call in calls]) for fact in FACTS),
        )
        for trace_id, calls in found.items()
    }


def known_sum(values: Sequence[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def by_roll_up(traces: list[list[Span]]) -> dict[str, tuple[int | None, ...]]:
    found = {}
    for spans in traces:
        row, _ = ROLLUP.compute(spans)
        if row.num_calls:
            tokens = (getattr(row, fact) for fact in FACTS)
            found[row.trace_id] = (row.num_calls, row.num_retries, *tokens)
    return found


def costs_of(rows: Sequence[dict[str, Any]]) -> dict[str, float | None]:
    """By trace: what its calls cost together, unknown if one of them is."""
    found: dict[str, list[float | None]] = {}
    for row in rows:
        found.setdefault(row["trace_id"], []).append(row["cost_usd"])
    return {key: None if None in costs else sum(costs) for key, costs in found.items()}  # type: ignore[arg-type]


def by_traces(store: DuckStore) -> dict[str, tuple[int | None, ...]]:
    rows = store.sql(
        f"SELECT trace_id, num_calls, num_retries, {', '.join(FACTS)} "
        "FROM traces WHERE num_calls > 0"
    ).to_pylist()
    return {trace_id: tuple(found) for trace_id, *found in (row.values() for row in rows)}


@settings(deadline=None, max_examples=8)
@given(st.integers(0, 2**32), st.booleans())
def test_settled_calls_of_any_nesting_are_those_of_the_whole_and_of_the_roll_up(
    at_once, seed, is_cyclic
):
    traces = nestings(seed, is_cyclic=is_cyclic)
    spans = [span for spans in traces for span in spans]
    store = DuckStore()
    writer = Writer(store, ROLLUP)
    writer.write_spans(spans)
    assert writer.settle(everything=True) == 0
    found = ordered(store.sql("SELECT * FROM calls").to_pylist())
    assert found == calls_at_once(at_once, spans)
    assert by_calls(found) == by_traces(store) == by_roll_up(traces)
    of_trace = store.sql("SELECT trace_id, cost_usd FROM traces WHERE num_calls > 0").to_pylist()
    assert {row["trace_id"]: row["cost_usd"] for row in of_trace} == costs_of(found)
    store.close()


@settings(deadline=None, max_examples=8)
@given(
    st.integers(0, 2**32), st.sampled_from([1, 15, 15]), st.sampled_from([2_000, 200 * SECOND_NS])
)
def test_calls_do_not_depend_on_the_order_of_arrival_nor_on_when_they_are_settled(
    at_once, seed, num_kin, length_ns
):
    random = Random(seed)
    traces = nestings(seed, is_cyclic=False, num_kin=num_kin, length_ns=length_ns)
    spans = [span for spans in traces for span in spans]
    random.shuffle(spans)
    store = DuckStore()
    writer = Writer(store, ROLLUP)
    start = 0
    while start < len(spans):
        end = start + random.randrange(3, 30 if num_kin > 1 else 80)
        received_ns = START_NS + start * SECOND_NS  # so far apart that a restart looks at the last
        writer.write_spans([s._replace(received_ns=received_ns) for s in spans[start:end]])
        start = end
        if random.random() < 0.15:  # after a restart
            writer = Writer(store, ROLLUP)
        if random.random() < 0.7:
            writer.settle(everything=True)
    writer.settle(everything=True)
    found = ordered(store.sql("SELECT * FROM calls").to_pylist())
    assert found == calls_at_once(at_once, spans)
    assert by_calls(found) == by_traces(store)
    store.close()
