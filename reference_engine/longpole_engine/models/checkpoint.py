"""What every reader of weights yields: sizes, tensors by one set of names, and the text side."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from longpole_engine.models.llama import LlamaConfig


@dataclass(frozen=True)
class TextSpec:
    """The text side of a model.

    ``tokenizer_json`` is the ``tokenizers`` library's own format; ``chat_template`` is Jinja2,
    ``None`` for a base model; any of ``eos_ids`` ends an answer.
    """

    tokenizer_json: str
    chat_template: str | None
    eos_ids: tuple[int, ...]


@dataclass(frozen=True)
class Checkpoint:
    """A model as read: fp32 tensors by the names of :func:`fuse`."""

    config: LlamaConfig
    tensors: dict[str, Tensor]
    text: TextSpec


def fuse(num_layers: int, part: Callable[[str], Tensor], is_tied: bool) -> dict[str, Tensor]:
    """The tensors a model runs on, from the parts a file holds.

    Args:
        num_layers: number of layers.
        part: gives an fp32 tensor by our name: ``embed``, ``norm``, ``head``, and per layer
            ``layers.N.`` with ``attn_norm q k v attn_out ffn_norm gate up down``; query and key
            rows in half-rotation order.
        is_tied: the embedding is also the head, so there is no ``head``.

    Returns:
        The same names, with ``q k v`` joined to ``qkv`` and ``gate up`` to ``gate_up``.
    """
    tensors = {"embed": part("embed"), "norm": part("norm")}
    if not is_tied:
        tensors["head"] = part("head")
    for index in range(num_layers):
        prefix = f"layers.{index}."
        for name in ("attn_norm", "attn_out", "ffn_norm", "down"):
            tensors[prefix + name] = part(prefix + name)
        for name, pieces in (("qkv", ("q", "k", "v")), ("gate_up", ("gate", "up"))):
            tensors[prefix + name] = torch.cat([part(prefix + piece) for piece in pieces])
    return tensors
