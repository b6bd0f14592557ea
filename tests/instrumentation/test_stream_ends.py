"""However a stream ends, exactly one span ends, in the right state."""

import asyncio
import gc
from typing import Any

import openai
import pytest
from opentelemetry import trace

import longpole
from longpole.testing import Spans
from longpole.vocab import keys

MESSAGES: Any = [{"role": "user", "content": "x"}]


def make(client: openai.OpenAI, model: str = "slow") -> Any:
    return client.chat.completions.create(model=model, messages=MESSAGES, stream=True)


async def amake(client: openai.AsyncOpenAI, model: str = "slow") -> Any:
    return await client.chat.completions.create(model=model, messages=MESSAGES, stream=True)


def states(spans: Spans) -> list[str]:
    return [str((span.attributes or {})[keys.STREAM_STATE]) for span in spans]


@pytest.fixture
async def aclient(server: Any) -> Any:
    async with openai.AsyncOpenAI(api_key="k", base_url=server.base_url) as made:
        yield longpole.wrap(made)


def test_the_stream_keeps_its_type_and_its_response(client: openai.OpenAI, spans: Spans) -> None:
    stream = make(client, "plain")
    assert type(stream) is openai.Stream
    assert stream.response.headers["content-type"] == "text/event-stream"
    list(stream)
    assert stream.response.is_closed
    assert not {"close", "aclose"} & set(vars(stream.response))


def test_read_to_the_end(client: openai.OpenAI, spans: Spans) -> None:
    stream = make(client, "plain")
    list(stream)
    stream.close()
    del stream
    gc.collect()
    assert states(spans) == ["completed"]


def test_nothing_of_ours_is_current_while_the_application_reads(
    client: openai.OpenAI, spans: Spans
) -> None:
    with longpole.workflow("around"):
        around = trace.get_current_span()
        stream = make(client, "plain")
        assert all(trace.get_current_span() is around for _ in stream)


def test_break_and_close(client: openai.OpenAI, spans: Spans) -> None:
    stream = make(client)
    for _ in stream:
        break
    stream.close()
    assert states(spans) == ["closed_early"]


def test_closed_before_the_first_read(client: openai.OpenAI, spans: Spans) -> None:
    make(client).close()
    assert states(spans) == ["closed_early"]


def test_closed_right_after_the_finish_reason(client: openai.OpenAI, spans: Spans) -> None:
    with make(client, "plain") as stream:
        for chunk in stream:
            if chunk.choices[0].finish_reason:
                break
    assert states(spans) == ["completed"]


def test_left_by_the_context_manager(client: openai.OpenAI, spans: Spans) -> None:
    with make(client) as stream:
        next(stream)
    assert states(spans) == ["closed_early"]


def test_left_by_an_exception_in_the_body(client: openai.OpenAI, spans: Spans) -> None:
    error = ValueError("mine")

    def read() -> None:
        with make(client) as stream:
            next(stream)
            raise error

    with pytest.raises(ValueError, match="mine") as caught:
        read()
    assert caught.value is error
    assert error.__context__ is None
    assert states(spans) == ["closed_early"]


def test_left_by_the_stream_helper(client: openai.OpenAI, spans: Spans) -> None:
    with client.chat.completions.stream(model="slow", messages=MESSAGES) as stream:
        next(stream)
    assert states(spans) == ["closed_early"]


def test_read_in_two_loops(client: openai.OpenAI, spans: Spans) -> None:
    stream = make(client, "plain")
    for _ in stream:
        break
    assert states(spans) == []
    assert len(list(stream)) == 11
    assert states(spans) == ["completed"]


def test_abandoned_and_collected(client: openai.OpenAI, spans: Spans) -> None:
    stream = make(client)
    next(stream)
    assert longpole.stats().num_open == 1
    del stream
    gc.collect()
    assert states(spans) == ["abandoned"]
    assert longpole.stats().num_open == 0


def test_abandoned_before_the_first_read(client: openai.OpenAI, spans: Spans) -> None:
    make(client)
    gc.collect()
    assert states(spans) == ["abandoned"]


