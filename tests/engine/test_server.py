"""The HTTP API through OpenAI's own client, and what it refuses."""

import asyncio
import json
import threading
from collections.abc import Callable
from typing import Any

import httpx
import openai
import pytest
from opentelemetry.trace import StatusCode

from longpole.vocab import keys
from longpole_engine.models.loader import load
from longpole_engine.server import service

MESSAGES: Any = [{"role": "user", "content": "Tell me a story"}]
GREEDY: dict[str, Any] = {"model": "tiny", "temperature": 0, "max_tokens": 12}
LONG: dict[str, Any] = {
    "model": "tiny",
    "max_tokens": 3000,
    "temperature": 0,
    "extra_body": {"ignore_eos": True},
}


@pytest.fixture(scope="module")
def server(serve: Callable[..., Any]) -> Any:
    return serve(max_model_tokens=4096, prefix_cache_mb=8)


@pytest.fixture
def client(server: Any) -> Any:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as made:
        yield made


def post(server: Any, body: object, path: str = "/v1/chat/completions") -> httpx.Response:
    content = body if isinstance(body, str | bytes) else json.dumps(body)
    return httpx.post(server.url + path, content=content, timeout=30)


def refused(answer: httpx.Response, status: int) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    error: dict[str, Any] = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return error


def test_a_stream_holds_what_the_whole_answer_holds(client: openai.OpenAI) -> None:
    whole = client.chat.completions.create(messages=MESSAGES, **GREEDY)
    chunks = list(
        client.chat.completions.create(
            messages=MESSAGES, stream=True, stream_options={"include_usage": True}, **GREEDY
        )
    )
    first, *_, last, account = chunks
    assert first.choices[0].delta.role == "assistant"
    text = "".join(c.choices[0].delta.content or "" for c in chunks[:-1])
    assert text == whole.choices[0].message.content
    assert last.choices[0].finish_reason == whole.choices[0].finish_reason == "length"
    assert account.choices == []
    assert account.usage is not None
    assert whole.usage is not None
    assert account.usage.completion_tokens == whole.usage.completion_tokens == 12
    assert account.usage.prompt_tokens == whole.usage.prompt_tokens
    assert account.usage.prompt_tokens_details is not None
    assert account.usage.prompt_tokens_details.cached_tokens == 16
    assert len({chunk.id for chunk in chunks}) == 1


def test_a_stream_without_options_has_no_account_and_ends_with_done(server: Any) -> None:
    body = {**GREEDY, "messages": MESSAGES, "stream": True}
    lines = [line for line in post(server, body).text.split("\n\n") if line]
    assert lines[-1] == "data: [DONE]"
    assert lines.count("data: [DONE]") == 1
    assert not any("usage" in json.loads(line[6:]) for line in lines[:-1])


async def test_the_async_client_works_alike(server: Any, client: openai.OpenAI) -> None:
    expected = client.chat.completions.create(messages=MESSAGES, **GREEDY)
    async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none") as made:
        wholes = await asyncio.gather(
            *(made.chat.completions.create(messages=MESSAGES, **GREEDY) for _ in range(6))
        )
        stream = await made.chat.completions.create(messages=MESSAGES, stream=True, **GREEDY)
        text = "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
    for answer in (text, *(whole.choices[0].message.content for whole in wholes)):
        assert answer == expected.choices[0].message.content


def test_an_answer_can_be_sent_back_as_history(client: openai.OpenAI) -> None:
    first = client.chat.completions.create(messages=MESSAGES, **GREEDY)
    history = [*MESSAGES, first.choices[0].message, {"role": "user", "content": "And then?"}]
    second = client.chat.completions.create(messages=history, **GREEDY)
    assert first.usage is not None
    assert second.usage is not None
    assert second.usage.prompt_tokens > first.usage.prompt_tokens


