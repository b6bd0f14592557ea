"""Attention over page tables that are tensors: decoding without a Python loop over sequences.

Every tensor has one shape from step to step, so a step can be captured as a CUDA graph. On a GPU a
Triton kernel reads the pages in place; elsewhere whole pages are gathered first.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from longpole_engine.kv.pool import PAGE_TOKENS

Kernel = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
"""Queries, one layer's memory, tables, lengths; see :func:`gathered`."""


class Tables(NamedTuple):
    """The rows of one step, one a sequence.

    ``pages`` ``[num_rows, max_pages]`` int32, padded with any page; ``lengths`` ``[num_rows]``
    int32, tokens that the row sees; ``slots`` ``[num_rows]`` int64, where its own token goes.
    """

    pages: Tensor
    lengths: Tensor
    slots: Tensor


class TableAttention:
    """One row each of several sequences.

    Args:
        layers: memory of each layer, ``[num_slots, 2, num_kv_heads, head_dim]``.
        tables: the rows.
        kernel: :func:`gathered`, or Triton's.
    """

    def __init__(self, layers: Sequence[Tensor], tables: Tables, kernel: Kernel) -> None:
        self._layers, self._tables, self._kernel = layers, tables, kernel

    def __call__(self, layer: int, q: Tensor, kv: Tensor) -> Tensor:
        """Attend in one layer; see :class:`longpole_engine.attention.base.Attention`."""
        memory = self._layers[layer]
        memory.index_copy_(0, self._tables.slots, kv.to(memory.dtype))
        out = self._kernel(q, memory, self._tables.pages, self._tables.lengths)
        return out.reshape(q.shape[0], -1)


def gathered(q: Tensor, memory: Tensor, pages: Tensor, lengths: Tensor) -> Tensor:
    """Gather whole pages, then attend: the plain way, on any device.

    Args:
        q: ``[num_rows, num_heads, head_dim]``.
        memory: ``[num_slots, 2, num_kv_heads, head_dim]``.
        pages: ``[num_rows, max_pages]``.
        lengths: ``[num_rows]``.

    Returns:
        ``[num_rows, num_heads, head_dim]`` in the dtype of ``q``.
    """
    num_rows, _, head_dim = q.shape
    num_kv_heads = memory.shape[2]
    whole = memory.view(-1, PAGE_TOKENS * 2 * num_kv_heads * head_dim)
    found = whole.index_select(0, pages.flatten())
    found = found.view(num_rows, -1, 2, num_kv_heads, head_dim)
    keys, values = found.permute(2, 0, 3, 1, 4).unbind()
    is_seen = torch.arange(keys.shape[2], device=q.device) < lengths[:, None]
    out = functional.scaled_dot_product_attention(
        q.view(num_rows, num_kv_heads, -1, head_dim).to(memory.dtype),
        keys,
        values,
        attn_mask=is_seen[:, None, None],
    )
    return out.reshape(q.shape).to(q.dtype)
