"""Linear layers in four formats, each a plain function of its input.

Rules measured on AVX2 and AVX-512 machines: packed int4 and int8 with bf16 activations win up
to about 16 rows (decoding); fp32 GEMM wins above (prompts), or bf16 where the processor has it;
packed kernels fed fp32 fall back to a slow path. The packed kernels give a row the same bits
whatever rows stand beside it; fp32 GEMM does not. On a GPU there are fp32, bf16 and int8.

Where the processor multiplies bf16 or int8 itself, oneDNN's kernels on weights it has laid out
beforehand win too: bf16 from 9 rows on, and the int8 head, a matrix large enough to be worth a
few operations on its input, at any number of rows.
"""

from collections.abc import Callable
from functools import partial
from typing import Final

import torch
from torch import Tensor
from torch.nn import functional

from longpole.errors import UsageError
from longpole_engine.config import Weights
from longpole_engine.ops.quant import INT4_GROUP, to_int4, to_int8


class Linear:
    """A linear layer, ``[rows, in] -> [rows, out]``.

    Args:
        apply: the kernel on its weights.
        tensors: what it reads of them.
    """

    __slots__ = ("_apply", "tensors")

    def __init__(self, apply: Callable[[Tensor], Tensor], *tensors: Tensor) -> None:
        self._apply = apply
        self.tensors = tensors

    def __call__(self, x: Tensor) -> Tensor:
        """The layer's output; its dtype is the kernel's."""
        return self._apply(x)

    @property
    def num_bytes(self) -> int:
        """Bytes that one use reads."""
        return sum(tensor.nbytes for tensor in self.tensors)


MAX_PACKED_ROWS: Final = 16
"""Above so many rows the fp32 kernel is the faster one."""

_MAX_ROWS_BESIDE_BF16: Final = 8
"""Above so many rows bf16 is, where the processor has it."""

_FIXED_POINT_TOP: Final = 32_512
"""The largest 16-bit number whose high byte, rounded, is one of 8 bits."""

_SMALLEST_TOP: Final = 1e-30

TILE_ROWS: Final = 16
"""Rows that :func:`invariant` computes together at most."""


def dense(weight: Tensor) -> Linear:
    """The weights as they are; output in the dtype of the input."""
    return Linear(partial(functional.linear, weight=weight), weight)


def bf16(weight: Tensor) -> Linear:
    """Weights and activations in bf16; bf16 output."""
    half = weight.to(torch.bfloat16)
    if weight.is_cuda or not has_bf16(weight.device):

        def apply(x: Tensor) -> Tensor:
            return functional.linear(x.bfloat16(), half)

        return Linear(apply, half)
    # the bits of the above, at few rows in half its time: that lays the weights out at every call
    laid_out = torch.ops.mkldnn._reorder_linear_weight(half)
    kernel = torch.ops.mkldnn._linear_pointwise.default

    def apply_laid_out(x: Tensor) -> Tensor:
        return kernel(x.bfloat16(), laid_out, None, "none", [], "")  # type: ignore[no-any-return]

    return Linear(apply_laid_out, laid_out)


def int8(weight: Tensor) -> Linear:
    """Weights in int8 with one scale a row, activations in bf16; bf16 output."""
    values, scale = to_int8(weight)
    scale = scale.to(torch.bfloat16)
    if weight.is_cuda:
        from longpole_engine.ops.triton_int8 import product

        return Linear(partial(product, values=values, scale=scale), values, scale)

    def apply(x: Tensor) -> Tensor:
        return torch._weight_int8pack_mm(x.bfloat16(), values, scale)

    return Linear(apply, values, scale)


