"""Text to tokens, and the bytes of each token, over the ``tokenizers`` library."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from longpole.errors import BadInput

if TYPE_CHECKING:
    import tokenizers


def byte_alphabet() -> dict[int, str]:
    """GPT-2's printable stand-in for each byte (Radford et al. 2019): byte to character."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(256) if byte not in printable]
    stand_ins = {byte: chr(0x100 + index) for index, byte in enumerate(others)}
    return {byte: stand_ins.get(byte, chr(byte)) for byte in range(256)}


def byte_level_json(
    tokens: Sequence[str],
    merges: Sequence[tuple[str, ...]],
    special: Sequence[str],
    *,
    is_splitting_digits: bool = False,
) -> str:
    """A byte-level BPE tokenizer in the ``tokenizers`` library's JSON.

    Args:
        tokens: vocabulary in the order of its ids, in stand-in characters.
        merges: pairs in order of priority.
        special: tokens that are matched whole and leave no text.
        is_splitting_digits: each digit is a token of its own.
    """
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    vocabulary = {token: index for index, token in enumerate(tokens)}
    pairs = [(left, right) for left, right in merges]
    built = Tokenizer(models.BPE(vocab=vocabulary, merges=pairs))
    steps: list[pre_tokenizers.PreTokenizer] = []
    if is_splitting_digits:
        steps.append(pre_tokenizers.Digits(individual_digits=True))
    steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False))
    built.pre_tokenizer = pre_tokenizers.Sequence(steps)
    built.decoder = decoders.ByteLevel()
    built.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in special])
    return built.to_str()


class Tokenizer:
    """A byte-level BPE tokenizer.

    Args:
        tokenizer_json: the ``tokenizers`` library's JSON.

    Raises:
        BadInput: the JSON is not a tokenizer, or not a byte-level one.
    """

    def __init__(self, tokenizer_json: str) -> None:
        from tokenizers import Tokenizer as Library

        if (json.loads(tokenizer_json).get("decoder") or {}).get("type") != "ByteLevel":
            raise BadInput("the model's tokenizer is not byte-level: it is not supported")
        self._library: tokenizers.Tokenizer = Library.from_str(tokenizer_json)
        self._bytes = _bytes_by_id(self._library)

    def encode(self, text: str) -> list[int]:
        """Token ids of a text; nothing is added, special tokens in it are recognised."""
        return self._library.encode(text, add_special_tokens=False).ids

    @property
    def vocab_size(self) -> int:
        """Number of token ids."""
        return len(self._bytes)

    def token_bytes(self, token: int) -> bytes:
        """The bytes a token stands for; empty for special tokens and ids without one."""
        return self._bytes[token] if token < len(self._bytes) else b""


def _bytes_by_id(library: tokenizers.Tokenizer) -> list[bytes]:
    byte_of = {character: byte for byte, character in byte_alphabet().items()}
    special = {i for i, token in library.get_added_tokens_decoder().items() if token.special}
    table = [b""] * library.get_vocab_size(with_added_tokens=True)
    for token, index in library.get_vocab(with_added_tokens=True).items():
        if index in special:
            continue
        if all(character in byte_of for character in token):
            table[index] = bytes(byte_of[character] for character in token)
        else:
            table[index] = token.encode()  # a plain added token is kept as text
    return table
