"""Bodies that the application reads itself are followed, whoever reads them and however."""

import gzip
import json
from typing import Any

import httpx2
import openai
import pytest

import longpole
from longpole.testing import Spans
from longpole.vocab import keys

MESSAGES: Any = [{"role": "user", "content": "x"}]
ASKED: Any = {"include_usage": True}


def only(spans: Spans) -> dict[str, Any]:
    assert len(spans) == 1
    return dict(spans[0].attributes or {})


@pytest.fixture
async def aclient(server: Any) -> Any:
    async with openai.AsyncOpenAI(api_key="k", base_url=server.base_url) as made:
        yield longpole.wrap(made)


def call(client: Any, **kwargs: Any) -> Any:
    kwargs = {"model": "plain", "messages": MESSAGES, **kwargs}
    return client.chat.completions.with_streaming_response.create(**kwargs)


def is_right(found: dict[str, Any]) -> bool:
    assert found[keys.CHUNK_COUNT] == 10
    assert found[keys.RESPONSE_MODEL] == "plain-2026"
    assert found[keys.FINISH_REASONS] == ("stop",)
    assert 0 < found[keys.TIME_TO_HEADERS] <= found[keys.TIME_TO_FIRST_CHUNK]
    assert found[keys.TIME_TO_FIRST_CHUNK] <= found[keys.TIME_TO_FIRST_CONTENT]
    return bool(found[keys.STREAM_STATE] == "completed")


@pytest.mark.parametrize("read", ["iter_lines", "iter_bytes", "iter_text", "parse"])
def test_a_stream_is_told_from_its_bytes(client: Any, spans: Spans, read: str) -> None:
    with call(client, stream=True, stream_options=ASKED) as response:
        assert len(list(getattr(response, read)())) > 1
    found = only(spans)
    assert is_right(found)
    assert (found[keys.INPUT_TOKENS], found[keys.OUTPUT_TOKENS]) == (1456, 30)


async def test_an_async_stream_is_told_from_its_bytes(aclient: Any, spans: Spans) -> None:
    async with call(aclient, stream=True) as response:
        lines = [line async for line in response.iter_lines() if line.startswith("data: ")]
    assert len(lines) == 13
    assert is_right(only(spans))


@pytest.mark.parametrize("read", ["parse", "json", "read"])
def test_a_whole_body_is_told_from_its_bytes(client: Any, spans: Spans, read: str) -> None:
    with call(client) as response:
        getattr(response, read)()
    found = only(spans)
    assert found[keys.OUTPUT_TOKENS] == 30
    assert found[keys.FINISH_REASONS] == ("stop",)
    assert keys.STREAM_STATE not in found


async def test_an_async_whole_body(aclient: Any, spans: Spans) -> None:
    async with call(aclient) as response:
        await response.json()
    assert only(spans)[keys.INPUT_TOKENS] == 1456


def test_a_raw_response_read_by_its_bytes(client: openai.OpenAI, spans: Spans) -> None:
    raw = client.chat.completions.with_raw_response.create(
        model="plain", messages=MESSAGES, stream=True
    )
    assert b"".join(raw.http_response.iter_bytes()).endswith(b"data: [DONE]\n\n")
    assert is_right(only(spans))


@pytest.mark.parametrize(
    ("model", "state", "error"),
    [
        ("cut", "error", "RemoteProtocolError"),
        ("error-event", "error", "overloaded"),
        ("no-finish", "error", "incomplete_stream"),
    ],
)
def test_failures_inside_the_body_are_told(
    client: Any, spans: Spans, model: str, state: str, error: str
) -> None:
    try:
        with call(client, model=model, stream=True) as response:
            list(response.iter_lines())
    except httpx2.RemoteProtocolError:
        assert model == "cut"
    found = only(spans)
    assert (found[keys.STREAM_STATE], found[keys.ERROR_TYPE]) == (state, error)
    assert found[keys.CHUNK_COUNT] == 3


def test_a_body_left_unread_was_closed_early(client: Any, spans: Spans) -> None:
    with call(client, model="slow", stream=True) as response:
        next(response.iter_lines())
    assert only(spans)[keys.STREAM_STATE] == "closed_early"


def test_a_status_error_is_told_once(client: Any, spans: Spans) -> None:
    with pytest.raises(openai.BadRequestError), call(client, model="bad-request"):
        pass
    assert only(spans)[keys.HTTP_STATUS] == 400


@pytest.mark.parametrize("encoding", ["gzip", "br", "identity"])
def test_encoded_bodies(spans: Spans, encoding: str) -> None:
    document = {
        "id": "c",
        "model": "m",
        "object": "chat.completion",
        "created": 1,
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"content": "a"}}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5},
    }
    plain = json.dumps(document).encode()
    data = gzip.compress(plain) if encoding == "gzip" else plain

    def answer(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, headers={"content-encoding": encoding}, stream=_Parts(data))

    http_client = httpx2.Client(transport=httpx2.MockTransport(answer))
    with openai.OpenAI(api_key="k", http_client=http_client) as client:
        made = longpole.wrap(client).chat.completions.with_streaming_response
        with made.create(model="m", messages=MESSAGES) as response:
            assert b"".join(response.http_response.iter_raw()) == data
    found = only(spans)
    assert found.get(keys.OUTPUT_TOKENS) == (None if encoding == "br" else 2)


class _Parts(httpx2.SyncByteStream):
    def __init__(self, data: bytes) -> None:
        self._data = data

    def __iter__(self) -> Any:
        yield self._data[:20]
        yield self._data[20:]
