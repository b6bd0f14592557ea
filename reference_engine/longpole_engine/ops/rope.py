"""Rotary position embedding (Su et al. 2021, arXiv:2104.09864), half-rotation layout."""

import torch
from torch import Tensor


def tables(num_positions: int, head_dim: int, base: float) -> tuple[Tensor, Tensor]:
    """Cosines and signed sines of all positions, each ``[num_positions, 1, 2, head_dim / 2]``.

    The sine of the first half is negated, so that rotation is one multiply and one fused
    multiply-add over the whole head.
    """
    exponent = torch.arange(0, head_dim, 2, dtype=torch.int64).to(torch.float32) / head_dim
    frequency = 1.0 / (base**exponent)
    angle = torch.outer(torch.arange(num_positions, dtype=torch.float32), frequency)
    cos, sin = angle.cos(), angle.sin()
    return torch.stack((cos, cos), dim=1)[:, None], torch.stack((-sin, sin), dim=1)[:, None]


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate heads to their positions; fp32 output.

    Args:
        x: ``[num_tokens, num_heads, head_dim]``.
        cos: cosines of the tokens' positions, ``[num_tokens, 1, 2, head_dim / 2]``.
        sin: signed sines, the same shape.
    """
    halves = x.view(x.shape[0], x.shape[1], 2, -1)
    return torch.addcmul(halves * cos, halves.flip(2), sin).view(x.shape)
