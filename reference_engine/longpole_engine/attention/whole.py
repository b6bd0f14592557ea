"""Attention over one text that is read once and not continued: no pages are needed."""

import torch
from torch import Tensor
from torch.nn import functional


class WholeAttention:
    """Causal; pieces of the text come one after the other."""

    def __init__(self) -> None:
        self._past: dict[int, Tensor] = {}

    def __call__(self, layer: int, q: Tensor, kv: Tensor) -> Tensor:
        """Attend in one layer; see :class:`longpole_engine.attention.base.Attention`."""
        kv = torch.cat((self._past[layer], kv)) if layer in self._past else kv.clone()
        self._past[layer] = kv
        num_rows, num_heads, head_dim = q.shape
        keys, values = kv.repeat_interleave(num_heads // kv.shape[2], dim=2).permute(1, 2, 0, 3)
        mask = torch.ones(num_rows, kv.shape[0], dtype=torch.bool)
        mask.tril_(kv.shape[0] - num_rows)
        out = functional.scaled_dot_product_attention(
            q.transpose(0, 1), keys, values, attn_mask=mask
        )
        return out.transpose(0, 1).reshape(num_rows, num_heads * head_dim)
