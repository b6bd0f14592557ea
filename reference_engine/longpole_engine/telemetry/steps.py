"""What each step did and when: one ring of facts, written by the step's thread.

A step's parts are marked where they end, so they tile it; whom a part served stands in the plan.
Writing costs a clock reading a part. Everything else about it happens on other threads.
"""

from collections import deque
from collections.abc import Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from longpole_engine.scheduler.core import StepPlan
from longpole_engine.telemetry.events import now_ns

NUM_STEPS: Final = 8_192
"""Steps that are remembered; a request that ran longer ago keeps its stages, not its steps."""


class Part(StrEnum):
    """A part of a step. Sampling, text and flush come once for prompts and once for decoding."""

    PLAN = "plan"
    PREFILL = "prefill"
    DECODE = "decode"
    SAMPLE = "sample"
    DETOKENISE = "detokenise"
    FLUSH = "flush"


class Mark(NamedTuple):
    """A part and when it ended (epoch)."""

    part: Part
    end_ns: int


class StepFact(NamedTuple):
    """One step: its plan, its parts in order, and what was held when it was planned."""

    id: int
    start_ns: int
    plan: StepPlan
    marks: tuple[Mark, ...]
    num_waiting: int
    num_running: int

    @property
    def end_ns(self) -> int:
        """End of the last part."""
        return self.marks[-1].end_ns if self.marks else self.start_ns

    @property
    def num_tokens(self) -> int:
        """Tokens computed."""
        pieces = (*self.plan.prefill, *self.plan.decode)
        return sum(piece.num_tokens + piece.num_drafts for piece in pieces)


class StepLog:
    """The latest steps. One thread writes; any may read."""

    def __init__(self) -> None:
        self._facts: deque[StepFact] = deque(maxlen=NUM_STEPS)
        self._marks: list[Mark] = []
        self._start_ns = 0

    def begin(self, at_ns: int) -> None:
        """A step starts: it is being planned."""
        self._start_ns = at_ns
        self._marks = []

    def mark(self, part: Part) -> None:
        """What ran since the last mark was this part."""
        self._marks.append(Mark(part, now_ns()))

    def end(self, number: int, plan: StepPlan, num_waiting: int, num_running: int) -> None:
        """The step is done."""
        marks = tuple(self._marks)
        self._facts.append(StepFact(number, self._start_ns, plan, marks, num_waiting, num_running))

    def between(self, start_ns: int, end_ns: int) -> Sequence[StepFact]:
        """The steps that lie in this time at least in part, in order."""
        found: list[StepFact] = []
        while True:
            try:
                for fact in reversed(self._facts):
                    if fact.end_ns <= start_ns:
                        break
                    if fact.start_ns < end_ns:
                        found.append(fact)
            except RuntimeError:  # a step ended meanwhile: read again
                found.clear()
                continue
            return found[::-1]
