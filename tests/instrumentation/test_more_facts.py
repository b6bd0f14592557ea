"""What the spans of Gemini's, Mistral's, Cohere's and Ollama's clients say, against the servers."""

import asyncio
from collections.abc import Iterator
from typing import Any

import cohere
import ollama
import pytest
from fake_server import WAIT_S
from google import genai
from mistralai.client import Mistral
from mistralai.client.utils import BackoffStrategy, RetryConfig
from more_clients import (
    CASES,
    PLAIN,
    Case,
    facts,
    opened,
    serving,
    tokens,
    value,
    whole,
)
from opentelemetry.trace import StatusCode

import longpole
from longpole.testing import Spans
from longpole.vocab import keys

pytestmark = pytest.mark.filterwarnings(  # of google-genai's own session
    "ignore:Inheritance class AiohttpClientSession:DeprecationWarning"
)
STOPS = {"mistral": ("stop",), "ollama": ("stop",), "google": ("STOP",), "vertex": ("STOP",)}
FIRST = [case for case in CASES if case.form.name in ("stream", "chat", "raw", "generate")]


@pytest.fixture(scope="module")
def fakes() -> Iterator[dict[str, Any]]:
    with serving() as found:
        yield found


@pytest.fixture(params=["sync", "async"])
def is_async(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "async")


def read(case: Case, url: str, model: str, is_async: bool, spans: Spans) -> dict[str, Any]:
    """The span of one stream, read to its end."""

    async def take() -> None:
        async with opened(case.client, url, is_async) as client:
            stream = case.form.then(await value(case.form.make(client, model)))
            if is_async:
                async with stream as entered:
                    async for _ in entered:
                        pass
            else:
                with stream as entered:
                    for _ in entered:
                        pass

    asyncio.run(take())
    return facts(spans)


@pytest.fixture(params=FIRST, ids=lambda case: case.name)
def case(request: pytest.FixtureRequest) -> Case:
    found: Case = request.param
    return found


@pytest.fixture
def url(case: Case, fakes: Any) -> str:
    return str(fakes[case.client].base_url)


def test_plain(case: Case, url: str, is_async: bool, spans: Spans) -> None:
    found = read(case, url, "plain", is_async, spans)
    assert tokens(found) == PLAIN[case.client]
    assert found[keys.FINISH_REASONS] == STOPS.get(case.client, ("COMPLETE",))
    assert found[keys.CHUNK_COUNT] == len(found[keys.CHUNK_OFFSETS_US]) == 10
    assert found[keys.STREAM_STATE] == "completed"
    assert keys.ERROR_TYPE not in found
    assert (found.get(keys.FLAGS) == ("hidden_reasoning",)) == (PLAIN[case.client][4] == 12)


def test_the_first_event_is_not_the_first_content(
    case: Case, url: str, is_async: bool, spans: Spans
) -> None:
    found = read(case, url, "early-meta", is_async, spans)
    waited = found[keys.TIME_TO_FIRST_CONTENT] - found[keys.TIME_TO_FIRST_CHUNK]
    assert waited > WAIT_S * 0.3
    assert found[keys.CHUNK_COUNT] == 4


def test_late_headers(case: Case, url: str, is_async: bool, spans: Spans) -> None:
    found = read(case, url, "late-headers", is_async, spans)
    assert WAIT_S <= found[keys.TIME_TO_HEADERS] <= found[keys.TIME_TO_FIRST_CHUNK]
    assert found[keys.CHUNK_COUNT] == 3


def test_one_token(case: Case, url: str, is_async: bool, spans: Spans) -> None:
    found = read(case, url, "one-token", is_async, spans)
    assert (found[keys.INPUT_TOKENS], found[keys.OUTPUT_TOKENS]) == (5, 1)
    assert found[keys.FLAGS] == ("one_token",)
    assert keys.TIME_PER_OUTPUT_TOKEN not in found


def test_no_usage(case: Case, url: str, is_async: bool, spans: Spans) -> None:
    found = read(case, url, "no-usage", is_async, spans)
    assert tokens(found) == (None,) * 5
    assert found[keys.FLAGS] == ("tokens_unknown",)
    assert found[keys.STREAM_STATE] == "completed"


def test_a_tool_call_is_content_and_not_visible(
    case: Case, url: str, is_async: bool, spans: Spans
) -> None:
    found = read(case, url, "tool", is_async, spans)
    is_v2 = case.client == "cohere" or case.form.name == "v2"
    is_text = case.form.name == "generate"  # which knows no tools
    assert found[keys.CHUNK_COUNT] == (3 if is_v2 else 1)
    assert (keys.TIME_TO_FIRST_VISIBLE in found) == is_text


def test_reasoning_comes_before_what_is_visible(
    case: Case, url: str, is_async: bool, spans: Spans
) -> None:
    if case.client == "cohere-v1":
        pytest.skip("the protocol has no reasoning")
    found = read(case, url, "reasoning", is_async, spans)
    assert found[keys.CHUNK_COUNT] == 4
    assert found[keys.TIME_TO_FIRST_VISIBLE] > found[keys.TIME_TO_FIRST_CONTENT]
    assert keys.FLAGS not in found


