"""Attention over pages.

Grouped-query attention without copies of heads: query heads that share a key head become rows of
one small matrix (single rows) or heads over a broadcast view (prompts). A sequence whose pages
are one run is read in place; otherwise whole pages are gathered first, which on a CPU is much
faster than gathering tokens.
"""

import torch
from torch import Tensor
from torch.nn import functional

from longpole_engine.attention.base import Segment, slots
from longpole_engine.kv.pool import PAGE_TOKENS
from longpole_engine.kv.store import KvStore


class Reader:
    """One sequence's keys and values, in place or gathered."""

    def __init__(self, store: KvStore, segment: Segment) -> None:
        self._store = store
        self._start = segment.pages[0] * PAGE_TOKENS
        self._end = segment.end
        self._is_run = segment.is_run and store.run(0, 0, 0) is not None
        self._pages = torch.empty(0, dtype=torch.int64)
        if not self._is_run:
            self._pages = torch.tensor(segment.used)

    def read(self, layer: int) -> tuple[Tensor, Tensor]:
        """Keys and values, each ``[num_kv_heads, num_tokens, head_dim]``."""
        found = self._store.run(layer, self._start, self._end) if self._is_run else None
        if found is None:
            found = self._store.gather(layer, self._pages)[: self._end]
        keys, values = found.permute(1, 2, 0, 3)
        return keys, values


class PromptAttention:
    """Pieces of prompts, causal; one sequence after the other."""

    def __init__(self, store: KvStore, segments: list[Segment]) -> None:
        self._store = store
        self._slots = slots(segments)
        self._parts = [(seg.num_rows, Reader(store, seg), _mask(seg)) for seg in segments]

    def __call__(self, layer: int, q: Tensor, kv: Tensor) -> Tensor:
        """Attend in one layer; see :class:`longpole_engine.attention.base.Attention`."""
        self._store.write(layer, self._slots, kv)
        out = torch.empty(q.shape[0], q.shape[1] * q.shape[2])
        first = 0
        for num_rows, reader, mask in self._parts:
            rows = slice(first, first + num_rows)
            out[rows] = self._attend(q[rows], *reader.read(layer), mask)
            first += num_rows
        return out

    @staticmethod
    def _attend(q: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
        num_rows, num_heads, head_dim = q.shape
        num_kv_heads, num_keys, _ = keys.shape
        shape = (num_kv_heads, num_heads // num_kv_heads, num_keys, head_dim)
        out = functional.scaled_dot_product_attention(
            q.view(num_rows, num_kv_heads, -1, head_dim).permute(1, 2, 0, 3),
            keys[:, None].expand(shape),
            values[:, None].expand(shape),
            attn_mask=mask,
            is_causal=mask is None,
        )  # [num_kv_heads, group, num_rows, head_dim]
        return out.permute(2, 0, 1, 3).reshape(num_rows, num_heads * head_dim)


def _mask(segment: Segment) -> Tensor | None:
    """Causal, aligned to the bottom right: the first new row sees all of the past."""
    if segment.start == 0:
        return None
    mask = torch.full((segment.num_rows, segment.end), float("-inf"))
    return mask.triu_(segment.start + 1)


class RowAttention:
    """One row each of several sequences: decoding.

    All are gathered into one padded batch, in the same place for every layer, unless their lengths
    differ so much that one by one is less work. Gathering pays for one sequence in one run too:
    memory is read faster in one go than head by head.

    Args:
        store: the memory.
        segments: of one row each.
        buffer: fp32 room for the gathered pages.
    """

    def __init__(self, store: KvStore, segments: list[Segment], buffer: Tensor) -> None:
        self._store = store
        self._slots = slots(segments)
        ends = [segment.end for segment in segments]
        longest = max(ends)
        self._readers: list[Reader] = []
        if 2 * sum(ends) < longest * len(ends):
            self._readers = [Reader(store, segment) for segment in segments]
            return
        num_pages = -(-longest // PAGE_TOKENS)
        table = [seg.used + [seg.pages[0]] * (num_pages - len(seg.used)) for seg in segments]
        self._pages = torch.tensor(table).flatten()
        heads = store.layers[0].shape[1:]
        num_numbers = len(self._pages) * PAGE_TOKENS * heads.numel()
        self._room = buffer[:num_numbers].view(len(self._pages), -1)
        whole = self._room.view(len(ends), -1, *heads)[:, :longest]
        self._keys, self._values = whole.permute(2, 0, 3, 1, 4).unbind()
        self._mask: Tensor | None = None
        if min(ends) < longest:
            lengths = torch.tensor(ends)[:, None]
            is_beyond = torch.arange(longest) >= lengths
            mask = torch.zeros(is_beyond.shape).masked_fill_(is_beyond, float("-inf"))
            self._mask = mask[:, None, None]  # [num_rows, 1, 1, longest]

    def __call__(self, layer: int, q: Tensor, kv: Tensor) -> Tensor:
        """Attend in one layer; see :class:`longpole_engine.attention.base.Attention`."""
        self._store.write(layer, self._slots, kv)
        num_rows, num_heads, head_dim = q.shape
        q = q.view(num_rows, kv.shape[2], -1, head_dim)
        if self._readers:
            out = torch.cat(
                [
                    row_attention(q[row : row + 1], *reader.read(layer))
                    for row, reader in enumerate(self._readers)
                ]
            )
        else:
            self._store.gather(layer, self._pages, self._room)
            out = functional.scaled_dot_product_attention(
                q, self._keys, self._values, attn_mask=self._mask
            )
        return out.reshape(num_rows, num_heads * head_dim)


def row_attention(q: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """One row of one sequence, ``[1, num_kv_heads, group, head_dim]``, over all it is given."""
    return functional.scaled_dot_product_attention(q, keys[None], values[None])
