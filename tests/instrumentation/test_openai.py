import time
from types import ModuleType
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletionChunk
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind, StatusCode
from pydantic import BaseModel

import longpole
from longpole import settings
from longpole.testing import Spans
from longpole.vocab import keys

MESSAGES: Any = [{"role": "user", "content": "a secret question"}]


def only(spans: Spans) -> dict[str, Any]:
    assert len(spans) == 1
    return dict(spans[0].attributes or {})


def text_of(span: ReadableSpan) -> str:
    return span.to_json()


def test_a_streamed_call_is_one_client_span_with_its_times(caller: Any, spans: Spans) -> None:
    chunks = caller.create("plain", stream=True, temperature=0.5, max_tokens=64)
    found = only(spans)
    assert len(chunks) == 12
    assert spans[0].name == "chat plain"
    assert spans[0].kind is SpanKind.CLIENT
    assert found[keys.OPERATION] == "chat"
    assert found[keys.PROVIDER] == "openai"
    assert found[keys.SERVER_ADDRESS] == "127.0.0.1"
    assert found[keys.REQUEST_MODEL] == "plain"
    assert found[keys.RESPONSE_MODEL] == "plain-2026"
    assert found[keys.RESPONSE_ID] == "chatcmpl-1"
    assert found[keys.REQUEST_STREAM] is True
    assert (found[keys.REQUEST_TEMPERATURE], found[keys.REQUEST_MAX_TOKENS]) == (0.5, 64)
    assert found[keys.FINISH_REASONS] == ("stop",)
    assert found[keys.SERVICE_TIER] == "default"
    assert found[keys.STREAM_STATE] == "completed"
    assert found[keys.CHUNK_COUNT] == len(found[keys.CHUNK_OFFSETS_US]) == 10
    assert found[keys.RESEND_COUNT] == 0
    assert keys.FLAGS not in found
    assert 0 < found[keys.TIME_TO_HEADERS] <= found[keys.TIME_TO_FIRST_CHUNK]
    assert found[keys.TIME_TO_FIRST_CHUNK] <= found[keys.TIME_TO_FIRST_CONTENT]
    assert found[keys.TIME_TO_FIRST_CONTENT] < found[keys.TIME_TO_LAST_CONTENT]


def test_tokens_are_asked_for_and_the_extra_chunk_stays_hidden(
    caller: Any, server: Any, spans: Spans
) -> None:
    chunks = caller.create("plain", stream=True)
    found = only(spans)
    assert server.requests[0].body["stream_options"] == {"include_usage": True}
    assert all(chunk.choices for chunk in chunks)
    assert found[keys.INPUT_TOKENS] == 1456
    assert found[keys.CACHED_INPUT_TOKENS] == 1280
    assert found[keys.OUTPUT_TOKENS] == 30
    assert found[keys.REASONING_TOKENS] == 0


@pytest.mark.parametrize("options", [{"include_usage": True}, {"include_usage": False}])
def test_what_the_application_says_about_usage_is_kept(
    caller: Any, server: Any, spans: Spans, options: dict[str, bool]
) -> None:
    chunks = caller.create("plain", stream=True, stream_options=options)
    assert server.requests[0].body["stream_options"] == options
    assert (chunks[-1].usage is not None) == options["include_usage"]
    assert (keys.OUTPUT_TOKENS in only(spans)) == options["include_usage"]


def test_tokens_are_not_asked_for_when_the_setting_is_off(
    caller: Any, server: Any, spans: Spans
) -> None:
    settings.put(settings.load(ask_usage=False))
    caller.create("plain", stream=True)
    assert "stream_options" not in server.requests[0].body
    assert only(spans)[keys.FLAGS] == ("tokens_unknown",)


def test_a_server_that_refuses_the_question_is_asked_once(
    caller: Any, server: Any, spans: Spans
) -> None:
    assert len(caller.create("no-stream-options", stream=True)) == 12
    assert [("stream_options" in r.body) for r in server.requests] == [True, False]
    assert dict(spans[0].attributes or {})[keys.RESEND_COUNT] == 1
    server.requests.clear()
    caller.create("no-stream-options", stream=True)
    assert [("stream_options" in r.body) for r in server.requests] == [False]


def test_the_role_chunk_is_the_first_event_and_not_the_first_content(
    caller: Any, fake: ModuleType, spans: Spans
) -> None:
    caller.create("early-role", stream=True)
    found = only(spans)
    waited = found[keys.TIME_TO_FIRST_CONTENT] - found[keys.TIME_TO_FIRST_CHUNK]
    assert waited >= fake.WAIT_S * 0.7


