"""Serial work that might run side by side: found, graded, kept quiet about where it must be."""

import json
import time

import pytest

from longpole.vocab import Stage, keys
from longpole_analytics.serial import (
    Opportunity,
    SerialRules,
    Sibling,
    opportunities,
    pairs,
    seen_apart,
)
from longpole_analytics.stages import partition

from .traces import MS, call, engine, span, streamed


def tool(span_id, start_ms, end_ms, call_id=None, parent_id="r", **facts):
    attributes = {keys.TOOL_CALL_ID: call_id} if call_id else {}
    given = {"stage": Stage.TOOL, "operation": "execute_tool", "attributes": attributes}
    return span(span_id, parent_id, start_ms, end_ms, **{**given, **facts})


def turn(span_id, start_ms, end_ms, finish_reason="tool_call", **facts):
    return call(span_id, "r", start_ms, end_ms, finish_reason=finish_reason, **facts)


def found_in(*spans, **rules):
    spans = [span("r", None, 0, 1000), *spans]
    return opportunities(partition(spans), spans, **rules)


def asked(*more):
    """A turn that asks for two tools, which run one after the other, and a turn after them."""
    return [
        turn("t1", 0, 300),
        tool("a", 300, 500, "c1"),
        tool("b", 502, 802, "c2"),
        turn("t2", 803, 1000, "stop"),
        *more,
    ]


class TestEvidence:
    def test_two_calls_of_one_answer_are_the_best(self):
        assert found_in(*asked()) == [
            Opportunity("E3", ("a", "b"), ("a", "b"), 200 * MS, 200 * MS, 1.0, 0, None)
        ]

    def test_kept_answers_decide_who_asked(self):
        spans = asked()

        def answered(*ids):
            parts = [{"type": "tool_call", "id": call_id, "name": "x"} for call_id in ids]
            text = json.dumps([{"role": "assistant", "parts": parts}])
            return spans[0]._replace(attributes={keys.OUTPUT_MESSAGES: text})

        assert found_in(answered("c1", "c2"), *spans[1:])[0].evidence == "E3"
        assert found_in(answered("c1"), *spans[1:])[0].evidence == "E1"

    def test_other_traces_that_differ_in_order_come_next(self):
        spans = [tool("a", 0, 400), tool("b", 401, 900)]
        assert found_in(*spans, apart={("a", "b"): 2})[0].evidence == "E1"
        (one,) = found_in(*spans, apart={("a", "b"): 3})
        assert (one.evidence, one.num_traces_apart) == ("E2", 3)

    def test_without_either_nothing_is_known(self):
        (one,) = found_in(tool("a", 0, 400), tool("b", 401, 900))
        assert one.evidence == "E1"
        assert one.saved_ns == 400 * MS


class TestSuppressed:
    @pytest.mark.parametrize(
        "second",
        [
            {"links": '[{"trace_id": "f", "span_id": "a"}]'},
            {"attributes": {keys.INPUTS: "a"}},
            {"attributes": {keys.TOOL_ARGUMENTS: '{"of": "c1"}'}},
            {"attributes": {keys.INPUTS: "h:77"}},
            {"attributes": {keys.SIDE_EFFECTS: "true"}},
            {"attributes": {keys.TOOL_HAS_IDEMPOTENCY_KEY: "True"}},
        ],
        ids=["link", "span id", "call id", "output hash", "side effects", "idempotency key"],
    )
    def test_what_is_known_to_need_the_first_is_not_said(self, second):
        facts = {keys.TOOL_CALL_ID: "c1", keys.OUTPUT_HASH: "h:77"}
        first = tool("a", 0, 400, attributes=facts)
        assert found_in(first, tool("b", 401, 900)) != []
        assert found_in(first, tool("b", 401, 900, **second)) == []
        assert pairs(*split_of(first, tool("b", 401, 900, **second))) == set()

    def test_a_first_with_side_effects_is_not_overtaken(self):
        first = tool("a", 0, 400, attributes={keys.SIDE_EFFECTS: "true"})
        assert found_in(first, tool("b", 401, 900)) == []

    def test_a_turn_after_a_tool_and_a_tool_after_its_turn(self):
        assert found_in(turn("t1", 0, 300), tool("a", 300, 600), turn("t2", 601, 1000)) == []
        late = tool("a", 300, 600, "c1")
        assert found_in(turn("t1", 0, 300, "stop"), late) == []
        assert found_in(turn("t1", 0, 300, None), tool("a", 300, 600)) == []
        assert found_in(turn("t1", 0, 300, "stop"), tool("a", 300, 600)) != []

    def test_an_answer_made_of_what_was_retrieved_and_its_check(self):
        spans = [
            span("q", "r", 0, 300, stage=Stage.RETRIEVAL),
            turn("t", 300, 700, "stop"),
            span("v", "r", 700, 900, stage=Stage.VALIDATION),
        ]
        assert found_in(*spans) == []


def split_of(*spans):
    spans = [span("r", None, 0, 1000), *spans]
    return partition(spans), spans


