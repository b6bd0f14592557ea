"""Gemini's, Mistral's, Cohere's and Ollama's clients: every stream, every way out, one span."""

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from exits import ASYNC_EXITS, EXITS, Exit, leave_by, leave_by_async, names
from more_clients import CASES, FAKES, Case, opened

import longpole
from longpole.testing import Spans
from longpole.vocab import keys

pytestmark = pytest.mark.filterwarnings(  # google-genai's own session; dropped streams' sockets
    "ignore:Inheritance class AiohttpClientSession:DeprecationWarning",
    "ignore:unclosed:ResourceWarning",
    "ignore::pytest.PytestUnraisableExceptionWarning",
)


@pytest.fixture(scope="session")
def urls() -> Iterator[dict[str, str]]:
    with ExitStack() as stack:
        found = {name: stack.enter_context(cls.serving()) for name, cls in FAKES.items()}
        by_client = {"vertex": "google", "cohere-v1": "cohere"}
        yield {
            client: found[by_client.get(client, client)].base_url for client in (*FAKES, *by_client)
        }


def error_types(case: Case, way: Exit) -> set[str | None]:
    if way.state == "error":
        return {
            "error-event": {case.code},
            "no-finish": {"incomplete_stream"},
            "cut": {"RemoteProtocolError", "ClientPayloadError"},
        }[way.model]
    return {"CancelledError"} if way.name == "cancel" else {None}


def states(case: Case, way: Exit) -> set[str]:
    if way.state == "closed_early" and way.name != "cancel":
        return {case.left}
    # Of a dropped body that they did not read to its end, some libraries close the connection.
    is_dropped_body = way.name == "drop" and case.form.name == "raw"
    return {way.state, "closed_early"} if is_dropped_body else {way.state}


def check(case: Case, way: Exit, spans: Spans) -> None:
    """The one span that must be there, attribute by attribute."""
    assert len(spans) == 1
    found = dict(spans[0].attributes or {})
    model = None if case.form.name == "agents" else way.model
    assert spans[0].name == f"{case.operation} {model or ''}".strip()
    assert found[keys.OPERATION] == case.operation
    assert found[keys.PROVIDER] == case.provider
    assert found.get(keys.REQUEST_MODEL) == model
    has_model = not case.client.startswith("cohere")  # it never says
    assert found.get(keys.RESPONSE_MODEL) == (f"{way.model}-2026" if has_model else None)
    assert found.get(keys.RESPONSE_ID) == case.response_id
    assert found[keys.REQUEST_STREAM] is True
    assert found[keys.SERVER_ADDRESS] == "127.0.0.1"
    assert found[keys.SERVER_PORT] > 0
    assert found[keys.HTTP_STATUS] == 200
    assert found[keys.RESEND_COUNT] == 0
    assert found[keys.REQUEST_SIZE] > 10
    assert keys.CONNECTION_NEW in found
    assert found[keys.STREAM_STATE] in states(case, way)
    assert found.get(keys.ERROR_TYPE) in error_types(case, way)
    assert 0 < found[keys.TIME_TO_HEADERS] <= found[keys.TIME_TO_FIRST_CHUNK]
    if way.state == "completed":
        assert keys.FINISH_REASONS in found
        assert found[keys.CHUNK_COUNT] == 10
    elif way.name == "end":
        assert found[keys.CHUNK_COUNT] == 3
    assert "secret" not in spans[0].to_json()
    assert "w1 " not in spans[0].to_json()
    assert longpole.stats().num_open == 0
    assert not longpole.stats().num_internal_errors


@pytest.mark.parametrize("way", EXITS, ids=names(EXITS))
@pytest.mark.parametrize("case", CASES, ids=names(CASES))
async def test_one_span(case: Case, way: Exit, urls: Any, spans: Spans) -> None:
    async with opened(case.client, urls[case.client], is_async=False) as client:
        leave_by(way, case.form, client, spans)
        check(case, way, spans)


@pytest.mark.parametrize("way", ASYNC_EXITS, ids=names(ASYNC_EXITS))
@pytest.mark.parametrize("case", CASES, ids=names(CASES))
async def test_one_span_async(case: Case, way: Exit, urls: Any, spans: Spans) -> None:
    async with opened(case.client, urls[case.client], is_async=True) as client:
        await leave_by_async(way, case.form, client, spans)
        for _ in range(20 if case.left == "abandoned" else 0):
            await asyncio.sleep(0 if len(spans) else 0.01)  # the loop closes what was dropped
        check(case, way, spans)
