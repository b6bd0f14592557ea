"""The records that preparation, critical path and replay share: a span, its phases, the tree."""

from dataclasses import dataclass, field
from typing import NamedTuple

from longpole.vocab import Kind, Stage


class Phase(NamedTuple):
    """A known part of a span, laid inside it: a leaf of the tree, shown under ``span_id``."""

    span_id: str
    name: str
    stage: Stage
    start_ns: int
    end_ns: int


class PathSpan(NamedTuple):
    """What the critical path needs to know of a span; ``instance`` says whose clock it is."""

    span_id: str
    parent_id: str | None
    start_ns: int
    end_ns: int | None
    stage: Stage = Stage.OTHER
    name: str = ""
    instance: str | None = None
    is_detached: bool = False
    is_stream: bool = False
    kind: str = Kind.UNSPECIFIED
    phases: tuple[Phase, ...] = ()


@dataclass(slots=True)
class Tree:
    """The finished spans of one trace as parallel lists; a node is an index into them.

    ``starts`` and ``ends`` are on the root's clock. ``children`` holds every child, ``blocking``
    those their parent waits for. ``order`` lists the nodes so that a parent comes before its
    children; a phase is a node like any other. ``instances`` are the clocks, a child without one
    has its parent's. ``marks`` counts every change made to the trace by its flag, ``shifts_ns``
    the time added to each clock.
    """

    spans: list[PathSpan]
    starts: list[int]
    ends: list[int]
    parents: list[int]
    children: list[list[int]]
    blocking: list[list[int]] = field(default_factory=list)
    order: list[int] = field(default_factory=list)
    instances: list[str | None] = field(default_factory=list)
    extended_end_ns: int = 0
    """End of the last stream that outlives the root; the root's end when none does."""
    marks: dict[str, int] = field(default_factory=dict)
    shifts_ns: dict[str, int] = field(default_factory=dict)

    @property
    def root(self) -> int | None:
        """The root's node; ``None`` when no span has finished."""
        return self.order[0] if self.order else None

    def mark(self, flag: str, count: int = 1) -> None:
        """Count ``count`` changes under ``flag``; none leaves no mark."""
        if count:
            self.marks[flag] = self.marks.get(flag, 0) + count
