"""Whatever arrives, a trace is split to the nanosecond and nothing is raised."""

from hypothesis import given, settings
from hypothesis import strategies as st

from longpole.vocab import Kind, Span, Stage, Status
from longpole_analytics.calls import model_calls
from longpole_analytics.explain import document
from longpole_analytics.phases import client_phases
from longpole_analytics.rollup import ROLLUP
from longpole_analytics.stages import partition

IDS = [f"{number:016x}" for number in range(10)]
TIME = st.integers(0, 5_000_000)
DURATION = st.one_of(st.none(), st.integers(-10, 3_000_000))
STAGES = st.sampled_from([None, "no such stage", *(stage.value for stage in Stage)])

spans = st.builds(
    Span,
    trace_id=st.just("4bf92f3577b34da6a3ce929d0e0e4736"),
    span_id=st.sampled_from(IDS),
    parent_id=st.sampled_from([None, "f" * 16, *IDS]),
    name=st.sampled_from(["a", "chat", "queue"]),
    kind=st.sampled_from(list(Kind)),
    start_ns=TIME,
    end_ns=st.one_of(st.none(), TIME),
    received_ns=st.just(0),
    service=st.sampled_from([None, "app"]),
    instance_id=st.sampled_from([None, "a", "b"]),
    scope=st.none(),
    dialect=st.just("unknown"),
    status=st.sampled_from(list(Status)),
    stage=STAGES,
    operation=st.sampled_from([None, "chat", "invoke_workflow"]),
    is_model_call=st.booleans(),
    is_engine=st.booleans(),
    is_detached=st.booleans(),
    is_streamed=st.sampled_from([None, False, True]),
    input_tokens=st.one_of(st.none(), st.integers(0, 100)),
    num_attempts=st.one_of(st.none(), st.integers(-1, 4)),
    outcome=st.sampled_from([None, "accepted"]),
    time_to_useful_ns=DURATION,
    **dict.fromkeys(
        (
            "ttft_ns",
            "ttft_attempt_ns",
            "last_content_ns",
            "retry_ns",
            "engine_admission_ns",
            "tokenize_ns",
            "queue_ns",
            "prefill_ns",
            "first_decode_ns",
            "engine_decode_ns",
            "engine_stream_ns",
            "engine_ttft_ns",
        ),
        DURATION,
    ),
)
traces = st.lists(spans, min_size=1, max_size=8)


@settings(deadline=None, max_examples=200)
@given(traces, st.sampled_from(["detach", "clip"]))
def test_stages_sum_to_the_wall_time(trace, overhang):
    split = partition(trace, overhang=overhang)
    assert sum(time.critical_ns for time in split.stages.values()) == split.wall_ns
    assert sum(s.end_ns - s.start_ns for s in split.segments) == split.wall_ns
    assert all(0 <= time.critical_ns <= time.total_ns for time in split.stages.values())
    assert split.extended_wall_ns >= split.wall_ns >= 0


@settings(deadline=None, max_examples=100)
@given(traces)
def test_the_row_of_a_trace_equals_its_split(trace):
    row, stages = ROLLUP.compute(trace)
    split = partition(trace)
    assert row.wall_ns == row.end_ns - row.start_ns == sum(s.critical_ns for s in stages)
    assert row.long_pole_ns == max((s.critical_ns for s in stages), default=0)
    assert 0 <= row.num_calls <= row.num_spans
    assert {s.stage for s in stages} == {stage.value for stage in split.stages}
    assert document(split, row.outcome)["wall_ms"] == row.wall_ns / 1e6


@settings(deadline=None, max_examples=100)
@given(traces, st.randoms(use_true_random=False))
def test_the_order_in_which_spans_arrive_does_not_matter(trace, random):
    trace = list({span.span_id: span for span in trace}.values())
    shuffled = random.sample(trace, len(trace))
    assert ROLLUP.compute(shuffled) == ROLLUP.compute(trace)
    assert partition(shuffled).segments == partition(trace).segments


@settings(deadline=None, max_examples=100)
@given(traces)
def test_the_phases_of_a_clients_call_tile_it(trace):
    unique = list({span.span_id: span for span in trace}.values())
    for call in model_calls(unique):
        if call.client is None or call.client.end_ns is None:
            continue
        below = [s for s in unique if call.engine and s.parent_id == call.engine.span_id]
        phases, _ = client_phases(call, below)
        at = call.client.start_ns
        for phase in phases:
            assert phase.start_ns == at
            assert phase.end_ns > at
            at = phase.end_ns
        assert at == max(call.client.end_ns, call.client.start_ns)