def test_late_headers_count_into_the_first_content(
    caller: Any, fake: ModuleType, spans: Spans
) -> None:
    caller.create("late-headers", stream=True)
    found = only(spans)
    assert found[keys.TIME_TO_HEADERS] >= fake.WAIT_S
    assert found[keys.TIME_TO_FIRST_CONTENT] >= found[keys.TIME_TO_HEADERS]


def test_retries_are_seen_and_told_apart_from_the_answer(
    caller: Any, fake: ModuleType, spans: Spans
) -> None:
    caller.create("retry-twice", stream=True)
    found = only(spans)
    assert found[keys.RESEND_COUNT] == 2
    assert found[keys.FLAGS] == ("retried",)
    assert found[keys.RETRY_TIME] >= 2 * fake.RETRY_AFTER_MS / 1e3
    rest = found[keys.TIME_TO_FIRST_CONTENT] - found[keys.RETRY_TIME]
    assert found[keys.TIME_TO_FIRST_CONTENT_ATTEMPT] == pytest.approx(rest)
    assert found[keys.STREAM_STATE] == "completed"


def test_a_redirect_is_not_a_retry(caller: Any, server: Any, spans: Spans) -> None:
    caller.create("redirect", stream=True)
    assert len(server.requests) == 2
    assert only(spans)[keys.RESEND_COUNT] == 0


def test_one_token_has_no_tpot(caller: Any, spans: Spans) -> None:
    caller.create("one-token", stream=True)
    found = only(spans)
    assert found[keys.FLAGS] == ("one_token",)
    assert keys.TIME_PER_OUTPUT_TOKEN not in found


def test_tool_calls_are_content_that_nobody_sees(caller: Any, spans: Spans) -> None:
    caller.create("tool", stream=True)
    found = only(spans)
    assert found[keys.FLAGS] == ("no_visible_text",)
    assert found[keys.CHUNK_COUNT] == 2
    assert found[keys.FINISH_REASONS] == ("tool_calls",)
    assert keys.TIME_TO_FIRST_VISIBLE not in found


def test_reasoning_deltas_come_before_the_first_visible_text(caller: Any, spans: Spans) -> None:
    caller.create("reasoning", stream=True)
    found = only(spans)
    assert found[keys.CHUNK_COUNT] == 4
    assert found[keys.TIME_TO_FIRST_VISIBLE] > found[keys.TIME_TO_FIRST_CONTENT]


def test_reasoning_counted_beside_the_output_is_added(caller: Any, spans: Spans) -> None:
    caller.create("beside", stream=True)
    found = only(spans)
    assert (found[keys.OUTPUT_TOKENS], found[keys.REASONING_TOKENS]) == (103, 94)
    assert "hidden_reasoning" in found[keys.FLAGS]


def test_a_server_without_usage_leaves_tokens_unknown(caller: Any, spans: Spans) -> None:
    caller.create("no-usage", stream=True)
    found = only(spans)
    assert found[keys.FLAGS] == ("tokens_unknown",)
    assert keys.OUTPUT_TOKENS not in found


def test_a_stream_of_several_choices_is_complete_when_each_is(caller: Any, spans: Spans) -> None:
    caller.create("two-choices", stream=True, n=2)
    found = only(spans)
    assert found[keys.FINISH_REASONS] == ("stop", "length")
    assert found[keys.STREAM_STATE] == "completed"


def test_a_whole_answer_has_tokens_and_no_stream_times(caller: Any, spans: Spans) -> None:
    answer = caller.create("plain", service_tier="flex")
    found = only(spans)
    assert answer.choices[0].message.content == '{"answer": 42}'
    assert found[keys.FLAGS] == ("not_streamed",)
    assert found[keys.REQUEST_STREAM] is False
    assert (found[keys.SERVICE_TIER_REQUESTED], found[keys.SERVICE_TIER]) == ("flex", "default")
    assert (found[keys.INPUT_TOKENS], found[keys.OUTPUT_TOKENS]) == (1456, 30)
    for key in (keys.TIME_TO_FIRST_CONTENT, keys.CHUNK_COUNT, keys.STREAM_STATE):
        assert key not in found


@pytest.mark.parametrize(
    ("model", "error_type"),
    [
        ("cut", "APIConnectionError"),
        ("error-event", "overloaded"),
        ("bad-request", "BadRequestError"),
    ],
)
def test_the_application_gets_the_librarys_own_exception(
    caller: Any, spans: Spans, model: str, error_type: str
) -> None:
    with pytest.raises(openai.OpenAIError) as caught:
        caller.create(model, stream=True)
    found = only(spans)
    assert type(caught.value).__module__.startswith("openai")
    assert found[keys.ERROR_TYPE] == error_type
    assert found[keys.STREAM_STATE] == "error"
    assert spans[0].status.status_code is StatusCode.ERROR
    assert spans[0].status.description is None


