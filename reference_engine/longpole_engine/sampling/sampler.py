"""From logits to the next token.

Randomness comes from a counter-based generator keyed by (seed, position): a request draws the
same tokens whatever runs beside it, and no state is kept.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor


class Draw(NamedTuple):
    """How to choose one row's token; ``position`` counts the answer's tokens from 0."""

    temperature: float
    top_p: float
    top_k: int
    seed: int
    position: int


def sample(logits: Tensor, draws: Sequence[Draw]) -> list[int]:
    """One token a row.

    Args:
        logits: ``[num_rows, vocab_size]`` fp32.
        draws: one a row. Temperature 0 takes the largest logit (the first of equals).
    """
    tokens: list[int] = logits.argmax(dim=-1).tolist()
    for row, draw in enumerate(draws):
        if draw.temperature > 0:
            tokens[row] = _drawn(logits[row], draw)
    return tokens


def uniform(seed: int, position: int) -> float:
    """A number in [0, 1) that depends on nothing but its arguments (Philox, Salmon et al. 2011)."""
    bits = np.random.Philox(key=seed % 2**64, counter=[0, 0, 0, position])
    return float(np.random.Generator(bits).random())


def _drawn(logits: Tensor, draw: Draw) -> int:
    """Inverse-CDF draw after temperature, then top-k, then top-p."""
    scaled = (logits - logits.max()) / draw.temperature  # first the maximum: no overflow
    ids: Tensor | None = None
    if 0 < draw.top_k < scaled.shape[0]:
        scaled, ids = scaled.topk(draw.top_k)
    elif draw.top_p < 1:
        scaled, ids = scaled.sort(descending=True)
    probabilities = torch.softmax(scaled, dim=-1, dtype=torch.float64)
    cumulative = probabilities.cumsum(dim=-1)
    if draw.top_p < 1:
        # The smallest head whose mass reaches top_p; the first token always belongs to it.
        num_kept = int((cumulative - probabilities < draw.top_p).sum())
        cumulative = cumulative[: max(1, num_kept)]
    point = uniform(draw.seed, draw.position) * float(cumulative[-1])
    index = int(torch.searchsorted(cumulative, point, right=True))
    index = min(index, cumulative.shape[0] - 1)
    return index if ids is None else int(ids[index])
