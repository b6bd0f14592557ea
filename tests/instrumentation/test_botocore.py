import gc
import json
from collections.abc import Iterator
from contextlib import closing, suppress
from typing import Any

import boto3
import botocore.client
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError, EventStreamError
from botocore.response import StreamingBody
from fake_bedrock import LATENCY_MS, REQUEST_ID, WAIT_S, FakeBedrock
from opentelemetry.trace import SpanKind, StatusCode

import longpole
from longpole import health
from longpole.testing import Spans
from longpole.vocab import keys

MESSAGES: Any = [{"role": "user", "content": [{"text": "a secret question"}]}]
NATIVE = {
    "anthropic": {"max_tokens": 64, "temperature": 0.5, "messages": []},
    "amazon": {"inferenceConfig": {"maxTokens": 64, "temperature": 0.5}, "messages": []},
    "meta": {"max_gen_len": 64, "temperature": 0.5, "prompt": "a"},
    "mistral": {"max_tokens": 64, "temperature": 0.5, "prompt": "a"},
    "cohere": {"max_tokens": 64, "temperature": 0.5, "message": "a"},
}
BESIDE = (1456, 1024, 256, 30)
"""Input with cached tokens, cached, cache writes, output."""
PLAIN = (176, None, None, 30)
TOKENS = {
    "anthropic": BESIDE,
    "amazon": BESIDE,
    "meta": PLAIN,
    "mistral": PLAIN,
    "cohere": PLAIN,
}
REASON = {
    "anthropic": "end_turn",
    "amazon": "end_turn",
    "meta": "stop",
    "mistral": "stop",
    "cohere": "COMPLETE",
}


@pytest.fixture(scope="module")
def bedrock() -> Iterator[FakeBedrock]:
    with FakeBedrock.serving() as server:
        yield server


def make(server: FakeBedrock, service: str = "bedrock-runtime") -> Any:
    return boto3.client(
        service,
        region_name="us-east-1",
        endpoint_url=server.base_url,
        aws_access_key_id="k",
        aws_secret_access_key="s",
        config=Config(retries={"mode": "standard", "max_attempts": 3}),
    )


@pytest.fixture
def client(bedrock: FakeBedrock) -> Iterator[Any]:
    with closing(make(bedrock)) as made:
        bedrock.requests.clear()
        yield longpole.wrap(made)


def only(spans: Spans) -> dict[str, Any]:
    assert len(spans) == 1
    return dict(spans[0].attributes or {})


def converse(client: Any, scenario: str, **more: Any) -> Any:
    return client.converse_stream(modelId=f"x.{scenario}", messages=MESSAGES, **more)["stream"]


def tokens(found: dict[str, Any]) -> tuple[Any, ...]:
    return (
        found.get(keys.INPUT_TOKENS),
        found.get(keys.CACHED_INPUT_TOKENS),
        found.get(keys.CACHE_WRITE_TOKENS),
        found.get(keys.OUTPUT_TOKENS),
    )


def test_a_streamed_conversation_is_one_span_with_its_facts(
    client: Any, bedrock: FakeBedrock, spans: Spans
) -> None:
    settings = {"maxTokens": 64, "temperature": 0.5}
    stream = converse(client, "plain", inferenceConfig=settings, serviceTier={"type": "flex"})
    assert type(stream).__name__ == "EventStream"
    assert len(list(stream)) == 13
    found = only(spans)
    assert (spans[0].name, spans[0].kind) == ("chat x.plain", SpanKind.CLIENT)
    assert found[keys.PROVIDER] == "aws.bedrock"
    assert (found[keys.SERVER_ADDRESS], found[keys.SERVER_PORT]) == ("127.0.0.1", bedrock.port)
    assert found[keys.REQUEST_STREAM] is True
    assert (found[keys.REQUEST_MAX_TOKENS], found[keys.REQUEST_TEMPERATURE]) == (64, 0.5)
    assert (found[keys.SERVICE_TIER_REQUESTED], found[keys.SERVICE_TIER]) == ("flex", "default")
    assert found[keys.FINISH_REASONS] == ("end_turn",)
    assert found[keys.STREAM_STATE] == "completed"
    assert found[keys.CHUNK_COUNT] == 10
    assert tokens(found) == BESIDE
    assert (found[keys.HTTP_STATUS], found[keys.RESEND_COUNT]) == (200, 0)
    assert found[keys.SERVER_REQUEST_ID] == REQUEST_ID
    assert found[keys.REQUEST_SIZE] == len(bedrock.requests[0].data)
    assert 0 < found[keys.TIME_TO_HEADERS] <= found[keys.TIME_TO_FIRST_CHUNK]
    assert keys.FLAGS not in found
    assert "traceparent" in bedrock.requests[0].headers


