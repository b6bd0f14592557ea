"""Log-probabilities of what was said, and of what might have been."""

from collections.abc import Callable

import torch
from torch import Tensor

from longpole_engine.types import Likely, TokenLogprob


def logprob(row: Tensor, token: int) -> float:
    """The model's own log-probability of a token, before temperature and penalties."""
    return float(row[token].double() - torch.logsumexp(row.double(), dim=-1))


def describe(
    row: Tensor, token: int, num_top: int, token_bytes: Callable[[int], bytes]
) -> TokenLogprob:
    """A chosen token among its alternatives.

    Args:
        row: the model's logits, ``[vocab_size]``.
        token: the one chosen.
        num_top: how many alternatives.
        token_bytes: the bytes of a token id.
    """
    logs = torch.log_softmax(row.double(), dim=-1)
    top = logs.topk(min(num_top, logs.shape[0]))
    likely = tuple(
        Likely(other, token_bytes(other), value)
        for other, value in zip(top.indices.tolist(), top.values.tolist(), strict=True)
    )
    return TokenLogprob(token, token_bytes(token), float(logs[token]), likely)
