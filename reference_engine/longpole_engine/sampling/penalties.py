"""What a request asks to be more or less likely, before anything is drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Penalties:
    """Changes of the logits by what was said already, and by token.

    ``repetition`` (Keskar et al. 2019, arXiv:1909.05858) weakens every token of prompt and answer;
    ``frequency`` and ``presence`` are OpenAI's, over the answer alone; ``bias`` is added at the
    end.
    """

    frequency: float = 0.0
    presence: float = 0.0
    repetition: float = 1.0
    bias: Mapping[int, float] = field(default_factory=dict)

    @property
    def is_neutral(self) -> bool:
        """Whether nothing is changed."""
        return not (self.frequency or self.presence or self.bias) and self.repetition == 1

    def apply(self, logits: Tensor, prompt: Sequence[int], answer: Sequence[int]) -> None:
        """Change one row in place.

        Args:
            logits: ``[vocab_size]``.
            prompt: its tokens.
            answer: the tokens before the row's.
        """
        import torch

        if self.repetition != 1:
            ids = torch.tensor(sorted({*prompt, *answer}))
            values = logits[ids]
            weaker = torch.where(values > 0, values / self.repetition, values * self.repetition)
            logits[ids] = weaker
        if answer and (self.frequency or self.presence):
            ids, counts = torch.unique(torch.tensor(answer), return_counts=True)
            logits[ids] -= self.frequency * counts + self.presence
        if self.bias:
            logits[list(self.bias)] += torch.tensor(list(self.bias.values()))
