"""The phases of an engine's start: reading weights, converting them, building, warming up."""

from typing import NamedTuple

from longpole_engine.telemetry.events import now_ns


class StartPhase(NamedTuple):
    """One phase of the start (epoch)."""

    name: str
    start_ns: int
    end_ns: int


class StartClock:
    """Phases laid end to end: beginning one ends the one before it."""

    def __init__(self) -> None:
        self._begun: list[tuple[str, int]] = []

    def begin(self, name: str) -> None:
        """Enter a phase."""
        self._begun.append((name, now_ns()))

    def phases(self) -> list[StartPhase]:
        """The phases so far; the last ends now."""
        ends = [at for _, at in self._begun[1:]] + [now_ns()]
        return [
            StartPhase(name, at, end) for (name, at), end in zip(self._begun, ends, strict=True)
        ]