def test_a_whole_conversation_has_tokens_and_no_stream_times(client: Any, spans: Spans) -> None:
    answer = client.converse(modelId="x.plain", messages=MESSAGES)
    assert answer["output"]["message"]["content"] == [{"text": "42"}]
    found = only(spans)
    assert tokens(found) == BESIDE
    assert found[keys.FINISH_REASONS] == ("end_turn",)
    assert found[keys.FLAGS] == ("not_streamed",)
    assert found[keys.SERVER_PROCESSING] == LATENCY_MS / 1e3
    assert found[keys.SERVER_REQUEST_ID] == REQUEST_ID
    for key in (keys.TIME_TO_HEADERS, keys.TIME_TO_FIRST_CONTENT, keys.STREAM_STATE):
        assert key not in found


@pytest.mark.parametrize("family", NATIVE)
def test_each_familys_whole_body_is_read_with_the_application(
    client: Any, spans: Spans, family: str
) -> None:
    answer = client.invoke_model(modelId=f"{family}.plain", body=json.dumps(NATIVE[family]))
    assert type(answer["body"]) is StreamingBody
    assert len(spans) == 0
    assert "42" in json.dumps(json.loads(answer["body"].read()))
    found = only(spans)
    assert found[keys.OPERATION] == "chat"
    assert (found[keys.REQUEST_MAX_TOKENS], found[keys.REQUEST_TEMPERATURE]) == (64, 0.5)
    assert tokens(found) == TOKENS[family]
    assert found[keys.FINISH_REASONS] == (REASON[family],)
    assert found[keys.SERVER_PROCESSING] == LATENCY_MS / 1e3
    assert found[keys.TIME_TO_HEADERS] > 0


@pytest.mark.parametrize("family", NATIVE)
def test_each_familys_stream_is_read_part_by_part(client: Any, spans: Spans, family: str) -> None:
    answer = client.invoke_model_with_response_stream(
        modelId=f"{family}.plain", body=json.dumps(NATIVE[family])
    )
    assert len([json.loads(event["chunk"]["bytes"]) for event in answer["body"]]) >= 11
    found = only(spans)
    assert found[keys.CHUNK_COUNT] == 10
    assert tokens(found) == TOKENS[family]
    assert found[keys.FINISH_REASONS] == (REASON[family],)
    assert found[keys.STREAM_STATE] == "completed"
    assert found[keys.SERVER_PROCESSING] == LATENCY_MS / 1e3


def test_embeddings_are_an_operation_of_their_own(client: Any, spans: Spans) -> None:
    body = json.dumps({"inputText": "a"})
    answer = client.invoke_model(modelId="embed.plain", body=body)
    assert json.loads(answer["body"].read())["embedding"] == [0.1, 0.2]
    found = only(spans)
    assert spans[0].name == "embeddings embed.plain"
    assert found[keys.INPUT_TOKENS] == 176


@pytest.mark.parametrize("size", [1, 7, 1024])
def test_a_body_read_in_pieces_ends_at_its_end(client: Any, spans: Spans, size: int) -> None:
    body = client.invoke_model(modelId="meta.plain", body="{}")["body"]
    assert json.loads(b"".join(body.iter_chunks(size)))["generation"] == "42"
    assert tokens(only(spans)) == PLAIN


def test_a_body_that_is_never_read_still_has_the_counts_of_its_headers(
    client: Any, spans: Spans
) -> None:
    client.invoke_model(modelId="meta.plain", body="{}")["body"].close()
    assert tokens(only(spans)) == PLAIN
    client.invoke_model(modelId="meta.plain", body="{}")
    gc.collect()
    assert len(spans) == 2
    assert tokens(dict(spans[1].attributes or {})) == PLAIN


def test_the_role_is_the_first_event_and_not_the_first_content(client: Any, spans: Spans) -> None:
    list(converse(client, "early"))
    found = only(spans)
    waited = found[keys.TIME_TO_FIRST_CONTENT] - found[keys.TIME_TO_FIRST_CHUNK]
    assert waited >= WAIT_S * 0.7


def test_late_headers_count_into_the_first_content(client: Any, spans: Spans) -> None:
    list(converse(client, "late"))
    assert only(spans)[keys.TIME_TO_HEADERS] >= WAIT_S


def test_tools_and_reasoning_are_content_that_nobody_sees(client: Any, spans: Spans) -> None:
    list(converse(client, "tool"))
    list(converse(client, "reasoning"))
    tool, reasoning = (dict(span.attributes or {}) for span in spans)
    assert (tool[keys.CHUNK_COUNT], tool[keys.FINISH_REASONS]) == (2, ("tool_use",))
    assert tool[keys.FLAGS] == ("no_visible_text",)
    assert reasoning[keys.CHUNK_COUNT] == 2
    assert reasoning[keys.TIME_TO_FIRST_VISIBLE] > reasoning[keys.TIME_TO_FIRST_CONTENT]


