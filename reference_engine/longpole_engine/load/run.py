"""Sends what is due when it is due, and keeps what came of it."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final, NamedTuple, Protocol

from longpole_engine.load import prompts
from longpole_engine.load.arrivals import Closed, Session, Turn
from longpole_engine.load.client import Answer, Behaviour, now_ns

_NS: Final = 1_000_000_000
_MS: Final = 1_000_000
_MAX_LATE_NS: Final = 10 * _NS
"""A request this late is counted and not sent: a rate that no machine can send has an end, too."""
_YIELD_EVERY: Final = 1_024
_MAX_MORE: Final = 1 << 20
"""More blocks than a session adds to its first prompt."""
_PROGRESS_S: Final = 1.0
_PAUSE_S: Final = 0.1
"""Of a closed loop's client after a failure: a target that is down is not asked all the time."""


class Asker(Protocol):
    """A target: an address, or a command."""

    async def ask(
        self,
        body: bytes,
        traceparent: str | None,
        timeout_s: float,
        behaviour: Behaviour = Behaviour.READS,
        limit: float = 0.0,
    ) -> Answer:
        """Send one request; failures are told in the answer."""

    def close(self) -> None:
        """Let go of what is open."""


class Tracer(Protocol):
    """Where the traces of a run go."""

    def begin(self, due_ns: int, sent_ns: int, session: int) -> tuple[Any, str]:
        """Start the spans of a request; what ends them, and its ``traceparent``."""

    def end(self, spans: Any, answer: Answer) -> None:
        """End them."""


@dataclass(frozen=True)
class Plan:
    """What is sent and when it ends.

    ``shares`` are parts of the requests (0 to 1) whose clients do other than read; ``limits``
    what :meth:`longpole_engine.load.client.Client.ask` calls ``limit`` for them; ``lead`` is a word
    before every prompt, so that no cache knows it from other runs; ``prompts`` are bodies
    (:func:`longpole_engine.load.prompts.recorded`) that are asked in turn, in an order drawn from
    the seed, in place of generated prompts.
    """

    model: str
    input_tokens: int = 128
    output_tokens: int = 64
    seed: int = 0
    duration_s: float | None = None
    max_requests: int | None = None
    max_failures: int | None = None
    max_in_flight: int = 4096
    timeout_s: float = 120.0
    warm_up_s: float = 0.0
    think_s: float = 0.0
    turns: int = 1
    language: str = prompts.LANGUAGES[0]
    lead: str = ""
    prompts: Sequence[Mapping[str, Any]] = ()
    shares: Mapping[Behaviour, float] = field(default_factory=dict)
    limits: Mapping[Behaviour, float] = field(default_factory=dict)


class Sent(NamedTuple):
    """A request that was sent: when it was due (:data:`now_ns`), and what came of it."""

    session: int
    due_ns: int
    turn: Turn
    behaviour: Behaviour
    is_warm_up: bool
    answer: Answer

    @property
    def lag_ns(self) -> int:
        """How late it was sent."""
        return self.answer.call.start_ns - self.due_ns


class _Asked(NamedTuple):
    """A request that is ready to be sent."""

    session: int
    turn: Turn
    behaviour: Behaviour
    body: bytes


