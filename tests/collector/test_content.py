import json

import pytest

from longpole.vocab import keys
from longpole_collector.content import MAX_VALUE_CHARS
from longpole_collector.decode import Format, parse
from longpole_collector.health import Health
from longpole_collector.normalise import Normaliser

OPENAI_SCOPE = "opentelemetry.instrumentation.genai.openai"
CONTENT = {
    "gen_ai.input.messages": "hush",
    "gen_ai.output.messages": "hush",
    "gen_ai.system_instructions": "hush",
    "gen_ai.prompt": "hush",
    "gen_ai.prompt.0.content": "hush",
    "gen_ai.completion.0.content": "hush",
    "gen_ai.tool.call.arguments": {"city": "hush"},
    "gen_ai.tool.call.result": "hush",
    "input.value": "hush",
    "output.value": "hush",
    "llm.input_messages.0.message.content": "hush",
    "llm.output_messages.0.message.content": "hush",
    "retrieval.documents.0.document.content": "hush",
    "traceloop.entity.input": "hush",
    "traceloop.entity.output": "hush",
    "langfuse.observation.input": "hush",
    "langfuse.trace.output": "hush",
    "ai.prompt.messages": "hush",
    "ai.response.text": "hush",
    "ai.toolCall.args": "hush",
    "mlflow.spanInputs": "hush",
    "mlflow.spanOutputs": "hush",
    "request_data": "hush",
    "pydantic_ai.all_messages": "hush",
}
SCOPES = ["somebody", keys.SCOPE_SDK, OPENAI_SCOPE, "vllm"]


@pytest.mark.parametrize("scope", SCOPES)
def test_prompts_and_answers_are_dropped_and_their_length_kept(otlp, scope):
    event = ("gen_ai.choice", 1, {"message": "hush", "index": 0})
    body = otlp.body([otlp.span(attributes=CONTENT, events=[event])], scope=scope)
    health = Health()
    normaliser = Normaliser(health)
    (span,) = (normaliser.span(raw) for raw in parse(body, Format.PROTOBUF).spans(1))
    assert "hush" not in repr(span)
    assert span.attributes.keys() == {f"{key}.length" for key in CONTENT}
    assert span.attributes["input.value.length"] == "4"
    assert json.loads(span.events)[0]["attributes"] == {"index": 0, "message.length": 4}
    assert health.total("values_dropped", "content") == len(CONTENT) + 1


def test_content_stays_when_the_owner_keeps_it(otlp):
    body = otlp.body([otlp.span(attributes=CONTENT)])
    (span,) = otlp.spans(body, keep_content=True)
    assert span.attributes.keys() == CONTENT.keys()


def test_a_prompts_name_and_version_are_no_content(otlp):
    attributes = {"gen_ai.prompt.name": "n", keys.PROMPT_VERSION_OTEL: "v3"}
    (span,) = otlp.canonical(otlp.span(attributes=attributes))
    assert span.prompt_version == "v3"
    assert span.attributes == {"gen_ai.prompt.name": "n"}


def test_credentials_and_url_queries_are_dropped_always(otlp):
    attributes = {
        "http.request.header.authorization": "Bearer hush",
        "http.request.header.cookie": "hush",
        "http.response.header.set-cookie": "hush",
        "Authorization": "hush",
        "api_key": "hush",
        "url.full": "https://x/y?token=hush",
        "url.query": "hush",
    }
    body = otlp.body([otlp.span(attributes=attributes)])
    (span,) = otlp.spans(body, keep_content=True)
    assert span.attributes == {"url.full": "https://x/y"}


def test_long_values_and_long_lists_of_attributes_are_cut_and_flagged(otlp):
    (long,) = otlp.canonical(otlp.span(attributes={"big": "x" * (MAX_VALUE_CHARS + 5)}))
    (many,) = otlp.canonical(otlp.span(attributes={f"k{i}": i for i in range(400)}))
    assert len(long.attributes["big"]) == MAX_VALUE_CHARS
    assert len(many.attributes) == 256
    assert long.flags == many.flags == ["attributes_cut"]