def test_abandoned_ends_when_it_was_last_read(client: openai.OpenAI, spans: Spans) -> None:
    stream = make(client)
    for _ in range(3):
        chunk_ns = stream.__next__() and asyncio.run(_now_ns())
    asyncio.run(asyncio.sleep(0.2))
    del stream
    gc.collect()
    assert spans[0].end_time is not None
    assert spans[0].end_time < chunk_ns + 100_000_000


async def _now_ns() -> int:
    import time

    return time.time_ns()


async def test_async_read_to_the_end(aclient: openai.AsyncOpenAI, spans: Spans) -> None:
    stream = await amake(aclient, "plain")
    assert type(stream) is openai.AsyncStream
    assert len([chunk async for chunk in stream]) == 12
    await stream.close()
    assert states(spans) == ["completed"]


@pytest.mark.parametrize("close", ["close", "aclose"])
async def test_async_break_and_close(aclient: openai.AsyncOpenAI, spans: Spans, close: str) -> None:
    stream = await amake(aclient)
    async for _ in stream:
        break
    await getattr(stream, close)()
    assert states(spans) == ["closed_early"]


async def test_async_exception_in_the_body(aclient: openai.AsyncOpenAI, spans: Spans) -> None:
    async def read() -> None:
        async with await amake(aclient) as stream:
            await anext(stream)
            raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        await read()
    assert states(spans) == ["closed_early"]


async def test_cancelled_while_waiting_for_a_chunk(
    aclient: openai.AsyncOpenAI, spans: Spans
) -> None:
    async def read() -> None:
        async for _ in await amake(aclient):
            pass

    with pytest.raises(TimeoutError):
        await asyncio.wait_for(read(), 0.1)
    assert states(spans) == ["closed_early"]
    assert dict(spans[0].attributes or {})[keys.ERROR_TYPE] == "CancelledError"
    assert spans[0].status.is_unset


async def test_cancelled_while_waiting_for_the_headers(
    aclient: openai.AsyncOpenAI, spans: Spans
) -> None:
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(amake(aclient, "late-headers"), 0.03)
    assert states(spans) == ["closed_early"]


async def test_async_abandoned_and_collected(aclient: openai.AsyncOpenAI, spans: Spans) -> None:
    stream = await amake(aclient)
    async for _ in stream:
        break
    del stream, _
    for _ in range(5):  # the loop closes the library's generators, one inside the other
        await asyncio.sleep(0.01)
        gc.collect()
    assert states(spans) == ["abandoned"]


def test_a_stream_that_was_tapped_is_collected_at_all(client: openai.OpenAI, spans: Spans) -> None:
    import weakref

    stream = make(client)
    next(stream)
    dead = weakref.ref(stream)
    del stream
    gc.collect()
    assert dead() is None


async def test_many_streams_at_once_end_once_each(
    aclient: openai.AsyncOpenAI, spans: Spans
) -> None:
    async def read() -> int:
        return len([chunk async for chunk in await amake(aclient, "plain")])

    assert await asyncio.gather(*(read() for _ in range(8))) == [12] * 8
    assert states(spans) == ["completed"] * 8
    assert len({span.context.span_id for span in spans if span.context}) == 8


def test_a_failure_of_ours_never_reaches_the_application(
    client: openai.OpenAI, spans: Spans, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    from longpole import record, transport

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("a secret question")

    monkeypatch.setattr("longpole.call.Call.event", broken)
    monkeypatch.setattr(transport, "is_private", broken)
    monkeypatch.setattr("longpole.call.Call.attributes", broken)
    assert len(list(make(client, "plain"))) == 12
    monkeypatch.setattr(record.Record, "__init__", broken)
    assert len(list(make(client, "plain"))) >= 12
    places = longpole.stats().num_internal_errors
    assert places["chunk"] == 13
    assert {"request hook", "end", "begin"} <= set(places)
    assert len(caplog.records) == len(places)
    assert "secret" not in caplog.text
