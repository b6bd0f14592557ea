"""A tiny random model with the real one's shape, for quick tests and load generation.

Its words mean nothing; its phases, batching and caching are those of any model.
"""

from itertools import product

import torch
from torch import Tensor

from longpole_engine.models.checkpoint import Checkpoint, TextSpec, fuse
from longpole_engine.models.llama import LlamaConfig
from longpole_engine.text.tokenizer import byte_alphabet, byte_level_json

_SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_LETTERS = "Ġetaoinshrdlcumw"
_VOCAB_SIZE = 512
_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def tiny(seed: int = 0) -> Checkpoint:
    """Two random layers over a vocabulary of 512: every byte, letter pairs, three specials.

    The same seed gives the same weights.
    """
    config = LlamaConfig(
        num_layers=2,
        hidden_size=64,
        num_heads=4,
        num_kv_heads=2,
        head_dim=16,
        ffn_size=128,
        vocab_size=_VOCAB_SIZE,
        context_tokens=8192,
        rope_base=10_000.0,
        rms_eps=1e-5,
    )
    generator = torch.Generator().manual_seed(seed)
    kv_rows = config.num_kv_heads * config.head_dim
    shapes = {
        "embed": (_VOCAB_SIZE, 64),
        "q": (64, 64),
        "k": (kv_rows, 64),
        "v": (kv_rows, 64),
        "attn_out": (64, 64),
        "gate": (128, 64),
        "up": (128, 64),
        "down": (64, 128),
    }

    def part(name: str) -> Tensor:
        shape = shapes.get(name.rpartition(".")[2])
        if shape is None:
            return torch.ones(64)
        return torch.randn(shape, generator=generator).mul_(float(shape[-1]) ** -0.5)

    alphabet = list(byte_alphabet().values())
    pairs = list(product(_LETTERS, repeat=2))[: _VOCAB_SIZE - len(_SPECIAL) - len(alphabet)]
    tokens = [*_SPECIAL, *alphabet, *("".join(pair) for pair in pairs)]
    text = TextSpec(byte_level_json(tokens, pairs, _SPECIAL), _TEMPLATE, (2,))
    return Checkpoint(config, fuse(config.num_layers, part, is_tied=True), text)
