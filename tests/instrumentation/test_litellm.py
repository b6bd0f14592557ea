import asyncio
import gc
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import openai
import pytest
from fake_anthropic import FakeAnthropic

import longpole
from longpole import health
from longpole.testing import Spans
from longpole.vocab import keys

MESSAGES: Any = [{"role": "user", "content": "a secret question"}]
pytestmark = pytest.mark.filterwarnings(  # LiteLLM's own
    "ignore::DeprecationWarning",
    "ignore::ResourceWarning",
    "ignore::RuntimeWarning",
    "ignore::UserWarning",
    "ignore::pytest.PytestUnraisableExceptionWarning",
)


@pytest.fixture
def litellm(library: Any) -> Iterator[Any]:
    yield longpole.wrap(library)
    longpole.unwrap(library)
    gc.collect()
    assert not health.internal_errors


@pytest.fixture(scope="module")
def claude() -> Iterator[FakeAnthropic]:
    with FakeAnthropic.serving() as server:
        yield server


class Calls:
    """The same calls by the sync and by the async functions."""

    def __init__(self, litellm: Any, server: Any | None, is_async: bool) -> None:
        self.litellm, self.server, self.is_async = litellm, server, is_async

    def __call__(self, function: str, model: str, **more: Any) -> Any:
        at = {"api_base": self.server.base_url, "api_key": "k"} if self.server else {}
        kwargs = {"model": model, **at, **more}
        if self.is_async:
            return asyncio.run(self._call(getattr(self.litellm, f"a{function}"), kwargs))
        result = getattr(self.litellm, function)(**kwargs)
        return list(result) if more.get("stream") else result

    async def _call(self, function: Any, kwargs: dict[str, Any]) -> Any:
        result = await function(**kwargs)
        return [chunk async for chunk in result] if kwargs.get("stream") else result

    def chat(self, scenario: str, **more: Any) -> Any:
        return self("completion", f"openai/{scenario}", messages=MESSAGES, **more)


@pytest.fixture(params=["sync", "async"])
def calls(request: pytest.FixtureRequest, litellm: Any, server: Any) -> Calls:
    return Calls(litellm, server, request.param == "async")


def only(spans: Spans) -> dict[str, Any]:
    assert len(spans) == 1
    return dict(spans[0].attributes or {})