async def test_many_clients_of_whom_some_leave_end_with_an_empty_engine(
    serve: Callable[..., Any],
) -> None:
    server = serve(max_num_seqs=3, max_queue=64)
    engine = server.service.serving().engine
    async with httpx.AsyncClient(base_url=server.url, timeout=30) as http:

        async def call(number: int) -> int:
            body = {"model": "tiny", "prompt": "ab" * number, "max_tokens": 60, "seed": number}
            request = http.post("/v1/completions", json={**body, "stream": number % 2 == 0})
            try:
                async with asyncio.timeout(0.02 if number % 3 == 0 else 30):
                    return (await request).status_code
            except TimeoutError:
                return 0

        codes = await asyncio.gather(*(call(number) for number in range(1, 41)))
        assert {code for n, code in enumerate(codes, 1) if n % 3} == {200}
    while engine.num_running or engine.num_waiting:
        pass
    assert len(server.server_spans(sum(code == 200 for code in codes))) <= 40
    assert engine.num_failed_steps == 0


def test_completions_take_raw_text_and_add_nothing(server: Any, client: openai.OpenAI) -> None:
    tokens = server.service.serving().engine.tokenizer.encode("Once upon")
    by_text = client.completions.create(prompt="Once upon", **GREEDY)
    by_ids = client.completions.create(prompt=tokens, **GREEDY)
    streamed = client.completions.create(prompt=["Once upon"], stream=True, **GREEDY)
    assert by_text.usage is not None
    assert by_text.usage.prompt_tokens == len(tokens)
    assert by_text.choices[0].text == by_ids.choices[0].text
    assert "".join(chunk.choices[0].text for chunk in streamed) == by_text.choices[0].text
    unlimited = client.completions.create(model="tiny", prompt="x", extra_body={"ignore_eos": True})
    assert unlimited.usage is not None
    assert unlimited.usage.completion_tokens == 16


def test_stop_strings_never_leak(client: openai.OpenAI) -> None:
    free = client.chat.completions.create(messages=MESSAGES, **{**GREEDY, "max_tokens": 40})
    text = free.choices[0].message.content or ""
    stop = text[9:14]
    chunks = client.chat.completions.create(
        messages=MESSAGES, stop=[stop, "\x00"], stream=True, **{**GREEDY, "max_tokens": 40}
    )
    shown = [chunk.choices[0].delta.content or "" for chunk in chunks]
    assert "".join(shown) == text[: text.index(stop)]


def test_models_and_health(server: Any, client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["tiny"]
    assert httpx.get(f"{server.url}/health").json() == {"status": "ok", "model": "tiny"}


@pytest.mark.parametrize(
    ("change", "param", "words"),
    [
        ({"tools": [{"type": "function"}]}, "tools", "not supported"),
        ({"service_tier": "priority"}, "service_tier", "not supported"),
        ({"wibble": 1}, "wibble", "not supported"),
        ({"stream_options": {"wibble": 1}}, "stream_options", "not supported"),
        ({"temperature": -0.1}, "temperature", "greater"),
        ({"temperature": "hot"}, "temperature", "number"),
        ({"top_p": 0}, "top_p", "greater"),
        ({"max_tokens": 0}, "max_tokens", "greater"),
        ({"max_tokens": 4090}, "max_tokens", "limit"),
        ({"max_tokens": True}, "max_tokens", "integer"),
        ({"seed": 2**63}, "seed", "less"),
        ({"stop": ""}, "stop", "at least 1"),
        ({"stop": ["a"] * 5}, "stop", "at most 4"),
        ({"messages": []}, "messages", "at least 1"),
        ({"messages": None}, "messages", "list"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages", "'system'"),
        ({"messages": [{"role": "user", "content": "x " * 9000}]}, "prompt", "limit"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "text": ""}]}]},
            "messages",
            "'text'",
        ),
    ],
)
def test_what_is_not_done_is_refused_by_name(
    server: Any, change: dict[str, Any], param: str, words: str
) -> None:
    error = refused(post(server, {**GREEDY, "messages": MESSAGES, **change}), 400)
    assert error["type"] == "invalid_request_error"
    assert error["param"] == param
    assert words in error["message"]


@pytest.mark.parametrize(
    "body", ["", "{", "[]", "null", b"\xff\xfe", '{"temperature": NaN}', "[" * 5000]
)
def test_a_body_that_is_no_request_is_refused(server: Any, body: str | bytes) -> None:
    refused(post(server, body), 400)


