"""Each kind of mess is settled by its rule, and said."""

import pytest

from longpole.vocab import Kind
from longpole_analytics.critical_path import walk
from longpole_analytics.prepare import SYNTHETIC_ROOT_NAME, distinct, prepare
from longpole_analytics.skew import MAX_SHIFT_NS
from longpole_analytics.tree import PathSpan

from .traces import MS


def root_of(tree):
    return tree.spans[tree.root]


def times(tree):
    return {
        span.span_id: (start, end)
        for span, start, end in zip(tree.spans, tree.starts, tree.ends, strict=True)
    }


def waited_for(tree):
    return {tree.spans[child].span_id for below in tree.blocking for child in below}


class TestDuplicates:
    def test_the_finished_one_wins_then_the_longer(self):
        unfinished = PathSpan("a", None, 0, None)
        short, long = PathSpan("a", None, 0, 5), PathSpan("a", None, 0, 9)
        assert distinct([unfinished, short, long, short]) == [long]
        assert prepare([unfinished, short, long]).marks == {"duplicate_span": 2}


class TestUnfinished:
    def test_children_of_an_unfinished_span_hang_under_its_parent(self):
        tree = prepare(
            [
                PathSpan("r", None, 0, 100),
                PathSpan("open1", "r", 10, None),
                PathSpan("open2", "open1", 11, None),
                PathSpan("leaf", "open2", 20, 50),
            ]
        )
        assert tree.marks == {"unfinished_span": 2}
        assert waited_for(tree) == {"leaf"}

    def test_unfinished_spans_in_a_circle_are_like_a_lost_parent(self):
        tree = prepare(
            [
                PathSpan("x", "y", 0, None),
                PathSpan("y", "x", 0, None),
                PathSpan("leaf", "x", 20, 50),
            ]
        )
        assert root_of(tree).span_id == "leaf"
        assert tree.marks == {"unfinished_span": 2, "incomplete_trace": 1}


def test_an_end_before_the_start_becomes_the_start():
    tree = prepare([PathSpan("r", None, 0, 100), PathSpan("a", "r", 50, 40)])
    assert times(tree)["a"] == (50, 50)
    assert tree.marks == {"negative_duration": 1}


def test_a_cycle_is_cut_above_its_earliest_span():
    tree = prepare(
        [
            PathSpan("a", "c", 10, 90),
            PathSpan("b", "a", 5, 80),
            PathSpan("c", "b", 20, 70),
            PathSpan("below", "c", 30, 40),
        ]
    )
    assert root_of(tree).span_id == "b"
    assert tree.marks["cycle"] == 1
    assert len(tree.order) == 4


def test_a_span_that_is_its_own_parent_is_a_root():
    tree = prepare([PathSpan("a", "a", 0, 10)])
    assert root_of(tree).span_id == "a"
    assert tree.marks == {"cycle": 1}


class TestRoot:
    def test_a_single_orphan_is_the_root_and_the_trace_incomplete(self):
        tree = prepare([PathSpan("a", "lost", 0, 10), PathSpan("b", "a", 1, 9)])
        assert root_of(tree).span_id == "a"
        assert tree.marks == {"incomplete_trace": 1}

    def test_orphans_hang_under_a_candidate_that_covers_the_trace(self):
        tree = prepare(
            [
                PathSpan("r", None, 0, 100),
                PathSpan("orphan", "lost", 20, 60),
                PathSpan("late", "lost", 90, 102),
            ]
        )
        assert root_of(tree).span_id == "r"
        assert tree.marks == {"incomplete_trace": 2, "overhang_detached": 1}
        assert waited_for(tree) == {"orphan"}

    def test_without_one_a_stand_in_spans_everything(self):
        tree = prepare([PathSpan("a", "lost", 10, 60), PathSpan("b", "lost", 50, 110)])
        assert root_of(tree).name == SYNTHETIC_ROOT_NAME
        assert (tree.starts[tree.root], tree.ends[tree.root]) == (10, 110)
        assert waited_for(tree) == {"a", "b"}


def pair(child_start, child_end, *, parent=(0, 100 * MS)):
    return prepare(
        [
            PathSpan("p", None, *parent, instance="app"),
            PathSpan("c", "p", child_start, child_end, instance="engine"),
            PathSpan("below", "c", child_start + 1, child_end - 1),
        ]
    )


