"""OpenAI's Responses API against a server that speaks it."""

import asyncio
import json
from typing import Any

import openai
import pytest
from fake_server import WAIT_S
from opentelemetry.trace import StatusCode
from pydantic import BaseModel
from truth import in_order, only, plain_stream, untimed

import longpole
from longpole.testing import Spans
from longpole.vocab import keys

TOLD = {
    keys.PROVIDER: "openai",
    keys.RESPONSE_ID: "resp_1",
    keys.INPUT_TOKENS: 1456,
    keys.CACHED_INPUT_TOKENS: 1280,
    keys.CACHE_WRITE_TOKENS: 64,
    keys.OUTPUT_TOKENS: 30,
    keys.REASONING_TOKENS: 12,
    keys.SERVICE_TIER: "default",
}


@pytest.fixture(params=["sync", "async"])
def stream(request: pytest.FixtureRequest, server: Any) -> Any:
    """Reads one stream to its end, through the sync or the async client."""

    def read_sync(model: str, **kwargs: Any) -> list[Any]:
        with openai.OpenAI(api_key="k", base_url=server.base_url) as client:
            create: Any = longpole.wrap(client).responses.create
            return list(create(model=model, input="a secret question", stream=True, **kwargs))

    async def read(model: str, **kwargs: Any) -> list[Any]:
        async with openai.AsyncOpenAI(api_key="k", base_url=server.base_url) as client:
            create: Any = longpole.wrap(client).responses.create
            made = await create(model=model, input="a secret question", stream=True, **kwargs)
            return [event async for event in made]

    if request.param == "sync":
        return read_sync
    return lambda model, **kwargs: asyncio.run(read(model, **kwargs))


def test_a_stream_is_one_whole_span(stream: Any, server: Any, spans: Spans) -> None:
    stream("plain", temperature=0.5, max_output_tokens=64, service_tier="flex")
    assert spans[0].name == "chat plain"
    assert "stream_options" not in server.requests[0].body
    assert in_order(only(spans))
    assert untimed(spans[0]) == plain_stream() | TOLD | {
        keys.REQUEST_TEMPERATURE: 0.5,
        keys.REQUEST_MAX_TOKENS: 64,
        keys.SERVICE_TIER_REQUESTED: "flex",
        keys.FINISH_REASONS: ("completed",),
        keys.TOKENS_PER_CHUNK: 1.8,
        keys.FLAGS: ("hidden_reasoning",),
    }


def test_a_response_that_only_began_is_no_content(stream: Any, spans: Spans) -> None:
    stream("early-role")
    found = only(spans)
    waited = found[keys.TIME_TO_FIRST_CONTENT] - found[keys.TIME_TO_FIRST_CHUNK]
    assert waited >= WAIT_S * 0.7


def test_late_headers_and_retries(stream: Any, spans: Spans) -> None:
    stream("late-headers")
    stream("retry-twice")
    late, retried = (dict(span.attributes or {}) for span in spans)
    assert late[keys.TIME_TO_HEADERS] >= WAIT_S
    assert retried[keys.ATTEMPT_STATUS] == ("429", "429", "200")
    assert retried[keys.STREAM_STATE] == "completed"


def test_reasoning_comes_before_what_is_visible(stream: Any, spans: Spans) -> None:
    stream("reasoning")
    found = only(spans)
    assert found[keys.CHUNK_COUNT] == 4
    assert found[keys.TIME_TO_FIRST_VISIBLE] > found[keys.TIME_TO_FIRST_CONTENT]
    assert keys.FLAGS not in found


def test_a_tools_name_and_arguments_are_content(stream: Any, spans: Spans) -> None:
    stream("tool")
    found = only(spans)
    assert found[keys.CHUNK_COUNT] == 3
    assert "no_visible_text" in found[keys.FLAGS]
    assert keys.TIME_TO_FIRST_VISIBLE not in found


@pytest.mark.parametrize(
    ("model", "state", "reasons", "error_type"),
    [
        ("incomplete", "completed", ("max_output_tokens",), None),
        ("failed", "error", None, "rate_limit_exceeded"),
        ("error-event", "error", None, "server_error"),
        ("no-finish", "error", None, "incomplete_stream"),
    ],
)
def test_how_a_response_ended(
    stream: Any, spans: Spans, model: str, state: str, reasons: Any, error_type: str | None
) -> None:
    stream(model)  # the client raises for none of these
    found = only(spans)
    assert found[keys.STREAM_STATE] == state
    assert found.get(keys.FINISH_REASONS) == reasons
    assert found.get(keys.ERROR_TYPE) == error_type
    assert (spans[0].status.status_code is StatusCode.ERROR) == (state == "error")


def test_unknown_tokens_stay_unknown(stream: Any, spans: Spans) -> None:
    stream("no-usage")
    assert only(spans)[keys.FLAGS] == ("tokens_unknown",)
    assert keys.OUTPUT_TOKENS not in only(spans)


class Answer(BaseModel):
    answer: int


def test_whole_responses_in_every_form(client: openai.OpenAI, spans: Spans) -> None:
    asked: Any = {"model": "plain", "input": "x"}
    made: Any = client.responses
    assert made.create(**asked).output_text == '{"answer": 42}'
    assert made.parse(**asked, text_format=Answer).output_parsed == Answer(answer=42)
    assert made.with_raw_response.create(**asked).parse().id == "resp_1"
    with made.with_streaming_response.create(**asked) as response:
        assert response.json()["id"] == "resp_1"
    whole = {
        key: value
        for key, value in plain_stream().items()
        if key not in (keys.CHUNK_COUNT, keys.STREAM_STATE)
    }
    assert len(spans) == 4
    for span in spans:
        assert untimed(span) == whole | TOLD | {
            keys.REQUEST_STREAM: False,
            keys.FINISH_REASONS: ("completed",),
            keys.FLAGS: ("not_streamed",),
        }
    assert not longpole.stats().num_internal_errors


def test_a_whole_response_that_failed_is_an_error(client: openai.OpenAI, spans: Spans) -> None:
    assert client.responses.create(model="failed", input="x").status == "failed"
    assert only(spans)[keys.ERROR_TYPE] == "server_error"
    assert spans[0].status.status_code is StatusCode.ERROR


def test_the_helper_gives_the_final_response(client: openai.OpenAI, spans: Spans) -> None:
    with client.responses.stream(model="plain", input="x") as stream:
        assert stream.get_final_response().id == "resp_1"
    assert only(spans)[keys.STREAM_STATE] == "completed"
    assert only(spans)[keys.CHUNK_COUNT] == 10


def test_no_text_is_in_a_span(stream: Any, spans: Spans) -> None:
    for model in ("plain", "reasoning", "tool", "failed"):
        stream(model)
    text = json.dumps([untimed(span) for span in spans])
    assert not any(word in text for word in ("secret", "w1 ", "let me see", "search", "boom"))
