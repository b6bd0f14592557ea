"""OpenAI's other methods, and what hosts with a compatible API add to the protocol."""

from typing import Any

import openai
import pytest
from truth import only, untimed

import longpole
from longpole.providers import openai as provider
from longpole.reported import reported_cost
from longpole.testing import Spans
from longpole.vocab import keys

MESSAGES: Any = [{"role": "user", "content": "x"}]


def test_embeddings(client: openai.OpenAI, spans: Spans) -> None:
    made: Any = client.embeddings
    assert made.create(model="e", input="a secret").data[0].embedding == [0.5, 0.25]
    assert made.with_raw_response.create(model="e", input="a secret").parse().model == "e-2026"
    assert len(spans) == 2
    for span in spans:
        assert span.name == "embeddings e"
        assert untimed(span) == {
            keys.OPERATION: "embeddings",
            keys.PROVIDER: "openai",
            keys.SERVER_ADDRESS: "127.0.0.1",
            keys.REQUEST_MODEL: "e",
            keys.REQUEST_STREAM: False,
            keys.RESPONSE_MODEL: "e-2026",
            keys.HTTP_STATUS: 200,
            keys.RESEND_COUNT: 0,
            keys.INPUT_TOKENS: 7,
            keys.FLAGS: ("not_streamed",),
        }


async def test_async_embeddings(server: Any, spans: Spans) -> None:
    async with openai.AsyncOpenAI(api_key="k", base_url=server.base_url) as client:
        await longpole.wrap(client).embeddings.create(model="e", input="x")
    assert only(spans)[keys.INPUT_TOKENS] == 7


def test_completions(client: openai.OpenAI, server: Any, spans: Spans) -> None:
    assert client.completions.create(model="plain", prompt="x").choices[0].text == "a"
    chunks = list(client.completions.create(model="plain", prompt="x", stream=True))
    assert all(chunk.choices for chunk in chunks)
    assert server.requests[1].body["stream_options"] == {"include_usage": True}
    whole, streamed = (dict(span.attributes or {}) for span in spans)
    assert [span.name for span in spans] == ["text_completion plain"] * 2
    assert whole[keys.FINISH_REASONS] == streamed[keys.FINISH_REASONS] == ("stop",)
    assert whole[keys.OUTPUT_TOKENS] == streamed[keys.OUTPUT_TOKENS] == 30
    assert (streamed[keys.CHUNK_COUNT], streamed[keys.STREAM_STATE]) == (10, "completed")


@pytest.mark.parametrize(
    ("prompt", "num"), [("a", 2), (["a", "b"], 4), ([1, 2, 3], 2), ([[1, 2], [3]], 4)]
)
def test_a_completion_is_complete_when_each_prompts_answers_are(prompt: Any, num: int) -> None:
    body = {"model": "m", "prompt": prompt, "n": 2, "stream": True}
    asked = provider._completion(("/completions",), {"body": body})
    assert asked is not None
    assert asked.num_choices == num


def stream(client: openai.OpenAI, model: str) -> list[Any]:
    return list(client.chat.completions.create(model=model, messages=MESSAGES, stream=True))


def test_a_first_chunk_without_choices_is_no_content(client: openai.OpenAI, spans: Spans) -> None:
    stream(client, "filtered")
    found = only(spans)
    assert found[keys.CHUNK_COUNT] == 3
    assert (found[keys.RESPONSE_ID], found[keys.RESPONSE_MODEL]) == ("chatcmpl-1", "filtered-2026")


def test_a_chunk_with_nothing_in_it_passes(client: openai.OpenAI, spans: Spans) -> None:
    stream(client, "bare")
    assert only(spans)[keys.CHUNK_COUNT] == 3
    assert not longpole.stats().num_internal_errors


@pytest.mark.parametrize(
    ("model", "num_chunks", "is_visible"),
    [("thought", 2, True), ("custom-tool", 1, False), ("refused", 1, True)],
)
def test_other_deltas(
    client: openai.OpenAI, spans: Spans, model: str, num_chunks: int, is_visible: bool
) -> None:
    stream(client, model)
    found = only(spans)
    assert found[keys.CHUNK_COUNT] == num_chunks
    assert (keys.TIME_TO_FIRST_VISIBLE in found) == is_visible


