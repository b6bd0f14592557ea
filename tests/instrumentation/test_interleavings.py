"""However an application treats a stream: what it sees is what the library alone would show it,
and exactly one span ends.

Every example plays the same moves on a bare and on a wrapped client and compares all that comes
out.
"""

import asyncio
import contextvars
import gc
import sys
import threading
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import fuzzlib
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import longpole
from longpole import body, health, transport
from longpole.call import Kind
from longpole.providers.base import Answer, Chunks, Method, Provider, Request
from longpole.testing import Spans, capture_spans
from longpole.vocab import keys

SYNC = ["attribute", "generator", "own", "raw", "file"]
ASYNC = ["attribute", "generator", "own", "raw"]
STATES = {"completed", "closed_early", "error", "abandoned"}
EXAMPLES = settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)

chunks = st.tuples(
    st.just("chunk"),
    st.sampled_from(["text", "role", "usage", "unreadable"]),
    st.booleans(),
    st.integers(0, 2),
)
scripts = st.lists(st.one_of(chunks, chunks, st.just(("raise",))), max_size=5)
TWO = [("chunk", "text", False, 2), ("chunk", "text", True, 2)]
SYNC_MOVES = [
    "next",
    "next",
    "next",
    "in thread",
    "in context",
    "close",
    "close",
    "body raises",
    "throw",
    "throw caught",
    "drop",
    "collect",
    "unwrap",
]
ASYNC_MOVES = [
    "next",
    "next",
    "next in task",
    "left half-way",
    "start",
    "start",
    "turn",
    "turn",
    "join",
    "cancel",
    "close",
    "close in task",
    "body raises",
    "throw",
    "throw caught",
    "drop",
    "collect",
    "unwrap",
]


class AppError(Exception):
    """What the application raises itself."""


THROWN = {"throw": AppError, "throw caught": KeyError}
"""What is thrown into a generator; the library's own handle a ``KeyError``."""


# --- the library as a provider file would describe it -------------------------------------------


def _read(chunk: Any, answer: Answer) -> Kind:
    kind = chunk.get("kind")
    if chunk.get("is_last"):
        answer.finish_reasons[0] = "stop"
    if kind == "unreadable":
        raise ValueError(kind)
    return Kind(kind)


def _attach(client: Any) -> list[Any]:
    def told(found: fuzzlib.FileBody) -> None:
        record = transport.answered(200, [])
        if record is not None:
            body.follow_reads(found, found.raw, record)

    client.on_body.append(told)
    return [*transport.hook(client.http, client.http_async), client.on_body.clear]


def _method(path: str, chunks: Any, *, is_raw: bool = False) -> Method:
    request = Request({keys.REQUEST_MODEL: "m"}, is_streamed=True, is_raw=is_raw)
    return Method(path, "chat", lambda args, kwargs: request, _read, lambda *_: None, chunks)


def _methods() -> Iterator[Method]:
    for suffix, step in (("", "__next__"), ("_async", "__anext__")):
        yield _method(f"attribute{suffix}", lambda s: Chunks(s, "_iterator", s.response))
        yield _method(f"generator{suffix}", lambda s: None)
        yield _method(f"own{suffix}", lambda s, step=step: Chunks(s, step))
        yield _method(f"raw{suffix}", lambda s: None, is_raw=True)
    yield _method("file", lambda s: None, is_raw=True)


