"""The Gemini client's own ways: functions it runs, chats, blocked prompts, its HTTP layers."""

from collections.abc import Iterator
from typing import Any

import aiohttp
import pytest
from google import genai
from more_clients import PLAIN, facts, opened, serving, tokens, value
from opentelemetry.trace import StatusCode

import longpole
from longpole.testing import Spans
from longpole.vocab import keys

pytestmark = pytest.mark.filterwarnings(  # of google-genai's own session
    "ignore:Inheritance class AiohttpClientSession:DeprecationWarning"
)


@pytest.fixture(scope="module")
def fakes() -> Iterator[dict[str, Any]]:
    with serving() as found:
        yield found


@pytest.fixture(params=["sync", "async"])
def is_async(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "async")


@pytest.fixture
def gemini(fakes: Any) -> Iterator[genai.Client]:
    options: Any = {"base_url": fakes["google"].base_url}
    with genai.Client(api_key="k", http_options=options) as made:
        yield longpole.wrap(made)


def search(q: str) -> str:
    """Search."""
    return f"found {q}"


def test_functions_that_the_library_runs_lie_between_two_calls(
    gemini: genai.Client, spans: Spans
) -> None:
    with longpole.workflow("w"):
        gemini.models.generate_content(model="search", contents="x", config={"tools": [search]})
    first, second, root = spans
    assert (first.name, second.name) == ("generate_content search",) * 2
    assert [dict(span.attributes or {})[keys.OUTPUT_TOKENS] for span in (first, second)] == [30, 30]
    assert first.parent is not None
    assert first.parent == second.parent == root.context
    assert (first.end_time or 0) <= (second.start_time or 0)


def test_a_chat_is_one_call_a_turn(gemini: genai.Client, spans: Spans) -> None:
    chat = gemini.chats.create(model="plain")
    chat.send_message("x")
    assert len(list(chat.send_message_stream("y"))) == 12
    assert [dict(span.attributes or {})[keys.REQUEST_STREAM] for span in spans] == [False, True]


def test_gemini_tells_tier_and_processing_time(gemini: genai.Client, spans: Spans) -> None:
    config: Any = {"service_tier": "flex", "candidate_count": 1}
    gemini.models.generate_content(model="plain", contents="x", config=config)
    found = facts(spans)
    assert found[keys.SERVICE_TIER_REQUESTED] == found[keys.SERVICE_TIER] == "flex"
    assert found[keys.SERVER_PROCESSING] == 0.042


def test_a_blocked_prompt_is_an_answer(gemini: genai.Client, spans: Spans) -> None:
    gemini.models.generate_content(model="blocked", contents="x")
    found = facts(spans)
    assert found[keys.FINISH_REASONS] == ("SAFETY",)
    assert keys.ERROR_TYPE not in found


def test_geminis_own_json_is_read_where_it_is_handed_out(
    gemini: genai.Client, spans: Spans
) -> None:
    config: Any = {"should_return_http_response": True}
    result = gemini.models.generate_content(model="plain", contents="x", config=config)
    assert result.candidates is None
    found = facts(spans)
    assert tokens(found) == PLAIN["google"]
    assert found[keys.RESPONSE_MODEL] == "plain-2026"
    assert found[keys.FINISH_REASONS] == ("STOP",)


@pytest.mark.parametrize("name", ["google", "vertex"])
async def test_gemini_embeddings(name: str, fakes: Any, is_async: bool, spans: Spans) -> None:
    async with opened(name, fakes[name].base_url, is_async) as client:
        await value(client.models.embed_content(model="text-embedding-004", contents="x"))
    found = facts(spans)
    assert spans[0].name == "embeddings text-embedding-004"
    assert tokens(found) == (7, None, None, None, None)


async def test_without_aiohttp_the_httpx_client_of_each_loop_is_seen(
    fakes: Any, spans: Spans, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("google.genai._api_client.has_aiohttp", False)
    async with opened("google", fakes["google"].base_url, is_async=True) as client:
        stream = await client.models.generate_content_stream(model="plain", contents="x")
        assert len([chunk async for chunk in stream]) == 12
    found = facts(spans)
    assert found[keys.RESEND_COUNT] == 0
    assert found[keys.HTTP_STATUS] == 200
    assert found[keys.STREAM_STATE] == "completed"


async def test_a_stream_made_in_a_workflow_belongs_to_it_wherever_it_is_read(
    gemini: genai.Client, spans: Spans
) -> None:
    with longpole.workflow("w"):
        sync = gemini.models.generate_content_stream(model="plain", contents="x")
        later = await gemini.aio.models.generate_content_stream(model="plain", contents="x")
    assert len(list(sync)) == 12
    assert len([chunk async for chunk in later]) == 12
    await gemini.aio.aclose()
    root = next(span for span in spans if span.parent is None)
    assert [span.parent for span in spans if span is not root] == [root.context] * 2


async def test_the_async_part_wrapped_alone_or_twice_counts_once(fakes: Any, spans: Spans) -> None:
    options: Any = {"base_url": fakes["google"].base_url}
    client = genai.Client(api_key="k", http_options=options)
    longpole.wrap(client.aio)
    await client.aio.models.generate_content(model="plain", contents="x")
    longpole.wrap(client)
    await client.aio.models.generate_content(model="plain", contents="x")
    await client.aio.aclose()
    client.close()
    assert [dict(span.attributes or {})[keys.RESEND_COUNT] for span in spans] == [0, 0]


async def test_a_session_of_the_applications_own_is_hooked_and_left_as_it_was(
    fakes: Any, spans: Spans
) -> None:
    async with aiohttp.ClientSession() as session:
        options: Any = {"base_url": fakes["google"].base_url, "aiohttp_client": session}
        clients = [genai.Client(api_key="k", http_options=options) for _ in range(2)]
        for client in map(longpole.wrap, clients):  # each has connections of its own
            for _ in range(2):
                await client.aio.models.generate_content(model="plain", contents="x")
        assert len(session.trace_configs) == 1
        news = [dict(span.attributes or {})[keys.CONNECTION_NEW] for span in spans]
        assert news == [True, False] * 2
        longpole.unwrap(clients[0])
        assert len(session.trace_configs) == 1
        longpole.unwrap(clients[1])
        assert session.trace_configs == []
        for client in clients:
            assert client._api_client._httpx_client.event_hooks == {"request": [], "response": []}
            client.close()


async def test_a_server_that_is_not_there_is_an_attempt_without_answer(spans: Spans) -> None:
    retries = {"attempts": 2, "initial_delay": 0.01, "jitter": 0.0}
    options: Any = {"base_url": "http://127.0.0.1:9", "retry_options": retries}
    client = longpole.wrap(genai.Client(api_key="k", http_options=options))
    with pytest.raises(aiohttp.ClientConnectorError):
        await client.aio.models.generate_content(model="plain", contents="x")
    await client.aio.aclose()
    client.close()
    found = facts(spans)
    assert found[keys.ATTEMPT_STATUS] == ("no_answer", "no_answer")
    assert found[keys.ERROR_TYPE] == "ClientConnectorError"
    assert spans[0].status.status_code is StatusCode.ERROR
