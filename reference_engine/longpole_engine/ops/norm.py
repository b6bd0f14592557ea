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

    def room(self, x: Tensor) -> Tensor:
        """A copy of ``x`` with a column more, ``[rows, size + 1]``, for :meth:`padded`.

        The column holds the square root of what is added to the sum of squares, so that the norm
        of a padded row is the root wanted, in one operation.
        """
        return torch.nn.functional.pad(x, (0, 1), value=self._floor**0.5)

    def padded(self, room: Tensor, x: Tensor) -> Tensor:
        """The norm of ``x``, which is all but the last column of ``room``; ``[rows, size]``."""
        norm: Tensor = torch.linalg.vector_norm(room, dim=-1, keepdim=True)
        return x.div(norm).mul_(self._weight)

    def __call__(self, x: Tensor) -> Tensor:
        """``[rows, size] -> [rows, size]``."""
        norm: Tensor = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        return (x * norm.square_().add_(self._floor).rsqrt_()).mul_(self._weight)