def test_other_refusals_have_the_same_shape(server: Any) -> None:
    body = {**GREEDY, "messages": MESSAGES}
    assert refused(post(server, {**body, "model": "gpt-9"}), 404)["code"] == "model_not_found"
    refused(post(server, b" " * 100_001), 413)
    refused(httpx.get(f"{server.url}/v1/nothing"), 404)
    refused(httpx.get(f"{server.url}/v1/chat/completions"), 405)
    for prompt in ("", [], [10**6], [-1], ["a", "b"]):
        refused(post(server, {**GREEDY, "prompt": prompt}, "/v1/completions"), 400)


def test_fields_that_ask_for_nothing_are_accepted(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        messages=[
            {"role": "developer", "content": "Be brief"},
            {"role": "user", "content": [{"type": "text", "text": "Tell me"}]},
        ],
        model="tiny",
        max_completion_tokens=3,
        n=1,
        user="someone",
        metadata={"team": "x"},
        service_tier="auto",
        presence_penalty=0,
        logit_bias={},
        response_format={"type": "text"},
        seed=5,
        top_p=0.9,
    )
    assert answer.usage is not None
    assert answer.usage.completion_tokens <= 3


def test_a_request_becomes_spans_under_its_callers_trace(serve: Callable[..., Any]) -> None:
    server = serve()
    parent = f"00-{'12' * 16}-{'34' * 8}-01"
    for _ in range(2):
        httpx.post(
            f"{server.url}/v1/chat/completions",
            json={**GREEDY, "messages": MESSAGES, "stream": True},
            headers={"traceparent": parent},
        )
    cold, warm = server.server_spans(2)
    assert cold.context.trace_id == int("12" * 16, 16)
    assert cold.parent.span_id == int("34" * 8, 16)
    assert cold.attributes[keys.COLD_START] is True
    assert keys.COLD_START not in warm.attributes
    for span in (cold, warm):
        stages = server.stages(span)
        assert [stage.name for stage in stages] == [
            "admission",
            "tokenize",
            "queue",
            "prefill",
            "first_decode",
            "decode",
            "stream",
        ]
        edges = [stages[0].start_time, *(stage.end_time for stage in stages)]
        assert edges[:-1] == [stage.start_time for stage in stages]
        assert (edges[0], edges[-1]) == (span.start_time, span.end_time)
        facts = span.attributes
        assert facts[keys.OPERATION] == "chat"
        assert facts[keys.PROVIDER] == "longpole"
        assert facts[keys.REQUEST_STREAM] is True
        assert facts[keys.OUTPUT_TOKENS] == 12
        assert facts[keys.ENGINE_NUM_STEPS] == 12
        assert facts[keys.STREAM_STATE] == "completed"
        assert facts[keys.HTTP_STATUS] == 200
    assert [span.attributes[keys.CACHE_STATE] for span in (cold, warm)] == ["miss", "hit"]
    assert warm.attributes[keys.CACHED_INPUT_TOKENS] == 16
    text = " ".join(str(span.to_json()) for span in server.exporter.get_finished_spans())
    assert "story" not in text  # no prompt text in spans


def test_a_refused_request_closes_with_the_stages_it_reached(serve: Callable[..., Any]) -> None:
    server = serve()
    post(server, "{")
    post(server, {**GREEDY, "messages": MESSAGES, "max_tokens": 4000})
    broken, too_long = server.server_spans(2)
    assert [stage.name for stage in server.stages(broken)] == ["admission"]
    assert [stage.name for stage in server.stages(too_long)] == ["admission", "tokenize"]
    for span in (broken, too_long):
        assert span.status.status_code is StatusCode.ERROR
        assert span.attributes[keys.HTTP_STATUS] == 400
        assert span.attributes[keys.STREAM_STATE] == "error"
    assert too_long.attributes[keys.ERROR_TYPE] == "context_length_exceeded"


