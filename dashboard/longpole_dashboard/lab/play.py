"""Plays both sides of a recipe in turn, so that what the machine does otherwise meets both."""

import asyncio
import time
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import polars as pl

from longpole.errors import LongpoleError
from longpole_dashboard.lab.app import Agent, Name, Salt
from longpole_dashboard.lab.plan import Visit, visits
from longpole_dashboard.lab.recipe import Load, Side
from longpole_dashboard.lab.stage_set import StageSet, idle

BASELINE, SHAPE = "baseline", "shape"
VERSIONS: Final = {BASELINE: "before", SHAPE: "after"}
"""What the traces of a side say as their route's version."""
_ORDER: Final = (0, 1, 1, 0, 0, 1, 1, 0, 0, 1)
"""Sides by block; the other way round for odd seeds."""
_MIN_BLOCKED: Final = 10
"""Fewer requests of a side are one block."""
_WARM: Final = Name("lab-warm-up", None)
_NUM_CLIENTS: Final = 6
_NUM_CALLS: Final = 18
_NUM_WARM: Final = 4
ARRIVAL_TIMEOUT_S: Final = 30.0
_POLL_S: Final = 0.2


class Block(NamedTuple):
    """A stretch of one side's load, Unix epoch nanoseconds."""

    side: str
    start_ns: int
    end_ns: int


@dataclass(frozen=True)
class Played:
    """A recipe as it ran.

    Attributes:
        route: of its requests.
        blocks: when which side ran.
        capacity_per_s: calls a second that the engines of the slower side carried.
        rates_per_s: requests a second of each side.
        num_sent: requests of each side.
        num_failed: of these, without an answer.
        took_s: all of it.
    """

    route: str
    blocks: tuple[Block, ...]
    capacity_per_s: float
    rates_per_s: dict[str, float]
    num_sent: dict[str, int]
    num_failed: dict[str, int]
    took_s: float

    @property
    def window(self) -> tuple[int, int]:
        """From the first block to after the last, [since, until)."""
        ends = [block.end_ns for block in self.blocks]
        return min(block.start_ns for block in self.blocks), max(ends) + 1

    def condition(self, side: str) -> str:
        """The SQL condition that finds a side's requests."""
        spans = [f"(start_ns BETWEEN {b.start_ns} AND {b.end_ns})"
                 for b in self.blocks if b.side == side]  # fmt: skip
        return f"route = '{self.route}' AND ({' OR '.join(spans)})"

    def document(self) -> dict[str, Any]:
        """For ``--json``."""
        return {
            "capacity_per_s": self.capacity_per_s,
            "rates_per_s": self.rates_per_s,
            "num_sent": self.num_sent,
            "num_failed": self.num_failed,
            "took_s": self.took_s,
        }


def route(name: str) -> str:
    """The route of what a recipe or a knob of this name sends."""
    return f"lab.{name}"


