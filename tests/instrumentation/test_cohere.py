"""The Cohere client's own ways: two versions of its API, embeddings, rerank and raw forms."""

from collections.abc import Iterator
from typing import Any

import cohere
import pytest
from more_clients import MESSAGES, PLAIN, facts, opened, serving, tokens, value

import longpole
from longpole.testing import Spans
from longpole.vocab import keys


@pytest.fixture(scope="module")
def fakes() -> Iterator[dict[str, Any]]:
    with serving() as found:
        yield found


@pytest.fixture(params=["sync", "async"])
def is_async(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "async")


@pytest.mark.parametrize("name", ["cohere", "cohere-v1"])
async def test_cohere_embeds_and_reranks(
    name: str, fakes: Any, is_async: bool, spans: Spans
) -> None:
    async with opened(name, fakes[name].base_url, is_async) as client:
        kinds = {"embedding_types": ["float"]} if name == "cohere" else {}
        results = [
            client.embed(model="plain", texts=["x"], input_type="search_query", **kinds),
            client.rerank(model="plain", query="x", documents=["y"]),
            client.v2.embed(
                model="plain", texts=["x"], input_type="search_query", embedding_types=["float"]
            ),
        ]
        for result in results:
            await value(result)
    found = {span.name: dict(span.attributes or {}) for span in spans}
    assert len(spans) == 3
    assert set(found) == {"embeddings plain", "rerank plain"}
    assert tokens(found["embeddings plain"]) == (7, None, None, None, None)
    assert tokens(found["rerank plain"]) == (None,) * 5


@pytest.mark.parametrize("name", ["cohere", "cohere-v1"])
def test_cohere_raw_answers(name: str, fakes: Any, spans: Spans) -> None:
    cls: Any = {"cohere": cohere.ClientV2, "cohere-v1": cohere.Client}[name]
    with longpole.wrap(cls(api_key="k", base_url=fakes[name].base_url)) as client:
        asked: Any = {"messages": MESSAGES} if name == "cohere" else {"message": "x"}
        raw = client.with_raw_response.chat(model="plain", **asked)
        assert raw.headers["content-type"] == "application/json"
    assert tokens(facts(spans)) == PLAIN[name]


def test_a_raw_stream_that_is_refused_or_never_entered(fakes: Any, spans: Spans) -> None:
    client = longpole.wrap(cohere.ClientV2(api_key="k", base_url=fakes["cohere"].base_url))
    make = client.with_raw_response.chat_stream
    with pytest.raises(cohere.BadRequestError), make(model="bad-request", messages=MESSAGES):
        pass
    make(model="plain", messages=MESSAGES)
    states = [dict(span.attributes or {})[keys.STREAM_STATE] for span in spans]
    assert states == ["error", "abandoned"]
    client._client_wrapper.httpx_client.httpx_client.close()


@pytest.mark.parametrize(
    ("model", "state", "error", "num_chunks"),
    [("plain", "completed", None, 10), ("error-event", "error", "ERROR_TOXIC", 3)],
)
def test_version_1_generates(
    fakes: Any, spans: Spans, model: str, state: str, error: str | None, num_chunks: int
) -> None:
    with longpole.wrap(cohere.Client(api_key="k", base_url=fakes["cohere"].base_url)) as client:
        list(client.generate_stream(model=model, prompt="x"))
    found = facts(spans)
    assert found[keys.OPERATION] == "text_completion"
    assert found[keys.STREAM_STATE] == state
    assert found.get(keys.ERROR_TYPE) == error
    assert found[keys.CHUNK_COUNT] == num_chunks


def test_version_1_generates_whole(fakes: Any, spans: Spans) -> None:
    with longpole.wrap(cohere.Client(api_key="k", base_url=fakes["cohere"].base_url)) as client:
        client.generate(model="plain", prompt="x")
    found = facts(spans)
    assert found[keys.FINISH_REASONS] == ("COMPLETE",)
    assert tokens(found) == PLAIN["cohere"]
