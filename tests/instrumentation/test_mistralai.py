"""The Mistral client's own ways: parse, embeddings, fill-in-the-middle, and no second span."""

from collections.abc import Iterator
from typing import Any

import pytest
from mistralai.client import Mistral
from more_clients import MESSAGES, serving, tokens
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pydantic import BaseModel

import longpole
from longpole.testing import Spans
from longpole.vocab import keys


@pytest.fixture(scope="module")
def fakes() -> Iterator[dict[str, Any]]:
    with serving() as found:
        yield found


def test_mistral_parse_and_embeddings(fakes: Any, spans: Spans) -> None:
    class Found(BaseModel):
        answer: int

    with longpole.wrap(Mistral(api_key="k", server_url=fakes["mistral"].base_url)) as client:
        parsed = client.chat.parse(Found, model="plain", messages=MESSAGES)
        assert parsed.choices is not None
        client.embeddings.create(model="plain", inputs=["x"])
        client.fim.complete(model="plain", prompt="x")
    names = [span.name for span in spans]
    assert names == ["chat plain", "embeddings plain", "text_completion plain"]
    chat, embeddings, fim = (dict(span.attributes or {}) for span in spans)
    assert chat[keys.SERVICE_TIER] == "standard"
    assert tokens(embeddings) == (7, None, None, None, None)
    assert fim[keys.OUTPUT_TOKENS] == 30


def test_mistrals_own_span_does_not_count_the_call_twice(fakes: Any, spans: Spans) -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    with Mistral(api_key="k", server_url=fakes["mistral"].base_url) as client:
        hooks = client.sdk_configuration.__dict__["_hooks"]
        before = [list(hooks.before_request_hooks), list(hooks.after_success_hooks)]
        next(
            hook for hook in before[0] if type(hook).__name__ == "TracingHook"
        ).tracer_provider = provider
        client.chat.complete(model="plain", messages=MESSAGES)
        assert len(exporter.get_finished_spans()) == 1
        longpole.wrap(client).chat.complete(model="plain", messages=MESSAGES)
        assert len(exporter.get_finished_spans()) == len(spans) == 1
        longpole.unwrap(client)
        assert [list(hooks.before_request_hooks), list(hooks.after_success_hooks)] == before
