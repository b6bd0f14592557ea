"""Attention whose bits depend on the sequence alone.

Every row is a call of its own in one fixed shape: one query row over exactly the tokens it sees.
Batch-mates, the size of a prompt's pieces and the order of pages leave no trace.
"""

import torch
from torch import Tensor

from longpole_engine.attention.base import Segment, slots
from longpole_engine.attention.paged import Reader, row_attention
from longpole_engine.kv.store import KvStore


class ExactAttention:
    """Rows of any kind, one by one."""

    def __init__(self, store: KvStore, segments: list[Segment]) -> None:
        self._store = store
        self._slots = slots(segments)
        self._parts = [(segment, Reader(store, segment)) for segment in segments]

    def __call__(self, layer: int, q: Tensor, kv: Tensor) -> Tensor:
        """Attend in one layer; see :class:`longpole_engine.attention.base.Attention`."""
        self._store.write(layer, self._slots, kv)
        num_rows, num_heads, head_dim = q.shape
        q = q.view(num_rows, 1, kv.shape[2], -1, head_dim)
        found: list[Tensor] = []
        for segment, reader in self._parts:
            keys, values = reader.read(layer)
            if segment.num_rows == 1:
                found.append(row_attention(q[len(found)], keys, values))
                continue
            for end in range(segment.start + 1, segment.end + 1):
                found.append(row_attention(q[len(found)], keys[:, :end], values[:, :end]))
        return torch.cat(found).view(num_rows, num_heads * head_dim)
