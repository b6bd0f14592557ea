"""Spans beside one another that tell of one call, and what they tell together."""

from longpole.vocab import Stage, Status
from longpole_analytics.calls import model_calls
from longpole_analytics.rollup import ROLLUP
from longpole_analytics.stages import partition

from .traces import MS, call, engine, span, streamed


def root(*spans):
    return [span("r", None, 0, 1000), *spans]


def critical_ms(trace):
    found = partition(trace).stages
    return {stage.value: time.critical_ns / MS for stage, time in found.items()}


def test_an_sdks_own_span_beside_the_librarys_is_the_same_call_and_knows_better():
    library = streamed(
        "a", "r", 0, 1000, 30, 900, scope="lib", response_id="x", output_tokens=31,
        flags=["ttft_first_event"],
    )  # fmt: skip
    own = streamed(
        "b", "r", 10, 990, 200, 890, scope="sdk", response_id="x", output_tokens=30,
        dialect="anthropic_sdk", flags=["ttft_first_content"],
    )  # fmt: skip
    (found,) = model_calls(root(library, own, *engine("e", "b", 15, {"prefill": 150})))
    assert (found.client.span_id, found.told_by, found.engine.span_id) == ("a", ("b",), "e")
    assert (found.client.output_tokens, found.client.ttft_ns) == (30, 210 * MS)
    row, _ = ROLLUP.compute(root(library, own))
    assert (row.num_calls, row.output_tokens) == (1, 30)


def test_two_answers_or_two_calls_of_one_library_are_two_calls():
    one = call("a", "r", 0, 500, scope="lib", response_id="x")
    assert len(model_calls(root(one, call("b", "r", 10, 400, scope="sdk", response_id="y")))) == 2
    assert len(model_calls(root(one, call("b", "r", 10, 400, scope="lib", response_id="x")))) == 2
    assert len(model_calls(root(one, call("b", "r", 600, 900, scope="sdk", response_id="x")))) == 2


def test_the_two_halves_of_a_stream_fill_its_time_and_none_is_counted_twice():
    trace = root(
        call("head", "r", 100, 110, flags=["stream_head"]),
        call("rest", "r", 112, 800, flags=["stream_summary"], output_tokens=7),
    )
    row, _ = ROLLUP.compute(trace)
    assert (row.num_calls, row.output_tokens) == (1, 7)
    assert critical_ms(trace) == {"ttft_opaque": 700, "other": 300}


def test_attempts_in_spans_of_their_own_are_one_call_with_retries():
    trace = root(
        call("a1", "r", 0, 50, flags=["failed_attempt"], status=Status.ERROR),
        call("a2", "r", 150, 200, flags=["failed_attempt"], status=Status.ERROR),
        streamed("a3", "r", 300, 1000, 200, 600, output_tokens=5),
    )
    row, _ = ROLLUP.compute(trace)
    assert (row.num_calls, row.num_retries, row.output_tokens) == (1, 2, 5)
    assert critical_ms(trace) == {
        "retry": 300,
        "ttft_opaque": 200,
        "later_decode": 400,
        "stream": 100,
    }
    assert model_calls(trace)[0].client.status == Status.UNSET


def test_a_tool_inside_a_call_makes_the_call_in_it_a_call_of_its_own():
    trace = root(
        call("a", "r", 0, 1000),
        span("t", "a", 100, 600, stage=Stage.TOOL, operation="execute_tool"),
        call("b", "t", 150, 500),
    )
    assert [found.span.span_id for found in model_calls(trace)] == ["a", "b"]
    assert critical_ms(trace) == {"other": 500, "tool": 150, "ttft_opaque": 350}
    assert partition(trace).flags == ("call_opaque",)


def test_a_server_that_asks_another_is_neither_call_nor_engine():
    trace = root(
        streamed("a", "r", 0, 1000, 400, 900),
        call("g", "a", 5, 995, is_engine=True),
        call("b", "g", 10, 990),
        *engine("e", "b", 15, {"queue": 50, "prefill": 300}),
    )
    (found,) = model_calls(trace)
    assert (found.client.span_id, found.engine.span_id) == ("a", "e")
    assert critical_ms(trace)["prefill"] == 300
