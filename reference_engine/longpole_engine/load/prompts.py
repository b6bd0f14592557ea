"""Prompts of a wanted length whose prefixes are shared as wanted; words without meaning."""

from collections.abc import Sequence
from random import Random
from typing import Final

from longpole_engine.load.arrivals import Turn

_TEXT: Final = """
time year people way day man thing woman life child world school state family student group
country problem hand part place case week company system program question work government
number night point home water room mother area money story fact month lot right study book
eye job word business issue side kind head house service friend father power hour game line
end member law car city
"""
_WORDS: Final = _TEXT.split()
"""Common words: most tokenizers make one token of each, its blank included."""


def text(turn: Turn, num_tokens: int, unique: int) -> str:
    """A prompt of about ``num_tokens`` tokens.

    Args:
        turn: equal ``blocks`` give equal text at equal places.
        num_tokens: words, each about one token.
        unique: seed of what no other prompt shall share.
    """
    blocks: Sequence[int | str] = turn.blocks or (f"alone {unique}",)
    size = -(-num_tokens // len(blocks))
    words: list[str] = []
    for block in blocks:
        words += Random(f"block {block}").choices(_WORDS, k=size)  # noqa: S311 - no secret
    return " ".join(words[:num_tokens])
