"""A call says whether it had to open a connection; how long that took, where it was watched."""

from typing import Any

import openai

import longpole
from longpole import transport
from longpole.testing import Spans
from longpole.vocab import keys

MESSAGES: Any = [{"role": "user", "content": "x"}]


def told(spans: Spans, key: str) -> list[Any]:
    return [(span.attributes or {}).get(key) for span in spans]


def test_only_the_first_call_over_a_connection_opens_it(server: Any, spans: Spans) -> None:
    transport._open_to.clear()  # of earlier tests that have not been collected
    for _ in range(2):
        with openai.OpenAI(api_key="k", base_url=server.base_url) as client:
            longpole.wrap(client)
            for _ in range(2):
                client.chat.completions.create(model="plain", messages=MESSAGES)
    assert told(spans, keys.CONNECTION_NEW) == [True, False, True, False]
    times = told(spans, keys.CONNECTION_TIME)
    assert 0 < times[0] < 5
    assert times[1] is times[3] is None


async def test_the_same_for_async_clients(server: Any, spans: Spans) -> None:
    async with openai.AsyncOpenAI(api_key="k", base_url=server.base_url) as client:
        longpole.wrap(client)
        for _ in range(2):
            await client.chat.completions.create(model="plain", messages=MESSAGES)
    assert told(spans, keys.CONNECTION_NEW) == [True, False]


def test_a_second_connection_beside_an_open_one_is_new_of_unknown_time(
    server: Any, spans: Spans
) -> None:
    with (
        openai.OpenAI(api_key="k", base_url=server.base_url) as one,
        openai.OpenAI(api_key="k", base_url=server.base_url) as other,
    ):
        for client in (longpole.wrap(one), longpole.wrap(other)):
            client.chat.completions.create(model="plain", messages=MESSAGES)
    assert told(spans, keys.CONNECTION_NEW) == [True, True]
    assert told(spans, keys.CONNECTION_TIME)[1] is None
