import asyncio
import socket
import urllib.error
import urllib.request
from typing import Any

import httpx
import openai
import pytest

import longpole
from longpole.testing import Spans
from longpole.tools import class_of
from longpole.vocab import keys

REQUEST = httpx.Request("POST", "http://a")


def facts(span: Any) -> dict[str, Any]:
    return dict(span.attributes or {})


def answered(status: int) -> httpx.HTTPStatusError:
    return httpx.HTTPStatusError("x", request=REQUEST, response=httpx.Response(status))


def wrapped(inner: BaseException) -> BaseException:
    error = RuntimeError("ours")
    error.__cause__ = inner
    return error


@pytest.mark.parametrize(
    ("error", "without_key", "with_key"),
    [
        (ConnectionRefusedError(), "retryable", "retryable"),
        (socket.gaierror(), "retryable", "retryable"),
        (httpx.ConnectError("x"), "retryable", "retryable"),
        (httpx.ConnectTimeout("x"), "retryable", "retryable"),
        (httpx.PoolTimeout("x"), "retryable", "retryable"),
        (urllib.error.URLError(ConnectionRefusedError()), "retryable", "retryable"),
        (wrapped(ConnectionRefusedError()), "retryable", "retryable"),
        (answered(429), "retryable", "retryable"),
        (answered(503), "retryable", "retryable"),
        (TimeoutError(), "unknown_commit", "retryable"),
        (asyncio.CancelledError(), "unknown_commit", "retryable"),
        (ConnectionResetError(), "unknown_commit", "retryable"),
        (httpx.ReadTimeout("x"), "unknown_commit", "retryable"),
        (httpx.RemoteProtocolError("x"), "unknown_commit", "retryable"),
        (openai.APITimeoutError(REQUEST), "unknown_commit", "retryable"),
        (wrapped(TimeoutError()), "unknown_commit", "retryable"),
        (answered(500), "unknown_commit", "retryable"),
        (answered(504), "unknown_commit", "retryable"),
        (answered(408), "unknown_commit", "retryable"),
        (answered(404), "not_retryable", "not_retryable"),
        (ValueError(), "not_retryable", "not_retryable"),
        (KeyError(), "not_retryable", "not_retryable"),
        (PermissionError(), "not_retryable", "not_retryable"),
        (RuntimeError(), None, None),
        (OSError(), None, None),
        (GeneratorExit(), None, None),
    ],
)
def test_what_a_failure_means_for_the_next_attempt(
    error: BaseException, without_key: str | None, with_key: str | None
) -> None:
    assert class_of(error) == without_key
    assert class_of(error, has_key=False) == without_key
    assert class_of(error, has_key=True) == with_key


def test_a_refused_connection_of_a_real_client_was_never_sent() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(httpx.ConnectError) as by_httpx:
        httpx.post(f"http://127.0.0.1:{port}", trust_env=False)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with pytest.raises(urllib.error.URLError) as by_urllib:
        opener.open(f"http://127.0.0.1:{port}")
    client = openai.OpenAI(
        api_key="k",
        base_url=f"http://127.0.0.1:{port}",
        max_retries=0,
    )
    with client, pytest.raises(openai.APIConnectionError) as by_openai:
        client.models.list()
    for caught in (by_httpx, by_urllib, by_openai):
        assert class_of(caught.value) == "retryable"


def test_an_error_that_merely_came_before_says_nothing() -> None:
    def fail() -> None:
        try:
            raise ConnectionRefusedError
        except ConnectionRefusedError:
            raise TimeoutError  # noqa: B904 - that is the case

    with pytest.raises(TimeoutError) as caught:
        fail()
    assert isinstance(caught.value.__context__, ConnectionRefusedError)
    assert class_of(caught.value) == "unknown_commit"


def test_the_class_is_on_the_span_and_the_key_never(spans: Spans) -> None:
    def charge(**options: Any) -> None:
        with longpole.tool("charge", **options):
            raise TimeoutError

    for options in ({}, {"idempotency_key": "order-17"}, {"idempotency_key": ""}):
        with pytest.raises(TimeoutError):
            charge(**options)
    found = [facts(span) for span in spans]
    assert [f.get(keys.TOOL_HAS_IDEMPOTENCY_KEY) for f in found] == [None, True, False]
    assert [f[keys.TOOL_ERROR_CLASS] for f in found] == [
        "unknown_commit",
        "retryable",
        "unknown_commit",
    ]
    assert "order-17" not in spans[1].to_json()


def test_the_applications_word_wins(spans: Spans, caplog: Any) -> None:
    def read() -> None:
        with longpole.tool("read") as step:
            step.error_class("retryable")
            raise TimeoutError

    with pytest.raises(TimeoutError):
        read()
    with longpole.tool("handled") as step:
        step.error_class("not_retryable")
        step.error_class("nonsense")  # type: ignore[arg-type]
    with longpole.tool("fine"):
        pass
    found = [facts(span).get(keys.TOOL_ERROR_CLASS) for span in spans]
    assert found == ["retryable", "not_retryable", None]
    assert len(caplog.records) == 1


def test_attempts_name_the_one_before(spans: Spans) -> None:
    before = None
    for _ in range(3):
        with longpole.tool("fetch", retry_of=before) as before:
            pass
    found = [facts(span) for span in spans]
    assert [f.get(keys.TOOL_ATTEMPT) for f in found] == [None, 2, 3]
    ids = [f"{span.context.span_id:016x}" for span in spans if span.context]
    assert [f.get(keys.TOOL_RETRY_OF) for f in found] == [None, *ids[:2]]


def test_options_come_with_a_decorator_too(spans: Spans) -> None:
    @longpole.tool(deadline_s=30, idempotency_key=True)
    def charge() -> None:
        raise TimeoutError

    for _ in range(2):
        with pytest.raises(TimeoutError):
            charge()
    for span in spans:
        assert span.name == "execute_tool charge"
        assert facts(span)[keys.TOOL_NAME] == "charge"
        assert facts(span)[keys.DEADLINE] == 30
        assert facts(span)[keys.DEADLINE_MISSED] is False
        assert facts(span)[keys.TOOL_ERROR_CLASS] == "retryable"


def test_an_exception_that_cannot_be_read_still_ends_the_span(spans: Spans) -> None:
    class Broken(Exception):
        @property
        def status_code(self) -> int:
            raise RuntimeError

    with pytest.raises(Broken), longpole.tool("t"):
        raise Broken
    assert facts(spans[0])[keys.ERROR_TYPE] == "Broken"
    assert longpole.stats().num_internal_errors == {"step": 1}
