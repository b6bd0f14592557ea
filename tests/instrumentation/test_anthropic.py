"""Anthropic's client against a server that speaks its protocol."""

import asyncio
import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import anthropic
import fake_anthropic
import pytest
from fake_server import WAIT_S
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pydantic import BaseModel
from truth import in_order, only, plain_stream, untimed

import longpole
from longpole.testing import Spans
from longpole.vocab import keys

MESSAGES: Any = [{"role": "user", "content": "a secret question"}]
USED = {
    keys.INPUT_TOKENS: 1456,
    keys.CACHED_INPUT_TOKENS: 1280,
    keys.CACHE_WRITE_TOKENS: 76,
    keys.CACHE_WRITE_5M_TOKENS: 50,
    keys.CACHE_WRITE_1H_TOKENS: 26,
    keys.OUTPUT_TOKENS: 30,
    keys.REASONING_TOKENS: 12,
    keys.SERVICE_TIER: "standard",
}


@pytest.fixture(scope="module")
def _anthropic_server() -> Iterator[Any]:
    with fake_anthropic.FakeAnthropic.serving() as server:
        yield server


@pytest.fixture
def server(_anthropic_server: Any) -> Any:
    """Anthropic's server with nothing received yet."""
    _anthropic_server.requests.clear()
    return _anthropic_server


@pytest.fixture
def client(server: Any) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(api_key="k", base_url=server.base_url) as made:
        yield longpole.wrap(made)


@pytest.fixture(params=["sync", "async"])
def stream(request: pytest.FixtureRequest, server: Any) -> Any:
    """Reads one stream to its end, through the sync or the async client."""

    def read_sync(model: str, **kwargs: Any) -> list[Any]:
        with anthropic.Anthropic(api_key="k", base_url=server.base_url) as client:
            create: Any = longpole.wrap(client).messages.create
            return list(create(model=model, messages=MESSAGES, stream=True, **kwargs))

    async def read(model: str, **kwargs: Any) -> list[Any]:
        async with anthropic.AsyncAnthropic(api_key="k", base_url=server.base_url) as client:
            create: Any = longpole.wrap(client).messages.create
            made = await create(model=model, messages=MESSAGES, stream=True, **kwargs)
            return [event async for event in made]

    def read_async(model: str, **kwargs: Any) -> list[Any]:
        return asyncio.run(read(model, **kwargs))

    call = read_sync if request.param == "sync" else read_async
    return lambda model, **kwargs: call(model, **{"max_tokens": 64, **kwargs})


def test_a_stream_is_one_whole_span(stream: Any, spans: Spans) -> None:
    events = stream("plain", extra_body={"temperature": 0.5}, service_tier="auto")
    assert [event.type for event in events][-2:] == ["message_delta", "message_stop"]
    assert spans[0].name == "chat plain"
    assert in_order(only(spans))
    assert untimed(spans[0]) == plain_stream() | USED | {
        keys.PROVIDER: "anthropic",
        keys.REQUEST_MAX_TOKENS: 64,
        keys.REQUEST_TEMPERATURE: 0.5,
        keys.SERVICE_TIER_REQUESTED: "auto",
        keys.RESPONSE_ID: "msg_1",
        keys.FINISH_REASONS: ("end_turn",),
        keys.TOKENS_PER_CHUNK: 1.8,
        keys.FLAGS: ("hidden_reasoning",),
    }


def test_the_start_of_the_message_is_no_content(stream: Any, spans: Spans) -> None:
    stream("early-role")
    found = only(spans)
    waited = found[keys.TIME_TO_FIRST_CONTENT] - found[keys.TIME_TO_FIRST_CHUNK]
    assert waited >= WAIT_S * 0.7


def test_late_headers(stream: Any, spans: Spans) -> None:
    stream("late-headers")
    assert only(spans)[keys.TIME_TO_HEADERS] >= WAIT_S
    assert in_order(only(spans))


def test_retries_are_seen(stream: Any, spans: Spans) -> None:
    stream("retry-twice")
    found = only(spans)
    assert found[keys.RESEND_COUNT] == 2
    assert found[keys.ATTEMPT_STATUS] == ("429", "429", "200")
    assert found[keys.RETRY_WAIT] >= 0.08
    assert found[keys.RETRY_TIME] >= found[keys.RETRY_WAIT]


def test_thinking_comes_before_what_is_visible(stream: Any, spans: Spans) -> None:
    stream("reasoning")
    found = only(spans)
    assert found[keys.CHUNK_COUNT] == 4  # the signature is none
    assert found[keys.TIME_TO_FIRST_VISIBLE] > found[keys.TIME_TO_FIRST_CONTENT]
    assert keys.FLAGS not in found


