"""Keys and values of the running sequences: one slot each, contiguous.

Running sequences always fill the first slots, so a decode step reads them as one view without
gathering; when one ends, the last moves into its place.
"""

import math
import mmap

import torch
from torch import Tensor

from longpole_engine.models.llama import LlamaConfig


class Slots:
    """Room for ``num_slots`` sequences of ``max_tokens``.

    ``data`` is ``[num_layers, num_slots, 2, num_kv_heads, max_tokens, head_dim]`` fp32, keys
    before values. Memory is taken page by page as positions are first written.
    """

    def __init__(self, config: LlamaConfig, num_slots: int, max_tokens: int) -> None:
        shape = (config.num_layers, num_slots, 2, config.num_kv_heads, max_tokens, config.head_dim)
        self.data: Tensor = lazy_zeros(shape)

    def move(self, source: int, target: int, num_tokens: int) -> None:
        """Copy one sequence's first ``num_tokens`` positions to another slot."""
        self.data[:, target, :, :, :num_tokens] = self.data[:, source, :, :, :num_tokens]


def lazy_zeros(shape: tuple[int, ...]) -> Tensor:
    """Zeros, fp32, that take memory only where they are written.

    A fresh anonymous mapping; torch's own zeros would write every page. Without huge pages, which
    would fill megabytes around each first write (half a second for a new slot). They must be
    zeros: attention masks what lies beyond a sequence, and a masked NaN is still NaN.
    """
    num_bytes = 4 * math.prod(shape)
    if num_bytes == 0:
        return torch.zeros(shape)
    memory = mmap.mmap(-1, num_bytes)
    if hasattr(mmap, "MADV_NOHUGEPAGE"):
        memory.madvise(mmap.MADV_NOHUGEPAGE)
    return torch.frombuffer(memory, dtype=torch.float32).view(shape)