class Run:
    """One run: give it arrivals, then read what came.

    Args:
        plan: what to send.
        target: whom to ask.
        tracer: where traces go; ``None`` for nowhere.
        on_answer: called after each answer, and once a second.
        until: waits for arrivals; by default on the loop's clock of milliseconds.
    """

    def __init__(
        self,
        plan: Plan,
        target: Asker,
        tracer: Tracer | None = None,
        on_answer: Callable[["Run"], None] = lambda run: None,
        until: Callable[[int], Awaitable[None]] | None = None,
    ) -> None:
        self.plan = plan
        self.sent: list[Sent] = []
        self.num_due = 0
        self.due_ns: tuple[int, int] | None = None
        """When the first and the last request were due, sent or not."""
        self.sent_ns: tuple[int, int] | None = None
        """When the first and the last one were sent."""
        self.num_not_sent = 0
        """Due, but ``max_in_flight`` requests were already waiting; or too late."""
        self.num_too_late = 0
        """Of these: ten seconds late."""
        self.num_given_up = 0
        """In flight when the run was stopped by hand."""
        self.num_failed = 0
        self.num_in_flight = self.max_in_flight = 0
        self.begun_ns = self.ended_ns = 0
        self.cpu_s = 0.0
        self.is_stopped = False
        """By hand, or by ``max_failures``: what is here is a part."""
        self._target, self._tracer, self._on_answer = target, tracer, on_answer
        self._until = until or _until
        self._tasks: set[asyncio.Task[None]] = set()
        self._over = asyncio.Event()
        self._error: BaseException | None = None
        order = Random(f"prompts {plan.seed}")  # noqa: S311 - no secret
        self._prompts = order.sample(plan.prompts, len(plan.prompts))

    def stop(self) -> None:
        """Send no more and give up what is in flight; what has come stays."""
        self.is_stopped = True
        self._over.set()

    async def __call__(self, arrivals: Iterable[Session] | Closed) -> None:
        """Run to the end of the arrivals, or of the plan."""
        cpu_s = time.process_time()
        self.begun_ns = now_ns()
        try:
            if isinstance(arrivals, Closed):
                for _ in range(arrivals.num_clients):
                    self._start(self._client(arrivals.turn))
            else:
                self._start(self._open(arrivals))
            while not self._over.is_set():
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._over.wait(), _PROGRESS_S)
                self._on_answer(self)
            left = list(self._tasks)
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)
            if self._error is not None:
                raise self._error
        finally:
            self.ended_ns = now_ns()
            self.cpu_s = time.process_time() - cpu_s
            self._target.close()

    # --- when ---

    async def _open(self, arrivals: Iterable[Session]) -> None:
        for number, session in enumerate(_with_turns(arrivals, self.plan)):
            due_ns = self.begun_ns + round(session.due_s * _NS)
            if self._is_over(due_ns):
                return
            if now_ns() - due_ns > _MAX_LATE_NS:
                self.num_due += 1
                self.num_too_late += 1
                self._leave_out(due_ns)
                if not self.num_too_late % _YIELD_EVERY:
                    await asyncio.sleep(0)
                continue
            asked = self._ask(number, 0, session.turns[0])
            await self._until(due_ns)
            if self._is_over(due_ns):
                return  # turns of others came meanwhile
            self.num_due += 1
            if self.num_in_flight >= self.plan.max_in_flight:
                self._leave_out(due_ns)
                continue
            self._start(self._session(due_ns, asked, session.turns))

    async def _session(self, due_ns: int, asked: "_Asked", turns: tuple[Turn, ...]) -> None:
        for index, turn in enumerate(turns):
            if index:
                due_ns = now_ns() + round(turn.wait_s * _NS)
                if self._is_over(due_ns):
                    return
                self.num_due += 1
                asked = self._ask(asked.session, index, turn)
                try:
                    await _until(due_ns)
                except asyncio.CancelledError:
                    self.num_due -= 1  # the run was stopped before it was due
                    raise
            answer = await self._request(due_ns, asked)
            if not answer.is_whole:
                return  # a user whose answer fails does not go on

    async def _client(self, turn: Callable[[int], Turn]) -> None:
        while not self._is_over(now_ns()):
            self.num_due += 1
            asked = self._ask(self.num_due, 0, turn(self.num_due))
            answer = await self._request(now_ns(), asked)
            pause_s = _PAUSE_S if answer.failure else 0.0
            await asyncio.sleep(max(pause_s, self.plan.think_s))

    def _leave_out(self, due_ns: int) -> None:
        self.num_not_sent += 1
        self.due_ns = _widened(self.due_ns, due_ns)

    def _is_over(self, due_ns: int) -> bool:
        plan = self.plan
        return (plan.max_requests is not None and self.num_due >= plan.max_requests) or (
            plan.duration_s is not None and due_ns >= self.begun_ns + plan.duration_s * _NS
        )

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self._error = self._error or task.exception()
            self._over.set()
        elif not self._tasks:
            self._over.set()

    # --- what ---

    def _ask(self, session: int, index: int, turn: Turn) -> "_Asked":
        """What is asked, made before it is due; the same for the same seed."""
        name = f"{self.plan.seed} {session} {index}"
        body = self._given(turn, session + index) if self._prompts else self._made(turn, name)
        return _Asked(session, turn, self._behaviour(name), json.dumps(body).encode())

    async def _request(self, due_ns: int, asked: "_Asked") -> Answer:
        plan, behaviour = self.plan, asked.behaviour
        spans = traceparent = None
        sent_ns = now_ns()
        self.due_ns, self.sent_ns = _widened(self.due_ns, due_ns), _widened(self.sent_ns, sent_ns)
        if self._tracer is not None:
            spans, traceparent = self._tracer.begin(due_ns, sent_ns, asked.session)
        self.num_in_flight += 1
        self.max_in_flight = max(self.max_in_flight, self.num_in_flight)
        try:
            answer = await self._target.ask(
                asked.body, traceparent, plan.timeout_s, behaviour, plan.limits.get(behaviour, 0.0)
            )
        except asyncio.CancelledError:
            self.num_given_up += 1
            raise
        finally:
            self.num_in_flight -= 1
        if self._tracer is not None:
            self._tracer.end(spans, answer)
        is_warm_up = due_ns < self.begun_ns + plan.warm_up_s * _NS
        self.sent.append(Sent(asked.session, due_ns, asked.turn, behaviour, is_warm_up, answer))
        self.num_failed += answer.failure is not None
        if plan.max_failures is not None and self.num_failed >= plan.max_failures:
            self.stop()
        self._on_answer(self)
        return answer

    def _behaviour(self, name: str) -> Behaviour:
        if not any(self.plan.shares.values()):
            return Behaviour.READS
        at = Random(f"behaviour {name}").random()  # noqa: S311 - no secret
        for behaviour, share in self.plan.shares.items():
            at -= share
            if at < 0:
                return behaviour
        return Behaviour.READS

    def _made(self, turn: Turn, name: str) -> dict[str, Any]:
        num_input = self.plan.input_tokens if turn.input_tokens is None else turn.input_tokens
        # a prompt of no token cannot be asked for: the least there is
        text = prompts.text(turn, max(1, num_input), name, self.plan.language)
        return self._body(turn, {"messages": [{"role": "user", "content": text}]})

    def _given(self, turn: Turn, number: int) -> dict[str, Any]:
        return self._body(turn, self._prompts[number % len(self._prompts)])

    def _body(self, turn: Turn, asked: Mapping[str, Any]) -> dict[str, Any]:
        """What is asked with what every request has."""
        plan = self.plan
        num_output = plan.output_tokens if turn.output_tokens is None else turn.output_tokens
        body = {
            **asked,
            "model": plan.model,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if "max_completion_tokens" not in body:
            # an answer of no token cannot be asked for: the least there is
            body.setdefault("max_tokens", max(1, num_output))
        if plan.lead:
            first, *others = asked["messages"]
            led = {**first, "content": f"{plan.lead} {first['content']}"}
            body["messages"] = [led, *others]
        return body


def _widened(span_ns: tuple[int, int] | None, at_ns: int) -> tuple[int, int]:
    """The stretch of time with this moment in it."""
    first_ns, last_ns = span_ns or (at_ns, at_ns)
    return min(first_ns, at_ns), max(last_ns, at_ns)


async def _until(due_ns: int) -> None:
    """Wait; let others run even if it is late, so that those in flight are read and counted."""
    await asyncio.sleep(0)
    while (wait_ns := due_ns - now_ns()) > 0:  # noqa: ASYNC110 - a time is no event
        # loops count whole milliseconds, and some wake before the last one is over
        await asyncio.sleep(-(-wait_ns // _MS) / 1_000)


def _with_turns(arrivals: Iterable[Session], plan: Plan) -> Iterator[Session]:
    """Sessions of several turns where the plan says so and the recording has only one."""
    for number, session in enumerate(arrivals):
        if plan.turns == 1 or len(session.turns) > 1:
            yield session
            continue
        first = session.turns[0]
        blocks = first.blocks or (-plan.seed * 1_000_003 - number - 1,)
        num_input = plan.input_tokens if first.input_tokens is None else first.input_tokens
        turns = (
            # each turn's prompt is the one before it and as much again, in as many blocks
            Turn(
                plan.think_s if index else 0.0,
                num_input * (index + 1),
                first.output_tokens,
                (*blocks, *(blocks[-1] * _MAX_MORE + at for at in range(index * len(blocks)))),
                first.block_tokens,
            )
            for index in range(plan.turns)
        )
        yield Session(session.due_s, tuple(turns))
