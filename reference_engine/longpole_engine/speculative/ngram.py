"""Drafts from the sequence itself: what followed the last time these tokens stood here.

Prompt lookup (Saxena 2023; Yang et al. 2023, arXiv:2304.04487): no model, no memory beyond a
table, and good where answers copy: edits, extraction, code.
"""

from collections.abc import Sequence
from typing import Final

_SIZES: Final = (3, 2)
"""Lengths of what must recur, the most telling first."""


class NgramIndex:
    """Where each run of tokens of one growing sequence last ended."""

    def __init__(self) -> None:
        self._ends: dict[tuple[int, ...], int] = {}
        self._num_seen = 0

    def propose(self, tokens: Sequence[int], num: int) -> list[int]:
        """What may follow, at most ``num`` tokens; empty if the end of the sequence is new.

        A repetition that reaches the sequence's end goes on over its own copy.

        Args:
            tokens: the whole sequence; since the last call it may have grown, nothing else.
            num: tokens wanted.
        """
        for end in range(max(1, self._num_seen + 1), len(tokens)):
            for size in _SIZES:
                if size <= end:
                    self._ends[tuple(tokens[end - size : end])] = end
        self._num_seen = max(self._num_seen, len(tokens) - 1)
        for size in _SIZES:
            found = self._ends.get(tuple(tokens[-size:])) if size < len(tokens) else None
            if found is not None:
                copied: list[int] = []
                for at in range(found, found + num):
                    is_past = at >= len(tokens)
                    copied.append(copied[at - len(tokens)] if is_past else tokens[at])
                return copied
        return []
