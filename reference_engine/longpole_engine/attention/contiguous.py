"""Attention over sequences whose keys and values lie in one run each.

Grouped-query attention without copies: query heads that share a key head become rows of one
small matrix (decoding) or heads over a broadcast view (prompts).
"""

from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional


class Attention(Protocol):
    """One step's attention: stores the new keys and values, then attends.

    ``q`` is ``[num_tokens, num_heads, head_dim]``, ``k`` and ``v`` ``[num_tokens, num_kv_heads,
    head_dim]``; the result is ``[num_tokens, num_heads * head_dim]``.
    """

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Attend in one layer."""


class PrefillAttention:
    """The tokens of one sequence from position ``start`` on, causal."""

    def __init__(self, kv: Tensor, slot: int, start: int, num_tokens: int) -> None:
        self._kv = kv[:, slot]  # [num_layers, 2, num_kv_heads, max_tokens, head_dim]
        self._start, self._end = start, start + num_tokens
        self._mask: Tensor | None = None
        if start > 0:
            # Causal, aligned to the bottom right: the first new token sees all of the past.
            mask = torch.full((num_tokens, self._end), float("-inf"))
            self._mask = mask.triu_(start + 1)

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Attend in one layer; see :class:`Attention`."""
        keys, values = self._kv[layer]
        keys[:, self._start : self._end] = k.transpose(0, 1)
        values[:, self._start : self._end] = v.transpose(0, 1)
        num_tokens, num_heads, head_dim = q.shape
        num_kv_heads = k.shape[1]
        shape = (num_kv_heads, num_heads // num_kv_heads, self._end, head_dim)
        out = functional.scaled_dot_product_attention(
            q.view(num_tokens, num_kv_heads, -1, head_dim).permute(1, 2, 0, 3),
            keys[:, None, : self._end].expand(shape),
            values[:, None, : self._end].expand(shape),
            attn_mask=self._mask,
            is_causal=self._mask is None,
        )  # [num_kv_heads, group, num_tokens, head_dim]
        return out.permute(2, 0, 1, 3).reshape(num_tokens, num_heads * head_dim)


class DecodeAttention:
    """One new token for each of the first ``len(positions)`` slots."""

    def __init__(self, kv: Tensor, positions: Tensor) -> None:
        num_rows = positions.shape[0]
        self._kv = kv[:, :num_rows]
        self._rows = torch.arange(num_rows)
        self._positions = positions
        self._end = int(positions.max()) + 1
        self._mask: Tensor | None = None
        if int(positions.min()) + 1 < self._end:
            is_future = torch.arange(self._end) > positions[:, None]
            mask = torch.zeros(is_future.shape).masked_fill_(is_future, float("-inf"))
            self._mask = mask[:, None, None]  # [num_rows, 1, 1, end]

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Attend in one layer; see :class:`Attention`."""
        keys, values = self._kv[layer, :, 0], self._kv[layer, :, 1]
        keys[self._rows, :, self._positions] = k
        values[self._rows, :, self._positions] = v
        num_rows, num_heads, head_dim = q.shape
        out = functional.scaled_dot_product_attention(
            q.view(num_rows, k.shape[1], -1, head_dim),
            keys[:, :, : self._end],
            values[:, :, : self._end],
            attn_mask=self._mask,
        )  # [num_rows, num_kv_heads, group, head_dim]
        return out.reshape(num_rows, num_heads * head_dim)
