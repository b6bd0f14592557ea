"""Decoding steps of one shape, captured once as a CUDA graph and replayed.

A step of a small model is bound by the launches of its kernels; a graph launches them all at once.
On a CPU the same step runs uncaptured.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from longpole_engine.attention.tables import Kernel, TableAttention, Tables, gathered
from longpole_engine.kv.pool import PAGE_TOKENS
from longpole_engine.models.llama import Llama

_WARM_STEPS = 3


class GraphDecoder:
    """One row each of so many sequences, a step at a time.

    Args:
        model: on the device of its weights.
        layers: memory of each layer, ``[num_slots, 2, num_kv_heads, head_dim]``.
        num_rows: sequences of every step.
        max_pages: longest page table.
        kernel: of attention; by default the best there is on the device.
        is_captured: capture a graph; only on a GPU.
    """

    def __init__(
        self,
        model: Llama,
        layers: Sequence[Tensor],
        num_rows: int,
        max_pages: int,
        kernel: Kernel | None = None,
        *,
        is_captured: bool = True,
    ) -> None:
        device = layers[0].device
        self._model = model
        self._tokens = torch.zeros(num_rows, dtype=torch.int64, device=device)
        self._positions = torch.zeros(num_rows, dtype=torch.int64, device=device)
        self._tables = Tables(
            torch.zeros(num_rows, max_pages, dtype=torch.int32, device=device),
            torch.ones(num_rows, dtype=torch.int32, device=device),
            torch.zeros(num_rows, dtype=torch.int64, device=device),
        )
        self._attention = TableAttention(layers, self._tables, kernel or best_kernel(device))
        self._graph: torch.cuda.CUDAGraph | None = None
        self._logits: Tensor | None = None
        if is_captured and device.type == "cuda":
            self._capture()

    @torch.inference_mode()
    def step(self, tokens: Tensor, positions: Tensor, pages: Tensor) -> Tensor:
        """Logits after each row's token, ``[num_rows, vocab_size]``; valid until the next step.

        Args:
            tokens: ``[num_rows]``.
            positions: ``[num_rows]``.
            pages: tables, ``[num_rows, max_pages]``, padded with any page.
        """
        self._tokens.copy_(tokens)
        self._positions.copy_(positions)
        self._tables.pages.copy_(pages)
        self._tables.lengths.copy_(positions + 1)
        own = pages.gather(1, (positions // PAGE_TOKENS)[:, None])[:, 0].to(torch.int64)
        self._tables.slots.copy_(own * PAGE_TOKENS + positions % PAGE_TOKENS)
        if self._graph is None or self._logits is None:
            return self._forward()
        self._graph.replay()
        return self._logits

    def _forward(self) -> Tensor:
        hidden = self._model.decode(self._tokens, self._positions, self._attention)
        return self._model.logits(hidden)

    @torch.inference_mode()
    def _capture(self) -> None:
        # Warmed up on a stream of its own, as capturing demands.
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(_WARM_STEPS):
                self._forward()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._logits = self._forward()
        self._graph = graph


def best_kernel(device: torch.device) -> Kernel:
    """Triton's on a GPU that has it, else gathering."""
    if device.type != "cuda":
        return gathered
    try:
        from longpole_engine.attention.triton_paged import attend
    except ImportError:
        return gathered
    return attend
