"""Weight-only int8 for a few rows on a GPU: a Triton kernel bound by reading the weights.

Imported only where there is a GPU, or with ``TRITON_INTERPRET=1``.
"""

from typing import Any, Final

import torch
import triton  # type: ignore[import-not-found, unused-ignore]
import triton.language as tl  # type: ignore[import-not-found, unused-ignore]
from torch import Tensor

_ROWS: Final = 16
_COLUMNS: Final = 512


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _product(
    x: Any,
    values: Any,
    scale: Any,
    out: Any,
    num_out: int,
    num_in: int,
    rows: tl.constexpr,
    columns: tl.constexpr,
) -> None:
    n = tl.program_id(0) * rows + tl.arange(0, rows)
    token = tl.program_id(1)
    k = tl.arange(0, columns)
    acc = tl.zeros((rows, columns), tl.float32)
    for start in range(0, num_in, columns):
        is_in = start + k < num_in
        part = tl.load(x + token * num_in + start + k, mask=is_in, other=0.0).to(tl.float32)
        at = n[:, None].to(tl.int64) * num_in + start + k[None, :]
        mask = (n[:, None] < num_out) & is_in[None, :]
        acc += tl.load(values + at, mask=mask, other=0).to(tl.float32) * part[None, :]
    factor = tl.load(scale + n, mask=n < num_out, other=0.0).to(tl.float32)
    tl.store(out + token * num_out + n, tl.sum(acc, 1) * factor, mask=n < num_out)


def product(x: Tensor, values: Tensor, scale: Tensor) -> Tensor:
    """``x @ (values * scale).T``.

    Args:
        x: ``[tokens, in]``.
        values: ``[out, in]`` int8.
        scale: ``[out]``.

    Returns:
        ``[tokens, out]`` bf16.
    """
    num_out, num_in = values.shape
    out = torch.empty(x.shape[0], num_out, dtype=torch.bfloat16, device=x.device)
    grid = (triton.cdiv(num_out, _ROWS), x.shape[0])
    _product[grid](x.contiguous(), values, scale, out, num_out, num_in, _ROWS, _COLUMNS)
    return out
