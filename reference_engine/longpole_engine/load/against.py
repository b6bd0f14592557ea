"""The same load to two targets, block by block in turn, so that both meet what the machine does.

In each pair of blocks both targets get the same arrivals, lengths and shared beginnings. Prompts
begin with a word of their own block, so that no cache carries anything from one to the other; two
engines that were started for the run have a cache each, and get the very same prompts.
"""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from typing import Final, NamedTuple

from longpole.errors import Unreachable
from longpole_engine.load.arrivals import Closed, Session
from longpole_engine.load.run import Asker, Plan, Run
from longpole_engine.load.traces import Part, Traces

NUM_BLOCKS: Final = 10
"""Of each side: what `longpole compare` wants at the least of what it draws as one."""


class Side(NamedTuple):
    """One of the two: what it is called, where it is, as it was named, and whom to ask for what.

    ``is_ours`` says that it was started for the run: it shares no cache.
    """

    release: str
    where: str
    target: Asker
    model: str
    is_ours: bool = False


class Block(NamedTuple):
    """A stretch of load that a side got; the other side's of the same ``pair`` is its twin."""

    pair: int
    side: Side
    run: Run


class Pairs:
    """Blocks in turn: baseline, candidate, baseline, candidate, ...

    With fewer than :data:`NUM_BLOCKS` pairs each session of a block is told apart in its traces,
    for there are too few blocks to draw from.

    Args:
        plan: what a block sends and when it ends.
        sides: the baseline and the candidate.
        num_pairs: blocks of each.
        arrivals: of the blocks of a pair, by its number, from 1.
        traces: where the traces go.
        on_answer: called after each answer, and once a second.
        until: as :class:`longpole_engine.load.run.Run` has it.
    """

    def __init__(
        self,
        plan: Plan,
        sides: tuple[Side, Side],
        num_pairs: int,
        arrivals: Callable[[int], Iterable[Session] | Closed],
        traces: Traces,
        on_answer: Callable[[Run], None] = lambda run: None,
        until: Callable[[int], Awaitable[None]] | None = None,
    ) -> None:
        self.sides, self.num_pairs = sides, num_pairs
        self.blocks: list[Block] = []
        self.is_stopped = False
        """By hand, or by too many failures: what is here is a part."""
        self._plan, self._arrivals, self._traces = plan, arrivals, traces
        self._on_answer, self._until = on_answer, until
        self._run: Run | None = None

    @property
    def whole(self) -> list[Block]:
        """The blocks of the pairs that both sides played to their end."""
        num_whole = sum(not block.run.is_stopped for block in self.blocks)
        return self.blocks[: num_whole // 2 * 2]

    @property
    def window(self) -> tuple[int, int]:
        """The first and the last moment of the whole pairs, Unix epoch nanoseconds."""
        whole = self.whole
        at = self._traces.epoch_ns
        return at(whole[0].run.begun_ns), at(whole[-1].run.ended_ns)

    def stop(self) -> None:
        """Send no more; what has come stays."""
        self.is_stopped = True
        if self._run is not None:
            self._run.stop()

    async def __call__(self) -> None:
        """Play all pairs, or until it is stopped."""
        letters = ("", "") if all(side.is_ours for side in self.sides) else ("a", "b")
        for pair in range(1, self.num_pairs + 1):
            for letter, side in zip(letters, self.sides, strict=True):
                if self.is_stopped:
                    return
                plan = replace(
                    self._plan,
                    model=side.model,
                    seed=self._plan.seed + pair,
                    lead=f"{letter}{pair}",
                )
                arrivals = self._arrivals(pair)
                if not isinstance(arrivals, Closed):
                    arrivals = within(arrivals, plan)
                    plan = replace(plan, max_requests=None, duration_s=None)
                part = Part(side.release, pair, is_by_session=self.num_pairs < NUM_BLOCKS)
                traces = self._traces.of(side.model, part)
                self._run = Run(plan, side.target, traces, self._on_answer, self._until)
                self.blocks.append(Block(pair, side, self._run))
                await self._run(arrivals)
                self.is_stopped = self.is_stopped or self._run.is_stopped
                self._traces.flush()  # so that nothing of it is lost, whatever comes


def within(arrivals: Iterable[Session], plan: Plan) -> list[Session]:
    """The sessions that begin within the plan's time and number, each to be played to its end.

    Where a run counts requests as they come, a slow target would get other turns than a fast one.
    """
    found: list[Session] = []
    num_left = plan.max_requests
    for session in arrivals:
        is_late = plan.duration_s is not None and session.due_s >= plan.duration_s
        if is_late or (num_left is not None and num_left <= 0):
            break
        found.append(session)
        if num_left is not None:
            num_left -= plan.turns if len(session.turns) == 1 else len(session.turns)
    return found


async def check(plan: Plan, sides: Iterable[Side]) -> None:
    """Ask each side once, without a trace: it answers, and is warm.

    Raises:
        Unreachable: one does not.
    """
    for side in sides:
        once = replace(
            plan, model=side.model, max_requests=1, duration_s=None, shares={}, lead="a0"
        )
        run = Run(once, side.target)
        await run(Closed(1))
        answer = run.sent[0].answer
        if answer.failure is not None:
            status = f" {answer.status}" if answer.status else ""
            said = f": {answer.text.strip()}" if answer.text.strip() else ""
            raise Unreachable(
                f"{side.release} ({side.where}) does not answer: {answer.failure}{status}{said}"
            )