def test_a_tools_name_and_arguments_are_content(stream: Any, spans: Spans) -> None:
    stream("tool")
    found = only(spans)
    assert found[keys.CHUNK_COUNT] == 3  # its name and two parts; an empty part is none
    assert found[keys.FINISH_REASONS] == ("tool_use",)
    assert "no_visible_text" in found[keys.FLAGS]
    assert keys.TIME_TO_FIRST_VISIBLE not in found


def test_one_token(stream: Any, spans: Spans) -> None:
    stream("one-token")
    found = only(spans)
    assert (found[keys.OUTPUT_TOKENS], found[keys.CHUNK_COUNT]) == (1, 1)
    assert keys.TIME_PER_OUTPUT_TOKEN not in found


def test_unknown_tokens_stay_unknown(stream: Any, spans: Spans) -> None:
    stream("no-usage")
    found = only(spans)
    assert found[keys.FLAGS] == ("tokens_unknown",)
    assert not {keys.INPUT_TOKENS, keys.OUTPUT_TOKENS, keys.CACHED_INPUT_TOKENS} & set(found)


def test_the_output_count_of_the_start_is_not_taken_for_the_whole(
    client: anthropic.Anthropic, spans: Spans
) -> None:
    with client.messages.stream(model="slow", messages=MESSAGES, max_tokens=64) as stream:
        next(stream.text_stream)
    found = only(spans)
    assert found[keys.STREAM_STATE] == "closed_early"
    assert found[keys.INPUT_TOKENS] == 1456
    assert keys.OUTPUT_TOKENS not in found


@pytest.mark.parametrize(
    ("model", "error_type"),
    [("error-event", "overloaded_error"), ("bad-request", "BadRequestError")],
)
def test_errors_are_the_clients_own_and_named(
    stream: Any, spans: Spans, model: str, error_type: str
) -> None:
    with pytest.raises(anthropic.APIStatusError):
        stream(model)
    assert only(spans)[keys.ERROR_TYPE] == error_type
    assert not spans[0].status.is_ok


class Answer(BaseModel):
    answer: int


def test_whole_answers_in_every_form(client: anthropic.Anthropic, spans: Spans) -> None:
    asked: Any = {"model": "plain", "messages": MESSAGES, "max_tokens": 64}
    for messages in (client.messages, client.beta.messages):
        made: Any = messages
        assert made.create(**asked).usage.output_tokens == 30
        assert made.parse(**asked, output_format=Answer).parsed_output == Answer(answer=42)
        assert made.with_raw_response.create(**asked).parse().id == "msg_1"
        with made.with_streaming_response.create(**asked) as response:
            assert response.json()["id"] == "msg_1"
    whole = {
        key: value
        for key, value in plain_stream().items()
        if key not in (keys.CHUNK_COUNT, keys.STREAM_STATE)
    }
    for span in spans:
        assert untimed(span) == whole | USED | {
            keys.PROVIDER: "anthropic",
            keys.REQUEST_STREAM: False,
            keys.REQUEST_MAX_TOKENS: 64,
            keys.RESPONSE_ID: "msg_1",
            keys.FINISH_REASONS: ("end_turn",),
            keys.SERVER_REQUEST_ID: "req_1",
            keys.FLAGS: ("not_streamed",),
        }
    assert len(spans) == 8
    assert not longpole.stats().num_internal_errors


async def test_async_whole_answers(server: Any, spans: Spans) -> None:
    asked: Any = {"model": "plain", "messages": MESSAGES, "max_tokens": 64}
    async with anthropic.AsyncAnthropic(api_key="k", base_url=server.base_url) as client:
        made: Any = longpole.wrap(client).messages
        await made.create(**asked)
        await made.parse(**asked, output_format=Answer)
        await (await made.with_raw_response.create(**asked)).parse()
    assert [dict(s.attributes or {})[keys.INPUT_TOKENS] for s in spans] == [1456] * 3


def test_the_helper_is_the_clients_own(client: anthropic.Anthropic, spans: Spans) -> None:
    with client.messages.stream(model="plain", messages=MESSAGES, max_tokens=64) as stream:
        assert type(stream) is anthropic.MessageStream
        assert stream.get_final_text() == "".join(f"w{i} " for i in range(10))
    assert only(spans)[keys.CHUNK_COUNT] == 10


def test_counting_tokens_is_no_model_call(client: anthropic.Anthropic, spans: Spans) -> None:
    assert client.messages.count_tokens(model="plain", messages=MESSAGES).input_tokens == 7
    assert len(spans) == 0


