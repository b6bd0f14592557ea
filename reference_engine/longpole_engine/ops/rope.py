"""Rotary position embedding (Su et al. 2021, arXiv:2104.09864) as one complex multiplication."""

import torch
from torch import Tensor


def turns(
    num_positions: int, head_dim: int, base: float, num_turned: int, num_still: int
) -> Tensor:
    """What each head of each position is multiplied by.

    Keys and queries turn, values stand still: one gather and one multiplication serve all three.

    Args:
        num_positions: longest sequence.
        head_dim: size of a head.
        base: of the frequencies.
        num_turned: query and key heads, which come first.
        num_still: value heads.

    Returns:
        ``[num_positions, num_turned + num_still, head_dim / 2]`` complex.
    """
    exponent = torch.arange(0, head_dim, 2, dtype=torch.int64).to(torch.float32) / head_dim
    frequency = 1.0 / (base**exponent)
    angle = torch.outer(torch.arange(num_positions, dtype=torch.float32), frequency)
    turned = torch.complex(angle.cos(), angle.sin())[:, None].expand(-1, num_turned, -1)
    return torch.cat((turned, torch.ones(num_positions, num_still, head_dim // 2)), dim=1)


class Heads:
    """Room for the heads of some tokens, which every layer fills anew.

    Args:
        turn: rows of :func:`turns`, ``[num_tokens, num_heads, head_dim / 2]``.

    Attributes:
        turned: the heads last filled in, ``[num_tokens, num_heads, head_dim]`` fp32.
    """

    def __init__(self, turn: Tensor) -> None:
        self._turn = turn
        self._pairs = torch.empty_like(turn)
        self.turned = torch.view_as_real(self._pairs).flatten(2)
        self._flat = self.turned.flatten(1)

    def fill(self, heads: Tensor) -> None:
        """Turn heads to their positions.

        Args:
            heads: ``[num_tokens, num_heads * head_dim]``, a pair's two numbers side by side.
        """
        self._flat.copy_(heads)
        self._pairs.mul_(self._turn)


def interleave(weight: Tensor, num_heads: int) -> Tensor:
    """Rows of each head from half-rotation order to pairs side by side.

    Args:
        weight: ``[num_heads * head_dim, columns]``.
        num_heads: heads in it.
    """
    halves = weight.view(num_heads, 2, -1, weight.shape[1])
    return halves.transpose(1, 2).reshape(weight.shape)
