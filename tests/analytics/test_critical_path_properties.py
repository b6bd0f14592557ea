"""What must hold for every trace, however broken, and for every algorithm that walks it."""

from hypothesis import given, settings
from hypothesis import strategies as st

from longpole.vocab import Stage
from longpole_analytics.critical_path import critical_path, walk
from longpole_analytics.prepare import prepare
from longpole_analytics.whatif import slack, what_if

from .naive import linked_path, naive_path
from .traces import messy_path_spans, well_formed

OVERHANGS = st.sampled_from(["detach", "clip"])
TOLERANCES = st.sampled_from([None, 0, 3])


@settings(deadline=None, max_examples=200)
@given(messy_path_spans, OVERHANGS, TOLERANCES)
def test_segments_tile_the_root_exactly(spans, overhang, tolerance):
    path = critical_path(spans, overhang=overhang, overlap_tolerance_ns=tolerance)
    at = path.end_ns
    for segment in path.segments:
        assert segment.end_ns == at
        assert segment.start_ns < segment.end_ns
        at = segment.start_ns
    assert at == path.start_ns
    assert path.extended_end_ns >= path.end_ns


@settings(deadline=None)
@given(messy_path_spans, st.randoms(use_true_random=False))
def test_the_order_in_which_spans_arrive_does_not_matter(spans, random):
    spans = list({span.span_id: span for span in spans}.values())
    shuffled = random.sample(spans, len(spans))
    assert critical_path(shuffled) == critical_path(spans)


@settings(deadline=None, max_examples=150)
@given(well_formed(), OVERHANGS, TOLERANCES)
def test_the_naive_recursive_definition_agrees(spans, overhang, tolerance):
    path = critical_path(spans, overhang=overhang, overlap_tolerance_ns=tolerance)
    segments = [(s.span_id, s.start_ns, s.end_ns) for s in path.segments]
    assert segments == naive_path(spans, overhang, tolerance or 0)


@settings(deadline=None, max_examples=300)
@given(messy_path_spans, OVERHANGS)
def test_another_algorithm_finds_the_same_path(spans, overhang):
    tree = prepare(spans, overhang=overhang)
    assert walk(tree, 0) == linked_path(tree)


@settings(deadline=None, max_examples=150)
@given(messy_path_spans, OVERHANGS, st.sampled_from([Stage.OTHER, Stage.TOOL]))
def test_a_faster_stage_saves_more_and_at_most_its_part_of_the_path(spans, overhang, stage):
    tree = prepare(spans, overhang=overhang)
    critical = sum(
        end - start for node, start, end in walk(tree, 0) if tree.spans[node].stage == stage
    )
    assert what_if(tree, stage, 0.0) == 0.0
    before = 0.0
    for share in (0.25, 0.5, 0.75, 1.0):
        saved = what_if(tree, stage, share)
        assert saved >= before - 1e-9
        assert saved <= share * critical + 1e-9
        before = saved


@settings(deadline=None, max_examples=100)
@given(well_formed(), OVERHANGS)
def test_slack_is_the_largest_delay_that_the_root_does_not_feel(spans, overhang):
    tree = prepare(spans, overhang=overhang)
    for span_id, value in slack(tree).items():
        assert end_if_longer(tree, span_id, value) == 0
        assert end_if_longer(tree, span_id, value + 1) > 0


def end_if_longer(tree, span_id, extra):
    """How much later the root ends when one span's own time grows, by replaying forwards."""

    def new_length(node, low, high):
        cut = {}
        for child in tree.blocking[node]:
            start, end = max(tree.starts[child], low), min(tree.ends[child], high)
            if end > start:
                cut[child] = (start, end)
        new_ends = {}
        for child in sorted(cut, key=lambda c: cut[c]):
            start, end = cut[child]
            waited = [other for other in cut if cut[other][1] <= start]
            base = max([cut[other][1] for other in waited], default=low)
            ready = max([new_ends[other] for other in waited], default=0)
            new_ends[child] = ready + start - base + new_length(child, start, end)
        tail = high - max([end for _, end in cut.values()], default=low)
        own = extra if tree.spans[node].span_id == span_id else 0
        return max(new_ends.values(), default=0) + tail + own

    low, high = tree.starts[tree.root], tree.ends[tree.root]
    return new_length(tree.root, low, high) - (high - low)