def test_a_stream_that_runs_dry_without_a_finish_is_an_error(caller: Any, spans: Spans) -> None:
    assert len(caller.create("no-finish", stream=True)) == 4
    found = only(spans)
    assert found[keys.ERROR_TYPE] == "incomplete_stream"
    assert found[keys.STREAM_STATE] == "error"


def test_retries_that_all_fail_end_as_one_error(caller: Any, spans: Spans) -> None:
    with pytest.raises(openai.RateLimitError):
        caller.create("unavailable")
    found = only(spans)
    assert found[keys.RESEND_COUNT] == 2
    assert found[keys.HTTP_STATUS] == 429


def test_no_text_of_prompt_or_answer_is_in_a_span(caller: Any, spans: Spans) -> None:
    caller.create("plain", stream=True)
    caller.create("plain")
    with pytest.raises(openai.BadRequestError):
        caller.create("bad-request")
    for span in spans:
        assert "secret" not in text_of(span)
        assert "w1 " not in text_of(span)
        assert "too long" not in text_of(span)


def test_a_slow_reader_is_told_apart(client: openai.OpenAI, spans: Spans) -> None:
    for _ in client.chat.completions.create(model="no-usage", messages=MESSAGES, stream=True):
        time.sleep(0.01)
    assert only(spans)[keys.CONSUMER_HOLD] >= 0.05


def test_the_stream_helper_is_measured(client: openai.OpenAI, spans: Spans) -> None:
    with client.chat.completions.stream(model="plain", messages=MESSAGES) as stream:
        assert stream.get_final_completion().choices[0].finish_reason == "stop"
    found = only(spans)
    assert found[keys.STREAM_STATE] == "completed"
    assert found[keys.CHUNK_COUNT] == 10


async def test_the_async_stream_helper_is_measured(server: Any, spans: Spans) -> None:
    async with openai.AsyncOpenAI(api_key="k", base_url=server.base_url) as client:
        longpole.wrap(client)
        async with client.chat.completions.stream(model="plain", messages=MESSAGES) as stream:
            await stream.get_final_completion()
    assert only(spans)[keys.CHUNK_COUNT] == 10


class Answer(BaseModel):
    answer: int


async def test_parse_is_measured(client: openai.OpenAI, server: Any, spans: Spans) -> None:
    kwargs: Any = {"model": "plain", "messages": MESSAGES, "response_format": Answer}
    parsed = client.chat.completions.parse(**kwargs)
    assert parsed.choices[0].message.parsed == Answer(answer=42)
    async with openai.AsyncOpenAI(api_key="k", base_url=server.base_url) as other:
        await longpole.wrap(other).chat.completions.parse(**kwargs)
    assert [dict(span.attributes or {})[keys.OUTPUT_TOKENS] for span in spans] == [30, 30]


def test_raw_responses_are_measured_and_unchanged(client: openai.OpenAI, spans: Spans) -> None:
    completions = client.chat.completions
    raw = completions.with_raw_response.create(model="plain", messages=MESSAGES)
    assert raw.headers["content-type"] == "application/json"
    assert raw.parse().usage is not None
    raw = completions.with_raw_response.create(model="plain", messages=MESSAGES, stream=True)
    chunks: list[ChatCompletionChunk] = list(raw.parse())  # type: ignore[arg-type]
    assert len(chunks) == 12
    whole, streamed = (dict(span.attributes or {}) for span in spans)
    assert whole[keys.OUTPUT_TOKENS] == 30
    assert streamed[keys.CHUNK_COUNT] == 10
    assert keys.OUTPUT_TOKENS not in streamed


async def test_async_raw_responses_are_measured(server: Any, spans: Spans) -> None:
    async with openai.AsyncOpenAI(api_key="k", base_url=server.base_url) as client:
        make = longpole.wrap(client).chat.completions.with_raw_response.create
        stream: Any = (await make(model="plain", messages=MESSAGES, stream=True)).parse()
        assert len([chunk async for chunk in stream]) == 12
    assert "stream_options" not in server.requests[0].body
    assert only(spans)[keys.STREAM_STATE] == "completed"


def test_azure_clients_are_named_as_azure(server: Any, spans: Spans) -> None:
    with openai.AzureOpenAI(
        api_key="k", azure_endpoint=server.base_url, api_version="2026-01-01"
    ) as client:
        longpole.wrap(client).chat.completions.create(model="plain", messages=MESSAGES)
    assert only(spans)[keys.PROVIDER] == "azure.ai.openai"
