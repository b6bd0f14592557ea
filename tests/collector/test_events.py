"""GenAI events of log records: cleaned, kept, and joined to their span."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longpole_collector.content import Policy, Scrubber
from longpole_collector.decode import Format
from longpole_collector.decode.logs import LogEvent, parse_logs
from longpole_collector.events import JOINED, clean, from_rows, join, to_rows
from longpole_collector.health import Health

TRACE, SPAN = "ab" * 16, "cd" * 8
DETAILS = "gen_ai.client.inference.operation.details"
ASKED = "What is six times seven?"
LIBRARIES = ("openai-v2", "genai-openai", "openllmetry")


@pytest.fixture
def scrubber():
    return Scrubber(Policy(key=bytes(32)), Health())


@pytest.fixture
def capture(data):
    return lambda name, kind="logs": (data / "logs" / f"{name}.{kind}.pb").read_bytes()


def event(name="gen_ai.choice", time_ns=1, **attributes):
    return LogEvent(TRACE, SPAN, time_ns, name, attributes)


def spans_by_id(otlp, body):
    return {span.span_id: span for span in otlp.spans(body)}


def joined(otlp, capture, scrubber, name):
    """span id -> the span before and after its events were stored, read back and joined."""
    events = clean(parse_logs(capture(name), Format.PROTOBUF).events, scrubber)
    rows = to_rows(events, 5).to_pylist()
    back = from_rows([tuple(row.values()) for row in rows])
    return {
        span_id: (span, join(span, [event for event in back if event.span_id == span_id]))
        for span_id, span in spans_by_id(otlp, capture(name, "traces")).items()
    }


# --- cleaning --------------------------------------------------------------------------------
@pytest.mark.parametrize("name", LIBRARIES)
def test_nothing_people_wrote_is_in_what_is_kept(name, capture, scrubber):
    body = capture(name)
    assert ASKED.encode() in body
    events = clean(parse_logs(body, Format.PROTOBUF).events, scrubber)
    kept = json.dumps(to_rows(events, 5).to_pylist())
    for said in (ASKED, "You answer with a number", "answer", "42 found", "w0 w1", "arguments"):
        assert said not in kept
    assert ".length" in kept


def test_content_is_kept_where_the_owner_keeps_it(capture):
    scrubber = Scrubber(Policy("keep", bytes(32)), Health())
    events = clean(parse_logs(capture("openai-v2"), Format.PROTOBUF).events, scrubber)
    assert events[1].attributes["body"] == {"content": ASKED}


def test_cleaning_leaves_the_events_given_as_they_are(scrubber):
    given = event(body="hello")
    clean([given], scrubber)
    assert given.attributes == {"body": "hello"}
    assert clean([], scrubber) == []


# --- keeping ---------------------------------------------------------------------------------
def test_events_come_back_from_their_rows():
    events = [event(index=1, words=["a", "é\0"]), event(time_ns=0)]
    rows = to_rows(events, 9)
    assert rows["received_ns"].to_pylist() == [9, 9]
    back = from_rows([tuple(row.values()) for row in rows.to_pylist()])
    assert back == [events[0], events[1]._replace(time_ns=9)]
    assert to_rows([], 9).num_rows == 0


# --- joining ---------------------------------------------------------------------------------
def test_the_finish_reason_of_a_stream_is_joined_where_only_its_event_has_it(
    otlp, capture, scrubber
):
    found = list(joined(otlp, capture, scrubber, "openai-v2").values())
    assert [(span.finish_reason, more.finish_reason) for span, more in found] == [
        ("stop", "stop"),
        (None, "stop"),
        (None, "tool_call"),
        ("stop", "stop"),
        (None, None),  # refused
        (None, "error"),
    ]


@pytest.mark.parametrize("name", ["openai-v2", "genai-openai"])
def test_what_a_span_states_stands_and_its_events_are_seen(name, otlp, capture, scrubber):
    for span, more in joined(otlp, capture, scrubber, name).values():
        for column, before, after in zip(span._fields, span, more, strict=True):
            if column not in ("flags", "events"):
                assert before in (None, after)
        assert more.flags == [*span.flags, JOINED]
        assert {each["name"].partition(".")[0] for each in json.loads(more.events)} == {"gen_ai"}


@pytest.mark.parametrize("name", ["openai-v2", "genai-openai"])
def test_events_that_come_again_are_joined_once(name, otlp, capture, scrubber):
    events = clean(parse_logs(capture(name), Format.PROTOBUF).events, scrubber)
    for span_id, (_, more) in joined(otlp, capture, scrubber, name).items():
        mine = [event for event in events if event.span_id == span_id]
        assert join(more, mine) == more
        assert join(more, [*mine, *mine]) == more


def test_the_details_of_a_call_make_a_bare_span_a_call(otlp, capture, scrubber):
    events = clean(parse_logs(capture("genai-openai"), Format.PROTOBUF).events, scrubber)
    spans = spans_by_id(otlp, capture("genai-openai", "traces"))
    told = next(each for each in events if each.attributes.get("gen_ai.request.stream"))
    whole = spans[told.span_id]
    (bare,) = otlp.canonical(
        otlp.span(
            kind=3,
            start_time_unix_nano=whole.start_ns,
            end_time_unix_nano=whole.end_ns,
        ),
        scope="mine",
    )
    more = join(bare, [told])
    facts = (
        "operation is_model_call provider request_model response_model response_id finish_reason "
        "is_streamed ttft_ns first_chunk_ns input_tokens cached_input_tokens output_tokens "
        "service_tier"
    )
    for column in facts.split():
        assert getattr(more, column) == getattr(whole, column), column
    assert more.flags == ["ttft_first_event", JOINED]


def test_a_span_around_a_call_takes_no_facts_over(otlp):
    (around,) = otlp.canonical(otlp.span())
    more = join(around, [event(finish_reason="stop", **{"gen_ai.system": "openai"})])
    assert (more.finish_reason, more.provider, more.is_model_call) == (None, None, False)
    assert (more.flags, len(json.loads(more.events))) == ([JOINED], 1)


def call(otlp, **attributes):
    facts = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"} | attributes
    return otlp.canonical(otlp.span(kind=3, attributes=facts), scope="mine")[0]


def test_an_answer_that_arrived_in_an_event_is_not_incomplete(otlp):
    span = call(otlp, **{"gen_ai.request.stream": True})
    assert "incomplete" in span.flags
    assert join(span, [event(finish_reason="stop")]).flags == [JOINED]
    assert "incomplete" in join(span, [event("gen_ai.user.message")]).flags


def test_input_tokens_of_an_event_hold_the_cached_ones(otlp):
    usage = {"gen_ai.usage.input_tokens": 10, "gen_ai.usage.cache_read.input_tokens": 90}
    more = join(call(otlp), [event(DETAILS, **usage)])
    assert (more.input_tokens, more.cached_input_tokens) == (100, 90)
    assert more.flags == ["input_excluded_cache", JOINED]


def test_an_exception_event_is_the_calls_error(otlp):
    failed = event("gen_ai.client.operation.exception", **{"exception.type": "TimeoutError"})
    more = join(call(otlp), [failed])
    assert (more.status, more.error_type) == ("error", "TimeoutError")
    more = join(call(otlp), [event(finish_reason="error")])
    assert (more.status, more.error_type) == ("error", "_OTHER")
    stated = call(otlp, **{"error.type": "Mine"})._replace(status="ok")
    assert join(stated, [failed])[12:15] == stated[12:15]


def test_no_events_change_nothing_and_thousands_are_shown_in_part(otlp):
    span = call(otlp)
    assert join(span, []) is span
    many = [event(time_ns=n, index=n) for n in range(3000)]
    more = join(span, [*many, event(time_ns=5000, finish_reason="stop")])
    assert (len(json.loads(more.events)), more.finish_reason) == (1000, "stop")
    assert join(more, many) == more


values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(),
    st.text(max_size=5),
    st.lists(st.text()),
)
facts = st.sampled_from(
    [
        "gen_ai.operation.name",
        "gen_ai.response.finish_reasons",
        "gen_ai.usage.input_tokens",
        "gen_ai.usage.output_tokens",
        "gen_ai.response.time_to_first_chunk",
        "gen_ai.request.stream",
        "exception.type",
        "longpole.flags",
        "longpole.detached",
        "finish_reason",
        "x",
    ]
)


@given(st.lists(st.dictionaries(facts, values)), st.dictionaries(facts, values))
def test_whatever_events_hold_nothing_stated_is_changed_and_twice_is_once(otlp, told, stated):
    (span,) = otlp.canonical(
        otlp.span(kind=3, attributes={"gen_ai.request.model": "m"} | stated), scope="mine"
    )
    events = [LogEvent(TRACE, SPAN, n, "gen_ai.choice", each) for n, each in enumerate(told)]
    more = join(span, events)
    assert join(more, events) == more
    for column, before, after in zip(span._fields, span, more, strict=True):
        if column not in ("flags", "events", "status", "is_model_call", "stage"):
            assert before in (None, after)
