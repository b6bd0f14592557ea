"""Incidents: load over real engines behind a balancer, and what goes wrong in the middle of it.

What requests met is told before, during and after: those before ended before the incident; those
during ended later, and were due before its work was done and things were well again; see
:mod:`longpole_engine.load.recovery`.
"""

import asyncio
import os
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import accumulate, takewhile
from math import inf
from random import Random
from typing import Any, Final, NamedTuple

from longpole.errors import UsageError
from longpole_engine.load.arrivals import Closed, Session, Turn, gamma_gaps
from longpole_engine.load.balancer import Balancer
from longpole_engine.load.client import Client, Target, now_ns
from longpole_engine.load.recovery import calm, recovered
from longpole_engine.load.replica import Replica
from longpole_engine.load.run import Plan, Run, Sent
from longpole_engine.load.summary import failure, times

SCHEMA: Final = "longpole.incident/1"
NUM_BLOCKS: Final = 8
"""Of a prompt; all but the last are its prefix, shared by a group of requests."""
_WARM_UP: Final = 1_000_000_000
"""Numbers from here on are those of requests before the load."""
_NS: Final = 1e9


@dataclass(frozen=True)
class Setup:
    """The load of an incident, and what serves it.

    ``prefixes`` is the number of different prompts' beginnings. Requests come for half of
    ``duration_s`` before the incident and as long after its work is done.
    """

    model: str = "smollm2"
    rate: float = 1.0
    duration_s: float = 60.0
    replicas: int = 2
    input_tokens: int = 192
    output_tokens: int = 16
    prefixes: int = 4
    timeout_s: float = 60.0
    seed: int = 0


class Scene:
    """What an incident acts on: the balancer and the engines behind it."""

    def __init__(self, setup: Setup) -> None:
        num_threads = max(1, (os.cpu_count() or 1) // setup.replicas)
        self._settings = {"model": setup.model, "num_threads": num_threads}
        self.balancer = Balancer()
        self.replicas: list[Replica] = []
        self.spare: Replica | None = None
        self._all: list[Replica] = []
        self.events: list[tuple[int, str]] = []
        """When what was done (:data:`now_ns`)."""
        self.end_s = inf
        """When requests end, seconds after they began; unknown until the incident is over."""

    def tell(self, what: str) -> None:
        """Note that this was done now."""
        self.events.append((now_ns(), what))

    async def start(self, *, is_serving: bool = True) -> Replica:
        """One more engine, behind the balancer or spare."""
        made = Replica(self._settings)
        self._all.append(made)
        await made.start()
        if is_serving:
            self.balancer.add(made.url)
            self.replicas.append(made)
        return made

    async def close(self) -> None:
        """End all engines."""
        await asyncio.gather(*(each.kill() for each in self._all))


async def _nothing(scene: Scene) -> None:
    """No preparation."""


async def _spare(scene: Scene) -> None:
    scene.spare = await scene.start(is_serving=False)


async def _cache_loss(scene: Scene) -> None:
    assert scene.spare is not None  # noqa: S101 - prepared
    scene.balancer.add(scene.spare.url)
    scene.balancer.remove(scene.replicas[0].url)
    scene.tell("all traffic goes to an engine that has no prompt in its cache")


async def _deploy(scene: Scene) -> None:
    for number, old in enumerate(tuple(scene.replicas), 1):
        scene.balancer.remove(old.url)
        scene.tell(f"replica {number} is taken out and stopped")
        await old.stop()
        await scene.start()
        scene.tell(f"replica {number} is back, restarted")


async def _scale_up(scene: Scene) -> None:
    scene.tell("another replica is started")
    await scene.start()
    scene.tell("it is ready and has its turn")


async def _replica_loss(scene: Scene) -> None:
    scene.tell("replica 1 is killed")
    await scene.replicas[0].kill()


async def _recovery(scene: Scene) -> None:
    await _replica_loss(scene)
    gone = scene.replicas[0].url
    await scene.start()
    scene.balancer.remove(gone)
    scene.tell("a new replica took its place")


class Incident(NamedTuple):
    """What happens.

    ``num_replicas`` serve at first, ``None`` as many as the set-up says. With ``is_relief`` things
    are better after it, not worse.
    """

    name: str
    text: str
    act: Callable[[Scene], Awaitable[None]]
    prepare: Callable[[Scene], Awaitable[None]] = _nothing
    num_replicas: int | None = None
    is_relief: bool = False


INCIDENTS: Final = {
    each.name: each
    for each in (
        Incident("cache_loss", "the prefix cache is lost, all else stays", _cache_loss, _spare, 1),
        Incident("deploy", "replicas are restarted one after the other", _deploy),
        Incident("scale_up", "one replica more", _scale_up, num_replicas=1, is_relief=True),
        Incident("replica_loss", "a replica dies and stays away", _replica_loss),
        Incident("recovery", "a replica dies and another takes its place", _recovery),
    )
}


def find(name: str) -> Incident:
    """The incident of that name.

    Raises:
        UsageError: there is none.
    """
    if name not in INCIDENTS:
        raise UsageError(f"no incident '{name}'; there are: {', '.join(INCIDENTS)}")
    return INCIDENTS[name]


async def run(
    incident: Incident, setup: Setup, say: Callable[[str], None] = lambda text: None
) -> dict[str, Any]:
    """Make it happen under load, and tell what requests met (schema ``longpole.incident/1``).

    Args:
        incident: what.
        setup: the load and the engines.
        say: is told what goes on.

    Raises:
        LongpoleError: an engine did not start.
    """
    num = incident.num_replicas or setup.replicas
    setup = replace(setup, replicas=num)
    scene = Scene(setup)
    try:
        say(f"starting {num} of '{setup.model}'")
        await asyncio.gather(*(scene.start() for _ in range(num)))
        await incident.prepare(scene)
        server = await scene.balancer.serve()
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        plan = Plan(
            scene.replicas[0].model,
            setup.input_tokens,
            setup.output_tokens,
            setup.seed,
            timeout_s=setup.timeout_s,
        )
        await _warm_up(plan, url, setup.prefixes, num)
        load = Run(plan, Client(Target.at(url, None)))
        say(f"{setup.rate:g} requests a second for {setup.duration_s:g} s")
        acting = asyncio.create_task(_act(incident, scene, setup.duration_s))
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, load.stop)
        try:
            await load(takewhile(lambda each: each.due_s < scene.end_s, arrivals(setup)))
            if not load.is_stopped:
                await acting
        finally:
            loop.remove_signal_handler(signal.SIGINT)
            acting.cancel()
            with suppress(asyncio.CancelledError):
                await acting
            server.close()
    finally:
        await scene.close()
    return _document(incident, setup, scene, load)


