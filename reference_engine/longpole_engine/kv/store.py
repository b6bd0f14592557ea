"""The memory behind the pages: keys and values of all layers, in fp32, bf16 or int8."""

import math
import mmap
from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor

from longpole_engine.config import KvFormat
from longpole_engine.kv.pool import PAGE_TOKENS

_DTYPES: Final = {
    KvFormat.FP32: torch.float32,
    KvFormat.BF16: torch.bfloat16,
    KvFormat.INT8: torch.int8,
}
_SMALLEST_SCALE: Final = 1e-12


class KvStore:
    """Room for ``num_pages`` pages of 16 tokens.

    A token's keys and values lie side by side, heads inside: ``[num_layers, num_pages * 16, 2,
    num_kv_heads, head_dim]``; int8 has one scale a head and token beside them. Memory is taken
    page by page as positions are first written.
    """

    def __init__(
        self, num_layers: int, num_kv_heads: int, head_dim: int, num_pages: int, format: KvFormat
    ) -> None:
        self.format = format
        self.num_pages = num_pages
        self._heads = (2, num_kv_heads, head_dim)
        num_slots = num_pages * PAGE_TOKENS
        self._data = lazy_zeros((num_layers, num_slots, *self._heads), _DTYPES[format])
        self._scales: Tensor | None = None
        if format is KvFormat.INT8:
            self._scales = lazy_zeros((num_layers, num_slots, 2, num_kv_heads), torch.float32)
        self.layers = list(self._data.unbind())
        self._pages = [layer.view(num_pages, -1) for layer in self.layers]

    @property
    def bytes_per_token(self) -> int:
        """Bytes of one token in all layers, scales included."""
        tensors = [self._data] if self._scales is None else [self._data, self._scales]
        return sum(t[:, 0].numel() * t.element_size() for t in tensors)

    def write(self, layer: int, slots: Tensor, kv: Tensor) -> None:
        """Store tokens' keys and values.

        Args:
            layer: index.
            slots: where, ``page * 16 + offset``, ``[num_tokens]``.
            kv: ``[num_tokens, 2, num_kv_heads, head_dim]`` fp32.
        """
        if self._scales is not None:
            scale = kv.abs().amax(dim=-1).clamp_min_(_SMALLEST_SCALE).div_(127)
            self._scales[layer].index_copy_(0, slots, scale)
            kv = kv.div(scale[..., None]).round_()
        self.layers[layer].index_copy_(0, slots, kv.to(self._data.dtype))

    def gather(self, layer: int, pages: Tensor, out: Tensor | None = None) -> Tensor:
        """Pages as fp32, in order.

        Args:
            layer: index.
            pages: ``[num_pages]``.
            out: where to put them, fp32 ``[num_pages, 16 * 2 * num_kv_heads * head_dim]``.

        Returns:
            ``[num_pages * 16, 2, num_kv_heads, head_dim]``.
        """
        whole = self._pages[layer]
        if out is None:
            out = torch.empty(pages.shape[0], whole.shape[1])
        if self.format is KvFormat.FP32:
            torch.index_select(whole, 0, pages, out=out)
        else:
            out.copy_(whole.index_select(0, pages))
        found = out.view(-1, *self._heads)
        if self._scales is not None:
            scales = self._scales[layer].view(self.num_pages, -1).index_select(0, pages)
            found.mul_(scales.view(*found.shape[:-1], 1))
        return found

    def run(self, layer: int, start: int, num_tokens: int) -> Tensor | None:
        """The tokens of consecutive pages, without copying; ``None`` unless the store is fp32.

        Args:
            layer: index.
            start: first slot.
            num_tokens: how many.
        """
        if self.format is not KvFormat.FP32:
            return None
        return self.layers[layer][start : start + num_tokens]

    def copy(self, source: int, target: int) -> None:
        """Copy a page in all layers."""
        for tensor in self._tensors():
            tensor[:, target] = tensor[:, source]

    def save(self, pages: Sequence[int]) -> object:
        """Copies of pages, outside the pool."""
        where = torch.tensor(pages, dtype=torch.int64)
        return [tensor.index_select(1, where) for tensor in self._tensors()]

    def load(self, saved: object, pages: Sequence[int]) -> None:
        """Put saved pages back into other places."""
        where = torch.tensor(pages, dtype=torch.int64)
        for tensor, content in zip(self._tensors(), saved, strict=True):  # type: ignore[call-overload]
            tensor.index_copy_(1, where, content)

    def _tensors(self) -> list[Tensor]:
        """All memory, by page: ``[num_layers, num_pages, 16 * ...]``."""
        tensors = [self._data] if self._scales is None else [self._data, self._scales]
        return [t.view(t.shape[0], self.num_pages, -1) for t in tensors]


def bytes_per_token(num_layers: int, num_kv_heads: int, head_dim: int, format: KvFormat) -> int:
    """Bytes of one token's keys and values in all layers."""
    per_head = head_dim * _DTYPES[format].itemsize + (4 if format is KvFormat.INT8 else 0)
    return num_layers * 2 * num_kv_heads * per_head


def lazy_zeros(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Zeros that take memory only where they are written.

    A fresh anonymous mapping; torch's own zeros would write every page. Without huge pages, which
    would fill megabytes around each first write. They must be zeros: attention masks what lies
    beyond a sequence, and a masked NaN is still NaN.
    """
    num_bytes = dtype.itemsize * math.prod(shape)
    if num_bytes == 0:
        return torch.zeros(shape, dtype=dtype)
    memory = mmap.mmap(-1, num_bytes)
    if hasattr(mmap, "MADV_NOHUGEPAGE"):
        memory.madvise(mmap.MADV_NOHUGEPAGE)
    return torch.frombuffer(memory, dtype=dtype).view(shape)
