"""Checks drafts against the model.

Two exact ways. *Same draw*: at every position the token is drawn as it would be without drafts,
and a draft counts if it is that token; for a draft that is certain of its guess this accepts as
often as anything can. *Rejection* (Leviathan et al. 2023, arXiv:2211.17192; Chen et al. 2023,
arXiv:2302.01318): a draft ``x`` drawn from ``q`` counts with probability ``min(1, p(x) / q(x))``,
else the token comes from ``max(0, p - q)``; it accepts more often, and the answer follows the same
law, but its tokens depend on what was drafted.

Beside them, a draft refused by either may still be let through while a :class:`Regret` lasts.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from longpole_engine.sampling.sampler import Draw, Stream, law, likeliest, pick, uniform


class Regret:
    """What a request may lose to drafts that were let through.

    Args:
        budget: sum of log-probability lost against the exact tokens, in nats.
        max_exceptions: number of drafts let through.
    """

    def __init__(self, budget: float, max_exceptions: int) -> None:
        self.budget = budget
        self.max_exceptions = max_exceptions
        self.spent = 0.0
        self.num_exceptions = 0

    def allows(self, loss: float) -> bool:
        """Whether so much may be lost; if so, it is."""
        loss = max(0.0, loss)
        is_over = self.spent + loss > self.budget or self.num_exceptions >= self.max_exceptions
        if is_over or self.budget == 0 or not math.isfinite(loss):
            return False
        self.spent += loss
        self.num_exceptions += 1
        return True


def verify(
    logits: Tensor,
    drafts: Sequence[int],
    draw: Draw,
    laws: Sequence[Tensor] | None = None,
    regret: Regret | None = None,
) -> list[int]:
    """The drafts that count, and one token more.

    Args:
        logits: a row after each draft and one before them, ``[len(drafts) + 1, vocab_size]``.
        drafts: the guesses.
        draw: how the first of the tokens is chosen.
        laws: the distribution each draft was drawn from; ``None`` asks for the same draw.
        regret: what may be let through although it is not exact.
    """
    if laws is None or draw.temperature == 0:
        return _same(logits, drafts, draw, regret)
    tokens: list[int] = []
    for number, (draft, guess) in enumerate(zip(drafts, laws, strict=True)):
        position = draw.position + number
        target = law(logits[number], draw)
        test = uniform(draw.seed, position, Stream.TEST)
        if not is_accepted(float(target[draft]), float(guess[draft]), test):
            point = uniform(draw.seed, position, Stream.RESIDUAL)
            token = pick(residual(target, guess), point)
            if regret is None or not regret.allows(_loss(target.log(), token, draft)):
                return [*tokens, token]
        tokens.append(draft)
    last = law(logits[len(drafts)], draw)
    return [*tokens, pick(last, uniform(draw.seed, draw.position + len(drafts)))]


def is_accepted(target: float, guess: float, point: float) -> bool:
    """Whether a draft of these probabilities counts, at a point of [0, 1)."""
    return point * guess < target


def residual(target: Tensor, guess: Tensor) -> Tensor:
    """Where the model is likelier than the draft: the law after a refusal."""
    left = (target - guess).clamp_(min=0)
    total = left.sum()
    return left / total if total > 0 else target  # equal but for rounding


def _same(logits: Tensor, drafts: Sequence[int], draw: Draw, regret: Regret | None) -> list[int]:
    greedy = likeliest(logits) if draw.temperature == 0 else []
    tokens: list[int] = []
    for number, row in enumerate(logits):
        logs = row
        if draw.temperature == 0:
            token = greedy[number]
        else:
            target = law(row, draw)
            token = pick(target, uniform(draw.seed, draw.position + number))
            logs = target.log() if regret is not None else row
        if number < len(drafts):
            draft = drafts[number]
            if token == draft or (regret is not None and regret.allows(_loss(logs, token, draft))):
                tokens.append(draft)
                continue
        tokens.append(token)
        break
    return tokens


def _loss(logs: Tensor, token: int, draft: int) -> float:
    """Nats lost by a draft against the exact token; differences of logits are those of logs."""
    return float(logs[token].to(torch.float64) - logs[draft].to(torch.float64))