@pytest.fixture(autouse=True)
def _provider(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    name = "longpole.providers.fuzzlib"
    module = ModuleType(name)
    module.__spec__ = ModuleSpec(name, None)
    vars(module)["PROVIDER"] = Provider(
        package="fuzzlib",
        majors=frozenset({1}),
        classes=("Client",),
        methods=tuple(_methods()),
        name=lambda client: "fuzz",
        server=lambda client: None,
        attach=_attach,
    )
    monkeypatch.setitem(sys.modules, name, module)
    gc.collect()
    gc.freeze()  # what lives by now is not looked at in each of the many collections
    yield
    gc.unfreeze()


# --- the moves ----------------------------------------------------------------------------------

Seen = list[tuple[str, str]]


def _outcome(error: BaseException) -> tuple[str, str]:
    return ("raised", f"{type(error).__name__}: {error}")


class SyncPlay:
    """Moves of a synchronous application; ``seen`` is all that it was given or raised."""

    def __init__(self, client: Any, kind: str) -> None:
        self.client = client
        self.seen: Seen = []
        self.stream = getattr(client, kind)()

    def play(self, moves: Sequence[str]) -> Seen:
        for move in moves:
            if move == "collect":
                gc.collect()
            elif move == "unwrap":
                longpole.unwrap(self.client)
            elif move == "drop":
                self.stream = None
            elif self.stream is not None:
                self._move(move)
                self.seen.append(("closed", str(self.client.response.is_closed)))
        self.stream = None
        gc.collect()
        return self.seen

    def _move(self, move: str) -> None:
        if move == "in thread":
            thread = threading.Thread(target=self._try, args=[self._next])
            thread.start()
            thread.join()
        elif move == "in context":
            contextvars.copy_context().run(self._try, self._next)
        elif move == "close":
            self._try(self.stream.close)
        elif move == "body raises" and hasattr(self.stream, "__enter__"):
            self._try(self._raise_inside)
        elif move in THROWN and hasattr(self.stream, "throw"):
            self._try(lambda: self.stream.throw(THROWN[move]("mine")))
        elif move == "next":
            self._try(self._next)

    def _try(self, act: Any) -> None:
        try:
            self.seen.append(("got", repr(act())))
        except Exception as error:  # noqa: BLE001 - compared
            self.seen.append(_outcome(error))

    def _next(self) -> Any:
        return next(self.stream)

    def _raise_inside(self) -> None:
        with self.stream:
            raise AppError("mine")


class AsyncPlay:
    """Moves of an asynchronous application, with reads that wait while others begin."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self.seen: Seen = []
        self.stream: Any = None
        self._waiting: list[asyncio.Task[None]] = []

    async def play(self, kind: str, moves: Sequence[str]) -> Seen:
        self.stream = await getattr(self.client, f"{kind}_async")()
        for move in moves:
            if move == "collect":
                gc.collect()
            elif move == "unwrap":
                longpole.unwrap(self.client)
            elif move == "turn":
                await asyncio.sleep(0)
            elif move in ("join", "cancel"):
                await self._join(is_cancelled=move == "cancel")
            elif move == "drop":
                self.stream = None
            elif self.stream is not None:
                await self._move(move)
                self.seen.append(("closed", str(self.client.response.is_closed)))
        await self._join(is_cancelled=False)
        self.stream = None
        for _ in range(5):  # the loop closes the async generators that nobody holds
            gc.collect()
            await asyncio.sleep(0)
        return self.seen

    async def _join(self, *, is_cancelled: bool) -> None:
        waiting, self._waiting = self._waiting, []
        for task in waiting:
            if is_cancelled:
                task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)

    async def _move(self, move: str) -> None:
        if move == "start":
            self._waiting.append(asyncio.create_task(self._try(self.stream.__anext__)))
        elif move == "next in task":
            await asyncio.create_task(self._try(self.stream.__anext__))
        elif move == "left half-way":
            await self._try(self._left)
        elif move == "close":
            await self._try(self.stream.aclose)
        elif move == "close in task":
            await asyncio.create_task(self._try(self.stream.aclose))
        elif move == "body raises" and hasattr(self.stream, "__aenter__"):
            await self._try(self._raise_inside)
        elif move in THROWN and hasattr(self.stream, "athrow"):
            await self._try(lambda: self.stream.athrow(THROWN[move]("mine")))
        elif move == "next":
            await self._try(self.stream.__anext__)

    async def _try(self, act: Any) -> None:
        try:
            self.seen.append(("got", repr(await act())))
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - compared
            self.seen.append(_outcome(error))

    async def _left(self) -> None:
        """Begin to read in one context, and stop in another."""
        step = self.stream.__anext__()
        try:
            contextvars.copy_context().run(step.send, None)
        finally:
            step.close()

    async def _raise_inside(self) -> None:
        async with self.stream:
            raise AppError("mine")


PLAIN = {"next", "in thread", "in context", "next in task", "turn", "join", "collect", "unwrap"}
"""Moves after which the state is known: a stream that is only read."""


def check(spans: Spans, script: Any, moves: Sequence[str], seen: Seen) -> None:
    """One span, in the right state, and no failure of ours but the readings made to fail."""
    assert len(spans) == 1
    state = dict(spans[0].attributes or {})[keys.STREAM_STATE]
    assert state in STATES
    if PLAIN.issuperset(moves):
        assert state == _state(script, seen)
    assert set(health.internal_errors) <= {"chunk", "body", "context left elsewhere"}
    health.reset()


def _state(script: Any, seen: Seen) -> str:
    """What became of a stream that was read and then dropped."""
    num_read = sum(what == "got" for what, _ in seen)
    raised = {text.partition(":")[0] for what, text in seen if what == "raised"}
    if "LibraryError" in raised:
        return "error"
    if any(step[2] for step in script[:num_read]):
        return "completed"
    return "error" if raised else "abandoned"


@pytest.mark.parametrize("kind", SYNC)
@EXAMPLES
@given(script=scripts, moves=st.lists(st.sampled_from(SYNC_MOVES), max_size=12))
@example(script=TWO, moves=["next", "throw caught", "next", "next"])
@example(script=TWO, moves=["next", "unwrap", "next", "next"])
def test_sync_streams(kind: str, script: Any, moves: list[str]) -> None:
    bare = SyncPlay(fuzzlib.Client(script), kind).play(moves)
    with capture_spans() as spans:
        wrapped = SyncPlay(longpole.wrap(fuzzlib.Client(script)), kind).play(moves)
        assert wrapped == bare
        check(spans, script, moves, wrapped)


@pytest.mark.parametrize("kind", ASYNC)
@EXAMPLES
@given(script=scripts, moves=st.lists(st.sampled_from(ASYNC_MOVES), max_size=12))
@example(script=TWO, moves=["next", "throw caught", "next", "next"])
@example(script=TWO, moves=["left half-way", "next"])
@example(script=TWO, moves=["start", "turn", "cancel", "next"])
@example(script=TWO, moves=["start", "turn", "close in task", "join"])
def test_async_streams(kind: str, script: Any, moves: list[str]) -> None:
    bare = asyncio.run(AsyncPlay(fuzzlib.Client(script)).play(kind, moves))
    with capture_spans() as spans:
        client = longpole.wrap(fuzzlib.Client(script))
        wrapped = asyncio.run(AsyncPlay(client).play(kind, moves))
        gc.collect()  # what the loop itself held
        assert wrapped == bare
        check(spans, script, moves, wrapped)