class TestGroups:
    def test_three_in_a_row_are_one_group_and_save_all_but_the_longest(self):
        spans = [tool("a", 0, 200), tool("b", 201, 601), tool("c", 602, 902)]
        (one,) = found_in(*spans)
        assert one.span_ids == ("a", "b", "c")
        assert one.bound_ns == one.saved_ns == 500 * MS
        assert one.parallelism == 1.0

    def test_a_later_one_that_needs_the_first_begins_a_new_group(self):
        spans = [
            tool("a", 0, 200, "c1"),
            tool("b", 201, 601),
            tool("c", 602, 902, attributes={keys.INPUTS: "c1"}),
        ]
        assert {one.span_ids for one in found_in(*spans)} == {("a", "b"), ("b", "c")}

    def test_a_gap_keeps_them_apart(self):
        assert found_in(tool("a", 0, 100), tool("b", 106, 206)) == []
        assert found_in(tool("a", 0, 100), tool("b", 105, 205)) != []
        assert found_in(tool("a", 0, 400), tool("b", 420, 820)) != []
        near = SerialRules(max_gap_ms=4.9, max_gap_share=0.01)
        assert found_in(tool("a", 0, 100), tool("b", 105, 205), rules=near) == []

    def test_what_already_overlaps_is_none(self):
        assert found_in(tool("a", 0, 400), tool("b", 200, 900)) == []

    def test_a_branch_beside_them_bounds_what_is_saved(self):
        spans = [tool("a", 0, 400), tool("b", 401, 900), tool("beside", 0, 850)]
        (one,) = found_in(*spans)
        assert one.bound_ns == 400 * MS
        assert one.saved_ns == 50 * MS

    def test_deep_siblings_are_found_and_phases_are_not(self):
        spans = [
            span("step", "r", 0, 1000),
            tool("a", 10, 400, parent_id="step"),
            tool("b", 401, 600, parent_id="step"),
            streamed("llm", "step", 700, 990, 100, 250),
            *engine("e", "llm", 705, {"queue": 50, "prefill": 40, "decode": 150}),
        ]
        (one,) = found_in(*spans)
        assert one.span_ids == ("a", "b")

    def test_one_provider_for_both_is_named(self):
        spans = [
            tool("a", 0, 400),
            call("x", "a", 1, 399, provider="openai"),
            tool("b", 401, 900),
            call("y", "b", 402, 899, provider="openai"),
        ]
        assert found_in(*spans)[0].rate_limit == "openai"
        spans[3] = spans[3]._replace(provider="anthropic")
        assert found_in(*spans)[0].rate_limit is None

    def test_the_largest_saving_comes_first(self):
        spans = [
            tool("a", 0, 100),
            tool("b", 101, 201),
            tool("c", 300, 600),
            tool("d", 601, 900),
        ]
        assert [one.span_ids for one in found_in(*spans)] == [("c", "d"), ("a", "b")]


class TestSeenApart:
    def trace(self, *times, parent="p"):
        return [Sibling(parent, name, start, end) for name, start, end in times]

    def test_overlap_and_the_other_order_count_once_a_trace(self):
        pair = ("a", "b")
        overlap = self.trace(("a", 0, 10), ("b", 5, 20), ("a", 30, 40), ("b", 35, 50))
        turned = self.trace(("b", 0, 10), ("a", 10, 20))
        same = self.trace(("a", 0, 10), ("b", 10, 20))
        assert seen_apart([overlap, turned, same], [pair]) == {pair: 2}

    def test_a_loop_of_both_is_no_other_order(self):
        loop = self.trace(("a", 0, 10), ("b", 10, 20), ("a", 20, 30), ("b", 30, 40))
        assert seen_apart([loop], [("a", "b")]) == {("a", "b"): 0}

    def test_other_parents_and_open_spans_say_nothing(self):
        apart = [
            *self.trace(("a", 0, 10)),
            *self.trace(("b", 5, 9), parent="q"),
            Sibling("p", "b", 3, None),
        ]
        assert seen_apart([apart], [("a", "b")]) == {("a", "b"): 0}

    def test_two_of_one_name_count_where_they_overlap(self):
        assert seen_apart([self.trace(("a", 0, 10), ("a", 5, 20))], [("a", "a")]) == {("a", "a"): 1}
        assert seen_apart([self.trace(("a", 0, 10), ("a", 10, 20))], [("a", "a")]) == {
            ("a", "a"): 0
        }


def test_a_trace_without_spans_has_none():
    assert opportunities(partition([]), []) == []
    still_open = [span("r", None, 0, None)]
    assert opportunities(partition(still_open), still_open) == []


def test_thirty_thousand_steps_in_a_row_are_answered():
    num = 30_000
    spans = [span("r", None, 0, num)]
    spans += [tool(f"s{n:06}", n, n + 1, f"c{n}") for n in range(num)]
    split = partition(spans)
    begun = time.process_time()
    found = opportunities(split, spans)
    assert time.process_time() - begun < 10
    rules = SerialRules()
    assert len(found) == rules.max_opportunities
    assert {len(one.span_ids) for one in found} == {rules.max_group}
    assert all(one.saved_ns == one.bound_ns for one in found)
