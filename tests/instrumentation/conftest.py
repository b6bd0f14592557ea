import asyncio
import gc
import importlib
import os
import ssl
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import openai
import pytest

import longpole
from longpole import health, record, settings
from longpole.testing import Spans, capture_spans

sys.path.append(str(Path(__file__).parent))  # where the fake servers are

import fake_openai

MESSAGES = [{"role": "user", "content": "a secret question"}]


@pytest.fixture(scope="session", autouse=True)
def _no_certificates() -> Iterator[None]:
    """All servers stand on 127.0.0.1 without TLS, yet each client reads authorities for 20 ms."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ssl.SSLContext, "load_verify_locations", lambda *_, **__: None)
        yield


@pytest.fixture(scope="module", autouse=True)
def _little_to_collect() -> None:
    """Tests that drop a stream collect garbage; what was imported before is none (0.2 to 1 s)."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module")
def library() -> Iterator[Any]:
    """LiteLLM; the clients that it keeps are gone before another module's tests run."""
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # it would fetch prices
    found = importlib.import_module("litellm")
    found.suppress_debug_info = True
    yield found
    found.in_memory_llm_clients_cache.flush_cache()
    gc.collect()  # they stay open until they are collected, which warns


@pytest.fixture(scope="session")
def fake() -> ModuleType:
    """The module of the fake server, for its constants."""
    return fake_openai


@pytest.fixture(scope="session")
def _server() -> Iterator[Any]:
    with fake_openai.FakeOpenAI.serving() as server:
        yield server


@pytest.fixture
def server(_server: Any) -> Any:
    """The fake server with nothing received yet."""
    _server.requests.clear()
    return _server


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each test starts with default settings and clean counters.

    Its spans go nowhere else: an exporter would try to reach a collector ever after, in a thread
    that draws from ``random`` while other tests do.
    """
    for name in ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_SERVICE_NAME", "OTEL_SDK_DISABLED"):
        monkeypatch.delenv(name, raising=False)
    settings.put(settings.defaults())
    health.reset()
    record._no_usage.clear()
    with capture_spans():
        yield
    settings.put(None)


@pytest.fixture
def spans() -> Iterator[Spans]:
    """Longpole's finished spans of the test."""
    with capture_spans() as captured:
        yield captured


@pytest.fixture
def client(server: Any) -> Iterator[openai.OpenAI]:
    """A wrapped client of the fake server."""
    with openai.OpenAI(api_key="k", base_url=server.base_url) as made:
        yield longpole.wrap(made)


class Caller:
    """The same calls, through the sync or the async client."""

    def __init__(self, base_url: str, is_async: bool) -> None:
        self.base_url = base_url
        self.is_async = is_async

    def create(self, model: str, **kwargs: Any) -> Any:
        """The result of one call; of a stream, the list of its chunks."""
        kwargs = {"model": model, "messages": MESSAGES, **kwargs}
        if self.is_async:
            return asyncio.run(self._create(kwargs))
        with openai.OpenAI(api_key="k", base_url=self.base_url) as client:
            result = longpole.wrap(client).chat.completions.create(**kwargs)
            return list(result) if kwargs.get("stream") else result

    async def _create(self, kwargs: Any) -> Any:
        async with openai.AsyncOpenAI(api_key="k", base_url=self.base_url) as client:
            result = await longpole.wrap(client).chat.completions.create(**kwargs)
            return [chunk async for chunk in result] if kwargs.get("stream") else result


@pytest.fixture(params=["sync", "async"])
def caller(request: pytest.FixtureRequest, server: Any) -> Caller:
    """Both clients, one after the other."""
    return Caller(server.base_url, request.param == "async")