# --- the clients for clouds --------------------------------------------------------------------


def test_clients_for_clouds_are_named_by_where_the_call_goes(server: Any, spans: Spans) -> None:
    url = server.base_url
    clients: list[Any] = [
        anthropic.AnthropicBedrock(aws_region="r", api_key="k", base_url=url),
        anthropic.AnthropicVertex(region="r", project_id="p", access_token="t", base_url=url),
        anthropic.AnthropicFoundry(api_key="k", base_url=url),
    ]
    for client in clouds_closed(clients):
        longpole.wrap(client).messages.create(model="plain", messages=MESSAGES, max_tokens=9)
        list(client.messages.create(model="plain", messages=MESSAGES, max_tokens=9, stream=True))
    found = [dict(span.attributes or {}) for span in spans]
    names = [attributes[keys.PROVIDER] for attributes in found]
    assert names == ["aws.bedrock"] * 2 + ["gcp.vertex_ai"] * 2 + ["anthropic"] * 2
    assert {attributes[keys.OUTPUT_TOKENS] for attributes in found} == {30}
    assert [attributes.get(keys.CHUNK_COUNT) for attributes in found] == [None, 10] * 3


def clouds_closed(clients: list[Any]) -> Iterator[Any]:
    for client in clients:
        with client:
            yield client


def test_instrument_wraps_every_class(server: Any, spans: Spans) -> None:
    url = server.base_url
    longpole.instrument("anthropic")
    try:
        clients: list[Any] = [
            anthropic.Anthropic(api_key="k", base_url=url),
            anthropic.AnthropicBedrock(aws_region="r", api_key="k", base_url=url),
            anthropic.AnthropicVertex(region="r", project_id="p", access_token="t", base_url=url),
            anthropic.AnthropicFoundry(api_key="k", base_url=url),
        ]
        for client in clouds_closed(clients):
            client.messages.create(model="plain", messages=MESSAGES, max_tokens=9)
    finally:
        longpole.uninstrument()
    assert len(spans) == 4


# --- its own span ------------------------------------------------------------------------------


@pytest.fixture
def native() -> Iterator[Any]:
    """The client's option for spans of its own, and those spans."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    option: Any = {"tracer_provider": provider, "conversation_id": "c1"}
    yield SimpleNamespace(option=option, spans=exporter.get_finished_spans)
    provider.shutdown()


def call(client: anthropic.Anthropic) -> None:
    client.messages.create(model="plain", messages=MESSAGES, max_tokens=9)


def test_the_clients_own_span_is_off_while_wrapped(server: Any, native: Any, spans: Spans) -> None:
    with anthropic.Anthropic(
        api_key="k", base_url=server.base_url, open_telemetry=native.option
    ) as client:
        before = client.open_telemetry
        longpole.wrap(client)
        call(client)
        call(client.with_options(timeout=5))
        call(client.with_options(open_telemetry=native.option))
        assert (len(native.spans()), len(spans)) == (0, 3)
        assert client.open_telemetry == before
        copy = client.copy()
        longpole.unwrap(client)
        call(client)
        assert (len(native.spans()), len(spans)) == (1, 3)
        call(copy)
        assert (len(native.spans()), len(spans)) == (1, 4)
        call(longpole.unwrap(copy))
        assert (len(native.spans()), len(spans)) == (2, 4)
        assert "_set_open_telemetry" not in vars(client)


def test_copies_of_instrumented_clients_have_no_span_of_their_own(
    server: Any, native: Any, spans: Spans
) -> None:
    longpole.instrument("anthropic")
    try:
        with anthropic.Anthropic(
            api_key="k", base_url=server.base_url, open_telemetry=native.option
        ) as client:
            call(client.with_options(timeout=5))
            call(client.with_options(open_telemetry=native.option))
    finally:
        longpole.uninstrument()
    assert (len(native.spans()), len(spans)) == (0, 2)


def test_the_trace_id_reaches_a_server_of_ones_own(
    client: anthropic.Anthropic, server: Any, spans: Spans
) -> None:
    call(client)
    context = spans[0].context
    assert context is not None
    assert f"{context.trace_id:032x}" in server.requests[0].headers["traceparent"]


def test_no_text_is_in_a_span(stream: Any, spans: Spans) -> None:
    stream("plain")
    stream("reasoning")
    stream("tool")
    for span in spans:
        text = json.dumps(untimed(span))
        assert not any(word in text for word in ("secret", "w1 ", "let me see", "search"))
