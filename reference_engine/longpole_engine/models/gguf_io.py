"""Reads a GGUF file of the Llama family.

GGUF files of that family keep query and key rows in the order of interleaved rotary pairs; here
they are put back into half-rotation order, which is Hugging Face's.
"""

import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from longpole.errors import BadInput
from longpole_engine.models.checkpoint import Checkpoint, TextSpec, fuse
from longpole_engine.models.llama import LlamaConfig
from longpole_engine.text.tokenizer import byte_level_json

_CONTROL_TOKEN = 3
_NAMES = {
    "attn_norm": "attn_norm",
    "q": "attn_q",
    "k": "attn_k",
    "v": "attn_v",
    "attn_out": "attn_output",
    "ffn_norm": "ffn_norm",
    "gate": "ffn_gate",
    "up": "ffn_up",
    "down": "ffn_down",
}
_TOP_NAMES = {"embed": "token_embd.weight", "norm": "output_norm.weight", "head": "output.weight"}


def read(path: Path) -> Checkpoint:
    """The model in a GGUF file, dequantised to fp32.

    Raises:
        BadInput: not a GGUF file, cut short, or a model this engine does not run.
    """
    import gguf

    try:
        with path.open("rb") as file:
            magic = file.read(4)
        if magic != b"GGUF":
            raise BadInput(f"{path} is not a GGUF file: it starts with {magic!r}")
        reader: Any = gguf.GGUFReader(path)
    except (ValueError, IndexError, KeyError, OverflowError, OSError, struct.error) as error:
        raise BadInput(f"{path} is not a whole GGUF file: {error}") from error
    fields = _Fields(path, reader.fields)
    config = _config(fields)
    stored = {tensor.name: tensor for tensor in reader.tensors}
    part = _parts(path, config, stored, gguf.dequantize)
    is_tied = _TOP_NAMES["head"] not in stored
    _refuse_unknown(path, config, stored)
    return Checkpoint(config, fuse(config.num_layers, part, is_tied), _text(fields))


class _Fields:
    """The metadata of a file; a missing key is an error that names it."""

    def __init__(self, path: Path, fields: Any) -> None:
        self.path = path
        self._fields = fields

    def get(self, key: str, default: Any = None) -> Any:
        field = self._fields.get(key)
        if field is not None:
            return field.contents()
        if default is None:
            raise BadInput(f"{self.path}: no metadata '{key}'")
        return default


def _config(fields: _Fields) -> LlamaConfig:
    architecture = fields.get("general.architecture")
    if architecture != "llama":
        raise BadInput(f"{fields.path}: architecture '{architecture}': only 'llama' is supported")
    scaling = fields.get("llama.rope.scaling.type", "none")
    if scaling != "none":
        raise BadInput(f"{fields.path}: rope scaling '{scaling}' is not supported")
    hidden, heads = fields.get("llama.embedding_length"), fields.get("llama.attention.head_count")
    head_dim = fields.get("llama.attention.key_length", hidden // heads)
    if fields.get("llama.rope.dimension_count", head_dim) != head_dim:
        raise BadInput(f"{fields.path}: partial rotary embedding is not supported")
    return LlamaConfig(
        num_layers=fields.get("llama.block_count"),
        hidden_size=hidden,
        num_heads=heads,
        num_kv_heads=fields.get("llama.attention.head_count_kv", heads),
        head_dim=head_dim,
        ffn_size=fields.get("llama.feed_forward_length"),
        vocab_size=len(fields.get("tokenizer.ggml.tokens")),
        context_tokens=fields.get("llama.context_length"),
        rope_base=fields.get("llama.rope.freq_base", 10_000.0),
        rms_eps=fields.get("llama.attention.layer_norm_rms_epsilon"),
    )


def _parts(
    path: Path,
    config: LlamaConfig,
    stored: dict[str, Any],
    dequantize: Callable[[Any, Any], Any],
) -> Callable[[str], Tensor]:
    def part(name: str) -> Tensor:
        layer, _, piece = name.removeprefix("layers.").partition(".")
        gguf_name = _TOP_NAMES.get(name) or f"blk.{layer}.{_NAMES[piece]}.weight"
        tensor = stored.get(gguf_name)
        if tensor is None:
            raise BadInput(f"{path}: no tensor '{gguf_name}'")
        array = np.asarray(dequantize(tensor.data, tensor.tensor_type), dtype=np.float32)
        weight = torch.from_numpy(array.copy())
        if piece == "q":
            return _half_rotation(weight, config.num_heads)
        if piece == "k":
            return _half_rotation(weight, config.num_kv_heads)
        return weight

    return part


def _half_rotation(weight: Tensor, num_heads: int) -> Tensor:
    """Rows of each head from (0, half, 1, half + 1, ...) to (0, 1, ..., half, half + 1, ...)."""
    rows, columns = weight.shape
    pairs = weight.view(num_heads, rows // num_heads // 2, 2, columns)
    return pairs.transpose(1, 2).reshape(rows, columns)


def _refuse_unknown(path: Path, config: LlamaConfig, stored: dict[str, Any]) -> None:
    """A tensor we would leave out (a bias, rope factors) means wrong answers, not a detail."""
    known = set(_TOP_NAMES.values())
    for index in range(config.num_layers):
        known.update(f"blk.{index}.{name}.weight" for name in _NAMES.values())
    for name in stored:
        if name not in known:
            raise BadInput(f"{path}: tensor '{name}' is not part of a plain Llama model")


def _text(fields: _Fields) -> TextSpec:
    kind, pre = fields.get("tokenizer.ggml.model"), fields.get("tokenizer.ggml.pre", "default")
    if (kind, pre) != ("gpt2", "smollm"):
        raise BadInput(f"{fields.path}: tokenizer '{kind}/{pre}': only 'gpt2/smollm' is supported")
    tokens: Sequence[str] = fields.get("tokenizer.ggml.tokens")
    types: Sequence[int] = fields.get("tokenizer.ggml.token_type")
    merges = [tuple(merge.split(" ", 1)) for merge in fields.get("tokenizer.ggml.merges")]
    special = [t for t, kind in zip(tokens, types, strict=True) if kind == _CONTROL_TOKEN]
    return TextSpec(
        byte_level_json(tokens, merges, special, is_splitting_digits=True),
        fields.get("tokenizer.chat_template", "") or None,
        (fields.get("tokenizer.ggml.eos_token_id"),),
    )
