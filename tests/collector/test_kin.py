"""Kin are found in memory, whatever order their spans come in, and memory is bounded."""

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from longpole.vocab import Span
from longpole_collector import kin as module
from longpole_collector.kin import Kin
from longpole_collector.stores.schema import SPANS, to_arrow

START_NS = 1_790_000_000_000_000_000
SECOND_NS = 1_000_000_000


def root(number, **given):
    """The only span of a trace."""
    return Span(
        trace_id=f"{number:032x}", span_id=f"{number:016x}", parent_id=None, name="chat",
        kind="client", start_ns=START_NS, end_ns=START_NS + SECOND_NS, received_ns=START_NS,
        service="app", instance_id="app", scope="lib", dialect="otel_genai", status="unset",
    )._replace(is_model_call=True, operation="chat", **given)  # fmt: skip


def note(kin, *spans):
    return {int(trace_id, 16) for trace_id in kin.note(to_arrow(SPANS, spans))}


def of(kin, *numbers):
    return {int(trace_id, 16) for trace_id in kin.of([f"{number:032x}" for number in numbers])}


def half(number, at_s, *, is_rest):
    """Half of a stream: a head that ends, or a rest that begins, then."""
    start_ns = START_NS + int(at_s * SECOND_NS)
    if is_rest:
        return root(number, start_ns=start_ns - 5_000_000, flags=["stream_summary"])
    return root(number, start_ns=start_ns - SECOND_NS, end_ns=start_ns, flags=["stream_head"])


def test_traces_with_one_answer_are_kin_and_others_are_not():
    kin = Kin()
    note(kin, root(1, response_id="x"), root(2, response_id="y"), root(3, response_id=None))
    assert of(kin, 1, 2, 3) == set()
    note(kin, root(4, response_id="x"), root(5, response_id="x"))
    assert of(kin, 1) == {4, 5}
    assert of(kin, 4) == {1, 5}
    assert of(kin, 1, 4) == {5}


def test_an_id_that_every_answer_has_makes_no_kin_without_end():
    kin = Kin()
    for start in range(0, 1000, 100):
        note(kin, *(root(number, response_id="stub") for number in range(start, start + 100)))
    assert len(of(kin, 0)) == module.MAX_TOLD - 1
    assert of(kin, 500) == set()


def test_spans_below_others_engines_and_other_work_are_nobodys_kin():
    kin = Kin()
    note(kin, root(1, response_id="x"))
    note(kin, root(2, response_id="x")._replace(parent_id="f" * 16))
    note(kin, root(3, response_id="x")._replace(is_engine=True))
    note(kin, root(4, response_id="x")._replace(is_model_call=False))
    assert of(kin, 1, 2, 3, 4) == set()


def test_a_half_that_comes_late_parts_those_that_seemed_one_stream():
    kin = Kin()
    assert note(kin, half(1, 0, is_rest=False), half(4, 9, is_rest=True)) == {1, 4}
    assert of(kin, 1) == {4}
    assert note(kin, half(2, 3, is_rest=False)) == {1, 2, 4}
    assert (of(kin, 1), of(kin, 2)) == (set(), {4})
    assert note(kin, half(3, 5, is_rest=True)) == {1, 2, 3, 4}
    assert (of(kin, 1), of(kin, 2)) == ({4}, {3})
    assert note(kin, half(5, 70, is_rest=True)) == set(), "too late for any"


@settings(deadline=None)
@given(st.integers(0, 2**32))
def test_halves_pair_the_same_in_any_order(seed):
    random = Random(seed)
    halves = [
        half(number, random.uniform(0, 200), is_rest=random.random() < 0.5) for number in range(40)
    ]
    at_once = Kin()
    note(at_once, *halves)
    random.shuffle(halves)
    kin = Kin()
    for start in range(0, 40, 5):
        before = {number: of(kin, number) for number in range(40)}
        changed = note(kin, *halves[start : start + 5])
        after = {number: of(kin, number) for number in range(40)}
        assert changed == {number for number in after if before[number] != after[number]}
    assert after == {number: of(at_once, number) for number in range(40)}


def test_what_is_remembered_is_bounded(monkeypatch):
    monkeypatch.setattr(module, "MAX_ANSWERS", 100)
    monkeypatch.setattr(module, "MAX_HALVES", 100)
    kin = Kin()
    for start in range(0, 1000, 50):
        spans = [root(number, response_id=str(number // 2)) for number in range(start, start + 50)]
        spans += [
            half(2000 + start, start, is_rest=False),
            half(2001 + start, start + 2, is_rest=True),
        ]
        spans += [half(3000 + n, start, is_rest=False) for n in range(start, start + 20)]
        note(kin, *spans)
    assert len(kin._answers) <= 100
    assert kin._num_halves <= 100
    assert len(kin._links) <= 400
    assert of(kin, 998) == {999}
