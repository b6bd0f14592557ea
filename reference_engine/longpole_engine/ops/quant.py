"""Weight-only quantisation to int8 and int4.

Both are plain round-to-nearest. A matrix that came from a Q4_1 file is recovered to the bit:
there each group of 32 spans its range exactly, so minimum and maximum give back the file's
offset and step.
"""

import torch
from torch import Tensor

INT4_GROUP = 32
"""Columns that share one scale and one offset: llama.cpp's Q4_1 block."""


def to_int8(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Symmetric int8, one scale a row.

    Args:
        weight: ``[rows, columns]``, float.

    Returns:
        Values ``[rows, columns]`` int8 and scales ``[rows]`` float.
    """
    scale = weight.abs().amax(dim=1).clamp_min(1e-12).div_(127)
    return (weight / scale[:, None]).round_().to(torch.int8), scale


def to_int4(weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Asymmetric int4 in groups: ``weight = low + step * value``.

    Args:
        weight: ``[rows, columns]``, float; columns a multiple of the group.

    Returns:
        Values 0..15 ``[rows, columns]`` int32, and step and low ``[rows, groups]`` float.
    """
    groups = weight.view(weight.shape[0], -1, INT4_GROUP)
    low, high = groups.aminmax(dim=-1)
    step = (high - low).div_(15)
    divisor = torch.where(step > 0, step, torch.ones_like(step))
    value = (groups - low[..., None]).div_(divisor[..., None]).round_().to(torch.int32)
    return value.view(weight.shape), step, low
