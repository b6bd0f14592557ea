"""Many traces at once: the compiled loops give what the reference gives, field by field."""

import time
from importlib import import_module
from random import Random
from threading import Event

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longpole.vocab import Span, Stage, Trace, TraceStage
from longpole_analytics import bulk
from longpole_analytics.bulk import rolling
from longpole_analytics.bulk.each import roll_up_each, schema
from longpole_analytics.bulk.table import plain_share, roll_up_many
from longpole_analytics.rollup import ROLLUP

from .random_traces import MS, START_NS, agent_trace, any_trace
from .rolled import assert_both_ways_agree, in_order, table_of
from .traces import call, span, streamed

ROOT, CHILD, OTHER = (f"{number:016x}" for number in (1, 2, 3))


@pytest.fixture(scope="module", autouse=True)
def compiled():
    """Compiled before a test is timed."""
    assert bulk.start(wait=True)


def traces_of(seed, num_traces, make):
    random = Random(seed)
    spans = [
        each for _ in range(num_traces) for each in make(random, f"{random.getrandbits(128):032x}")
    ]
    random.shuffle(spans)
    return spans


def test_ten_thousand_random_traces_agree():
    spans = table_of(traces_of(1, 10_000, any_trace))
    assert_both_ways_agree(spans)
    assert 0.3 < plain_share(spans) < 0.9


@given(st.integers(0, 2**32), st.integers(1, 6))
@settings(deadline=None, max_examples=150)
def test_any_traces_agree(seed, num_traces):
    assert_both_ways_agree(table_of(traces_of(seed, num_traces, any_trace)))


def test_agents_traces_are_plain_and_agree():
    spans = table_of(traces_of(2, 1_000, agent_trace))
    assert plain_share(spans) == 1.0
    assert_both_ways_agree(spans)


