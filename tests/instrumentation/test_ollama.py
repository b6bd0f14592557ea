"""The Ollama client's own ways: durations of the engine, and the module's own functions."""

from collections.abc import Iterator
from typing import Any

import ollama
import pytest
from more_clients import MESSAGES, serving, tokens

import longpole
from longpole.testing import Spans
from longpole.vocab import keys


@pytest.fixture(scope="module")
def fakes() -> Iterator[dict[str, Any]]:
    with serving() as found:
        yield found


def test_ollama_tells_the_engines_side(fakes: Any, spans: Spans) -> None:
    client = longpole.wrap(ollama.Client(fakes["ollama"].base_url))
    client.chat(model="plain", messages=MESSAGES)
    client.generate(model="cold", prompt="x")
    client.embed(model="plain", input="x")
    client.embeddings(model="plain", prompt="x")
    client.close()
    chat, cold, embed, old = (dict(span.attributes or {}) for span in spans)
    assert chat[keys.ENGINE_PREFILL] == 0.25
    assert chat[keys.ENGINE_DECODE] == 0.6
    assert chat[keys.ENGINE_E2E] == 0.9
    assert (chat[keys.COLD_START], cold[keys.COLD_START]) == (False, True)
    assert tokens(embed) == (7, None, None, None, None)
    assert (old[keys.OPERATION], tokens(old)) == ("embeddings", (None,) * 5)


def test_the_modules_own_functions_are_wrapped_and_left_as_they_were(
    fakes: Any, spans: Spans, monkeypatch: pytest.MonkeyPatch
) -> None:
    made_on_import: Any = ollama._client
    monkeypatch.setattr(made_on_import._client, "base_url", fakes["ollama"].base_url)
    longpole.wrap(ollama)
    ollama.chat(model="plain", messages=MESSAGES)
    assert len(list(ollama.generate(model="plain", prompt="x", stream=True))) == 12
    longpole.unwrap(ollama)
    ollama.chat(model="plain", messages=MESSAGES)
    made_on_import._client.close()
    assert [span.name for span in spans] == ["chat plain", "text_completion plain"]
    assert [dict(span.attributes or {})[keys.HTTP_STATUS] for span in spans] == [200, 200]


def test_instrument_takes_the_module_and_new_clients(fakes: Any, spans: Spans) -> None:
    longpole.instrument("ollama")
    try:
        assert "_request" in vars(ollama._client)
        with ollama.Client(fakes["ollama"].base_url) as made:
            made.chat(model="plain", messages=MESSAGES)
    finally:
        longpole.uninstrument()
    assert "_request" not in vars(ollama._client)
    assert [span.name for span in spans] == ["chat plain"]
