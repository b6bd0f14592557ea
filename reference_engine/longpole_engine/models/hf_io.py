"""Reads a Hugging Face folder of the Llama family: config.json, *.safetensors, tokenizer.json."""

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from longpole.errors import BadInput
from longpole_engine.models.checkpoint import Checkpoint, TextSpec, fuse
from longpole_engine.models.llama import LlamaConfig

_NAMES = {
    "attn_norm": "input_layernorm",
    "q": "self_attn.q_proj",
    "k": "self_attn.k_proj",
    "v": "self_attn.v_proj",
    "attn_out": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "gate": "mlp.gate_proj",
    "up": "mlp.up_proj",
    "down": "mlp.down_proj",
}
_TOP_NAMES = {
    "embed": "model.embed_tokens.weight",
    "norm": "model.norm.weight",
    "head": "lm_head.weight",
}


def read(folder: Path) -> Checkpoint:
    """The model in a folder, widened to fp32.

    Raises:
        BadInput: a file is missing or unreadable, or the model is not a plain Llama.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    raw = _json(folder / "config.json")
    config = _config(folder, raw)
    stored: dict[str, Tensor] = {}
    try:
        for path in sorted(folder.glob("*.safetensors")):
            stored.update(load_file(path))
    except SafetensorError as error:
        raise BadInput(f"{folder}: weights cannot be read: {error}") from error

    def part(name: str) -> Tensor:
        layer, _, piece = name.removeprefix("layers.").partition(".")
        hf_name = _TOP_NAMES.get(name) or f"model.layers.{layer}.{_NAMES[piece]}.weight"
        if hf_name not in stored:
            raise BadInput(f"{folder}: no tensor '{hf_name}'")
        return stored[hf_name].to(torch.float32)

    tensors = fuse(config.num_layers, part, bool(raw.get("tie_word_embeddings")))
    return Checkpoint(config, tensors, _text(folder, raw))


def _json(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise BadInput(f"cannot read {path}: {error}") from error
    if not isinstance(document, dict):
        raise BadInput(f"{path} does not hold an object")
    return document


def _config(folder: Path, raw: dict[str, Any]) -> LlamaConfig:
    if raw.get("model_type") != "llama":
        raise BadInput(f"{folder}: model type '{raw.get('model_type')}': only 'llama' is supported")
    rope = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    if rope.get("rope_type", "default") != "default":
        raise BadInput(f"{folder}: rope scaling '{rope['rope_type']}' is not supported")
    if raw.get("attention_bias") or raw.get("mlp_bias"):
        raise BadInput(f"{folder}: layers with bias are not supported")
    try:
        heads = raw["num_attention_heads"]
        return LlamaConfig(
            num_layers=raw["num_hidden_layers"],
            hidden_size=raw["hidden_size"],
            num_heads=heads,
            num_kv_heads=raw.get("num_key_value_heads") or heads,
            head_dim=raw.get("head_dim") or raw["hidden_size"] // heads,
            ffn_size=raw["intermediate_size"],
            vocab_size=raw["vocab_size"],
            context_tokens=raw["max_position_embeddings"],
            rope_base=rope.get("rope_theta") or raw.get("rope_theta") or 10_000.0,
            rms_eps=raw["rms_norm_eps"],
        )
    except KeyError as error:
        raise BadInput(f"{folder}/config.json: no {error}") from error


def _text(folder: Path, raw: dict[str, Any]) -> TextSpec:
    try:
        tokenizer = (folder / "tokenizer.json").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"cannot read {folder / 'tokenizer.json'}: {error}") from error
    template = None
    if (folder / "chat_template.jinja").is_file():
        template = (folder / "chat_template.jinja").read_text(encoding="utf-8")
    elif (folder / "tokenizer_config.json").is_file():
        template = _json(folder / "tokenizer_config.json").get("chat_template")
    eos = raw.get("eos_token_id")
    if (folder / "generation_config.json").is_file():
        eos = _json(folder / "generation_config.json").get("eos_token_id", eos)
    if eos is None:
        raise BadInput(f"{folder}: no eos_token_id in config.json or generation_config.json")
    return TextSpec(tokenizer, template, tuple(eos) if isinstance(eos, list) else (eos,))
