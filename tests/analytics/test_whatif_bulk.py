"""Many traces replayed at once save what the replay of each one saves, number by number."""

from importlib import import_module
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longpole.vocab import Span, Stage
from longpole_analytics import bulk
from longpole_analytics.bulk.each import schema
from longpole_analytics.bulk.each_replay import savings_each
from longpole_analytics.bulk.savings import savings_many
from longpole_analytics.frames import by_trace
from longpole_analytics.stages import partition
from longpole_analytics.whatif import what_if

from .random_traces import agent_trace, any_trace
from .rolled import table_of
from .traces import span

QUESTIONS = [
    (Stage.TOOL, 0.5),
    (Stage.OTHER, 1.0),
    (Stage.LATER_DECODE, 0.3),
    (Stage.TTFT_OPAQUE, 0.0),
]


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


def one_by_one(spans):
    """By trace id: wall time, savings, whether it is incomplete; by the plain replay."""
    found = {}
    for trace_id, trace in by_trace(spans).items():
        split = partition(trace)
        saved = [what_if(split.tree, *question) for question in QUESTIONS]
        found[trace_id] = (split.wall_ns, saved, "incomplete_trace" in split.flags)
    return found


def assert_replays_agree(spans):
    many = savings_many(table_of(spans), QUESTIONS)
    ids = [f"{hi:016x}{lo:016x}" for hi, lo in zip(many.trace_hi, many.trace_lo, strict=True)]
    rows = zip(
        many.wall_ns.tolist(), many.saved_ns.tolist(), many.is_incomplete.tolist(), strict=True
    )
    assert dict(zip(ids, rows, strict=True)) == one_by_one(spans)
    assert ids == sorted(ids)
    return many


def test_five_thousand_random_traces_save_the_same():
    many = assert_replays_agree(traces_of(11, 5_000, any_trace))
    assert (many.saved_ns[:, :3].sum(axis=0) > 0).all()
    assert not many.saved_ns[:, 3].any()


@given(st.integers(0, 2**32), st.integers(1, 6))
@settings(deadline=None, max_examples=150)
def test_any_traces_save_the_same(seed, num_traces):
    assert_replays_agree(traces_of(seed, num_traces, any_trace))


@given(st.integers(0, 2**32))
@settings(deadline=None, max_examples=50)
def test_agents_traces_save_the_same(seed):
    assert_replays_agree(traces_of(seed, 3, agent_trace))


def test_no_spans_and_none_finished_save_nothing():
    none = savings_many(schema(Span).empty_table(), QUESTIONS)
    assert none.saved_ns.shape == (0, len(QUESTIONS))
    still_open = savings_many(table_of([span(f"{1:016x}", None, 0, None)]), QUESTIONS)
    assert still_open.wall_ns.tolist() == [0]
    assert not still_open.saved_ns.any()


@pytest.mark.parametrize("parent_of", [lambda n: (n - 1) // 4, lambda n: n - 1, lambda _: 0])
def test_a_large_trace_is_replayed(parent_of):
    num = 20_000
    spans = [
        span(
            f"{n + 1:016x}",
            f"{parent_of(n) + 1:016x}" if n else None,
            n,
            2 * num - n,
            stage=Stage.TOOL.value,
        )
        for n in range(num)
    ]
    found = savings_many(table_of(spans), [(Stage.TOOL, 1.0)])
    assert found.saved_ns[0, 0] == found.wall_ns[0]
    assert np.isfinite(found.saved_ns).all()


def same(one, other):
    return all(a.tolist() == b.tolist() for a, b in zip(one, other, strict=True))


def test_tables_of_every_size_are_answered_alike(monkeypatch):
    table = table_of(traces_of(12, 200, any_trace))
    slow = bulk.savings_table(table, QUESTIONS)
    assert same(slow, savings_each(table, QUESTIONS).in_order())
    monkeypatch.setattr(bulk, "REPLAY_SPANS", 1)
    assert same(bulk.savings_table(table, QUESTIONS), slow)
    assert same(
        bulk.savings_table(table.slice(3, 100), QUESTIONS),
        savings_many(table.slice(3, 100), QUESTIONS),
    )
    none = bulk.savings_table(table.slice(0, 0), QUESTIONS)
    assert none.saved_ns.shape == (0, len(QUESTIONS))


def test_a_machine_that_cannot_compile_replays_one_by_one(monkeypatch, caplog):
    def refuse(name):
        if name.endswith(".savings"):
            raise ImportError("no compiler")
        return import_module(name)

    monkeypatch.setattr(bulk, "import_module", refuse)
    monkeypatch.setattr(bulk, "REPLAY_SPANS", 1)
    table = table_of(traces_of(13, 20, any_trace))
    assert same(bulk.savings_table(table, QUESTIONS), savings_each(table, QUESTIONS).in_order())
    assert "no compiler" in caplog.text


@given(st.integers(0, 2**32))
@settings(deadline=None, max_examples=60)
def test_a_faster_stage_saves_more_and_at_most_its_part_of_the_wall(seed):
    spans = traces_of(seed, 3, any_trace)
    shares = [0.0, 0.25, 0.5, 1.0]
    found = savings_many(table_of(spans), [(Stage.OTHER, share) for share in shares])
    assert not found.saved_ns[:, 0].any()
    assert (np.diff(found.saved_ns, axis=1) >= -1e-6).all()
    assert (found.saved_ns <= np.outer(found.wall_ns, shares) + 1e-6).all()
