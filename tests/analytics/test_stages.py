"""Every nanosecond in one stage: hosted, self-hosted and joined calls, and what goes wrong."""

import pytest

from longpole.vocab import Kind, Stage, Status
from longpole_analytics.calls import model_calls
from longpole_analytics.stages import partition

from .traces import ENGINE_CHILDREN, MS, call, engine, span, streamed

PHASES = {
    "admission": 1,
    "tokenize": 2,
    "queue": 47,
    "prefill": 300,
    "first_decode": 30,
    "decode": 360,
    "stream": 30,
}
FAR_AWAY_MS = 500_000


def critical_ms(spans, **rules):
    split = partition(spans, **rules)
    assert sum(time.critical_ns for time in split.stages.values()) == split.wall_ns
    assert all(time.critical_ns <= time.total_ns for time in split.stages.values())
    return {
        stage.value: time.critical_ns / MS
        for stage, time in split.stages.items()
        if time.critical_ns
    }


def root(*children, end_ms=1000):
    return [span("r", None, 0, end_ms, operation="invoke_workflow"), *children]


class TestJoined:
    def test_engine_durations_are_placed_by_order_not_by_clock(self):
        trace = root(
            streamed("c", "r", 110, 900, 400, 780),
            *engine("e", "c", FAR_AWAY_MS, PHASES),
        )
        assert critical_ms(trace) == {
            "network": 20,
            "admission": 1,
            "tokenize": 2,
            "queue": 47,
            "prefill": 300,
            "first_decode": 30,
            "later_decode": 360,
            "stream": 30,
            "other": 210,
        }
        path = {s.span_id: s for s in partition(trace).segments}
        assert path["e.prefill"].start_ns == (110 + 20 + 50) * MS
        assert path["e.first_decode"].end_ns == (110 + 400) * MS
        assert path["c"].stage in (Stage.NETWORK, Stage.STREAM)

    def test_client_interval_above_the_engines_decode_is_stream(self):
        trace = root(streamed("c", "r", 0, 1000, 400, 900), *engine("e", "c", 0, PHASES))
        found = critical_ms(trace)
        assert found["later_decode"] == 360
        assert found["stream"] == 240

    def test_an_engine_that_claims_more_than_the_client_waited_is_cut_and_said(self):
        trace = root(streamed("c", "r", 0, 1000, 300, 900), *engine("e", "c", 0, PHASES))
        found = critical_ms(trace)
        assert "network" not in found
        assert found["prefill"] == 250
        assert "first_decode" not in found
        assert "network_negative" in partition(trace).flags

    def test_retries_come_first_and_only_the_last_attempt_is_shown(self):
        trace = root(
            streamed("c", "r", 0, 1000, 500, 900, ttft_attempt_ns=390 * MS, num_attempts=2),
            *engine("e1", "c", 0, {"queue": 50}),
            *engine("e2", "c", 110, PHASES),
        )
        found = critical_ms(trace)
        assert found["retry"] == 110
        assert found["network"] == 10
        assert found["queue"] == 47

    def test_earlier_engine_spans_are_retries_when_nobody_says_so(self):
        trace = root(
            streamed("c", "r", 0, 1000, 500, 900),
            *engine("e1", "c", 0, {"queue": 50}),
            *engine("e2", "c", 110, PHASES),
        )
        assert critical_ms(trace)["retry"] == 50

    def test_without_stream_facts_the_engine_fills_the_end_of_the_call(self):
        trace = root(call("c", "r", 0, 1000), *engine("e", "c", 7, PHASES))
        assert critical_ms(trace) == {
            "network": 230,
            "admission": 1,
            "tokenize": 2,
            "queue": 47,
            "prefill": 300,
            "first_decode": 30,
            "later_decode": 360,
            "stream": 30,
        }
        assert partition(trace).flags == ()

    def test_attributes_of_an_engine_without_children_do_as_well(self):
        trace = root(
            streamed("c", "r", 0, 1000, 400, 900),
            call(
                "e",
                "c",
                FAR_AWAY_MS,
                FAR_AWAY_MS + 800,
                is_engine=True,
                queue_ns=40 * MS,
                prefill_ns=300 * MS,
                engine_decode_ns=450 * MS,
                engine_ttft_ns=341 * MS,
            ),
        )
        assert critical_ms(trace) == {
            "network": 60,
            "queue": 40,
            "prefill": 300,
            "later_decode": 450,
            "stream": 150,
        }

    def test_a_large_unexplained_part_of_the_engines_ttft_is_opaque(self):
        trace = root(
            streamed("c", "r", 0, 1000, 400, 1000),
            call("e", "c", 5, 900, is_engine=True, queue_ns=40 * MS, engine_ttft_ns=340 * MS),
        )
        found = critical_ms(trace)
        assert (found["network"], found["ttft_opaque"], found["queue"]) == (60, 300, 40)

    def test_the_engine_may_hang_under_the_clients_http_span(self):
        trace = root(
            streamed("c", "r", 0, 1000, 400, 780),
            span("http", "c", 1, 999, kind=Kind.CLIENT),
            *engine("e", "http", 3, PHASES),
        )
        assert critical_ms(trace)["prefill"] == 300

    def test_preemption_during_decode_stays_in_order(self):
        trace = root(
            streamed("c", "r", 0, 1000, 400, 1000),
            *engine("e", "c", 0, {"queue": 90, "prefill": 300, "decode": 200}),
            span("e.again", "e", 590, 690, stage=Stage.QUEUE, instance_id="engine-1"),
            span("e.more", "e", 690, 900, stage=Stage.LATER_DECODE, instance_id="engine-1"),
        )
        found = critical_ms(trace)
        assert found["queue"] == 190
        assert found["later_decode"] == 410
        assert found["stream"] == 90