def int8_head(weight: Tensor) -> Linear:
    """Weights as :func:`int8`, activations in 16 bits of a row's own scale; fp32 output.

    A row's numbers become two of 8 bits each, high and low, which the processor's int8 dot product
    (VNNI) takes as two rows: sums of integers, exact and the same whatever rows stand beside it.
    Without such a product, or on a GPU, it is :func:`int8`.
    """
    if (
        weight.is_cuda
        or not torch.cpu._is_vnni_supported()
        or not torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    ):
        return int8(weight)
    values, scale = to_int8(weight)
    scale = scale.to(torch.bfloat16)
    wide_scale, zero = scale.float(), torch.zeros(len(scale), dtype=torch.int32)
    laid_out = torch.ops.onednn.qlinear_prepack(values, None)
    kernel = torch.ops.onednn.qlinear_pointwise.default

    def apply(x: Tensor) -> Tensor:
        x = x.float()
        step = torch.linalg.vector_norm(x, torch.inf, -1, keepdim=True)
        step = step.clamp_min_(_SMALLEST_TOP).div_(_FIXED_POINT_TOP)
        # value = 256 * (high - 128) + (low - 128), both bytes unsigned
        pairs = x.div(step).round_().add_(128).to(torch.int16).bitwise_xor_(-0x8000)
        num_rows, num_columns = x.shape
        halves = pairs.view(torch.uint8).view(num_rows, num_columns, 2).permute(2, 0, 1)
        rows = halves.reshape(2 * num_rows, num_columns)
        found = kernel(
            *(rows, 1.0, 128, laid_out, wide_scale, zero, None),
            *(1.0, 0, torch.float32, "none", [], ""),
        )
        low, high = found.view(2, num_rows, -1).unbind()
        return torch.add(low, high, alpha=256).mul_(step)

    return Linear(apply, laid_out, scale)


def int4(weight: Tensor) -> Linear:
    """Weights in int4 with scale and offset a group, activations in bf16; bf16 output.

    The kernel reads ``(value - 8) * scale + zero``, so zero is the group's low end plus 8 steps.

    Raises:
        UsageError: the matrix does not divide into groups, or lies on a GPU.
    """
    rows, columns = weight.shape
    if weight.is_cuda:
        raise UsageError("int4 runs on processors only: use weights int8")
    if rows % 16 or columns % INT4_GROUP:
        raise UsageError(f"int4 cannot hold a {rows} x {columns} matrix: use weights int8")
    value, step, low = to_int4(weight)
    packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(value, 1)
    scale_zero = torch.stack((step, low + 8 * step), dim=-1)
    scale_zero = scale_zero.transpose(0, 1).contiguous().to(torch.bfloat16)

    def apply(x: Tensor) -> Tensor:
        return torch._weight_int4pack_mm_for_cpu(x.bfloat16(), packed, INT4_GROUP, scale_zero)

    return Linear(apply, packed, scale_zero)


LAYER_FORMATS: Final[dict[Weights, Callable[[Tensor], Linear]]] = {
    Weights.FP32: dense,
    Weights.BF16: bf16,
    Weights.INT8: int8,
    Weights.INT4: int4,
}

HEAD_FORMATS: Final = {**LAYER_FORMATS, Weights.INT8: int8_head, Weights.INT4: int8_head}
"""The output head stays at 8 bits: there 4 bits cost the most and save the least."""


def prompt_format(weights: Weights, device: torch.device) -> Weights:
    """Format of prompts under ``fast`` numerics, for weights that decode in this one.

    fp32, or bf16 where the processor multiplies it itself: there it is about twice as fast, and
    rounds less than the decode formats do. On others bf16 is the slowest of all.
    """
    return Weights.BF16 if has_bf16(device) and weights is not Weights.FP32 else Weights.FP32


def has_bf16(device: torch.device) -> bool:
    """Whether it multiplies bf16 itself."""
    return device.type == "cuda" or (
        torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
        and (torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())
    )


def max_packed_rows(full: Weights) -> int:
    """Rows up to which the decode format is the faster one beside this format of prompts."""
    return _MAX_ROWS_BESIDE_BF16 if full is Weights.BF16 else MAX_PACKED_ROWS


def invariant(op: Linear, num_columns: int) -> Linear:
    """The same layer, giving a row the same bits whatever rows stand beside it.

    Whether a kernel does so by itself depends on the processor: it is tried on random rows here,
    and one that does not always gets 16 rows, filled up with zeros.

    Args:
        op: of at most 16 rows.
        num_columns: its input's.
    """
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(TILE_ROWS, num_columns, generator=generator)
    whole = op(rows)
    if all(
        torch.equal(op(rows[first : first + num]), whole[first : first + num])
        for num in range(1, TILE_ROWS)
        for first in {0, TILE_ROWS - num}
    ):
        return op

    def apply(x: Tensor) -> Tensor:
        num_rows = x.shape[0]
        return op(functional.pad(x, (0, 0, 0, TILE_ROWS - num_rows)))[:num_rows]

    return Linear(apply, *op.tensors)
