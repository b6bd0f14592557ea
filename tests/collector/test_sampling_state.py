"""What senders say of their own sampling: OTel's entry in the trace state."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longpole_collector.tracestate import (
    ALL,
    NOT_SAID,
    Sampled,
    sampled,
    state_of,
    threshold_of,
    weight_of,
)


@pytest.mark.parametrize(
    ("state", "weight", "randomness"),
    [
        ("ot=th:0", 1.0, None),
        ("ot=th:8", 2.0, None),
        ("ot=th:c", 4.0, None),
        ("ot=th:c00", 4.0, None),
        ("ot=th:fff", 4096.0, None),
        ("ot=th:ffffffffffffff", float(ALL), None),
        ("ot=rv:00000000000001", None, 1),
        ("congo=t61rcWkgMzE, ot=rv:6e6d1a75832a2f;th:c ,x=y", 4.0, 0x6E6D1A75832A2F),
        ("ot=p:8;r:62;th:8", 2.0, None),
    ],
)
def test_a_threshold_says_how_many_a_span_stands_for(state, weight, randomness):
    assert sampled(state) == Sampled(weight, randomness)


@pytest.mark.parametrize(
    "state",
    [
        *("", "ot", "ot=", "ot=th", "ot=th:", "ot=th:G", "ot=th:C", "ot=th:-8"),
        *("ot=th:000000000000000", "ot=th:8 8"),
        *("ot=rv:1", "ot=rv:6E6D1A75832A2F", "got=th:8", "ot@x=th:8", "x=ot=th:8", "\ufffd=,;:"),
        *("ot=th:8" + "0" * 5000, "," * 100),
    ],
)  # fmt: skip
def test_what_is_broken_says_nothing(state):
    assert sampled(state) == NOT_SAID


@given(st.integers(0, ALL - 1), st.one_of(st.none(), st.integers(0, ALL - 1)))
def test_what_is_said_is_read_back(threshold, randomness):
    weight = weight_of(threshold)
    again = sampled(state_of(weight, randomness))
    assert again.weight == pytest.approx(weight, rel=1e-9 + weight / ALL)
    assert again.randomness == randomness


@given(st.floats(1e-12, 1))
def test_a_threshold_keeps_the_share_that_is_asked(share):
    assert weight_of(threshold_of(share)) == pytest.approx(1 / share, rel=1e-4)


def test_nothing_to_say_is_no_entry():
    assert state_of(None, None) == ""
    assert (threshold_of(0), threshold_of(1)) == (ALL, 0)


def test_a_span_carries_what_its_trace_state_says(otlp):
    span = otlp.span(trace_state="ot=th:c;rv:00000000000007")
    (read,) = otlp.canonical(span)
    assert (read.weight, read.randomness) == (4.0, 7)
    (plain,) = otlp.canonical(otlp.span())
    assert (plain.weight, plain.randomness) == (None, None)
