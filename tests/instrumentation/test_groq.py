"""Groq's client against a server that speaks its protocol."""

import asyncio
from collections.abc import Iterator
from typing import Any

import fake_groq
import groq
import pytest
from fake_server import WAIT_S
from truth import in_order, only, plain_stream, untimed

import longpole
from longpole.testing import Spans
from longpole.vocab import keys

MESSAGES: Any = [{"role": "user", "content": "a secret question"}]
TOLD = {
    keys.PROVIDER: "groq",
    keys.RESPONSE_ID: "chatcmpl-1",
    keys.FINISH_REASONS: ("stop",),
    keys.INPUT_TOKENS: 1456,
    keys.CACHED_INPUT_TOKENS: 1280,
    keys.OUTPUT_TOKENS: 30,
    keys.REASONING_TOKENS: 12,
    keys.ENGINE_QUEUE: 0.25,
    keys.ENGINE_PREFILL: 0.125,
    keys.ENGINE_DECODE: 0.5,
}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with fake_groq.FakeGroq.serving() as server:
        yield server.base_url


@pytest.fixture
def client(url: str) -> Iterator[groq.Groq]:
    with groq.Groq(api_key="k", base_url=url) as made:
        yield longpole.wrap(made)


@pytest.fixture(params=["sync", "async"])
def create(request: pytest.FixtureRequest, url: str) -> Any:
    """Makes one call, through the sync or the async client; of a stream the list of its chunks."""

    def make_sync(**kwargs: Any) -> Any:
        with groq.Groq(api_key="k", base_url=url) as client:
            made: Any = longpole.wrap(client).chat.completions.create(**kwargs)
            return list(made) if "stream" in kwargs else made

    async def make(**kwargs: Any) -> Any:
        async with groq.AsyncGroq(api_key="k", base_url=url) as client:
            made: Any = await longpole.wrap(client).chat.completions.create(**kwargs)
            return [chunk async for chunk in made] if "stream" in kwargs else made

    call = make_sync if request.param == "sync" else lambda **kwargs: asyncio.run(make(**kwargs))
    return lambda model, **kwargs: call(model=model, messages=MESSAGES, **kwargs)


def test_a_stream_is_one_whole_span(create: Any, spans: Spans) -> None:
    assert len(create("plain", stream=True, temperature=0.5, max_tokens=64)) == 12
    assert in_order(only(spans))
    assert untimed(spans[0]) == plain_stream() | TOLD | {
        keys.REQUEST_TEMPERATURE: 0.5,
        keys.REQUEST_MAX_TOKENS: 64,
        keys.TOKENS_PER_CHUNK: 1.8,
        keys.FLAGS: ("hidden_reasoning",),
    }


def test_a_whole_answer(create: Any, spans: Spans) -> None:
    create("plain", service_tier="flex")
    whole = {
        key: value
        for key, value in plain_stream().items()
        if key not in (keys.CHUNK_COUNT, keys.STREAM_STATE)
    }
    assert untimed(spans[0]) == whole | TOLD | {
        keys.REQUEST_STREAM: False,
        keys.SERVICE_TIER_REQUESTED: "flex",
        keys.SERVICE_TIER: "on_demand",
        keys.FLAGS: ("not_streamed",),
    }


def test_waits_are_seen(create: Any, spans: Spans) -> None:
    create("early-role", stream=True)
    create("late-headers", stream=True)
    create("retry-twice", stream=True)
    early, late, retried = (dict(span.attributes or {}) for span in spans)
    waited = early[keys.TIME_TO_FIRST_CONTENT] - early[keys.TIME_TO_FIRST_CHUNK]
    assert waited >= WAIT_S * 0.7
    assert late[keys.TIME_TO_HEADERS] >= WAIT_S
    assert retried[keys.ATTEMPT_STATUS] == ("429", "429", "200")


def test_reasoning_tools_and_missing_counts(create: Any, spans: Spans) -> None:
    for model in ("reasoning", "tool", "no-usage"):
        create(model, stream=True)
    reasoning, tool, no_usage = (dict(span.attributes or {}) for span in spans)
    assert reasoning[keys.CHUNK_COUNT] == 4
    assert reasoning[keys.TIME_TO_FIRST_VISIBLE] > reasoning[keys.TIME_TO_FIRST_CONTENT]
    assert (tool[keys.CHUNK_COUNT], tool[keys.FINISH_REASONS]) == (2, ("tool_calls",))
    assert no_usage[keys.FLAGS] == ("tokens_unknown",)


def test_a_stream_that_groq_stopped_is_an_error(create: Any, spans: Spans) -> None:
    create("stopped", stream=True)
    found = only(spans)
    assert (found[keys.STREAM_STATE], found[keys.ERROR_TYPE]) == ("error", "stream_error")
    assert "capacity" not in spans[0].to_json()


def test_embeddings_and_raw_forms(client: groq.Groq, spans: Spans) -> None:
    client.embeddings.create(model="e", input="x")
    asked: Any = {"model": "plain", "messages": MESSAGES}
    assert client.chat.completions.with_raw_response.create(**asked).parse().id == "chatcmpl-1"
    with client.chat.completions.with_streaming_response.create(**asked) as response:
        response.read()
    found = [dict(span.attributes or {}) for span in spans]
    assert [attributes[keys.OPERATION] for attributes in found] == ["embeddings", "chat", "chat"]
    assert [attributes[keys.INPUT_TOKENS] for attributes in found] == [7, 1456, 1456]
    assert not longpole.stats().num_internal_errors


def test_wrap_and_unwrap(url: str, spans: Spans) -> None:
    longpole.instrument("groq")
    try:
        with groq.Groq(api_key="k", base_url=url) as client:
            client.chat.completions.create(model="plain", messages=MESSAGES)
            copy = client.with_options(timeout=5)
            copy.chat.completions.create(model="plain", messages=MESSAGES)
            longpole.unwrap(client)
            longpole.unwrap(copy)
            client.chat.completions.create(model="plain", messages=MESSAGES)
    finally:
        longpole.uninstrument()
    assert len(spans) == 2
    assert client._client.event_hooks == {"request": [], "response": []}
