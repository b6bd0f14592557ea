"""Proposes drafts for the sequences that decode, and keeps count of how they fare."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from longpole.errors import UsageError
from longpole_engine.answer import Answer
from longpole_engine.config import EngineConfig, Numerics, Speculation
from longpole_engine.kv.manager import Mover
from longpole_engine.models.checkpoint import Checkpoint
from longpole_engine.models.llama import LlamaConfig
from longpole_engine.runner import Rows, Runner
from longpole_engine.sampling.sampler import Stream, law, pick, uniform
from longpole_engine.speculative.controller import Controller
from longpole_engine.speculative.verify import Regret, verify

_EXIT_SHARE: Final = 0.8


class Job(NamedTuple):
    """A sequence to draft for: its pages and how many tokens."""

    answer: Answer
    pages: list[int]
    num: int


class Speculator:
    """Drafts of one engine.

    Look-ups are made before a step is planned. A model drafts after it, since it writes to the
    pages the plan has set aside: its own first layers to the same memory, a smaller model to its
    own, which has the same page numbers.

    Args:
        config: the engine's.
        checkpoint: the model.
        runner: runs the model.
        draft: the smaller model, for speculation ``draft``.

    Raises:
        UsageError: the models do not go together.
    """

    def __init__(
        self,
        config: EngineConfig,
        checkpoint: Checkpoint,
        runner: Runner,
        draft: Checkpoint | None = None,
    ) -> None:
        self._config = config
        self._runner: Runner | None = None
        self._cost = 0.0
        self._is_own_memory = False
        self._vocab_size = checkpoint.config.vocab_size
        if config.speculation is Speculation.SELF:
            num_layers = checkpoint.config.num_layers
            num = min(config.exit_layers or max(1, round(_EXIT_SHARE * num_layers)), num_layers)
            self._runner = runner.first(num)
            self._cost = num / num_layers
        if config.speculation is Speculation.DRAFT:
            if draft is None or draft.config.vocab_size > self._vocab_size:
                raise UsageError("speculation 'draft' needs a draft model with the same tokens")
            self._runner = Runner(draft, replace(config, kv_pages=runner.store.num_pages))
            self._is_own_memory = True
            self._cost = _weight(draft.config) / _weight(checkpoint.config)

    @property
    def is_on(self) -> bool:
        """Whether anything is ever drafted."""
        return self._config.speculation is not Speculation.OFF

    @property
    def mover(self) -> Mover | None:
        """Memory that moves with the model's pages."""
        return self._runner.store if self._runner and self._is_own_memory else None

    def prompt(self, answers: Sequence[Answer], rows: Sequence[Rows]) -> None:
        """Pieces of prompts run; a smaller model needs them too."""
        if self._runner is None or not self._is_own_memory:
            return
        known = [(a, row) for a, row in zip(answers, rows, strict=True) if self._is_known(a)]
        if known:
            self._runner.prompt([row._replace(num_logits=0) for _, row in known])
        for answer, row in known:
            answer.seq.num_draft_computed = row.start + len(row.tokens)

    def propose(self, answers: Sequence[Answer]) -> None:
        """Set the drafts of sequences that decode next, or how many a model shall make."""
        if not self.is_on:
            return
        for answer in answers:
            seq = answer.seq
            room = seq.max_tokens - len(seq.tokens) - 1
            num = min(self._pace(answer, len(answers)), room)
            answer.shadow = []
            if self._runner is not None:
                seq.drafts = [0] * (max(0, num) if self._is_known(answer) else 0)
                continue
            found = answer.lookup.propose(seq.tokens, max(1, num))
            if num > 0:
                seq.drafts = answer.possible(found)
            else:
                seq.drafts, answer.shadow = [], found[:1]

    def draft(self, jobs: Sequence[Job]) -> dict[str, list[Tensor]]:
        """Have the model make the drafts planned.

        Returns:
            The law each draft was drawn from, by sequence; none where drafts are certain.
        """
        laws: dict[str, list[Tensor]] = {}
        if self._runner is None:
            return laws
        is_sure = self._config.numerics is Numerics.INVARIANT
        open_jobs = [job for job in jobs if job.num]
        rows = []
        for answer, pages, num in open_jobs:
            seq = answer.seq
            start = len(seq.tokens) - 1
            if self._is_own_memory:
                start = min(start, seq.num_draft_computed)
                seq.num_draft_computed = len(seq.tokens) + num - 1
            seq.drafts = []
            rows.append(Rows(pages, start, seq.tokens[start:], 1))
        while open_jobs:
            logits = self._runner.decode(rows)
            for row, (answer, _, _) in zip(logits, open_jobs, strict=True):
                self._guess(answer, row, None if is_sure else laws.setdefault(answer.seq.id, []))
            open_jobs = [job for job in open_jobs if job.num > len(job.answer.seq.drafts)]
            rows = [
                Rows(
                    pages,
                    len(answer.seq.tokens) + len(answer.seq.drafts) - 1,
                    answer.seq.drafts[-1:],
                    1,
                )
                for answer, pages, _ in open_jobs
            ]
        return laws

    def checked(self, answer: Answer, logits: Tensor, laws: Sequence[Tensor] | None) -> list[int]:
        """The tokens of a step; see :func:`longpole_engine.speculative.verify.verify`.

        Args:
            answer: with its drafts.
            logits: a row more than drafts, adjusted.
            laws: what :meth:`draft` said.
        """
        drafts = answer.seq.drafts
        return verify(logits, drafts, answer.draw(), laws or None, self._regret(answer))

    def observe(self, answer: Answer, num_drafted: int, tokens: Sequence[int]) -> None:
        """What a step made of the drafts: it ended in ``tokens``."""
        if answer.pace is None:
            return
        if answer.shadow:
            answer.pace.observe(1, int(answer.shadow == list(tokens[:1])))
        answer.pace.observe(num_drafted, min(num_drafted, len(tokens) - 1))
        answer.shadow = []

    def _is_known(self, answer: Answer) -> bool:
        """Whether the drafting model can hold the whole sequence."""
        return self._runner is not None and answer.seq.max_tokens <= self._runner.max_tokens

    def _pace(self, answer: Answer, num_rows: int) -> int:
        if not self._config.is_draft_dynamic:
            return self._config.num_drafts
        if answer.pace is None:
            answer.pace = Controller(self._config.num_drafts, self._cost)
        return answer.pace.num_drafts(num_rows)

    def _guess(self, answer: Answer, logits: Tensor, laws: list[Tensor] | None) -> None:
        """Draw one draft; with ``laws`` from numbers of its own, else from the token's."""
        drafts = answer.seq.drafts
        draw = answer.draw()
        missing = self._vocab_size - logits.shape[0]
        row = answer.weighted(functional.pad(logits, (0, missing), value=-torch.inf), drafts)
        if draw.temperature == 0:
            drafts.append(int(row.argmax()))
            return
        guess = law(row, draw)
        stream = Stream.TOKEN if laws is None else Stream.DRAFT
        drafts.append(pick(guess, uniform(draw.seed, draw.position + len(drafts), stream)))
        if laws is not None:
            laws.append(guess)

    def _regret(self, answer: Answer) -> Regret | None:
        """What the request may still lose; ``None`` for those that are exact."""
        config = self._config
        if config.regret_budget == 0 or answer.request.route not in config.regret_routes:
            return None
        if answer.regret is None:
            answer.regret = Regret(config.regret_budget, config.regret_exceptions)
        return answer.regret


def _weight(config: LlamaConfig) -> int:
    """Multiplications of a row, but for attention."""
    heads = (config.num_heads + config.num_kv_heads) * 2 * config.head_dim
    layer = config.hidden_size * (heads + 3 * config.ffn_size)
    return config.num_layers * layer + config.hidden_size * config.vocab_size