class TestClientOnly:
    def test_what_nobody_measured_stays_opaque(self):
        trace = root(streamed("c", "r", 0, 1000, 400, 900, retry_ns=100 * MS))
        assert critical_ms(trace) == {
            "retry": 100,
            "ttft_opaque": 300,
            "later_decode": 500,
            "stream": 100,
        }

    def test_a_call_that_is_not_streamed_is_opaque_and_says_so(self):
        trace = root(call("c", "r", 100, 900))
        assert critical_ms(trace) == {"ttft_opaque": 800, "other": 200}
        assert partition(trace).flags == ("call_opaque",)

    def test_without_a_last_content_decoding_lasts_to_the_end(self):
        trace = root(streamed("c", "r", 0, 1000, 400, 900, last_content_ns=None))
        assert critical_ms(trace) == {"ttft_opaque": 400, "later_decode": 600}
        assert partition(trace).flags == ("stream_tail_unknown",)

    def test_providers_own_times_are_used(self):
        trace = root(streamed("c", "r", 0, 1000, 400, 1000, queue_ns=30 * MS, prefill_ns=100 * MS))
        found = critical_ms(trace)
        assert (found["ttft_opaque"], found["queue"], found["prefill"]) == (270, 30, 100)

    def test_a_failed_call_that_another_follows_is_retry(self):
        trace = root(
            call("c1", "r", 0, 300, status=Status.ERROR),
            streamed("c2", "r", 350, 1000, 200, 600),
        )
        found = critical_ms(trace)
        assert found["retry"] == 300
        assert found["other"] == 50

    def test_the_last_failed_call_is_no_retry(self):
        trace = root(call("c", "r", 0, 1000, status=Status.ERROR))
        assert critical_ms(trace) == {"ttft_opaque": 1000}

    def test_a_stage_that_the_call_states_wins(self):
        trace = root(streamed("c", "r", 0, 1000, 400, 900, stage=Stage.VALIDATION))
        assert critical_ms(trace) == {"validation": 1000}

    @pytest.mark.parametrize("ttft_ms", [-5, 5000])
    def test_times_outside_the_call_are_brought_inside(self, ttft_ms):
        assert sum(critical_ms(root(streamed("c", "r", 0, 900, ttft_ms, 9000))).values()) == 1000


