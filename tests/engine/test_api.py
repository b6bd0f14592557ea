"""Sampling, choices, forms, embeddings and tokens through OpenAI's own client."""

import json
import math
import sys
from collections.abc import Callable
from typing import Any

import httpx
import openai
import pytest

from longpole.vocab import keys
from longpole_engine.config import Speculation

MESSAGES: Any = [{"role": "user", "content": "Tell me a story"}]
GREEDY: dict[str, Any] = {"model": "tiny", "temperature": 0, "max_tokens": 12}
WARM: dict[str, Any] = {"model": "tiny", "temperature": 1, "max_tokens": 12, "seed": 40}


@pytest.fixture(scope="module")
def server(serve: Callable[..., Any]) -> Any:
    return serve(max_num_seqs=8, prefix_cache_mb=8, speculation=Speculation.NGRAM)


@pytest.fixture(scope="module")
def client(server: Any) -> Any:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as made:
        yield made


def refused(server: Any, path: str, body: object) -> dict[str, Any]:
    content = body if isinstance(body, bytes) else json.dumps(body)
    answer = httpx.post(server.url + path, content=content, timeout=30)
    assert answer.status_code == 400, answer.text
    error: dict[str, Any] = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["type"] == "invalid_request_error"
    return error


def test_choices_are_numbered_and_equal_single_requests(client: openai.OpenAI) -> None:
    many = client.chat.completions.create(messages=MESSAGES, n=4, **WARM)
    singles = [
        client.chat.completions.create(messages=MESSAGES, **{**WARM, "seed": 40 + n})
        for n in range(4)
    ]
    assert [choice.index for choice in many.choices] == [0, 1, 2, 3]
    texts = [choice.message.content for choice in many.choices]
    assert texts == [single.choices[0].message.content for single in singles]
    assert many.usage is not None
    assert many.usage.completion_tokens == sum(
        single.usage.completion_tokens for single in singles if single.usage
    )
    streamed: dict[int, str] = {}
    ends = []
    for chunk in client.chat.completions.create(messages=MESSAGES, n=4, stream=True, **WARM):
        choice = chunk.choices[0]
        streamed[choice.index] = streamed.get(choice.index, "") + (choice.delta.content or "")
        ends += [choice.index] if choice.finish_reason else []
    assert [streamed[n] for n in range(4)] == texts
    assert sorted(ends) == [0, 1, 2, 3]


def test_logprobs_of_a_chat_cover_its_text(client: openai.OpenAI) -> None:
    options: Any = {"messages": MESSAGES, "logprobs": True, "top_logprobs": 2, **GREEDY}
    whole = client.chat.completions.create(**options)
    chosen = whole.choices[0].logprobs
    assert chosen is not None
    assert chosen.content is not None
    data = b"".join(bytes(one.bytes or []) for one in chosen.content)
    assert data.decode("utf-8", "replace") == whole.choices[0].message.content
    for one in chosen.content:
        assert one.logprob == one.top_logprobs[0].logprob  # greedy
        assert one.top_logprobs[0].logprob >= one.top_logprobs[1].logprob
        assert -math.inf < one.logprob <= 0
    parts = [
        one
        for chunk in client.chat.completions.create(stream=True, **options)
        if chunk.choices[0].logprobs
        for one in chunk.choices[0].logprobs.content or []
    ]
    assert [part.bytes for part in parts] == [one.bytes for one in chosen.content]
    plain = client.chat.completions.create(messages=MESSAGES, **GREEDY)
    assert plain.choices[0].logprobs is None


def test_logprobs_of_a_completion_have_offsets(client: openai.OpenAI) -> None:
    whole = client.completions.create(prompt="Once", logprobs=3, **GREEDY)
    told = whole.choices[0].logprobs
    assert told is not None
    assert told.tokens
    assert told.top_logprobs
    assert told.text_offset
    assert len(told.tokens) == len(told.token_logprobs or []) == len(told.top_logprobs)
    lengths = [len(token) for token in told.tokens]
    assert told.text_offset == [sum(lengths[:at]) for at in range(len(lengths))]
    alone = client.completions.create(prompt="Once", logprobs=0, **GREEDY).choices[0].logprobs
    assert alone is not None
    assert set(map(str, alone.top_logprobs or [])) == {"{}"}