@pytest.mark.parametrize("is_streamed", [True, False])
def test_a_client_that_leaves_frees_its_slot(serve: Callable[..., Any], is_streamed: bool) -> None:
    server = serve(max_num_seqs=1, max_model_tokens=4096)
    body = {**LONG, **LONG["extra_body"], "messages": MESSAGES, "stream": is_streamed}
    del body["extra_body"]
    if is_streamed:
        with httpx.stream("POST", f"{server.url}/v1/chat/completions", json=body) as answer:
            next(answer.iter_lines())
    else:
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(f"{server.url}/v1/chat/completions", json=body, timeout=0.3)
    assert post(server, {**GREEDY, "messages": MESSAGES}).status_code == 200
    left, served = server.server_spans(2)
    assert left.attributes[keys.STREAM_STATE] == "closed_early"
    assert left.attributes[keys.OUTPUT_TOKENS] < 3000
    assert keys.FINISH_REASONS not in left.attributes
    stages = server.stages(left)
    assert stages[-1].name == "decode"
    assert stages[-1].end_time == left.end_time
    assert served.attributes[keys.STREAM_STATE] == "completed"


def test_a_full_queue_answers_429_with_a_time_to_retry(serve: Callable[..., Any]) -> None:
    server = serve(max_num_seqs=1, max_queue=1, max_model_tokens=4096)
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        running = client.chat.completions.create(messages=MESSAGES, stream=True, **LONG)
        next(running)  # its slot is taken
        waiting = threading.Thread(target=lambda: post(server, {**GREEDY, "messages": MESSAGES}))
        waiting.start()
        while not server.service.serving().engine.num_waiting:
            pass
        answer = post(server, {**GREEDY, "messages": MESSAGES})
        assert refused(answer, 429)["code"] == "queue_full"
        assert int(answer.headers["retry-after"]) >= 1
        running.close()
        waiting.join()
    assert post(server, {**GREEDY, "messages": MESSAGES}).status_code == 200


def test_a_deadline_that_passes_in_the_queue_answers_504(serve: Callable[..., Any]) -> None:
    server = serve(max_num_seqs=1, max_model_tokens=8192, deadline_s=1)
    body = {**GREEDY, "messages": MESSAGES}
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        longest = {**LONG, "max_tokens": 8000}
        running = client.chat.completions.create(messages=MESSAGES, stream=True, **longest)
        held = next(running).id  # it has begun: no deadline ends it
        assert refused(post(server, body), 504)["code"] == "deadline_exceeded"
        assert "deadline" in post(server, {**body, "stream": True}).text
        running.close()
    assert post(server, body).status_code == 200
    expired = next(s for s in server.server_spans(3) if s.attributes[keys.HTTP_STATUS] == 504)
    assert [stage.name for stage in server.stages(expired)] == ["admission", "tokenize", "queue"]
    assert expired.attributes[keys.ERROR_TYPE] == "deadline_exceeded"
    assert expired.attributes[keys.ENGINE_DELAYED_BY] == (held,)
    (waited_s,) = expired.attributes[keys.ENGINE_DELAYED_BY_TIME]
    assert 0 < waited_s == expired.attributes[keys.ENGINE_DELAYED_TIME]
    assert waited_s <= expired.attributes[keys.ENGINE_QUEUE]


def test_a_salt_hides_cached_prefixes_from_others(server: Any, client: openai.OpenAI) -> None:
    def cached(salt: str) -> int | None:
        answer = client.chat.completions.create(
            messages=[{"role": "user", "content": "One secret thing after another"}],
            extra_body={"cache_salt": salt, "priority": 3, "prompt_cache_key": "a"},
            **GREEDY,
        )
        assert answer.usage is not None
        assert answer.usage.prompt_tokens_details is not None
        return answer.usage.prompt_tokens_details.cached_tokens

    first, again, other = cached("one"), cached("one"), cached("two")
    assert first == other == 0
    assert again


def test_before_the_model_is_warm_the_answer_is_503(
    serve: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    is_loaded = threading.Event()

    def slow(model: str, begin: Callable[[str], None]) -> Any:
        is_loaded.wait(20)
        return load(model, begin)

    monkeypatch.setattr(service, "load", slow)
    server = serve(is_waiting=False)
    assert httpx.get(f"{server.url}/health", timeout=20).status_code == 503
    answer = post(server, {**GREEDY, "messages": MESSAGES})
    assert refused(answer, 503)["code"] == "model_loading"
    assert "retry-after" in answer.headers
    is_loaded.set()
    server.wait()
    assert httpx.get(f"{server.url}/health").status_code == 200
