"""OpenAI's, Anthropic's and Groq's clients: every form of a stream, every way out, one span."""

from collections.abc import Iterator
from typing import Any

import pytest
from exits import ASYNC_EXITS, EXITS, Exit, leave_by, leave_by_async, names
from stainless_clients import CASES, Case, made, serving

import longpole
from longpole.testing import Spans
from longpole.vocab import keys

pytestmark = pytest.mark.filterwarnings(  # a stream that was dropped leaves its connection to gc
    "ignore:unclosed:ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)


@pytest.fixture(scope="module")
def urls() -> Iterator[dict[str, str]]:
    with serving() as servers:
        yield {name: server.base_url for name, server in servers.items()}


def check(case: Case, way: Exit, spans: Spans) -> None:
    """The one span that must be there, attribute by attribute."""
    assert len(spans) == 1
    found = dict(spans[0].attributes or {})
    assert spans[0].name == f"{case.operation} {way.model}"
    assert found[keys.OPERATION] == case.operation
    assert found[keys.PROVIDER] == case.provider
    assert found[keys.REQUEST_MODEL] == way.model
    assert found[keys.RESPONSE_MODEL] == f"{way.model}-2026"
    assert found[keys.RESPONSE_ID] in ("chatcmpl-1", "resp_1", "msg_1")
    assert found[keys.REQUEST_STREAM] is True
    assert found[keys.HTTP_STATUS] == 200
    assert found[keys.RESEND_COUNT] == 0
    # Of a dropped body that they did not read to its end, some libraries close the connection.
    is_dropped_body = way.name == "drop" and case.form.name.endswith(("-raw", "-streaming"))
    states = {way.state, "closed_early"} if is_dropped_body else {way.state}
    assert found[keys.STREAM_STATE] in states
    assert found.get(keys.ERROR_TYPE) in error_types(case, way)
    assert 0 < found[keys.TIME_TO_HEADERS] <= found[keys.TIME_TO_FIRST_CHUNK]
    is_whole = way.state == "completed"
    assert (keys.FINISH_REASONS in found) == is_whole
    if is_whole:
        assert found[keys.CHUNK_COUNT] == 10
    elif way.name == "end":
        assert found[keys.CHUNK_COUNT] == 3
    assert "secret" not in spans[0].to_json()
    assert "w1 " not in spans[0].to_json()
    assert longpole.stats().num_open == 0
    assert not longpole.stats().num_internal_errors


def error_types(case: Case, way: Exit) -> set[str | None]:
    if way.state == "error":
        return {
            "error-event": {case.code},
            "no-finish": {"incomplete_stream"},
            "cut": {"APIConnectionError", "RemoteProtocolError"},
        }[way.model]
    return {"CancelledError"} if way.name == "cancel" else {None}


@pytest.mark.parametrize("way", EXITS, ids=names(EXITS))
@pytest.mark.parametrize("case", CASES, ids=names(CASES))
def test_one_span(case: Case, way: Exit, urls: Any, spans: Spans) -> None:
    with made(case.client, urls[case.client], is_async=False) as client:
        leave_by(way, case.form, client, spans)
        check(case, way, spans)


@pytest.mark.parametrize("way", ASYNC_EXITS, ids=names(ASYNC_EXITS))
@pytest.mark.parametrize("case", CASES, ids=names(CASES))
async def test_one_span_async(case: Case, way: Exit, urls: Any, spans: Spans) -> None:
    async with made(case.client, urls[case.client], is_async=True) as client:
        await leave_by_async(way, case.form, client, spans)
        check(case, way, spans)
