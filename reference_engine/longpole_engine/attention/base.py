"""What a model's forward pass asks of attention."""

from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from longpole_engine.kv.pool import PAGE_TOKENS


class Attention(Protocol):
    """One step's attention: stores the new keys and values, then attends.

    ``q`` is ``[num_tokens, num_heads, head_dim]``, ``kv`` ``[num_tokens, 2, num_kv_heads,
    head_dim]``; the result is ``[num_tokens, num_heads * head_dim]``. The next layer's come in the
    same memory.
    """

    def __call__(self, layer: int, q: Tensor, kv: Tensor) -> Tensor:
        """Attend in one layer."""


class Segment(NamedTuple):
    """Rows of one sequence: its pages, the first row's position, the number of rows."""

    pages: list[int]
    start: int
    num_rows: int

    @property
    def end(self) -> int:
        """Tokens the last row sees."""
        return self.start + self.num_rows

    @property
    def used(self) -> list[int]:
        """The pages of those tokens."""
        return self.pages[: -(-self.end // PAGE_TOKENS)]

    @property
    def is_run(self) -> bool:
        """Whether those pages follow one another, so that they can be read in place."""
        first = self.pages[0]
        last = (self.end - 1) // PAGE_TOKENS
        if self.pages[last] - first != last:
            return False
        return self.pages[: last + 1] == list(range(first, first + last + 1))

    def slots(self) -> list[int]:
        """Where the rows' keys and values go."""
        pages = self.pages
        if self.num_rows == 1:
            return [pages[self.start // PAGE_TOKENS] * PAGE_TOKENS + self.start % PAGE_TOKENS]
        return [
            pages[at // PAGE_TOKENS] * PAGE_TOKENS + at % PAGE_TOKENS
            for at in range(self.start, self.end)
        ]


def slots(segments: list[Segment]) -> Tensor:
    """Slots of all rows, ``[num_tokens]``."""
    return torch.tensor([slot for segment in segments for slot in segment.slots()])