def tokens(found: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(
        found.get(key) for key in (keys.INPUT_TOKENS, keys.CACHED_INPUT_TOKENS, keys.OUTPUT_TOKENS)
    )


def test_a_streamed_call_is_one_span_with_the_providers_facts(
    calls: Calls, server: Any, spans: Spans
) -> None:
    chunks = calls.chat("plain", stream=True, temperature=0.5, max_tokens=64)
    assert len(chunks) == 12
    assert all(chunk.choices for chunk in chunks)
    assert server.requests[0].body["stream_options"] == {"include_usage": True}
    found = only(spans)
    assert spans[0].name == "chat openai/plain"
    assert found[keys.PROVIDER] == "openai"
    assert (found[keys.SERVER_ADDRESS], found[keys.SERVER_PORT]) == ("127.0.0.1", server.port)
    assert found[keys.RESPONSE_MODEL] == "plain-2026"
    assert found[keys.RESPONSE_ID] == "chatcmpl-1"
    assert (found[keys.REQUEST_TEMPERATURE], found[keys.REQUEST_MAX_TOKENS]) == (0.5, 64)
    assert found[keys.FINISH_REASONS] == ("stop",)
    assert found[keys.STREAM_STATE] == "completed"
    assert found[keys.CHUNK_COUNT] == 10
    assert tokens(found) == (1456, 1280, 30)
    assert (found[keys.HTTP_STATUS], found[keys.RESEND_COUNT]) == (200, 0)
    assert 0 < found[keys.TIME_TO_HEADERS] <= found[keys.TIME_TO_FIRST_CHUNK]
    assert keys.FLAGS not in found
    assert "traceparent" in server.requests[0].headers


def test_a_whole_call_has_tokens_and_no_stream_times(calls: Calls, spans: Spans) -> None:
    answer = calls.chat("plain")
    assert answer.choices[0].message.content == '{"answer": 42}'
    found = only(spans)
    assert tokens(found) == (1456, 1280, 30)
    assert found[keys.RESPONSE_MODEL] == "plain-2026"
    assert found[keys.SERVICE_TIER] == "default"
    assert found[keys.FLAGS] == ("not_streamed",)
    assert found[keys.HTTP_STATUS] == 200


@pytest.mark.parametrize("is_streamed", [False, True])
def test_counts_that_litellm_made_up_are_not_taken(
    calls: Calls, spans: Spans, is_streamed: bool
) -> None:
    calls.chat("no-usage", stream=is_streamed)
    assert tokens(only(spans)) == (None, None, None)


def test_an_application_that_asks_gets_its_usage_chunk(calls: Calls, spans: Spans) -> None:
    chunks = calls.chat("plain", stream=True, stream_options={"include_usage": True})
    assert chunks[-1].usage.prompt_tokens == 1456
    assert tokens(only(spans)) == (1456, 1280, 30)


def test_a_server_that_refuses_the_question_is_asked_once(
    calls: Calls, server: Any, spans: Spans
) -> None:
    calls.chat("no-stream-options", stream=True)
    calls.chat("no-stream-options", stream=True)
    assert ["stream_options" in request.body for request in server.requests] == [True, False, False]
    assert len(spans) == 2


def test_the_role_is_the_first_event_and_not_the_first_content(calls: Calls, spans: Spans) -> None:
    calls.chat("early-role", stream=True)
    found = only(spans)
    waited = found[keys.TIME_TO_FIRST_CONTENT] - found[keys.TIME_TO_FIRST_CHUNK]
    assert waited > 0


def test_tools_and_reasoning_are_content(calls: Calls, spans: Spans) -> None:
    calls.chat("tool", stream=True)
    calls.chat("reasoning", stream=True)
    tool, reasoning = (dict(span.attributes or {}) for span in spans)
    assert (tool[keys.CHUNK_COUNT], tool[keys.FINISH_REASONS]) == (2, ("tool_calls",))
    assert tool[keys.FLAGS] == ("no_visible_text",)
    assert reasoning[keys.CHUNK_COUNT] == 4
    assert reasoning[keys.TIME_TO_FIRST_VISIBLE] > reasoning[keys.TIME_TO_FIRST_CONTENT]


def test_retries_of_the_client_underneath_are_attempts(calls: Calls, spans: Spans) -> None:
    calls.chat("retry-twice", stream=True)
    found = only(spans)
    assert found[keys.ATTEMPT_STATUS] == ("429", "429", "200")
    assert found[keys.STREAM_STATE] == "completed"


def test_retries_of_litellm_are_attempts(calls: Calls, spans: Spans) -> None:
    with pytest.raises(openai.RateLimitError):
        calls.chat("unavailable", num_retries=2)
    found = only(spans)
    assert found[keys.RESEND_COUNT] >= 2
    assert set(found[keys.ATTEMPT_STATUS]) == {"429"}
    assert found[keys.ERROR_TYPE] == "RateLimitError"


def test_a_fallback_is_an_attempt_of_the_same_call(calls: Calls, spans: Spans) -> None:
    calls.chat("bad-request", fallbacks=[{"model": "openai/plain"}])
    found = only(spans)
    assert found[keys.ATTEMPT_STATUS] == ("400", "200")
    assert found[keys.RESPONSE_MODEL] == "plain-2026"


@pytest.mark.parametrize("scenario", ["cut", "error-event", "bad-request"])
def test_the_application_gets_litellms_own_exception(
    calls: Calls, spans: Spans, scenario: str
) -> None:
    with pytest.raises(openai.OpenAIError) as caught:
        calls.chat(scenario, stream=True)
    assert type(caught.value).__module__ == "litellm.exceptions"
    found = only(spans)
    assert found[keys.ERROR_TYPE] == type(caught.value).__name__
    assert found[keys.STREAM_STATE] == "error"


def test_the_other_functions(calls: Calls, spans: Spans) -> None:
    calls("text_completion", "openai/plain", prompt="a")
    calls("text_completion", "openai/plain", prompt="a", stream=True)
    calls("embedding", "openai/plain", input=["a"])
    calls("responses", "openai/plain", input="a")
    calls("responses", "openai/plain", input="a", stream=True)
    assert [span.name.split()[0] for span in spans] == [
        "text_completion",
        "text_completion",
        "embeddings",
        "chat",
        "chat",
    ]
    found = [dict(span.attributes or {}) for span in spans]
    assert [one[keys.INPUT_TOKENS] for one in found] == [1456, 1456, 7, 1456, 1456]
    assert found[1][keys.STREAM_STATE] == found[4][keys.STREAM_STATE] == "completed"
    assert found[1][keys.CHUNK_COUNT] == 10


@pytest.mark.parametrize("is_streamed", [False, True])
def test_an_anthropic_model_counts_cached_tokens_into_the_input(
    litellm: Any, claude: FakeAnthropic, spans: Spans, is_streamed: bool
) -> None:
    answer = litellm.completion(
        "anthropic/plain", MESSAGES, api_base=claude.base_url, api_key="k", stream=is_streamed
    )
    if is_streamed:
        list(answer)
    found = only(spans)
    assert found[keys.PROVIDER] == "anthropic"
    assert tokens(found) == (1456, 1280, 30)
    assert found[keys.CACHE_WRITE_TOKENS] == 76
    assert found[keys.HTTP_STATUS] == 200


def stream_of(calls: Any, server: Any) -> Any:
    return calls.completion(
        "openai/slow", MESSAGES, api_base=server.base_url, api_key="k", stream=True
    )


def test_leaving_a_stream_early_is_one_span(litellm: Any, server: Any, spans: Spans) -> None:
    stream = stream_of(litellm, server)
    kind = type(stream)
    assert (kind.__name__, kind.__module__) == (
        "CustomStreamWrapper",
        litellm.CustomStreamWrapper.__module__,
    )
    assert isinstance(stream, litellm.CustomStreamWrapper)
    next(stream)
    stream.close()
    assert only(spans)[keys.STREAM_STATE] == "closed_early"
    with suppress(KeyError), stream_of(litellm, server) as stream:
        next(stream)
        raise KeyError
    assert len(spans) == 2
    stream = stream_of(litellm, server)
    next(stream)
    del stream
    for _ in range(100):  # a thread of LiteLLM's holds it for a moment
        gc.collect()
        if len(spans) == 3:
            break
        time.sleep(0.05)
    states = [dict(span.attributes or {})[keys.STREAM_STATE] for span in spans]
    assert states == ["closed_early", "closed_early", "abandoned"]


async def test_a_cancelled_stream_is_closed_early(litellm: Any, server: Any, spans: Spans) -> None:
    async def read() -> None:
        stream = await litellm.acompletion(
            "openai/slow", MESSAGES, api_base=server.base_url, api_key="k", stream=True
        )
        async for _ in stream:
            started.set()

    started = asyncio.Event()
    task = asyncio.create_task(read())
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    gc.collect()
    assert only(spans)[keys.STREAM_STATE] == "closed_early"


def test_a_wrapped_client_underneath_does_not_count_twice(
    litellm: Any, server: Any, spans: Spans
) -> None:
    with openai.OpenAI(api_key="k", base_url=server.base_url) as client:
        litellm.completion("openai/plain", MESSAGES, client=longpole.wrap(client))
        list(litellm.completion("openai/plain", MESSAGES, client=client, stream=True))
    whole, streamed = (dict(span.attributes or {}) for span in spans)
    assert whole[keys.RESEND_COUNT] == streamed[keys.RESEND_COUNT] == 0
    assert tokens(whole) == tokens(streamed) == (1456, 1280, 30)


@pytest.mark.parametrize("is_async", [False, True])
def test_a_router_counts_each_call_once(
    litellm: Any, server: Any, spans: Spans, is_async: bool
) -> None:
    at = {"api_base": server.base_url, "api_key": "k"}
    router = litellm.Router(
        model_list=[
            {"model_name": "good", "litellm_params": {"model": "openai/plain", **at}},
            {"model_name": "bad", "litellm_params": {"model": "openai/bad-request", **at}},
        ],
        fallbacks=[{"bad": ["good"]}],
    )
    before = dict(vars(router))
    assert longpole.wrap(longpole.wrap(router)) is router
    calls = Calls(router, None, is_async)
    for model in ("good", "bad"):
        for is_streamed in (False, True):
            calls("completion", model, messages=MESSAGES, stream=is_streamed)
    found = [dict(span.attributes or {}) for span in spans]
    assert [tokens(one) for one in found] == [(1456, 1280, 30)] * 4
    assert [one[keys.RESEND_COUNT] for one in found] == [0, 0, 1, 1]
    assert [one[keys.REQUEST_MODEL] for one in found] == ["good", "good", "bad", "bad"]
    longpole.unwrap(router)
    assert vars(router) == before


def test_unwrap_restores_everything(library: Any, server: Any, spans: Spans) -> None:
    before = {name: vars(library)[name] for name in ("completion", "acompletion", "embedding")}
    creator = library.CustomStreamWrapper.chunk_creator
    longpole.unwrap(longpole.wrap(longpole.wrap(library)))
    assert {name: vars(library)[name] for name in before} == before
    assert library.CustomStreamWrapper.chunk_creator is creator
    assert "set_cache" not in vars(library.in_memory_llm_clients_cache)
    library.completion("openai/plain", MESSAGES, api_base=server.base_url, api_key="k")
    assert len(spans) == 0
    assert "traceparent" not in server.requests[-1].headers


def test_instrument_covers_the_module_and_new_routers(
    library: Any, server: Any, spans: Spans
) -> None:
    assert sys.modules["litellm"] is library
    at = {"model": "openai/plain", "api_base": server.base_url, "api_key": "k"}
    longpole.instrument("litellm")
    try:
        library.completion(messages=MESSAGES, **at)
        router = library.Router(model_list=[{"model_name": "m", "litellm_params": at}])
        router.completion("m", MESSAGES)
    finally:
        longpole.uninstrument()
    assert [span.name for span in spans] == ["chat openai/plain", "chat m"]
    library.completion(messages=MESSAGES, **at)
    assert len(spans) == 2
    longpole.unwrap(router)
