"""What is known of a call's prompt without its text: the keyed hashes of the SDK, decoded.

Columns of calls, all optional: ``prompt_chain`` (hex), ``prompt_num_blocks``, ``prompt_block``,
``prompt_key_id``, and for each segment ``segment_<name>_hash``, ``segment_<name>_set_hash``,
``segment_<name>_length``.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import polars as pl

from longpole.prefix import EVERY, NUM_FIRST
from longpole.vocab import keys

_DIGITS: Final = 16
_FIXED: Final = {
    keys.PROMPT_CHAIN: "prompt_chain",
    keys.PROMPT_NUM_BLOCKS: "prompt_num_blocks",
    keys.PROMPT_BLOCK: "prompt_block",
    keys.PROMPT_KEY_ID: "prompt_key_id",
    keys.CACHE_WRITE_1H_TOKENS: "cache_write_1h_tokens",
}
KEYS: Final = tuple(_FIXED)
"""Attributes of a call that tell of its prompt, besides those of its segments."""
_NUMBERS: Final = ("prompt_num_blocks", "cache_write_1h_tokens")
MESSAGES: Final = "messages"


class Segment(NamedTuple):
    """A part of a prompt: its ordered hash, for tools one that is free of order, its length."""

    name: str
    hash: str | None
    set_hash: str | None
    length: int | None


class Prompt(NamedTuple):
    """A prompt by its hashes.

    ``hashes`` are of ever longer prefixes; ``blocks`` how many blocks each of them covers.
    """

    key_id: str | None
    hashes: tuple[str, ...]
    blocks: tuple[int, ...]
    num_blocks: int | None
    unit: str | None
    segments: tuple[Segment, ...]

    def tokens(self, num_blocks: int, input_tokens: int) -> int:
        """Tokens of the first blocks of a prompt of so many tokens."""
        if self.unit is not None and self.unit.endswith("tokens"):
            return min(num_blocks * int(self.unit.split()[0]), input_tokens)
        return input_tokens * num_blocks // self.num_blocks if self.num_blocks else 0


_UNTOLD: Final = Prompt(None, (), (), None, None, ())
"""Of a call that tells nothing of its prompt, as most do where hashes are not sent."""


def columns_of(attributes: Sequence[Mapping[str, str]]) -> pl.DataFrame:
    """The columns above from the attributes of spans, one row a span."""
    rows: list[dict[str, Any]] = []
    prefix = keys.PROMPT_SEGMENT_PREFIX
    for given in attributes:
        row: dict[str, Any] = {}
        for key, value in given.items():
            if key in _FIXED:
                row[_FIXED[key]] = value
            elif key.startswith(prefix):
                name, _, what = key.removeprefix(prefix).rpartition(".")
                row[f"segment_{name}_{what}"] = value
        rows.append(row)
    names = dict.fromkeys([*_FIXED.values(), *(name for row in rows for name in row)])
    frame = pl.DataFrame(rows, dict.fromkeys(names, pl.String()), strict=False)
    numbers = [name for name in names if name in _NUMBERS or name.endswith("_length")]
    return frame.with_columns(pl.col(numbers).cast(pl.Int64, strict=False))


def prompts(calls: pl.DataFrame, stable: Sequence[str]) -> list[Prompt]:
    """The prompt of each call.

    Segments are put in the order of ``stable``, then others by name, messages last. Of a call
    that has no chain the hash of its stable prefix, if it has one, is a chain of one block.
    """
    names = _segments(calls, stable)
    wanted = ["prompt_chain", "prompt_num_blocks", "prompt_block", "prompt_key_id", "prefix_hash"]
    for name in names:
        wanted += [f"segment_{name}_{what}" for what in ("hash", "set_hash", "length")]
    missing = [pl.lit(None).alias(name) for name in wanted if name not in calls.columns]
    table = calls.with_columns(missing).select(wanted)
    is_told = table.select(pl.any_horizontal(pl.all().is_not_null())).to_series()
    found = [_UNTOLD] * table.height
    told = zip(is_told.arg_true(), table.filter(is_told).iter_rows(), strict=True)
    for row, (chain, num_blocks, unit, key_id, prefix, *rest) in told:
        segments = tuple(
            Segment(name, *rest[3 * at : 3 * at + 3])
            for at, name in enumerate(names)
            if rest[3 * at] is not None
        )
        hashes, blocks = _split(chain), num_blocks
        if not hashes and prefix is not None:
            hashes, blocks = (prefix,), None
        covered = _covered(len(hashes))
        found[row] = Prompt(key_id, hashes, covered, blocks, unit or None, segments)
    return found


def _segments(calls: pl.DataFrame, stable: Sequence[str]) -> list[str]:
    there = {
        name.removeprefix("segment_").removesuffix("_hash")
        for name in calls.columns
        if name.startswith("segment_") and name.endswith("_hash") and "_set_hash" not in name
    }
    others = sorted(there - {*stable, MESSAGES})
    return [name for name in (*stable, *others, MESSAGES) if name in there]


def _split(chain: str | None) -> tuple[str, ...]:
    """The hashes of a chain; none of text that is no chain."""
    if not chain or len(chain) % _DIGITS:
        return ()
    return tuple(chain[at : at + _DIGITS] for at in range(0, len(chain), _DIGITS))


def _covered(num_hashes: int) -> tuple[int, ...]:
    first = range(1, min(num_hashes, NUM_FIRST) + 1)
    rest = range(1, num_hashes - NUM_FIRST + 1)
    return (*first, *(NUM_FIRST + EVERY * at for at in rest))
