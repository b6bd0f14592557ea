"""RMSNorm in few operations."""

import torch
from torch import Tensor


class RmsNorm:
    """Root-mean-square norm (Zhang and Sennrich 2019, arXiv:1910.07467), fp32.

    torch's own is some ten operations on a CPU; a decode step has dozens of norms of one row, so
    the number of operations is their price.

    Args:
        weight: ``[size]``.
        eps: added to the mean square.
    """

    def __init__(self, weight: Tensor, eps: float) -> None:
        size = weight.shape[0]
        self._weight = weight * size**0.5
        self._floor = size * eps

    def __call__(self, x: Tensor) -> Tensor:
        """``[rows, size] -> [rows, size]``."""
        norm: Tensor = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        return (x * norm.square_().add_(self._floor).rsqrt_()).mul_(self._weight)