def test_bias_and_penalties_reach_the_model(server: Any, client: openai.OpenAI) -> None:
    (token,) = server.service.serving().engine.tokenizer.encode("e")
    forced = client.completions.create(prompt="Once", logit_bias={str(token): 100}, **GREEDY)
    assert forced.choices[0].text == "e" * 12
    varied = client.completions.create(
        prompt="Once", logit_bias={str(token): 20}, frequency_penalty=2, **GREEDY
    )
    assert varied.choices[0].text.count("e") < 12
    barred = client.completions.create(prompt="Once", logit_bias={str(token): -100}, **GREEDY)
    assert "e" not in [*barred.choices[0].text][:1]
    for name, value in (("repetition_penalty", 5.0), ("min_p", 0.9)):
        answer = client.completions.create(prompt="Once", extra_body={name: value}, **WARM)
        assert answer.choices[0].finish_reason


def test_the_best_of_several_and_of_a_search(client: openai.OpenAI) -> None:
    best = client.completions.create(prompt="Once", n=2, best_of=5, **WARM)
    assert [choice.index for choice in best.choices] == [0, 1]
    beams = client.completions.create(prompt="Once", n=2, best_of=4, **GREEDY)
    asked = client.completions.create(
        prompt="Once", n=2, best_of=4, extra_body={"use_beam_search": True}, **GREEDY
    )
    texts = [choice.text for choice in beams.choices]
    assert texts == [choice.text for choice in asked.choices]
    assert len(set(texts)) == 2


def test_a_schema_is_kept(client: openai.OpenAI) -> None:
    pytest.importorskip("llguidance")
    schema = {
        "type": "object",
        "properties": {
            "mood": {"enum": ["sad", "glad"]},
            "age": {"type": "integer", "maximum": 99},
        },
        "required": ["mood", "age"],
        "additionalProperties": False,
    }
    schema["properties"]["age"]["minimum"] = 1  # type: ignore[index]
    form: Any = {
        "type": "json_schema",
        "json_schema": {"name": "person", "schema": schema, "strict": True},
    }
    options: Any = {**WARM, "max_tokens": 80, "messages": MESSAGES, "response_format": form}
    answer = client.chat.completions.create(**options)
    found = json.loads(answer.choices[0].message.content or "")
    assert found["mood"] in ("sad", "glad")
    assert 1 <= found["age"] <= 99
    assert answer.choices[0].finish_reason == "stop"
    text = "".join(
        chunk.choices[0].delta.content or ""
        for chunk in client.chat.completions.create(stream=True, **options)
    )
    assert json.loads(text) == found


def test_without_the_extra_a_form_is_a_400(
    serve: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "llguidance", None)
    server = serve()
    error = refused(
        server,
        "/v1/chat/completions",
        {**GREEDY, "messages": MESSAGES, "response_format": {"type": "json_object"}},
    )
    assert error["param"] == "response_format"
    assert "longpole[structured]" in error["message"]


def test_embeddings_are_marked_and_alike_for_like_texts(server: Any, client: openai.OpenAI) -> None:
    tokens = server.service.serving().engine.tokenizer.encode("a tall tree")
    texts = ["a tall tree", "a tall tree!", "zzzzzzzz"]
    found = client.embeddings.create(model="tiny", input=texts)
    vectors = [one.embedding for one in found.data]
    assert [one.index for one in found.data] == [0, 1, 2]
    for vector in vectors:
        assert math.hypot(*vector) == pytest.approx(1, abs=1e-5)

    def alike(one: int, other: int) -> float:
        return sum(a * b for a, b in zip(vectors[one], vectors[other], strict=True))

    assert alike(0, 1) > alike(0, 2)
    (by_ids,) = client.embeddings.create(model="tiny", input=tokens, encoding_format="float").data
    assert by_ids.embedding == pytest.approx(vectors[0], abs=1e-6)
    body = httpx.post(f"{server.url}/v1/embeddings", json={"model": "tiny", "input": "x"}).json()
    assert body["pooling"] == "mean"
    assert body["usage"] == {"prompt_tokens": 1, "total_tokens": 1}


def test_tokens_are_those_of_the_prompt(server: Any, client: openai.OpenAI) -> None:
    url = f"{server.url}/tokenize"
    plain = httpx.post(url, json={"model": "tiny", "prompt": "Once upon"}).json()
    assert plain["tokens"] == server.service.serving().engine.tokenizer.encode("Once upon")
    assert plain["count"] == len(plain["tokens"])
    chat = httpx.post(url, json={"messages": MESSAGES}).json()
    answer = client.chat.completions.create(messages=MESSAGES, **GREEDY)
    assert answer.usage is not None
    assert chat["count"] == answer.usage.prompt_tokens


