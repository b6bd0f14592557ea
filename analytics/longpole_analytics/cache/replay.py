"""What an ideal cache would have hit: arrivals replayed against one of infinite size.

A prompt is a chain of block ids, each standing for the whole prefix up to it. What a prompt
shares with the cache is its leading run of blocks that are there; all its blocks are there
afterwards.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import polars as pl

from longpole.errors import BadInput

BLOCK_TOKENS = 512
_COLUMNS = ("t_ms", "input_tokens", "block_ids")


class Request(NamedTuple):
    """An arrival: when, how long its prompt is, and the ids of its blocks."""

    t_ms: int
    input_tokens: int
    block_ids: Sequence[int]


class Replayed(NamedTuple):
    """What would have been hit with one time to live, seconds."""

    ttl_s: float
    hit_token_share: float | None
    requests_with_hit: int
    num_requests: int


def hit_tokens(
    requests: Iterable[Request],
    ttl_ms: float,
    *,
    is_sliding: bool = True,
    min_blocks: int = 1,
    block_tokens: int = BLOCK_TOKENS,
) -> list[int]:
    """Tokens that each request would have read from the cache, in order of arrival.

    Args:
        requests: in order of time.
        ttl_ms: a block is there for so long, that moment included.
        is_sliding: counted from its last use, not from when it was written.
        min_blocks: fewer blocks than that are no hit.
        block_tokens: tokens of a block; the last one may hold fewer.
    """
    since: dict[int, int] = {}
    found: list[int] = []
    for now, input_tokens, blocks in requests:
        num_hit = 0
        for block in blocks:
            at = since.get(block)
            if at is None or now - at > ttl_ms:
                break
            num_hit += 1
        is_hit = num_hit >= min_blocks
        found.append(min(num_hit * block_tokens, input_tokens) if is_hit else 0)
        if is_sliding:
            since.update(dict.fromkeys(blocks, now))
        else:
            for block in blocks:
                if now - since.get(block, -1 << 62) > ttl_ms:
                    since[block] = now
    return found


def replayed(
    table: pl.DataFrame,
    ttls_s: Sequence[float],
    *,
    is_sliding: bool = True,
    min_blocks: int = 1,
    block_tokens: int = BLOCK_TOKENS,
) -> list[Replayed]:
    """The achievable share of tokens for each time to live.

    Args:
        table: ``t_ms``, ``input_tokens`` and ``block_ids`` of each request.
        ttls_s: seconds.
        is_sliding: as for :func:`hit_tokens`, like the two below.
        min_blocks: likewise.
        block_tokens: likewise.

    Raises:
        BadInput: a column is missing, or holds what no request has.
    """
    requests = _requests(table)
    total = sum(request.input_tokens for request in requests)
    answers = []
    for ttl_s in ttls_s:
        hits = hit_tokens(
            requests,
            ttl_s * 1000,
            is_sliding=is_sliding,
            min_blocks=min_blocks,
            block_tokens=block_tokens,
        )
        share = sum(hits) / total if total else None
        answers.append(Replayed(ttl_s, share, sum(map(bool, hits)), len(requests)))
    return answers


def _requests(table: pl.DataFrame) -> list[Request]:
    missing = [name for name in _COLUMNS if name not in table.columns]
    if missing:
        raise BadInput(f"no column {missing[0]}; a replay needs {', '.join(_COLUMNS)}")
    kinds = table.schema
    if not isinstance(kinds["block_ids"], pl.List) or not kinds["block_ids"].inner.is_integer():
        raise BadInput(
            f"column block_ids: lists of whole numbers are needed, not {kinds['block_ids']}"
        )
    for name in _COLUMNS[:2]:
        if not kinds[name].is_numeric():
            raise BadInput(f"column {name}: numbers are needed, not {kinds[name]}")
    known = table.select(_COLUMNS)
    if sum(known.null_count().row(0)):
        raise BadInput("a request without time, tokens or blocks cannot be replayed")
    if table.height and int(table["input_tokens"].min()) < 0:  # type: ignore[arg-type]
        raise BadInput("column input_tokens: a prompt has no negative length")
    ordered = known.sort("t_ms", maintain_order=True)
    return [Request(*row) for row in ordered.iter_rows()]
