"""Who opted in gets prompts and answers on the spans, redacted; nobody else gets any text."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import more_clients
import pytest
import stainless_clients
from exits import EXITS, Form, leave_by, leave_by_async, names

import longpole
from longpole import settings
from longpole.testing import Spans
from longpole.vocab import keys

pytestmark = pytest.mark.filterwarnings(  # of google-genai's own session
    "ignore:Inheritance class AiohttpClientSession:DeprecationWarning"
)
Case = stainless_clients.Case | more_clients.Case
CASES: list[Case] = [*stainless_clients.CASES, *more_clients.CASES]
CONTENT = (keys.INPUT_MESSAGES, keys.OUTPUT_MESSAGES, keys.SYSTEM_INSTRUCTIONS)
END = EXITS[0]
WORDS = "w0 w1 w2 [three] w4 w5 w6 w7 w8 w9 "


@pytest.fixture(scope="module")
def urls() -> Iterator[dict[tuple[Any, str], str]]:
    """By the kind of case, since both kinds know a Vertex AI, and the client's name."""
    with stainless_clients.serving() as some, more_clients.serving() as others:
        yield {
            **{(stainless_clients.Case, name): server.base_url for name, server in some.items()},
            **{(more_clients.Case, name): server.base_url for name, server in others.items()},
        }


@pytest.fixture
def _captured() -> None:
    def redact(text: str) -> str:
        return text.replace("secret", "[gone]").replace("w3", "[three]")

    settings.put(settings.load(capture_content=True, redact=redact))


async def call(case: Case, url: str, model: str, spans: Spans, *, is_async: bool) -> Any:
    """Read one stream to its end; the attributes of its span."""
    way = END._replace(model=model)
    if isinstance(case, stainless_clients.Case):
        client = stainless_clients.made(case.client, url, is_async)
        if is_async:
            async with client:
                await leave_by_async(way, case.form, client, spans)
        else:
            with client:
                leave_by(way, case.form, client, spans)
    else:
        async with more_clients.opened(case.client, url, is_async) as client:
            if is_async:
                await leave_by_async(way, case.form, client, spans)
            else:
                leave_by(way, case.form, client, spans)
    assert len(spans) == 1
    assert not longpole.stats().num_internal_errors
    return dict(spans[0].attributes or {})


def question(case: Case) -> str:
    has_messages = case.client in ("groq", "anthropic", "bedrock", "cohere", "mistral")
    has_messages |= isinstance(case, stainless_clients.Case) and case.client == "vertex"
    has_messages |= case.client == "openai" and case.form.name.startswith("chat-")
    has_messages |= case.client == "cohere-v1" and case.form.name == "v2"
    has_messages |= case.client == "ollama" and case.form.name == "chat"
    return "a [gone] question" if has_messages and case.form.name != "fim" else "x"


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("case", CASES, ids=names(CASES))
@pytest.mark.usefixtures("_captured")
async def test_the_prompt_and_the_answer_are_on_the_span(
    case: Case, is_async: bool, urls: Any, spans: Spans
) -> None:
    found = await call(case, urls[type(case), case.client], "plain", spans, is_async=is_async)
    asked = {"role": "user", "parts": [{"type": "text", "content": question(case)}]}
    assert json.loads(found[keys.INPUT_MESSAGES]) == [asked]
    assert json.loads(found[keys.OUTPUT_MESSAGES]) == [
        {
            "role": "assistant",
            "parts": [{"type": "text", "content": WORDS}],
            "finish_reason": found[keys.FINISH_REASONS][0],
        }
    ]
    assert "secret" not in spans[0].to_json()
    if case.form.name == "tool" and case.client in ("google", "vertex"):
        assert json.loads(found[keys.TOOL_DEFINITIONS]) == ["search(q: 'str') -> 'str': Search."]


HAS_TOOLS = [
    case for case in CASES if not case.form.name.startswith(("text", "fim", "generate", "tool"))
]


@pytest.mark.parametrize("case", HAS_TOOLS, ids=names(HAS_TOOLS))
@pytest.mark.usefixtures("_captured")
async def test_a_tool_call_is_a_part_with_its_arguments(
    case: Case, urls: Any, spans: Spans
) -> None:
    found = await call(case, urls[type(case), case.client], "tool", spans, is_async=False)
    (message,) = json.loads(found[keys.OUTPUT_MESSAGES])
    part = message["parts"][-1]
    assert (part["type"], part["name"], part["arguments"]) == ("tool_call", "search", {"q": 1})


THINKS = [
    case
    for case in CASES
    if not case.form.name.startswith(("text", "fim"))
    and (case.client != "cohere-v1" or case.form.name == "v2")
]


