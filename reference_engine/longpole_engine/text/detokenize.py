"""Tokens to text while they come: never half a character.

A token may end inside a UTF-8 sequence. Its bytes wait until the character is whole or can no
longer become one; only then U+FFFD stands for it, as in the whole text's decoding.
"""

import codecs
from collections.abc import Callable


class Detokenizer:
    """Decodes one answer; the pieces joined equal the decoding of all bytes at once.

    Args:
        token_bytes: the bytes of a token id.
    """

    def __init__(self, token_bytes: Callable[[int], bytes]) -> None:
        self._token_bytes = token_bytes
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token: int) -> str:
        """Text that this token completes; empty while a character is open."""
        return self._decoder.decode(self._token_bytes(token))

    def finish(self) -> str:
        """What is left when no token follows: U+FFFD for an open character, else empty."""
        return self._decoder.decode(b"", final=True)
