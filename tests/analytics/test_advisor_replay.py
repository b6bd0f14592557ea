"""The replay of single spans' changes: against the reference, and against what must hold."""

import random
from itertools import pairwise

import numpy as np
import pytest

from longpole.vocab import Stage
from longpole_analytics.advisor import population
from longpole_analytics.advisor._replay import (
    DECODE,
    FIRST,
    OWN,
    WHOLE,
    Change,
    Replayer,
    dense,
    shorter,
    together,
)
from longpole_analytics.prices import shipped
from longpole_analytics.span_loading import numbered
from longpole_analytics.stages import partition
from longpole_analytics.whatif import drags, saved_side_by_side

from .advisor_traffic import Traffic
from .advisor_workloads import CLEAN, FAULTS, planted
from .tables import spans_table
from .traces import span, streamed


@pytest.fixture(scope="module")
def mixed():
    """Traces of several kinds, and the numbers of their traces."""
    traffic = Traffic(5)
    for fault in ("unused_fanout", "hedges", "speculation", "serial_tools", "cold_paths"):
        FAULTS[fault](traffic, 20)
    for workload in CLEAN.values():
        workload(traffic, 10)
    spans = traffic.spans
    random.Random(5).shuffle(spans)
    first = {}
    for each in spans:
        first.setdefault(each.trace_id, len(first))
    trace = np.array([first[span.trace_id] for span in spans])
    assert len(first) == 140
    return spans, trace


def replayers(mixed):
    spans, trace = mixed
    table = numbered(spans_table(spans))
    return [Replayer(table, trace, is_compiled=compiled) for compiled in (False, True)]


def test_compiled_and_reference_give_equal_answers(mixed):
    spans, trace = mixed
    each, compiled = replayers(mixed)
    for name in each.lengths._fields:
        ours, theirs = getattr(each.lengths, name), getattr(compiled.lengths, name)
        assert np.array_equal(ours, theirs), name
    rng = np.random.default_rng(3)
    changes = []
    for part in (WHOLE, FIRST, DECODE, OWN):
        rows = rng.choice(len(spans), 200, replace=False)
        changes.append(shorter(rows, part, rng.uniform(0, 5e8, 200)))
    tools = [row for row, one in enumerate(spans) if one.stage == Stage.TOOL]
    leaders = {}
    for row in tools:
        leaders.setdefault((trace[row], spans[row].parent_id), row)
    groups = Change(
        members=np.array(tools),
        leaders=np.array([leaders[trace[row], spans[row].parent_id] for row in tools]),
    )
    changes += [groups, together([*changes, groups])]
    for ours, theirs in zip(each.saved_ns(changes), compiled.saved_ns(changes), strict=True):
        assert np.allclose(ours, theirs, rtol=0, atol=1)
        assert (ours > 0).any()


def test_a_leaf_that_is_gone_saves_its_drag(mixed):
    spans, trace = mixed
    each = replayers(mixed)[0]
    rows = [row for row, one in enumerate(spans) if one.stage == Stage.TOOL][:30]
    for row in rows:
        own = [one for k, one in enumerate(spans) if trace[k] == trace[row]]
        (saved,) = each.saved_ns([shorter([row], WHOLE, 1e15)])
        expected = drags(partition(own).tree, [spans[row].span_id])[spans[row].span_id]
        assert saved[trace[row]] == pytest.approx(expected, abs=1)


def test_groups_that_start_together_save_as_much_as_side_by_side(mixed):
    spans, trace = mixed
    each = replayers(mixed)[0]
    number = next(trace[row] for row, one in enumerate(spans) if one.name == "execute_tool x")
    rows = [
        row
        for row, one in enumerate(spans)
        if trace[row] == number and one.name.startswith("execute_tool")
    ]
    rows.sort(key=lambda row: spans[row].start_ns)
    (saved,) = each.saved_ns([Change(members=np.array(rows), leaders=np.full(len(rows), rows[0]))])
    tree = partition([one for k, one in enumerate(spans) if trace[k] == number]).tree
    ids = {spans[row].span_id for row in rows}
    nodes = [node for node, one in enumerate(tree.spans) if one.span_id in ids]
    assert saved[number] == pytest.approx(saved_side_by_side(tree, [nodes])[0], abs=1)


def test_nothing_less_saves_nothing_and_more_saves_more(mixed):
    spans, _ = mixed
    each = replayers(mixed)[0]
    rows = np.arange(len(spans))
    saved = each.saved_ns([shorter(rows, WHOLE, part * 1e8) for part in (0, 1, 2, 3)])
    assert not saved[0].any()
    for less, more in pairwise(saved):
        assert (more >= less - 1).all()
    walls = each.lengths.wall_ns
    assert (saved[-1] <= walls + 1).all()


def test_a_part_of_a_call_is_that_part():
    spans = [
        span("1" * 16, None, 0, 1_000),
        streamed("2" * 16, "1" * 16, 0, 1_000, 300, 900),
    ]
    pop = population(spans_table(spans), shipped(), is_compiled=False)
    lengths = pop.replayer.lengths
    assert lengths.first_ns[1] == 300e6
    assert lengths.decode_ns[1] == 600e6
    found = pop.replayer.saved_ns(
        [shorter([1], part, 1e12) for part in (FIRST, DECODE, WHOLE, OWN)]
    )
    assert [int(saved[0]) for saved in found] == [300e6, 600e6, 1_000e6, 0]


def test_a_call_in_one_piece_loses_from_its_whole():
    spans = [span("1" * 16, None, 0, 1_000), streamed("2" * 16, "1" * 16, 0, 1_000, 1, 2)]
    spans[1] = spans[1]._replace(is_streamed=False, ttft_ns=None, last_content_ns=None)
    pop = population(spans_table(spans), shipped(), is_compiled=False)
    (saved,) = pop.replayer.saved_ns([shorter([1], DECODE, 400e6)])
    assert saved[0] == pytest.approx(400e6)


def test_of_two_changes_of_one_part_the_larger_counts():
    both = together([shorter([3], WHOLE, 5.0), shorter([3], WHOLE, 7.0), shorter([3], OWN, 1.0)])
    less, leader = dense(both, 4)
    assert less[3].tolist() == [7.0, 0.0, 0.0, 1.0]
    assert (leader == -1).all()
    assert len(together([]).rows) == 0


def test_a_call_told_twice_is_one_row_with_all_that_is_known():
    spans = [
        span("1" * 16, None, 0, 1_000, route="r"),
        streamed("2" * 16, "1" * 16, 10, 900, 100, 800, name="chat", output_tokens=7),
        streamed("3" * 16, "2" * 16, 11, 899, 100, 800, name="chat", input_tokens=9),
    ]
    pop = population(spans_table(spans), shipped(), is_compiled=False)
    (call,) = pop.calls.to_dicts()
    assert (call["input_tokens"], call["output_tokens"]) == (9, 7)


def test_every_fault_is_found_by_the_compiled_replay_too():
    from longpole_analytics.advisor import advise

    spans = planted("unused_fanout", 6, num=40, num_clean=5)
    reports = [
        advise(population(spans_table(spans), shipped(), is_compiled=compiled)).document()
        for compiled in (False, True)
    ]
    assert reports[0] == reports[1]
    assert "unused_fanout" in FAULTS
