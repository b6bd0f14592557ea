"""The vectors of the critical path, ours and those of Jaeger and CRISP, and its speed limits."""

import json
from collections import Counter
from pathlib import Path

import pytest

from longpole.vocab import Stage
from longpole_analytics.critical_path import critical_path, walk
from longpole_analytics.prepare import prepare
from longpole_analytics.tree import PathSpan
from longpole_analytics.whatif import drag, slack, what_if

DATA = Path(__file__).parent / "data"
CRISP_DIFFERS = {
    "crisp-10": "siblings overlap by 1; CRISP keeps all of them and takes 1 off the parent twice",
    "crisp-19": "siblings overlap by 5; CRISP keeps the middle one",
    "crisp-20": "the trace of crisp-19 with other errors",
}


def cases(name):
    document = json.loads((DATA / name).read_text())["cases"]
    return [pytest.param(case, id=case.get("name") or case["case"]) for case in document]


def path_span(fields):
    return PathSpan(
        fields["span_id"],
        fields["parent_id"],
        fields["start"],
        fields["end"],
        Stage(fields.get("stage", "other")),
        is_detached=fields.get("detached", False),
        is_stream=fields.get("stream", False),
        kind=fields.get("kind") or "unspecified",
    )


def as_triples(segments):
    return [(s["span_id"], s["start"], s["end"]) for s in segments]


def path_of(spans, **rules):
    path = critical_path(spans, **rules)
    return path, [(s.span_id, s.start_ns, s.end_ns) for s in path.segments]


@pytest.mark.parametrize("case", cases("critical_path.json"))
class TestOurVectors:
    def test_segments_and_sums_are_exact(self, case):
        path, triples = path_of(
            [path_span(s) for s in case["spans"]],
            overhang=case["overhang"],
            overlap_tolerance_ns=case["overlap_tolerance"],
        )
        expected = case["expect"]
        assert triples == as_triples(expected["segments"])
        assert path.total_ns == expected["total"]
        by_span, by_stage = Counter(), Counter()
        for segment in path.segments:
            by_span[segment.span_id] += segment.end_ns - segment.start_ns
            by_stage[segment.stage] += segment.end_ns - segment.start_ns
        assert by_span == expected["by_span"]
        assert by_stage == expected["by_stage"]

    def test_what_if_and_slack_are_exact(self, case):
        tree = prepare([path_span(s) for s in case["spans"]], overhang=case["overhang"])
        for question in case["expect"].get("what_if", []):
            saved = what_if(tree, Stage(question["stage"]), question["faster_by"])
            assert saved == pytest.approx(question["saved"], rel=1e-6)
        slacks = slack(tree)
        for span_id, expected in case["expect"].get("slack", {}).items():
            assert slacks[span_id] == expected


@pytest.mark.parametrize("case", cases("jaeger_cases.json"))
def test_jaeger_sections_are_ours_with_clip(case):
    _, triples = path_of([path_span(s) for s in case["spans"]], overhang="clip")
    assert triples == as_triples(case["jaeger"])


@pytest.mark.parametrize("case", cases("crisp_cases.json"))
def test_crisp_exclusive_times_are_ours_but_for_overlapping_siblings(case):
    path, _ = path_of([path_span(s) for s in case["spans"]], overhang="clip")
    operations = {s["span_id"]: f"[{s['service']}] {s['name']}" for s in case["spans"]}
    exclusive = Counter()
    for segment in path.segments:
        exclusive[operations[segment.span_id]] += segment.end_ns - segment.start_ns
    expected = case["crisp_expected_exclusive_us"]
    expected = expected.get("opTimeExclusive", expected)
    assert (exclusive == Counter(expected)) is (case["case"] not in CRISP_DIFFERS)


def test_no_span_and_no_finished_span_give_no_path():
    assert critical_path([]).segments == ()
    path = critical_path([PathSpan("a", None, 5, None)])
    assert (path.root_id, path.total_ns, path.flags) == (None, 0, ("unfinished_span",))


def test_siblings_of_two_processes_may_overlap_by_one_percent():
    spans = [
        PathSpan("r", None, 0, 1000, instance="a"),
        PathSpan("x", "r", 0, 505, instance="b"),
        PathSpan("y", "r", 500, 1000, instance="b"),
    ]
    assert path_of(spans)[1] == [("y", 500, 1000), ("x", 0, 500)]
    wide = [spans[0], spans[1]._replace(end_ns=511), spans[2]]
    assert path_of(wide)[1] == [("y", 500, 1000), ("r", 0, 500)]
    assert path_of([s._replace(instance="a") for s in spans])[1][1] == ("r", 0, 500)


def test_drag_is_what_one_span_alone_would_save():
    spans = [
        PathSpan("r", None, 0, 100),
        PathSpan("a", "r", 0, 90),
        PathSpan("b", "r", 0, 80),
    ]
    assert drag(prepare(spans), "a") == 10
    assert drag(prepare(spans), "b") == 0


@pytest.mark.parametrize("is_reversed", [False, True])
def test_a_chain_of_ten_thousand_spans_is_no_problem(is_reversed):
    depth = 10_000
    spans = [
        PathSpan(f"{n}", f"{n - 1}" if n else None, n, 3 * depth - n, Stage.TOOL)
        for n in range(depth)
    ]
    tree = prepare(spans[::-1] if is_reversed else spans)
    path = walk(tree)
    assert sum(end - start for _, start, end in path) == 3 * depth
    assert what_if(tree, Stage.TOOL, 1.0) == 3 * depth
    assert len(slack(tree)) == depth


def test_a_trace_of_120_000_spans_is_partitioned():
    num_children = 120_000
    spans = [PathSpan("r", None, 0, num_children * 10)]
    spans += [PathSpan(f"{n}", "r", n * 10, n * 10 + 9) for n in range(num_children)]
    path = critical_path(spans)
    assert sum(s.end_ns - s.start_ns for s in path.segments) == path.total_ns
    assert len(path.segments) == 2 * num_children