CHAT = "/v1/chat/completions"
SCHEMA = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "wibble"}}}


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"n": 0}, "n"),
        ({"n": 9}, "n"),
        ({"n": 2, "best_of": 1}, "best_of"),
        ({"best_of": 3, "stream": True}, "stream"),
        ({"use_beam_search": True, "best_of": 2, "temperature": 0.5}, "temperature"),
        ({"use_beam_search": True, "best_of": 2, "stop": "x"}, "stop"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"logprobs": 3}, "logprobs"),
        ({"logit_bias": {"512": 1}}, "logit_bias"),
        ({"logit_bias": {"-1": 1}}, "logit_bias"),
        ({"logit_bias": {"a": 1}}, "logit_bias"),
        ({"logit_bias": {"3": 101}}, "logit_bias"),
        ({"logit_bias": [3]}, "logit_bias"),
        ({"presence_penalty": -2.1}, "presence_penalty"),
        ({"frequency_penalty": 3}, "frequency_penalty"),
        ({"repetition_penalty": 0}, "repetition_penalty"),
        ({"min_p": 1.1}, "min_p"),
        ({"min_p": -0.1}, "min_p"),
        ({"top_k": -1}, "top_k"),
        ({"stop": "x" * 50_000}, "stop"),
        ({"seed": 1.5}, "seed"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"response_format": {"type": "xml"}}, "response_format"),
        ({"response_format": {"type": "json_schema"}}, "response_format"),
        ({"response_format": SCHEMA}, "response_format"),
        ({"logits_processors": []}, "logits_processors"),
    ],
)
def test_malformed_fields_are_refused_by_name(
    server: Any, change: dict[str, Any], param: str
) -> None:
    if param == "response_format":
        pytest.importorskip("llguidance")
    assert refused(server, CHAT, {**GREEDY, "messages": MESSAGES, **change})["param"] == param


@pytest.mark.parametrize("path", [CHAT, "/v1/completions", "/v1/embeddings", "/tokenize"])
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff\xfe{}",
        b'{"model": "tiny", "prompt": "\xc3"}',
        b'{"model": "tiny", "prompt": "\\ud800"}',
        b'{"temperature": NaN}',
        b'{"temperature": 1e999}',
        b'{"top_p": -Infinity}',
        b"[" * 9000,
    ],
)
def test_bodies_that_are_no_requests_are_refused(server: Any, path: str, body: bytes) -> None:
    refused(server, path, body)


def test_other_doors_refuse_in_the_same_shape(server: Any) -> None:
    for body in (
        {"model": "tiny"},
        {"model": "tiny", "input": []},
        {"model": "tiny", "input": ""},
        {"model": "tiny", "input": [""]},
        {"model": "tiny", "input": [9999]},
        {"model": "tiny", "input": "x " * 9000},
        {"model": "tiny", "input": "x", "dimensions": 4},
        {"model": "tiny", "input": "x", "encoding_format": "hex"},
    ):
        refused(server, "/v1/embeddings", body)
    for other in ({}, {"prompt": "x", "messages": MESSAGES}, {"prompt": "x", "wibble": 1}):
        refused(server, "/tokenize", other)
    for path, rest in (("/v1/embeddings", {"input": "x"}), ("/tokenize", {"prompt": "x"})):
        answer = httpx.post(server.url + path, json={"model": "gpt-9", **rest})
        assert answer.status_code == 404
        assert answer.json()["error"]["code"] == "model_not_found"


def test_what_was_drafted_is_in_the_span(server: Any, client: openai.OpenAI) -> None:
    (token,) = server.service.serving().engine.tokenizer.encode("o")
    before = len(server.server_spans(0))
    client.completions.create(
        prompt="Once", logit_bias={str(token): 100}, **{**GREEDY, "max_tokens": 30}
    )
    facts = server.server_spans(before + 1)[-1].attributes
    assert facts[keys.OUTPUT_TOKENS] == 30
    assert facts[keys.ENGINE_NUM_DRAFTED] >= facts[keys.ENGINE_NUM_ACCEPTED] > 10
    assert facts[keys.ENGINE_NUM_STEPS] == 30 - facts[keys.ENGINE_NUM_ACCEPTED]
