"""The Llama family: one forward pass for prompts and for decoding.

Touvron et al. 2023, arXiv:2302.13971: RMSNorm before each block, rotary positions, grouped-query
attention, SwiGLU. Query, key and value are one matrix, and so are gate and up.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from longpole_engine.attention.base import Attention
from longpole_engine.config import Numerics, Weights
from longpole_engine.ops import rope
from longpole_engine.ops.linear import (
    HEAD_FORMATS,
    LAYER_FORMATS,
    MAX_PACKED_ROWS,
    Op,
    invariant,
)
from longpole_engine.ops.norm import RmsNorm


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
    attn_norm: RmsNorm
    qkv: Op
    attn_out: Op
    ffn_norm: RmsNorm
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
        numerics: ``invariant`` runs prompts too in the decode format, at most 16 rows at once.
    """

    def __init__(
        self,
        config: LlamaConfig,
        tensors: dict[str, Tensor],
        weights: Weights,
        max_tokens: int,
        numerics: Numerics = Numerics.FAST,
    ) -> None:
        self.config = config
        self._embed = tensors["embed"]
        self._norm = RmsNorm(tensors["norm"], config.rms_eps)
        num_turned = config.num_heads + config.num_kv_heads
        self._turns = rope.turns(
            max_tokens, config.head_dim, config.rope_base, num_turned, config.num_kv_heads
        )
        if numerics is Numerics.INVARIANT:
            self._full = self._packed = _stack(config, tensors, weights, is_invariant=True)
            return
        self._full = _stack(config, tensors, Weights.FP32)
        self._packed = self._full
        if weights is not Weights.FP32:
            self._packed = _stack(config, tensors, weights)

    def prompt(self, tokens: Tensor, positions: Tensor, attention: Attention) -> Tensor:
        """Hidden states of pieces of prompts, ``[num_tokens, hidden_size]`` fp32.

        The layers run in fp32 whatever the format, so the keys and values of a prompt do not
        depend on how it was cut.
        """
        return self._layers(self._full.layers, tokens, positions, attention)

    def decode(self, tokens: Tensor, positions: Tensor, attention: Attention) -> Tensor:
        """Hidden states of single rows, in the decode format."""
        stack = self._packed if tokens.shape[0] <= MAX_PACKED_ROWS else self._full
        return self._layers(stack.layers, tokens, positions, attention)

    def logits(self, hidden: Tensor) -> Tensor:
        """Logits after each of these rows, ``[rows, vocab_size]`` fp32."""
        normed = self._norm(hidden)
        if normed.shape[0] <= MAX_PACKED_ROWS:
            return self._packed.head(normed).float()
        return self._full.head(normed)

    def _layers(
        self, layers: list[_Layer], tokens: Tensor, positions: Tensor, attention: Attention
    ) -> Tensor:
        num_heads, ffn_size = self.config.num_heads, self.config.ffn_size
        kv_shape = (tokens.shape[0], 2, self.config.num_kv_heads, self.config.head_dim)
        x = self._embed.index_select(0, tokens)  # [num_tokens, hidden_size], fp32 throughout
        turn = self._turns.index_select(0, positions)
        for index, layer in enumerate(layers):
            heads = rope.apply(layer.qkv(layer.attn_norm(x)), turn)
            kv = heads[:, num_heads:].view(kv_shape)
            x += layer.attn_out(attention(index, heads[:, :num_heads], kv))
            gate_up = layer.gate_up(layer.ffn_norm(x))
            gate = functional.silu(gate_up[:, :ffn_size])
            x += layer.down(gate.mul_(gate_up[:, ffn_size:]))
        return x


def _stack(
    config: LlamaConfig, tensors: dict[str, Tensor], weights: Weights, *, is_invariant: bool = False
) -> _Stack:
    def made(weight: Tensor, *, is_head: bool = False) -> Op:
        op = (HEAD_FORMATS if is_head else LAYER_FORMATS)[weights](weight)
        return invariant(op, weight.shape[1]) if is_invariant else op

    def norm(weight: Tensor) -> RmsNorm:
        return RmsNorm(weight, config.rms_eps)

    num_turned = (config.num_heads + config.num_kv_heads) * config.head_dim
    layers = []
    for index in range(config.num_layers):
        prefix = f"layers.{index}."
        qkv = tensors[prefix + "qkv"]
        turned = rope.interleave(qkv[:num_turned], config.num_heads + config.num_kv_heads)
        layers.append(
            _Layer(
                norm(tensors[prefix + "attn_norm"]),
                made(torch.cat((turned, qkv[num_turned:]))),
                made(tensors[prefix + "attn_out"]),
                norm(tensors[prefix + "ffn_norm"]),
                made(tensors[prefix + "gate_up"]),
                made(tensors[prefix + "down"]),
            )
        )
    return _Stack(layers, made(tensors.get("head", tensors["embed"]), is_head=True))
