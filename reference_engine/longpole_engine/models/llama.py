"""The Llama family: one forward pass for prompts and for decoding.

Touvron et al. 2023, arXiv:2302.13971: RMSNorm before each block, rotary positions, grouped-query
attention, SwiGLU. Query, key and value are one matrix, and so are gate and up.
"""

from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor
from torch.nn import functional

from longpole_engine.attention.contiguous import Attention
from longpole_engine.config import Weights
from longpole_engine.ops import rope
from longpole_engine.ops.linear import HEAD_FORMATS, LAYER_FORMATS, MAX_PACKED_ROWS, Op


@dataclass(frozen=True)
class LlamaConfig:
    """Sizes of a model, as its file states them."""

    num_layers: int
    hidden_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    ffn_size: int
    vocab_size: int
    context_tokens: int
    rope_base: float
    rms_eps: float


class _Layer(NamedTuple):
    attn_norm: Tensor
    qkv: Op
    attn_out: Op
    ffn_norm: Tensor
    gate_up: Op
    down: Op


class _Stack(NamedTuple):
    """All matrices in one format."""

    layers: list[_Layer]
    head: Op


class Llama:
    """A model ready to run.

    Args:
        config: sizes.
        tensors: weights by the names of :func:`longpole_engine.models.checkpoint.fuse`, fp32.
        weights: format used while decoding.
        max_tokens: longest sequence, prompt and answer together.
    """

    def __init__(
        self,
        config: LlamaConfig,
        tensors: dict[str, Tensor],
        weights: Weights,
        max_tokens: int,
    ) -> None:
        self.config = config
        self._embed = tensors["embed"]
        self._norm = tensors["norm"]
        self._cos, self._sin = rope.tables(max_tokens, config.head_dim, config.rope_base)
        self._full = _stack(config, tensors, Weights.FP32)
        self._packed = self._full
        if weights is not Weights.FP32:
            self._packed = _stack(config, tensors, weights)

    def prefill(self, tokens: Tensor, positions: Tensor, attention: Attention) -> Tensor:
        """Logits after the last token of a piece of prompt, ``[1, vocab_size]`` fp32.

        The layers run in fp32 whatever the format, so the keys and values of a prompt do not
        depend on how it was cut; the one row of the head runs packed.
        """
        x = self._layers(self._full.layers, tokens, positions, attention)
        return self._packed.head(self._normed(x[-1:])).float()

    def decode(self, tokens: Tensor, positions: Tensor, attention: Attention) -> Tensor:
        """Logits after each token, ``[num_tokens, vocab_size]`` fp32, in the decode format."""
        stack = self._packed if tokens.shape[0] <= MAX_PACKED_ROWS else self._full
        x = self._layers(stack.layers, tokens, positions, attention)
        return stack.head(self._normed(x)).float()

    def _normed(self, x: Tensor) -> Tensor:
        return functional.rms_norm(x, (self.config.hidden_size,), self._norm, self.config.rms_eps)

    def _layers(
        self, layers: list[_Layer], tokens: Tensor, positions: Tensor, attention: Attention
    ) -> Tensor:
        c = self.config
        shape, eps = (c.hidden_size,), c.rms_eps
        num_rotated = c.num_heads + c.num_kv_heads
        x = self._embed.index_select(0, tokens)  # [num_tokens, hidden_size], fp32 throughout
        cos = self._cos.index_select(0, positions)
        sin = self._sin.index_select(0, positions)
        for index, layer in enumerate(layers):
            qkv = layer.qkv(functional.rms_norm(x, shape, layer.attn_norm, eps))
            heads = qkv.float().view(x.shape[0], -1, c.head_dim)
            q_and_k = rope.rotate(heads[:, :num_rotated], cos, sin)
            q, k = q_and_k[:, : c.num_heads], q_and_k[:, c.num_heads :]
            x += layer.attn_out(attention(index, q, k, heads[:, num_rotated:]))
            gate_up = layer.gate_up(functional.rms_norm(x, shape, layer.ffn_norm, eps))
            gate, up = gate_up.chunk(2, dim=-1)
            x += layer.down(functional.silu(gate).mul_(up))
        return x


def _stack(config: LlamaConfig, tensors: dict[str, Tensor], weights: Weights) -> _Stack:
    make = LAYER_FORMATS[weights]
    layers = []
    for index in range(config.num_layers):
        prefix = f"layers.{index}."
        layers.append(
            _Layer(
                tensors[prefix + "attn_norm"],
                make(tensors[prefix + "qkv"]),
                make(tensors[prefix + "attn_out"]),
                tensors[prefix + "ffn_norm"],
                make(tensors[prefix + "gate_up"]),
                make(tensors[prefix + "down"]),
            )
        )
    head = tensors.get("head", tensors["embed"])
    return _Stack(layers, HEAD_FORMATS[weights](head))