class TestClockSkew:
    @pytest.mark.parametrize(
        ("child", "shift"),
        [((10, 90), 0), ((-30, 40), 30), ((50, 120), -20), ((0, 100), 0)],
    )
    def test_the_smallest_shift_that_fits_moves_the_whole_clock(self, child, shift):
        child, shift = (child[0] * MS, child[1] * MS), shift * MS
        tree = pair(*child)
        assert times(tree)["c"] == (child[0] + shift, child[1] + shift)
        assert times(tree)["below"] == (child[0] + shift + 1, child[1] + shift - 1)
        assert tree.shifts_ns == ({"engine": shift} if shift else {})
        assert ("clock_skew" in tree.marks) is bool(shift)
        assert "skew_uncertain" not in tree.marks

    def test_a_child_too_long_to_fit_is_centred_and_uncertain(self):
        tree = pair(10 * MS, 130 * MS)
        assert times(tree)["c"] == (-10 * MS, 110 * MS)
        assert tree.marks["skew_uncertain"] == 1

    def test_all_pairs_between_two_clocks_count_together(self):
        tree = prepare(
            [
                PathSpan("r", None, 0 * MS, 1000 * MS, instance="app"),
                PathSpan("a", "r", 95 * MS, 195 * MS, instance="engine"),
                PathSpan("p", "r", 500 * MS, 600 * MS, instance="app"),
                PathSpan("b", "p", 460 * MS, 540 * MS, instance="engine"),
            ]
        )
        assert tree.shifts_ns == {"engine": 40 * MS}

    def test_a_third_clock_is_placed_on_the_shifted_second(self):
        tree = prepare(
            [
                PathSpan("r", None, 0 * MS, 100 * MS, instance="app"),
                PathSpan("g", "r", -50 * MS, 40 * MS, instance="gateway"),
                PathSpan("e", "g", -45 * MS, 35 * MS, instance="engine"),
            ]
        )
        assert tree.shifts_ns == {"gateway": 50 * MS, "engine": 45 * MS}

    def test_more_than_a_second_is_not_believed(self):
        child = 2 * MAX_SHIFT_NS
        tree = pair(child, child + 50)
        assert times(tree)["c"] == (child, child + 50)
        assert tree.marks["skew_too_large"] == 1
        assert tree.shifts_ns == {}

    def test_a_detached_child_says_nothing_about_clocks(self):
        tree = prepare(
            [
                PathSpan("p", None, 0 * MS, 100 * MS, instance="app"),
                PathSpan("c", "p", 200 * MS, 300 * MS, instance="worker", is_detached=True),
            ]
        )
        assert tree.shifts_ns == {}

    @pytest.mark.parametrize("off", [(-1, 50), (50, 101), (-1, 101)])
    def test_less_than_a_millisecond_is_no_sign_of_two_clocks(self, off):
        start, end = (time * MS + (1 if time < 0 else -1 if time > 100 else 0) for time in off)
        tree = pair(start, end)
        assert times(tree)["c"] == (start, end)
        assert (tree.marks, tree.shifts_ns) == ({}, {})
        assert waited_for(tree) == {"c", "below"}
        assert sum(end - start for _, start, end in walk(tree)) == 100 * MS

    def test_a_millisecond_is(self):
        tree = pair(50 * MS, 101 * MS)
        assert (tree.marks, tree.shifts_ns) == ({"clock_skew": 1}, {"engine": -MS})


class TestBlocking:
    def test_a_consumer_of_a_producer_is_not_waited_for(self):
        tree = prepare(
            [
                PathSpan("p", None, 0, 100, kind=Kind.PRODUCER),
                PathSpan("c", "p", 10, 50, kind=Kind.CONSUMER),
            ]
        )
        assert waited_for(tree) == set()

    def test_overhang_in_another_process_is_clipped(self):
        tree = prepare(
            [
                PathSpan("p", None, 0 * MS, 100 * MS, instance="app"),
                PathSpan("a", "p", 10 * MS, 90 * MS, instance="db"),
                PathSpan("c", "p", 0 * MS, 120 * MS, instance="db"),
            ]
        )
        assert times(tree)["c"] == (-10 * MS, 110 * MS)
        assert waited_for(tree) == {"a", "c"}
        assert tree.marks["overhang_clipped"] == 1

    def test_a_chain_down_to_a_stream_that_outlives_the_root_is_kept(self):
        tree = prepare(
            [
                PathSpan("r", None, 0, 100),
                PathSpan("handler", "r", 5, 390),
                PathSpan("llm", "handler", 10, 400, is_stream=True),
                PathSpan("log", "r", 20, 500),
            ]
        )
        assert waited_for(tree) == {"handler", "llm"}
        assert tree.extended_end_ns == 400
        assert tree.marks == {"stream_outlives_parent": 2, "overhang_detached": 1}

    def test_a_stream_that_ended_in_time_does_not_keep_its_parent(self):
        tree = prepare(
            [
                PathSpan("r", None, 0, 100),
                PathSpan("job", "r", 5, 300),
                PathSpan("llm", "job", 10, 90, is_stream=True),
            ]
        )
        assert tree.extended_end_ns == 100
        assert "job" not in waited_for(tree)
