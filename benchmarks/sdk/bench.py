"""What the measurements share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class Bench:
    """A folder, the local provider, the size of it all, and what came out besides the bars.

    Attributes:
        url: of the provider.
        truth: the file the provider writes what it did to.
        scale: all numbers of rounds are multiplied by this; below 1 only tries the scripts.
        say: prints a line.
        missing: libraries that did not run, with the reason.
        tables: what ``--json`` gets beside the bars.
    """

    url: str
    truth: Path
    scale: float = 1.0
    say: Callable[[str], None] = field(default=lambda text: None)
    missing: dict[str, str] = field(default_factory=dict)
    tables: dict[str, Any] = field(default_factory=dict)

    def num(self, number: int, least: int = 2) -> int:
        """A number of rounds at this scale."""
        return max(least, int(number * self.scale))