async def play(
    stage: StageSet, name: str, sides: tuple[Side, Side], seed: int, scale: float = 1.0
) -> Played:
    """Run two sides in turn, in five blocks each; the same requests are drawn for both.

    Args:
        stage: where.
        name: what is played.
        sides: as usual, and with what is looked for.
        seed: of everything that is drawn.
        scale: of the number of requests.

    Raises:
        LongpoleError: an engine cannot start, or spans do not arrive.
    """
    begun = time.monotonic()
    salt = f"{seed} {time.time_ns()}"
    both = dict(zip((BASELINE, SHAPE), sides, strict=True))
    quick = [replace(idle(side), load=Load()) for side in sides]
    num_calls = max(1, round(min(scale, 1.0) * _NUM_CALLS))
    stage.say("measuring what the engines carry")
    # what both sides share is measured once
    apart = quick[:1] if quick[0] == quick[1] else quick
    capacity = min([await _capacity(stage, side, (seed, num_calls), salt) for side in apart])
    rates = {which: _rate(side, capacity) for which, side in both.items()}
    sent, failed = dict.fromkeys(both, 0), dict.fromkeys(both, 0)
    blocks = []
    order = _ORDER if scale * sides[0].load.num >= _MIN_BLOCKED else _ORDER[:2]
    for number, place in enumerate(order):
        which = (BASELINE, SHAPE)[place ^ (seed & 1)]
        side, called = both[which], Name(route(name), VERSIONS[which])
        num = max(1, round(side.load.num * scale / (len(order) // 2)))
        stage.say(
            f"block {number + 1} of {len(order)}: {VERSIONS[which]}, {rates[which]:.3g} a second"
        )
        planned = visits(side, f"{seed} {number // 2}", num)
        start_ns = time.time_ns()
        async with stage.agent(side, seed + number, called, Salt(salt, number)) as agent:
            answers = await _send(agent, planned, side, rates[which])
        blocks.append(Block(which, start_ns, time.time_ns()))
        sent[which] += len(answers)
        failed[which] += answers.count(False)
    took_s = time.monotonic() - begun
    played = Played(route(name), tuple(blocks), capacity, rates, sent, failed, took_s)
    await _arrived(stage, both, played)
    return played


async def _capacity(stage: StageSet, quick: Side, drawn: tuple[int, int], salt: str) -> float:
    """Calls a second that the engines of a side without waits carry; they are warm afterwards."""
    seed, num_calls = drawn
    planned = visits(quick, f"{seed} warm", num_calls)
    asks = [ask for visit in planned for ask in visit.asks]
    async with stage.agent(quick, seed, _WARM, Salt(f"{salt} warm", 0)) as agent:
        for ask in asks[:_NUM_WARM]:
            await agent.answer(ask)
        begun = time.monotonic()

        async def client(number: int) -> None:
            for ask in asks[number::_NUM_CLIENTS]:
                await agent.answer(ask)

        await asyncio.gather(*map(client, range(_NUM_CLIENTS)))
    return len(asks) / (time.monotonic() - begun)


def _rate(side: Side, capacity_per_s: float) -> float:
    load = side.load
    return min(load.max_per_s, load.of_capacity * capacity_per_s)


async def _send(agent: Agent, planned: list[Visit], side: Side, rate_per_s: float) -> list[bool]:
    """Every visit when it is due, whatever became of earlier ones; whether each was answered."""

    async def visit(one: Visit) -> list[bool]:
        found = []
        for turn, ask in enumerate(one.asks):
            if turn:
                is_pause = side.load.pause_every and turn % side.load.pause_every == 0
                await asyncio.sleep(side.load.pause_s if is_pause else side.load.think_s)
            found.append(await agent.answer(ask))
        return found

    begun = time.monotonic()
    tasks = []
    for one in planned:
        await asyncio.sleep(max(0.0, begun + one.due / rate_per_s - time.monotonic()))
        tasks.append(asyncio.create_task(visit(one)))
    return [answer for answers in await asyncio.gather(*tasks) for answer in answers]


async def _arrived(stage: StageSet, sides: dict[str, Side], played: Played) -> None:
    """Wait until the collector has all of it: the application's side, and the engines'."""
    await asyncio.to_thread(stage.flush)
    seen_inside = [name for name, side in sides.items() if not side.replicas.is_hosted]
    sent, failed = played.num_sent, played.num_failed
    wanted = sum(sent.values()), sum(sent[name] - failed[name] for name in seen_inside)
    deadline = time.monotonic() + ARRIVAL_TIMEOUT_S
    query = (
        "SELECT (SELECT count(*) FROM traces WHERE route = ? AND start_ns >= ?) AS traces,"
        " (SELECT count(queue_ms) FROM calls WHERE route = ? AND start_ns >= ?) AS inside"
    )
    while True:
        table = stage.reader.sql(query, [played.route, played.window[0]] * 2)
        found = pl.DataFrame(table).row(0)
        if found[0] >= wanted[0] and found[1] >= wanted[1]:
            return
        if time.monotonic() > deadline:
            raise LongpoleError(
                f"only {found[0]} of {wanted[0]} requests reached the collector, {found[1]} of "
                f"{wanted[1]} with the engine's side: see the logs in {stage.db}"
            )
        await asyncio.to_thread(stage.flush)
        await asyncio.sleep(_POLL_S)
