"""From logits to the next token.

Randomness comes from a counter-based generator keyed by (seed, position): a request draws the
same tokens whatever runs beside it, and no state is kept.
"""

from collections.abc import Sequence
from enum import IntEnum
from typing import Final, NamedTuple

import numpy as np
import torch
from torch import Tensor

_SHORTLIST: Final = 512
"""So many of the likeliest tokens are looked at before all are sorted."""


class Stream(IntEnum):
    """What a random number is for; numbers of different streams are independent."""

    TOKEN = 0
    DRAFT = 1
    TEST = 2
    RESIDUAL = 3


class Draw(NamedTuple):
    """How to choose one row's token; ``position`` counts the answer's tokens from 0.

    ``top_k``, then ``top_p``, then ``min_p`` (relative to the likeliest) restrict the choice.
    """

    temperature: float
    top_p: float
    top_k: int
    seed: int
    position: int
    min_p: float = 0.0


def sample(logits: Tensor, draws: Sequence[Draw]) -> list[int]:
    """One token a row.

    Args:
        logits: ``[num_rows, vocab_size]`` fp32.
        draws: one a row. Temperature 0 takes the largest logit (the first of equals).
    """
    tokens = likeliest(logits)
    for row, draw in enumerate(draws):
        if draw.temperature > 0:
            tokens[row] = pick(law(logits[row], draw), uniform(draw.seed, draw.position))
    return tokens


def likeliest(logits: Tensor) -> list[int]:
    """The token of each row's largest logit, the first of equals.

    Args:
        logits: ``[num_rows, vocab_size]``, fp32 or fp64.
    """
    found: list[int] = logits.numpy(force=True).argmax(axis=-1).tolist()  # torch's: 9 x as long
    return found


def uniform(seed: int, position: int, stream: Stream = Stream.TOKEN) -> float:
    """A number in [0, 1) that depends on nothing but its arguments (Philox, Salmon et al. 2011)."""
    key = seed % 2**64 + (int(stream) << 64)
    bits = np.random.Philox(key=key, counter=[0, 0, 0, position])
    return float(np.random.Generator(bits).random())


def law(logits: Tensor, draw: Draw) -> Tensor:
    """Probability of each token, ``[vocab_size]`` fp64; ``temperature`` must not be 0."""
    scaled = (logits - logits.max()) / draw.temperature  # first the maximum: no overflow
    found = torch.softmax(scaled, dim=-1, dtype=torch.float64)
    if 0 < draw.top_k < found.shape[0]:
        found = _only(found, scaled.topk(draw.top_k).indices)
    if draw.top_p < 1:
        found = _only(found, _head(found, draw.top_p))
    if draw.min_p > 0:
        found = torch.where(found >= draw.min_p * found.max(), found, 0.0)
        found /= found.sum()
    return found


def pick(probabilities: Tensor, point: float) -> int:
    """The token at a point of [0, 1) of the distribution function."""
    cumulative = probabilities.cumsum(dim=-1)
    index = int(torch.searchsorted(cumulative, point * float(cumulative[-1]), right=True))
    if index == cumulative.shape[0]:  # the product was rounded up to the whole
        return int(probabilities.nonzero()[-1])
    return index


def _only(probabilities: Tensor, ids: Tensor) -> Tensor:
    kept = torch.zeros_like(probabilities)
    kept[ids] = probabilities[ids]
    return kept.div_(kept.sum())


def _head(probabilities: Tensor, top_p: float) -> Tensor:
    """The smallest head whose mass reaches ``top_p``; the likeliest token always belongs to it."""
    ordered = probabilities.topk(min(_SHORTLIST, probabilities.shape[0]))
    if float(ordered.values.sum()) < top_p:
        ordered = probabilities.topk(probabilities.shape[0])
    cumulative = ordered.values.cumsum(dim=-1)
    num_kept = int((cumulative - ordered.values < top_p).sum())
    return ordered.indices[: max(1, num_kept)]
