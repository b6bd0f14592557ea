"""Beam search: the likeliest whole answers a narrow search finds.

All live beams are equally long, so they compete by the sum of their log-probabilities; finished
ones by the mean per token (Wu et al. 2016, arXiv:1609.08144, with exponent 1). No tensors but the
rows that come in.
"""

from collections.abc import Collection, Mapping
from typing import NamedTuple

import torch
from torch import Tensor


class Beam(NamedTuple):
    """An answer's tokens and the sum of their log-probabilities."""

    tokens: tuple[int, ...]
    score: float

    @property
    def mean(self) -> float:
        """Log-probability a token."""
        return self.score / max(1, len(self.tokens))


class Successor(NamedTuple):
    """A beam that goes on, and from which one."""

    parent: str
    token: int
    beam: Beam


class BeamSearch:
    """The search of one request.

    Args:
        width: beams kept.
        max_tokens: longest answer.
        eos_ids: tokens that end a beam.
        name: of the first, empty beam.
    """

    def __init__(self, width: int, max_tokens: int, eos_ids: Collection[int], name: str) -> None:
        self.live: dict[str, Beam] = {name: Beam((), 0.0)}
        self.finished: list[Beam] = []
        self.rows: dict[str, Tensor] = {}
        self._width = width
        self._max_tokens = max_tokens
        self._eos_ids = eos_ids

    @property
    def is_ready(self) -> bool:
        """Whether every live beam has its row."""
        return self.live.keys() == self.rows.keys()

    def expand(self) -> list[Successor]:
        """One token more for every beam; those that go on, best first, none at the end.

        The caller names them by :meth:`name` before the next round.
        """
        names = list(self.live)
        logs = torch.stack([self.rows[name] for name in names]).double().log_softmax(dim=-1)
        scores = logs + torch.tensor([self.live[name].score for name in names])[:, None]
        num = min(scores.numel(), self._width * (1 + len(self._eos_ids)))
        best = scores.flatten().topk(num)
        going: list[Successor] = []
        pairs = zip(best.values.tolist(), best.indices.tolist(), strict=True)
        for rank, (score, at) in enumerate(pairs):
            parent, token = names[at // scores.shape[1]], at % scores.shape[1]
            beam = Beam((*self.live[parent].tokens, token), score)
            if token in self._eos_ids or len(beam.tokens) >= self._max_tokens:
                if rank < self._width:
                    self.finished.append(beam)
            elif len(going) < self._width:
                going.append(Successor(parent, token, beam))
        self.finished = sorted(self.finished, key=lambda beam: -beam.mean)[: self._width]
        return [] if self._is_decided(going) else going

    def name(self, live: Mapping[str, Beam]) -> None:
        """The beams of the next round."""
        self.live, self.rows = dict(live), {}

    def _is_decided(self, going: list[Successor]) -> bool:
        """Whether no live beam can still enter: from here on its sum can only fall."""
        if len(self.finished) < self._width:
            return not going
        bound = max((s.beam.score for s in going), default=-torch.inf) / self._max_tokens
        return self.finished[-1].mean >= bound