def test_counts_that_already_hold_the_cached_tokens_are_not_added(
    client: Any, spans: Spans
) -> None:
    list(converse(client, "gross"))
    assert tokens(only(spans)) == (1456, 1024, None, 30)


def test_a_server_without_usage_leaves_tokens_unknown(client: Any, spans: Spans) -> None:
    list(converse(client, "no-usage"))
    assert tokens(only(spans)) == (None, None, None, None)


def test_retries_are_attempts(client: Any, spans: Spans, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    list(converse(client, "retry-twice"))
    found = only(spans)
    assert found[keys.RESEND_COUNT] == 2
    assert found[keys.ATTEMPT_STATUS] == ("429", "429", "200")
    assert found[keys.STREAM_STATE] == "completed"


@pytest.mark.parametrize(
    "call",
    [
        lambda client: client.converse(modelId="x.bad-request", messages=MESSAGES),
        lambda client: converse(client, "bad-request"),
        lambda client: client.invoke_model(modelId="meta.bad-request", body="{}"),
    ],
)
def test_a_refused_call_has_the_providers_code(client: Any, spans: Spans, call: Any) -> None:
    with pytest.raises(ClientError):
        call(client)
    found = only(spans)
    assert found[keys.ERROR_TYPE] == "ValidationException"
    assert found[keys.HTTP_STATUS] == 400
    assert spans[0].status.status_code is StatusCode.ERROR


def test_an_error_inside_the_stream_reaches_both(client: Any, spans: Spans) -> None:
    stream = converse(client, "error")
    with pytest.raises(EventStreamError):
        list(stream)
    stream.close()
    found = only(spans)
    assert found[keys.ERROR_TYPE] == "throttlingException"
    assert (found[keys.STREAM_STATE], found[keys.CHUNK_COUNT]) == ("error", 3)


def test_a_cut_connection_is_an_error(client: Any, spans: Spans) -> None:
    with pytest.raises(Exception, match="prematurely"):
        list(converse(client, "cut"))
    found = only(spans)
    assert found[keys.STREAM_STATE] == "error"
    assert found[keys.CHUNK_COUNT] == 3


def _break_and_close(stream: Any) -> None:
    with closing(stream):
        for _ in stream:
            break


def _raise_inside(stream: Any) -> None:
    with suppress(KeyError), closing(stream):
        for _ in stream:
            raise KeyError


def _drop(stream: Any) -> None:
    next(iter(stream))


@pytest.mark.parametrize(
    ("leave", "state"),
    [
        (list, "completed"),
        (_break_and_close, "closed_early"),
        (_raise_inside, "closed_early"),
        (_drop, "abandoned"),
    ],
)
@pytest.mark.parametrize("form", ["converse_stream", "invoke_model_with_response_stream"])
def test_every_exit_is_one_span(
    client: Any, spans: Spans, form: str, leave: Any, state: str
) -> None:
    if form == "converse_stream":
        leave(converse(client, "slow" if leave is not list else "plain"))
    else:
        answer = client.invoke_model_with_response_stream(modelId="anthropic.plain", body="{}")
        leave(answer.pop("body"))
        del answer
    gc.collect()
    assert only(spans)[keys.STREAM_STATE] == state


def test_other_clients_of_aws_are_left_alone(bedrock: FakeBedrock, spans: Spans) -> None:
    with closing(make(bedrock, "s3")) as other:
        before = dict(vars(other))
        assert longpole.wrap(other) is other
        assert vars(other) == before


def test_unwrap_restores_everything(bedrock: FakeBedrock, spans: Spans) -> None:
    with closing(make(bedrock)) as made:
        before = dict(vars(made))
        longpole.unwrap(longpole.wrap(longpole.wrap(made)))
        assert vars(made) == before
        made.converse(modelId="x.plain", messages=MESSAGES)
    assert len(spans) == 0
    assert "traceparent" not in bedrock.requests[-1].headers


def test_instrument_wraps_bedrock_clients_and_no_others(
    bedrock: FakeBedrock, spans: Spans, caplog: pytest.LogCaptureFixture
) -> None:
    original = botocore.client.ClientCreator.create_client
    longpole.instrument("botocore")
    try:
        with closing(make(bedrock)) as made, closing(make(bedrock, "s3")) as other:
            made.converse(modelId="x.plain", messages=MESSAGES)
            assert not any(name.startswith("_longpole") for name in vars(other))
    finally:
        longpole.uninstrument()
    assert botocore.client.ClientCreator.create_client is original
    assert len(spans) == 1
    assert not caplog.records
    assert not health.internal_errors