def test_cache_hits_at_the_top_level_are_read(client: openai.OpenAI, spans: Spans) -> None:
    stream(client, "deepseek")
    found = only(spans)
    assert (found[keys.INPUT_TOKENS], found[keys.CACHED_INPUT_TOKENS]) == (1456, 1280)


@pytest.mark.parametrize("model", ["priced", "own-key"])
def test_a_cost_in_the_usage_is_told(client: openai.OpenAI, spans: Spans, model: str) -> None:
    stream(client, model)
    client.chat.completions.create(model=model, messages=MESSAGES)
    told = [dict(span.attributes or {})[keys.REPORTED_COST] for span in spans]
    assert told == [pytest.approx(0.00014)] * 2


@pytest.mark.parametrize(
    ("usage", "cost"),
    [
        ({}, None),
        ({"cost": 0}, 0.0),
        ({"cost": -1.0}, None),
        ({"cost": float("nan")}, None),
        ({"cost": "0.1"}, None),
        ({"cost": True}, None),
        ({"cost_in_usd_ticks": 25_000_000}, 0.0025),
        ({"cost": {"input_tokens_cost": 0.1, "total_cost": 0.4}}, 0.4),
        ({"cost": 0.1, "is_byok": True}, None),
    ],
)
def test_only_money_is_a_cost(usage: dict[str, Any], cost: float | None) -> None:
    assert reported_cost(usage) == cost


def test_counts_that_are_none_are_unknown(client: openai.OpenAI, spans: Spans) -> None:
    stream(client, "absurd")
    client.chat.completions.create(model="absurd", messages=MESSAGES)
    for span in spans:
        found = dict(span.attributes or {})
        counts = {keys.INPUT_TOKENS, keys.OUTPUT_TOKENS, keys.CACHED_INPUT_TOKENS}
        assert not counts & set(found)
    assert not longpole.stats().num_internal_errors


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://api.openai.com/v1", "openai"),
        ("https://mine.openai.azure.com/openai/v1", "azure.ai.openai"),
        ("https://api.deepseek.com", "deepseek"),
        ("https://api.x.ai/v1", "x_ai"),
        ("https://openrouter.ai/api/v1", "openrouter"),
        ("https://notapi.x.ai.example/v1", "openai"),
        ("http://10.0.0.7:8000/v1", "openai"),
    ],
)
def test_a_host_that_is_known_gives_the_providers_name(url: str, name: str) -> None:
    with openai.OpenAI(api_key="k", base_url=url) as client:
        assert provider.PROVIDER.name(client) == name


async def test_an_azure_client_is_azures(server: Any, spans: Spans) -> None:
    kwargs: Any = {"api_key": "k", "azure_endpoint": server.base_url, "api_version": "2026-01-01"}
    async with openai.AsyncAzureOpenAI(**kwargs) as client:
        made: Any = longpole.wrap(client)
        await made.responses.create(model="plain", input="x")
        await made.embeddings.create(model="plain", input="x")
        async with made.chat.completions.stream(model="plain", messages=MESSAGES) as stream:
            await stream.get_final_completion()
    names = [dict(span.attributes or {})[keys.PROVIDER] for span in spans]
    assert names == ["azure.ai.openai"] * 3


def test_a_part_of_a_client_is_no_client(client: openai.OpenAI, caplog: Any) -> None:
    part = client.embeddings
    longpole.wrap(part)
    assert "knows no openai.resources.embeddings.Embeddings" in caplog.text


def test_what_is_added_to_the_body_counts(client: openai.OpenAI, spans: Spans) -> None:
    client.chat.completions.create(
        model="plain", messages=MESSAGES, extra_body={"temperature": 0.25}
    )
    assert only(spans)[keys.REQUEST_TEMPERATURE] == 0.25


def test_a_client_that_is_moved_to_another_host_says_the_new_one(
    client: openai.OpenAI, server: Any, spans: Spans
) -> None:
    for host in ("127.0.0.1", "localhost", "127.0.0.1"):
        client.base_url = server.base_url.replace("127.0.0.1", host)
        client.embeddings.create(model="e", input="x")
    hosts = [(span.attributes or {})[keys.SERVER_ADDRESS] for span in spans]
    assert hosts == ["127.0.0.1", "localhost", "127.0.0.1"]