class TestEngineOnly:
    def test_children_walk_by_themselves(self):
        found = critical_ms(engine("e", None, 0, PHASES))
        assert found == {ENGINE_CHILDREN[name].value: ms for name, ms in PHASES.items()}

    def test_attributes_become_phases_and_the_rest_stays_own_time(self):
        trace = [
            call(
                "e",
                None,
                0,
                1000,
                is_engine=True,
                queue_ns=40 * MS,
                prefill_ns=300 * MS,
                engine_decode_ns=600 * MS,
                engine_ttft_ns=345 * MS,
            )
        ]
        assert critical_ms(trace) == {"queue": 40, "prefill": 300, "later_decode": 600, "other": 60}

    def test_an_engine_without_any_account_is_other(self):
        assert critical_ms([call("e", None, 0, 10, is_engine=True)]) == {"other": 10}


class TestCallsAreCountedOnce:
    def test_a_framework_and_the_library_below_it_are_one_call(self):
        framework = call("outer", "r", 0, 1000, output_tokens=9)
        library = streamed("inner", "outer", 10, 999, 390, 890, input_tokens=5)
        (found,) = model_calls(root(framework, library, *engine("e", "inner", 0, PHASES)))
        assert found.client.span_id == "outer"
        assert (found.client.input_tokens, found.client.output_tokens) == (5, 9)
        assert found.engine.span_id == "e"
        assert critical_ms(root(framework, library)) == {
            "ttft_opaque": 400,
            "later_decode": 500,
            "stream": 100,
        }

    def test_a_summary_inside_a_call_is_no_second_call(self):
        trace = root(
            call("chat", "r", 0, 1000),
            call("request", "chat", 0, 20),
            call("summary", "chat", 990, 990, output_tokens=30),
        )
        assert [c.span.span_id for c in model_calls(trace)] == ["chat"]
        assert model_calls(trace)[0].span.output_tokens == 30
        assert critical_ms(trace) == {"ttft_opaque": 1000}

    def test_a_span_around_several_calls_is_no_call(self):
        trace = root(
            call("agent", "r", 0, 900),
            streamed("c1", "agent", 10, 400, 100, 300),
            streamed("c2", "agent", 450, 850, 100, 300),
        )
        assert [c.span.span_id for c in model_calls(trace)] == ["c1", "c2"]
        assert critical_ms(trace)["later_decode"] == 400

    def test_calls_in_a_circle_do_no_harm(self):
        trace = [call("a", "b", 0, 10), call("b", "a", 1, 9)]
        assert len(model_calls(trace)) <= 2
        assert partition(trace).wall_ns == 10 * MS


def test_a_stream_that_outlives_the_handler_extends_the_wall_time():
    trace = root(streamed("c", "r", 100, 4000, 300, 3900))
    split = partition(trace)
    assert split.wall_ns == 1000 * MS
    assert split.extended_wall_ns == 4000 * MS
    assert "stream_outlives_parent" in split.flags
    assert critical_ms(trace) == {"other": 100, "ttft_opaque": 300, "later_decode": 600}


def test_off_path_work_counts_in_total_only():
    trace = root(
        span("a", "r", 0, 900, stage=Stage.TOOL),
        span("b", "r", 0, 400, stage=Stage.RETRIEVAL),
    )
    times = partition(trace).stages
    assert times[Stage.RETRIEVAL] == (0, 400 * MS)
    assert times[Stage.TOOL] == (900 * MS, 900 * MS)


def test_the_long_pole_is_the_largest_critical_stage():
    trace = root(span("a", "r", 0, 700, stage=Stage.TOOL))
    assert partition(trace).long_pole == Stage.TOOL
    assert partition([]).long_pole == Stage.OTHER