@pytest.mark.parametrize("case", THINKS, ids=names(THINKS))
@pytest.mark.usefixtures("_captured")
async def test_reasoning_is_a_part_before_the_text(case: Case, urls: Any, spans: Spans) -> None:
    found = await call(case, urls[type(case), case.client], "reasoning", spans, is_async=False)
    (message,) = json.loads(found[keys.OUTPUT_MESSAGES])
    assert message["parts"] == [
        {"type": "reasoning", "content": "let me seeyes"},
        {"type": "text", "content": "w0 w1 "},
    ]


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("case", CASES, ids=names(CASES))
async def test_hashes_of_the_prompt_tell_no_text(
    case: Case, is_async: bool, urls: Any, spans: Spans
) -> None:
    settings.put(settings.load(prefix_hashes=True))
    found = await call(case, urls[type(case), case.client], "one-token", spans, is_async=is_async)
    assert found[keys.PROMPT_NUM_BLOCKS] >= 1
    assert f"{keys.PROMPT_SEGMENT_PREFIX}messages.hash" in found
    assert not set(CONTENT) & set(found)
    assert "secret" not in spans[0].to_json()
    assert "w0" not in spans[0].to_json()


# --- streams that are left -----------------------------------------------------------------------

NUM_READ = 8


def is_plain(case: Case) -> bool:
    return case.form.name.endswith(("create", "stream", "chat"))


PLAIN = [case for case in CASES if is_plain(case)]


def read_some(form: Form, client: Any) -> None:
    stream = iter(form.read(form.then(form.make(client, "slow")).__enter__()))
    for _ in range(NUM_READ):
        next(stream)


@pytest.mark.parametrize("case", PLAIN, ids=names(PLAIN))
@pytest.mark.usefixtures("_captured")
async def test_of_a_dropped_stream_what_was_said_is_kept(
    case: Case, urls: Any, spans: Spans
) -> None:
    import gc

    url = urls[type(case), case.client]
    if isinstance(case, stainless_clients.Case):
        with stainless_clients.made(case.client, url, is_async=False) as client:
            read_some(case.form, client)
            gc.collect()
    else:
        async with more_clients.opened(case.client, url, is_async=False) as client:
            read_some(case.form, client)
            gc.collect()
    longpole.flush()
    for _ in range(100):
        if len(spans):
            break
        await asyncio.sleep(0.01)
    found = dict(spans[0].attributes or {})
    assert found[keys.STREAM_STATE] == "abandoned"
    (message,) = json.loads(found[keys.OUTPUT_MESSAGES])
    (part,) = message["parts"]
    assert part["content"].startswith("w0 w1 w2 [three] ")
    assert len(part["content"]) < 60
    assert message["finish_reason"] == ""


# --- whole answers -------------------------------------------------------------------------------

WHOLE: dict[str, str] = {
    "openai": '{"answer": 42}',
    "groq": "a",
    "anthropic": '{"answer": 42}',
    "google": "hello",
    "mistral": '{"answer": 42}',
    "cohere": "hello",
    "cohere-v1": "hello",
    "ollama": "hello",
}


async def whole(name: str, url: str, is_async: bool) -> None:
    if name in ("openai", "groq", "anthropic"):
        client = stainless_clients.made(name, url, is_async)
        asked: Any = {"model": "plain", "messages": stainless_clients.MESSAGES}
        if name == "anthropic":
            await more_clients.value(client.messages.create(max_tokens=64, **asked))
        else:
            await more_clients.value(client.chat.completions.create(**asked))
        await more_clients.value(client.close())
    else:
        async with more_clients.opened(name, url, is_async) as client:
            await more_clients.value(more_clients.whole(client, name, "plain", is_async))


@pytest.mark.parametrize("is_captured", [False, True])
@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("name", WHOLE)
async def test_a_whole_answer_is_on_the_span_only_when_asked_for(
    name: str, is_async: bool, is_captured: bool, urls: Any, spans: Spans
) -> None:
    if is_captured:
        settings.put(settings.load(capture_content=True))
    await whole(name, next(urls[kind, of] for kind, of in urls if of == name), is_async)
    assert len(spans) == 1
    found = dict(spans[0].attributes or {})
    assert not longpole.stats().num_internal_errors
    if is_captured:
        (message,) = json.loads(found[keys.OUTPUT_MESSAGES])
        assert message["parts"] == [{"type": "text", "content": WHOLE[name]}]
        assert message["finish_reason"] == found[keys.FINISH_REASONS][0]
        assert keys.INPUT_MESSAGES in found
    else:
        assert not {*CONTENT, keys.TOOL_DEFINITIONS} & set(found)
        assert "secret" not in spans[0].to_json()
        assert "hello" not in spans[0].to_json()
        assert "answer" not in spans[0].to_json()
