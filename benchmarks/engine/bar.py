"""What a bar is, and what the measurements share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from longpole_engine.models.checkpoint import Checkpoint


class Bar(NamedTuple):
    """One line of the table: a value, what is asked of it, and what it was made of."""

    name: str
    value: float
    relation: str
    """``>=``, ``<=``, or empty where nothing is asked."""
    need: float
    sides: dict[str, float | str]
    """Each with its unit in its name."""

    @property
    def is_met(self) -> bool | None:
        """Whether the value passes; ``None`` where nothing is asked."""
        if not self.relation:
            return None
        return self.value >= self.need if self.relation == ">=" else self.value <= self.need


@dataclass
class Bench:
    """What the measurements share.

    Attributes:
        rounds: repetitions, taken in turns by the sides of a ratio; the best of each counts.
        threads: of every side.
        say: prints a line.
    """

    rounds: int = 3
    threads: int = 2
    say: Callable[[str], None] = field(default=print)

    @cached_property
    def model(self) -> Checkpoint:
        """SmolLM2-135M."""
        from longpole_engine.models.loader import load

        return load("smollm2")
