"""As test_captured, for LiteLLM and Amazon Bedrock, and for prompts of many shapes."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import boto3
import pytest
from fake_bedrock import PARTS, FakeBedrock

import longpole
from longpole import settings
from longpole.testing import Spans
from longpole.vocab import keys

WORDS = "".join(f"w{i} " for i in range(10))
QUESTION = "a secret question"
CONTENT = (keys.INPUT_MESSAGES, keys.OUTPUT_MESSAGES, keys.SYSTEM_INSTRUCTIONS)
pytestmark = pytest.mark.filterwarnings(  # LiteLLM's own
    "ignore::DeprecationWarning",
    "ignore::ResourceWarning",
    "ignore::RuntimeWarning",
    "ignore::UserWarning",
    "ignore::pytest.PytestUnraisableExceptionWarning",
)


@pytest.fixture(params=["off", "hashed", "captured"])
def mode(request: pytest.FixtureRequest) -> str:
    is_captured, is_hashed = request.param == "captured", request.param == "hashed"
    settings.put(settings.load(capture_content=is_captured, prefix_hashes=is_hashed))
    return str(request.param)


def check(spans: Spans, mode: str, answer: str, question: str = QUESTION) -> None:
    """The one span has what the mode says."""
    assert len(spans) == 1
    assert not longpole.stats().num_internal_errors
    found = dict(spans[0].attributes or {})
    assert (keys.PROMPT_CHAIN in found) == (mode == "hashed")
    if mode == "captured":
        asked = {"role": "user", "parts": [{"type": "text", "content": question}]}
        assert json.loads(found[keys.INPUT_MESSAGES]) == [asked]
        (message,) = json.loads(found[keys.OUTPUT_MESSAGES])
        assert message["parts"] == [{"type": "text", "content": answer}]
        reasons: Any = found[keys.FINISH_REASONS]
        assert message["finish_reason"] == reasons[0]
    else:
        assert not {*CONTENT, keys.TOOL_DEFINITIONS} & set(found)
        sent = spans[0].to_json()
        plain = ("secret", "w1 ", '"42"', '"42\\"', "answer")  # a hash may well begin with 42
        assert not [text for text in plain if text in sent]


# --- LiteLLM -------------------------------------------------------------------------------------


@pytest.fixture
def litellm(library: Any) -> Iterator[Any]:
    yield longpole.wrap(library)
    longpole.unwrap(library)


LITELLM: dict[str, Any] = {
    "completion": {"messages": [{"role": "user", "content": QUESTION}]},
    "text_completion": {"prompt": QUESTION},
    "responses": {"input": QUESTION},
}


@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("function", LITELLM)
def test_litellm(
    litellm: Any,
    server: Any,
    function: str,
    is_async: bool,
    is_streamed: bool,
    mode: str,
    spans: Spans,
) -> None:
    at = {"api_base": server.base_url, "api_key": "k", "stream": is_streamed}
    kind = "text-completion-openai" if function == "text_completion" else "openai"
    asked = {"model": f"{kind}/plain", **at, **LITELLM[function]}

    async def call() -> None:
        result = await getattr(litellm, f"a{function}")(**asked)
        if is_streamed:
            async for _ in result:
                pass

    if is_async:
        asyncio.run(call())
    else:
        result = getattr(litellm, function)(**asked)
        if is_streamed:
            list(result)
    whole = "a" if function == "text_completion" else '{"answer": 42}'
    is_made_up = function == "responses"  # LiteLLM makes events of a whole answer
    check(spans, mode, WORDS if is_streamed and not is_made_up else whole)


# --- Bedrock -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def bedrock() -> Iterator[FakeBedrock]:
    with FakeBedrock.serving() as server:
        yield server


@pytest.fixture
def client(bedrock: FakeBedrock) -> Iterator[Any]:
    made = boto3.client(
        "bedrock-runtime",
        region_name="us-east-1",
        endpoint_url=bedrock.base_url,
        aws_access_key_id="k",
        aws_secret_access_key="s",
    )
    with closing(made):
        yield longpole.wrap(made)


MESSAGES: Any = [{"role": "user", "content": [{"text": QUESTION}]}]
BODIES: dict[str, Any] = {
    "anthropic": {"messages": [{"role": "user", "content": QUESTION}], "max_tokens": 64},
    "amazon": {"messages": MESSAGES},
    "meta": {"prompt": QUESTION},
    "mistral": {"prompt": QUESTION},
    "cohere": {"message": QUESTION},
}


@pytest.mark.parametrize("is_streamed", [False, True])
def test_converse(client: Any, is_streamed: bool, mode: str, spans: Spans) -> None:
    if is_streamed:
        list(client.converse_stream(modelId="x.plain", messages=MESSAGES)["stream"])
    else:
        client.converse(modelId="x.plain", messages=MESSAGES)
    check(spans, mode, WORDS if is_streamed else "42")


@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize("family", PARTS)
def test_bodies_of_each_family(
    client: Any, family: str, is_streamed: bool, mode: str, spans: Spans
) -> None:
    asked = {"modelId": f"{family}.plain", "body": json.dumps(BODIES[family])}
    if is_streamed:
        list(client.invoke_model_with_response_stream(**asked)["body"])
    else:
        client.invoke_model(**asked)["body"].read()
    check(spans, mode, WORDS if is_streamed else "42")


@pytest.mark.parametrize(
    ("scenario", "parts"),
    [
        (
            "tool",
            [{"type": "tool_call", "id": "t1", "name": "search", "arguments": {"q": 1}}],
        ),
        (
            "reasoning",
            [
                {"type": "reasoning", "content": "let me see"},
                {"type": "text", "content": "yes"},
            ],
        ),
    ],
)
def test_tools_and_reasoning_are_parts(
    client: Any, scenario: str, parts: Any, spans: Spans
) -> None:
    settings.put(settings.load(capture_content=True))
    list(client.converse_stream(modelId=f"x.{scenario}", messages=MESSAGES)["stream"])
    found: Any = dict(spans[0].attributes or {})
    (message,) = json.loads(found[keys.OUTPUT_MESSAGES])
    assert message["parts"] == parts


def test_an_image_is_hashed_and_its_data_never_sent(client: Any, spans: Spans) -> None:
    settings.put(settings.load(prefix_hashes=True, capture_content=True, hash_key="k"))
    for data in (b"secret one", b"secret two"):
        image = {"format": "png", "source": {"bytes": data}}
        messages = [{"role": "user", "content": [{"image": image}, {"text": "what is it?"}]}]
        client.converse(modelId="x.plain", messages=messages, system=[{"text": "Be terse."}])
    one, two = (dict(span.attributes or {}) for span in spans)
    assert one[keys.PROMPT_CHAIN] != two[keys.PROMPT_CHAIN]
    assert one[keys.PREFIX_HASH] == two[keys.PREFIX_HASH]
    assert one[keys.INPUT_MESSAGES] == two[keys.INPUT_MESSAGES]
    assert json.loads(str(one[keys.INPUT_MESSAGES]))[0]["parts"] == [
        {"type": "blob", "modality": "image", "mime_type": "image/png"},
        {"type": "text", "content": "what is it?"},
    ]
    assert json.loads(str(one[keys.SYSTEM_INSTRUCTIONS])) == [
        {"type": "text", "content": "Be terse."}
    ]
    assert "secret" not in spans[0].to_json()
    assert not longpole.stats().num_internal_errors
