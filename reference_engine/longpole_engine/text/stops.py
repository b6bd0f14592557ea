"""Stop strings: an answer ends before the first one, however tokens cut it."""

from collections.abc import Sequence


class StopBuffer:
    """Lets text through except what may still become a stop string.

    The stop string that is complete first wins (of two complete at once, the longer), so the
    result does not depend on how the text was cut into pieces.

    Args:
        stops: stop strings, none empty; an empty sequence lets everything through.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._held = ""
        self.is_stopped = False

    def push(self, text: str) -> str:
        """Text that is safe to show; after a stop string was found, always empty."""
        if not self._stops or self.is_stopped:
            return "" if self.is_stopped else text
        held = self._held + text
        found = [
            (held.find(stop) + len(stop), held.find(stop)) for stop in self._stops if stop in held
        ]
        if found:
            self.is_stopped = True
            self._held = ""
            return held[: min(found)[1]]
        num_held = max(_overlap(held, stop) for stop in self._stops)
        safe = len(held) - num_held
        self._held = held[safe:]
        return held[:safe]

    def finish(self) -> str:
        """The text held back, when nothing follows that could complete a stop string."""
        held, self._held = self._held, ""
        return held


def _overlap(text: str, stop: str) -> int:
    """Length of the longest proper prefix of ``stop`` that ``text`` ends with."""
    longest = min(len(stop) - 1, len(text))
    return next((n for n in range(longest, 0, -1) if text.endswith(stop[:n])), 0)
