"""What the measurements share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from longpole_engine.models.checkpoint import Checkpoint


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
