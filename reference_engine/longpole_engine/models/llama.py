"""The Llama family: one forward pass for prompts and for decoding.

Touvron et al. 2023, arXiv:2302.13971: RMSNorm before each block, rotary positions, grouped-query
attention, SwiGLU. Query, key and value are one matrix, and so are gate and up.
"""

import copy
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
    Linear,
    invariant,
    max_packed_rows,
    prompt_format,
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
    qkv: Linear
    attn_out: Linear
    ffn_norm: RmsNorm
    gate_up: Linear
    down: Linear


class _Stack(NamedTuple):
    """All matrices in one format."""

    layers: list[_Layer]
    head: Linear
    num_bytes: int


class Llama:
    """A model ready to run.

    Args:
        config: sizes.
        tensors: weights by the names of :func:`longpole_engine.models.checkpoint.fuse`, fp32 (on
            a GPU bf16 will do); the model runs on their device.
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
        ).to(self._embed.device)
        if numerics is Numerics.INVARIANT:
            made = _stack(config, tensors, weights, is_invariant=True)
            self._full = self._packed = made
            self._max_packed_rows = MAX_PACKED_ROWS
            return
        full = prompt_format(weights, self._embed.device)
        self._max_packed_rows = max_packed_rows(full)
        self._full = self._packed = _stack(config, tensors, full)
        if weights is not full:
            self._packed = _stack(config, tensors, weights)

    def first(self, num_layers: int) -> "Llama":
        """The model cut off after its first layers, on the same weights: its head reads early."""
        cut = copy.copy(self)
        cut._full = self._full._replace(layers=self._full.layers[:num_layers])
        cut._packed = self._packed._replace(layers=self._packed.layers[:num_layers])
        return cut

    def prompt(self, tokens: Tensor, positions: Tensor, attention: Attention) -> Tensor:
        """Hidden states of pieces of prompts, ``[num_tokens, hidden_size]`` fp32.

        The layers run in one format however long a piece is, so how a prompt was cut changes its
        keys and values by no more than rounding.
        """
        return self._layers(self._full.layers, tokens, positions, attention)

    def decode(self, tokens: Tensor, positions: Tensor, attention: Attention) -> Tensor:
        """Hidden states of single rows, in the decode format."""
        layers = self._stack_for(tokens.shape[0]).layers
        return self._layers(layers, tokens, positions, attention)

    def logits(self, hidden: Tensor) -> Tensor:
        """Logits after each of these rows, ``[rows, vocab_size]`` fp32."""
        normed = self._norm(hidden)
        if normed.shape[0] <= MAX_PACKED_ROWS:
            return self._packed.head(normed).float()
        return self._full.head(normed).float()

    def read_bytes(self, num_decode_rows: int, num_prompt_rows: int) -> int:
        """Bytes of weights that a step of so many rows reads at least, each format once.

        The head is counted with both; a prompt that is not yet whole does without.
        """
        stacks = []
        if num_decode_rows:
            stacks.append(self._stack_for(num_decode_rows))
        if num_prompt_rows:
            stacks.append(self._full)
        return sum(stack.num_bytes for stack in stacks)

    def _stack_for(self, num_rows: int) -> _Stack:
        """The faster matrices for so many decoding rows."""
        return self._packed if num_rows <= self._max_packed_rows else self._full

    def _layers(
        self, layers: list[_Layer], tokens: Tensor, positions: Tensor, attention: Attention
    ) -> Tensor:
        c = self.config
        # [num_tokens, hidden_size], fp32 throughout, with a column more for the norms
        room = self._norm.room(self._embed.index_select(0, tokens).float())
        x = room[:, :-1]
        heads = rope.Heads(self._turns.index_select(0, positions))
        split = [c.num_heads, 2 * c.num_kv_heads]
        q, kv = torch.split_with_sizes(heads.turned, split, dim=1)
        kv = kv.view(-1, 2, c.num_kv_heads, c.head_dim)
        for index, layer in enumerate(layers):
            heads.fill(layer.qkv(layer.attn_norm.padded(room, x)))
            x += layer.attn_out(attention(index, q, kv))
            gate, up = layer.gate_up(layer.ffn_norm.padded(room, x)).chunk(2, dim=1)
            x += layer.down(functional.silu(gate).mul_(up))
        return x


def _stack(
    config: LlamaConfig, tensors: dict[str, Tensor], weights: Weights, *, is_invariant: bool = False
) -> _Stack:
    def made(weight: Tensor, *, is_head: bool = False) -> Linear:
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
    head = made(tensors.get("head", tensors["embed"]), is_head=True)
    ops = [op for layer in layers for op in layer if isinstance(op, Linear)]
    return _Stack(layers, head, sum(op.num_bytes for op in (*ops, head)))