@pytest.mark.parametrize(
    "spans",
    [
        [span(ROOT, None, 0, 9), span(ROOT, None, 0, 7)],
        [span(ROOT, CHILD, 0, 9), span(CHILD, ROOT, 0, 7)],
        [call(ROOT, None, 0, 9, is_engine=True), call(CHILD, ROOT, 1, 8)],
        [span(ROOT, None, -5, 9)],
        [span(ROOT, None, 0, 2**62)],
        [span(ROOT, None, 0, 9, instance_id="")],
        [
            span(OTHER, None, 0, 9),
            *(
                call(own, OTHER, start, start + 3, response_id="one")
                for own, start in ((ROOT, 1), (CHILD, 5))
            ),
        ],
        [streamed(ROOT, None, 0, 9, 3, 2**61 // MS)],
        [call(ROOT, None, 0, 9, output_tokens=2**50)],
    ],
    ids=[
        *("duplicate", "cycle", "gateway", "before the epoch", "far future"),
        *("empty text", "one answer twice", "endless fact", "too many tokens"),
    ],
)
def test_the_odd_is_left_to_the_reference(spans):
    if spans[0].end_ns == 2**62 * MS:
        spans = [spans[0]._replace(end_ns=2**62 + 1)]
    table = table_of(spans)
    assert plain_share(table) == 0.0
    assert_both_ways_agree(table)


def test_a_call_told_by_spans_inside_one_another_is_plain_and_counts_once():
    native = {"dialect": "anthropic_sdk", "status": "error", "prompt_version": "v2"}
    table = table_of(
        [
            span(OTHER, None, 0, 20),
            call(ROOT, OTHER, 1, 19, input_tokens=7, response_id="one"),
            streamed(CHILD, ROOT, 2, 18, 4, 15, input_tokens=9, response_id="one", **native),
        ]
    )
    assert plain_share(table) == 1.0
    (trace,) = assert_both_ways_agree(table)
    assert (trace["num_calls"], trace["input_tokens"], trace["prompt_version"]) == (1, 9, "v2")


def test_plain_and_odd_traces_of_one_table_keep_apart():
    spans = [
        one._replace(trace_id=f"{number:032x}")
        for number in range(50)
        for one in (span(ROOT, None, 0, 9), span(ROOT if number % 2 else CHILD, ROOT, 1, 5))
    ]
    table = table_of(spans)
    assert plain_share(table) == 0.5
    assert len(assert_both_ways_agree(table)) == 50


def test_flags_beyond_the_bits_are_odd_and_agree():
    spans = [
        span(ROOT, None, 0, 9, flags=[f"flag {number}"])._replace(trace_id=f"{number:032x}")
        for number in range(100)
    ]
    table = table_of(spans)
    assert 0 < plain_share(table) < 1
    assert_both_ways_agree(table)


def test_pieces_and_parts_of_tables_agree_and_compile_nothing_anew():
    table = table_of(traces_of(3, 60, any_trace))
    pieces = pa.concat_tables([table.slice(at, 7) for at in range(0, table.num_rows, 7)])
    assert assert_both_ways_agree(pieces) == assert_both_ways_agree(table)
    for place in (0, 3, 11):
        assert_both_ways_agree(table.slice(place, 100))
    known = table.filter(pa.array([value is not None for value in table["end_ns"].to_pylist()]))
    assert_both_ways_agree(known)
    assert len(rolling.roll.signatures) == 1


def test_no_spans_give_no_rows():
    for way in (roll_up_many, roll_up_each, ROLLUP.compute_table):
        traces, stages = way(schema(Span).empty_table())
        assert (traces.schema, stages.schema) == (schema(Trace), schema(TraceStage))
        assert traces.num_rows == stages.num_rows == 0


@pytest.mark.parametrize("num_spans", [1, bulk.MIN_SPANS, bulk.START_SPANS])
def test_the_plug_in_gives_the_same_at_every_size(num_spans):
    table = table_of(traces_of(4, num_spans // 2 + 1, any_trace)[:num_spans])
    each = roll_up_each(table)
    for ours, theirs in zip(ROLLUP.compute_table(table), each, strict=True):
        assert in_order(ours) == in_order(theirs)


def test_small_tables_compile_nothing(monkeypatch):
    monkeypatch.setattr(bulk, "_many", None)
    monkeypatch.setattr(bulk, "start", lambda: pytest.fail("compiles"))
    traces, _ = ROLLUP.compute_table(table_of(agent_trace(Random(5), f"{5:032x}")))
    assert traces.num_rows == 1


def test_a_machine_that_cannot_compile_keeps_the_reference(monkeypatch, caplog):
    def refuse(name):
        if name.endswith(".table"):
            raise ImportError("no compiler")
        return import_module(name)

    monkeypatch.setattr(bulk, "import_module", refuse)
    for name, value in (("_many", None), ("_thread", None), ("_is_done", Event())):
        monkeypatch.setattr(bulk, name, value)
    assert not bulk.start(wait=True)
    assert "no compiler" in caplog.text
    table = table_of(traces_of(6, bulk.START_SPANS // 4, any_trace))
    assert ROLLUP.compute_table(table)[0].num_rows == bulk.START_SPANS // 4


def one_trace(num_spans, parent_of):
    """Spans in pairs of time and parent, all of one trace."""
    return table_of(
        span(
            f"{number + 1:016x}",
            None if number == 0 else f"{parent_of(number) + 1:016x}",
            number,
            2 * num_spans - number,
            stage=Stage.TOOL.value,
        )
        for number in range(num_spans)
    )


@pytest.mark.parametrize(
    ("num_spans", "parent_of", "limit_s"),
    [
        (120_000, lambda number: (number - 1) // 4, 2),
        (120_000, lambda _: 0, 2),
        (10_000, lambda number: number - 1, 0.5),
    ],
    ids=["wide", "flat", "deep"],
)
def test_one_large_trace_is_plain_and_takes_no_time(num_spans, parent_of, limit_s):
    table = one_trace(num_spans, parent_of)
    begun = time.process_time()
    many = roll_up_many(table)
    assert time.process_time() - begun < limit_s
    assert plain_share(table) == 1.0
    assert in_order(many[1]) == in_order(roll_up_each(table)[1])


def test_many_failed_calls_under_one_parent_take_no_time():
    failed = [
        call(f"{number + 2:016x}", ROOT, number, number + 1, status="error")
        for number in range(20_000)
    ]
    table = table_of([span(ROOT, None, 0, 20_001), *failed])
    begun = time.process_time()
    traces, _ = roll_up_many(table)
    assert time.process_time() - begun < 5
    assert traces["long_pole"].to_pylist() == [Stage.RETRY.value]


def test_times_that_fit_stay_exact():
    late = span(ROOT, None, 0, 0)._replace(start_ns=START_NS, end_ns=START_NS + 1)
    table = table_of([late])
    traces, _ = roll_up_many(table)
    assert traces["wall_ns"].to_pylist() == [1]
    assert traces["start_ns"].to_pylist() == [START_NS]