async def _act(incident: Incident, scene: Scene, duration_s: float) -> None:
    begun_s = time.monotonic()
    await asyncio.sleep(duration_s / 2)
    scene.tell(incident.text)
    try:
        await incident.act(scene)
    finally:
        scene.tell("done")
        # as long again as before it, however long it took
        scene.end_s = time.monotonic() - begun_s + duration_s / 2


def arrivals(setup: Setup) -> Iterator[Session]:
    """Endless Poisson arrivals whose prompts begin alike in groups; the same for the same seed."""
    random = Random(f"incident {setup.seed}")  # noqa: S311 - no secret
    for number, at_s in enumerate(accumulate(gamma_gaps(setup.rate, 1.0, setup.seed)), 1):
        yield Session(at_s, (_turn(random.randrange(setup.prefixes), number),))


def _turn(group: int, number: int) -> Turn:
    prefix = range(group * NUM_BLOCKS, group * NUM_BLOCKS + NUM_BLOCKS - 1)
    return Turn(blocks=(*prefix, -number))


async def _warm_up(plan: Plan, url: str, num_prefixes: int, num_replicas: int) -> None:
    """Each prefix to each replica, whose turns come in order."""
    num = num_prefixes * num_replicas
    warm = Run(replace(plan, max_requests=num), Client(Target.at(url, None)))
    await warm(Closed(1, lambda number: _turn((number - 1) // num_replicas, _WARM_UP + number)))


def _document(incident: Incident, setup: Setup, scene: Scene, load: Run) -> dict[str, Any]:
    sent = sorted(load.sent, key=lambda each: each.due_ns)
    # stopped by hand before it came: all is before
    times_ns = [at for at, _ in scene.events] or [load.ended_ns]
    at_ns, done_ns = times_ns[0], times_ns[-1]
    before = [each for each in sent if _ended_ns(each) < at_ns]
    since = [each for each in sent if _ended_ns(each) >= at_ns]  # some were in flight then
    later = [each for each in sent if each.due_ns >= done_ns]
    usual = calm(later[len(later) // 2 :] if incident.is_relief else before)
    back_ns = recovered(since, at_ns, usual)
    until_ns = None if back_ns is None else max(back_ns, done_ns)

    def second(ns: int) -> float:
        return (ns - load.begun_ns) / _NS

    end_ns = until_ns or load.ended_ns
    parts = (
        ("before", load.begun_ns, at_ns, before),
        ("during", at_ns, end_ns, [each for each in since if each.due_ns < end_ns]),
        ("after", end_ns, load.ended_ns, [each for each in since if each.due_ns >= end_ns]),
    )
    return {
        "schema": SCHEMA,
        "name": incident.name,
        "text": incident.text,
        "is_relief": incident.is_relief,
        "setup": vars(setup),
        "events": [{"at_s": second(at), "what": what} for at, what in scene.events[1:-1]],
        "at_s": second(at_ns),
        "calm": None if usual is None else usual._asdict(),
        "recover_s": None if back_ns is None else (back_ns - at_ns) / _NS,
        "num_due": load.num_due,
        "num_failed": load.num_failed,
        "is_partial": load.is_stopped,
        "requests_by_replica": list(scene.balancer.num_by_url.values()),
        "num_connections_refused": scene.balancer.num_refused,
        "phases": [
            {"name": name, "from_s": second(begin), "to_s": second(end)} | phase(met)
            for name, begin, end, met in parts
        ],
    }


def _ended_ns(each: Sent) -> int:
    return each.answer.call.end_ns or each.due_ns


def phase(sent: Sequence[Sent]) -> dict[str, Any]:
    """What the requests of a stretch of time met."""
    whole = [each.answer.call.usage for each in sent if each.answer.is_whole]
    counted = [each for each in whole if None not in (each.input_tokens, each.cached_input_tokens)]
    given = sum(each.input_tokens or 0 for each in counted)
    cached = sum(each.cached_input_tokens or 0 for each in counted)
    found: Mapping[str, Any] = times(sent)
    return {
        "num_due": len(sent),
        "num_completed": len(whole),
        "failures": dict(Counter(failure(each) for each in sent if each.answer.failure)),
        "cached_share": cached / given if given else None,
        "ttft_ms": found["latency"]["ttft_ms"],
        "e2e_ms": found["latency"]["e2e_ms"],
        "tpot_ms": found["service"]["tpot_ms"],
    }