def test_a_refusal_is_told_once(case: Case, url: str, is_async: bool, spans: Spans) -> None:
    with pytest.raises(Exception) as caught:  # noqa: PT011 - each library has its own
        read(case, url, "bad-request", is_async, spans)
    assert not isinstance(caught.value, AssertionError)
    found = facts(spans)
    known = {"google": "INVALID_ARGUMENT", "vertex": "INVALID_ARGUMENT"}
    assert found[keys.ERROR_TYPE] == known.get(case.client, type(caught.value).__name__)
    assert found[keys.HTTP_STATUS] == 400
    assert found[keys.STREAM_STATE] == "error"
    assert spans[0].status.status_code is StatusCode.ERROR


# --- whole answers and retries ------------------------------------------------------------------

RETRIES = {"retry_options": {"attempts": 4, "initial_delay": 0.02, "jitter": 0.0}}
BACKOFF = RetryConfig("backoff", BackoffStrategy(20, 40, 1.0, 5000), retry_connection_errors=False)


def call(name: str, url: str, model: str, is_async: bool) -> None:
    more: dict[str, Any] = {"google": RETRIES, "vertex": RETRIES}.get(name, {})
    if name == "mistral":
        more = {"retry_config": BACKOFF}

    async def made() -> None:
        async with opened(name, url, is_async, **more) as client:
            await value(whole(client, name, model, is_async))

    asyncio.run(made())


@pytest.mark.parametrize("name", list(PLAIN))
def test_a_whole_answer(name: str, fakes: Any, is_async: bool, spans: Spans) -> None:
    call(name, fakes[name].base_url, "plain", is_async)
    found = facts(spans)
    assert tokens(found) == PLAIN[name]
    assert found[keys.REQUEST_STREAM] is False
    assert found[keys.REQUEST_TEMPERATURE] == 0.5
    assert found[keys.REQUEST_MAX_TOKENS] == 64
    assert found[keys.FINISH_REASONS] == STOPS.get(name, ("COMPLETE",))
    assert found[keys.HTTP_STATUS] == 200
    assert keys.STREAM_STATE not in found
    assert keys.TIME_TO_FIRST_CONTENT not in found
    assert found[keys.FLAGS] == ("not_streamed",)


@pytest.mark.parametrize("name", [name for name in PLAIN if name != "ollama"])
def test_each_attempt_is_told(name: str, fakes: Any, is_async: bool, spans: Spans) -> None:
    fakes[name]._tries.clear()
    call(name, fakes[name].base_url, "retry-twice", is_async)
    found = facts(spans)
    assert found[keys.ATTEMPT_STATUS] == ("429", "429", "200")
    assert found[keys.RESEND_COUNT] == 2
    assert found[keys.RETRY_WAIT] > 0.03
    assert found[keys.OUTPUT_TOKENS] == 30
    assert keys.ERROR_TYPE not in found


async def test_the_trace_id_reaches_a_private_server(fakes: Any, spans: Spans) -> None:
    for name in PLAIN:
        for is_async in (False, True):
            fakes[name].requests.clear()
            async with opened(name, fakes[name].base_url, is_async) as client:
                await value(whole(client, name, "plain", is_async))
            context = spans[-1].context
            assert context is not None
            assert f"{context.span_id:016x}" in fakes[name].requests[0].headers["traceparent"]


# --- wrapping -----------------------------------------------------------------------------------

CLASSES: dict[str, list[Any]] = {
    "google_genai": [lambda url: genai.Client(api_key="k", http_options={"base_url": url})],
    "mistralai": [lambda url: Mistral(api_key="k", server_url=url)],
    "ollama": [ollama.Client, ollama.AsyncClient],
    "cohere": [
        lambda url: cohere.Client("k", base_url=url),
        lambda url: cohere.ClientV2("k", base_url=url),
        lambda url: cohere.AsyncClient("k", base_url=url),
        lambda url: cohere.AsyncClientV2("k", base_url=url),
    ],
}


def ours(client: Any) -> set[str]:
    """Attributes below a client that hold something of ours."""
    found, queue, seen = set(), [("", client)], set()
    while queue:
        path, owner = queue.pop()
        if id(owner) in seen or path.count(".") > 3:
            continue
        seen.add(id(owner))
        for name, inside in vars(owner).items():
            home = getattr(inside, "__globals__", {}).get("__name__", "")
            if name == "_longpole_undo" or home.startswith("longpole."):
                found.add(f"{path}.{name}")
            elif hasattr(inside, "__dict__") and not isinstance(inside, type):
                queue.append((f"{path}.{name}", inside))
    return found


@pytest.mark.parametrize("package", list(CLASSES))
def test_instrument_wraps_new_clients_whole(package: str) -> None:
    longpole.instrument(package)
    try:
        made = [make("http://127.0.0.1:1") for make in CLASSES[package]]
    finally:
        longpole.uninstrument()
    again = [make("http://127.0.0.1:1") for make in CLASSES[package]]
    assert not longpole.stats().num_internal_errors
    for first, second in zip(made, again, strict=True):
        assert ours(second) == set()
        assert ours(longpole.wrap(second)) == ours(first) != set()
        assert ours(longpole.unwrap(first)) == set()


@pytest.mark.parametrize("name", list(PLAIN))
async def test_unwrap_leaves_no_trace(name: str, fakes: Any, spans: Spans) -> None:
    async with opened(name, fakes[name].base_url, is_async=False) as client:
        whole(client, name, "plain", is_async=False)
        longpole.unwrap(client)
        assert ours(client) == set()
        whole(client, name, "plain", is_async=False)
        form = next(case.form for case in CASES if case.client == name)
        stream = form.make(client, "plain")
        assert len(list(stream)) >= 10
    assert len(spans) == 1
