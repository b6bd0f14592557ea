from typing import Any

import httpx2
import openai
import pytest

import longpole
from longpole import settings
from longpole.testing import Spans
from longpole.transport import is_private

MESSAGES: Any = [{"role": "user", "content": "x"}]


def sent(server: Any) -> list[str | None]:
    return [request.headers.get("traceparent") for request in server.requests]


def header(span: Any) -> str:
    context = span.context
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


def test_the_server_is_told_the_calls_span(caller: Any, server: Any, spans: Spans) -> None:
    caller.create("plain", stream=True)
    assert sent(server) == [header(spans[0])]


def test_every_attempt_carries_the_same_parent(caller: Any, server: Any, spans: Spans) -> None:
    caller.create("retry-twice")
    assert sent(server) == [header(spans[0])] * 3


def test_the_call_is_a_child_of_the_work_around_it(client: Any, spans: Spans) -> None:
    with longpole.workflow("answer", route="rag"):
        list(client.chat.completions.create(model="plain", messages=MESSAGES, stream=True))
    call, root = spans
    assert call.parent is not None
    assert root.context is not None
    assert call.parent.span_id == root.context.span_id
    assert dict(call.attributes or {})["longpole.route"] == "rag"


def test_the_application_s_own_header_is_kept(client: Any, server: Any) -> None:
    client.chat.completions.create(
        model="plain", messages=MESSAGES, extra_headers={"traceparent": "mine"}
    )
    assert sent(server) == ["mine"]


def test_never_means_never(client: Any, server: Any) -> None:
    settings.put(settings.load(propagate="never"))
    client.chat.completions.create(model="plain", messages=MESSAGES)
    assert sent(server) == [None]


@pytest.mark.parametrize(("policy", "is_sent"), [("private", False), ("always", True)])
def test_a_public_host_is_told_only_on_request(policy: str, is_sent: bool, spans: Spans) -> None:
    seen: list[httpx2.Request] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        seen.append(request)
        return httpx2.Response(400, json={"error": {"message": "no"}})

    settings.put(settings.load(propagate=policy))
    with httpx2.Client(transport=httpx2.MockTransport(answer)) as http:
        client = longpole.wrap(openai.OpenAI(api_key="k", http_client=http))
        with pytest.raises(openai.BadRequestError):
            client.chat.completions.create(model="plain", messages=MESSAGES)
    assert ("traceparent" in seen[0].headers) == is_sent
    assert dict(spans[0].attributes or {})["server.address"] == "api.openai.com"


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "::1", "10.1.2.3", "192.168.0.9", "localhost", "vllm", "a.local", "x.svc"],
)
def test_private_hosts(host: str) -> None:
    assert is_private(host)


@pytest.mark.parametrize("host", ["api.openai.com", "8.8.8.8", "local.example.org", "2606:4700::1"])
def test_public_hosts(host: str) -> None:
    assert not is_private(host)


def test_the_hooks_do_nothing_outside_a_recorded_call(client: Any, server: Any) -> None:
    client.post("/chat/completions", body={"model": "plain"}, cast_to=object)
    assert sent(server) == [None]
