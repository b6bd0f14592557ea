"""One answer in the making: its tokens become text, and some token is the last."""

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from torch import Tensor

from longpole_engine.sampling import logprobs
from longpole_engine.sampling.sampler import Draw
from longpole_engine.scheduler import ledger
from longpole_engine.speculative.controller import Controller
from longpole_engine.speculative.ngram import NgramIndex
from longpole_engine.speculative.verify import Regret
from longpole_engine.text.detokenize import Detokenizer
from longpole_engine.text.stops import StopBuffer
from longpole_engine.types import Chunk, FinishReason, Request, TokenLogprob


class _Held(NamedTuple):
    """A token whose text is not out yet; ``end`` is where it ends in the answer's text."""

    end: int
    logprob: TokenLogprob


class Answer:
    """One choice of a request inside the engine.

    Args:
        request: what was asked.
        seed: of this choice.
        seq: its tokens and place in the scheduler.
        token_bytes: the bytes of a token id.
        index: of the choice.
    """

    def __init__(
        self,
        request: Request,
        seed: int,
        seq: ledger.Sequence,
        token_bytes: Callable[[int], bytes],
        index: int = 0,
    ) -> None:
        params = request.params
        self.request = request
        self.seed = seed
        self.seq = seq
        self.index = index
        self.finish: FinishReason | None = None
        self.sum_logprob = 0.0
        self.lookup = NgramIndex()
        self.pace: Controller | None = None
        self.regret: Regret | None = None
        self.shadow: list[int] = []
        self._token_bytes = token_bytes
        self._matcher = params.grammar.copy() if params.grammar else None
        self._detokenizer = Detokenizer(token_bytes)
        self._stops = StopBuffer(params.stop)
        self._text = ""
        self._num_decoded = 0
        self._num_shown = 0
        self._held: list[_Held] = []

    @property
    def num_output(self) -> int:
        """The answer's tokens so far."""
        return len(self.seq.tokens) - self.seq.num_prompt

    @property
    def mean_logprob(self) -> float:
        """Per token, of the model's own; kept only where answers compete."""
        return self.sum_logprob / max(1, self.num_output)

    def draw(self) -> Draw:
        """How to choose the next token."""
        p = self.request.params
        return Draw(p.temperature, p.top_p, p.top_k, self.seed, self.num_output, p.min_p)

    def adjusted(self, logits: Tensor, drafts: Sequence[int]) -> Tensor:
        """Logits after penalties, bias and grammar.

        Args:
            logits: the row ``i`` follows the first ``i`` drafts.
            drafts: guesses; those after one that the grammar refuses cannot count.
        """
        penalties = self.request.params.penalties
        if penalties.is_neutral and self._matcher is None:
            return logits
        logits = logits.clone()
        num_prompt = self.seq.num_prompt
        prompt, said = self.seq.tokens[:num_prompt], self.seq.tokens[num_prompt:]
        num_taken = 0
        for number, row in enumerate(logits):
            if not penalties.is_neutral:
                penalties.apply(row, prompt, [*said, *drafts[:number]])
            if self._matcher is not None and num_taken == number:
                self._matcher.mask(row)
                if number < len(drafts) and self._matcher.take(drafts[number]):
                    num_taken += 1
        if self._matcher is not None:
            self._matcher.back(num_taken)
        return logits

    def weighted(self, row: Tensor, drafts: Sequence[int]) -> Tensor:
        """A draft model's row after penalties and bias; what it misses is refused later."""
        penalties = self.request.params.penalties
        if penalties.is_neutral:
            return row
        row = row.clone()
        num_prompt = self.seq.num_prompt
        said = [*self.seq.tokens[num_prompt:], *drafts]
        penalties.apply(row, self.seq.tokens[:num_prompt], said)
        return row

    def possible(self, drafts: list[int]) -> list[int]:
        """The drafts that the grammar allows."""
        return drafts if self._matcher is None else drafts[: self._matcher.num_valid(drafts)]

    def accept(self, token: int, eos_ids: Collection[int], row: Tensor | None) -> None:
        """Take a token in.

        Args:
            token: the next one.
            eos_ids: tokens that end an answer.
            row: the model's logits, where log-probabilities are wanted.
        """
        params = self.request.params
        self.seq.tokens.append(token)
        if self._matcher is not None and not self._matcher.take(token):
            self.finish = FinishReason.ERROR  # the grammar has grown beyond its limits
            return
        is_end = token in eos_ids and (not params.is_eos_ignored or self._matcher is not None)
        if row is not None and params.num_answers > params.num_choices:
            self.sum_logprob += logprobs.logprob(row, token)
        if is_end:
            self.finish = FinishReason.STOP
        else:
            text = self._detokenizer.push(token)
            self._num_decoded += len(text)
            self._text += self._stops.push(text)
            if row is not None and params.num_top is not None:
                found = logprobs.describe(row, token, params.num_top, self._token_bytes)
                self._held.append(_Held(self._num_decoded, found))
            if self._stops.is_stopped or (self._matcher is not None and self._matcher.is_stopped):
                self.finish = FinishReason.STOP
            elif len(self.seq.tokens) >= self.seq.max_tokens:
                self.finish = FinishReason.LENGTH
        if self.finish and not self._stops.is_stopped:
            self._text += self._stops.push(self._detokenizer.finish()) + self._stops.finish()

    def chunk(self) -> Chunk:
        """What has come since the last call, as far as it can be shown."""
        text, self._text = self._text, ""
        self._num_shown += len(text)
        is_all = self.finish is not None and not self._stops.is_stopped
        shown = [held for held in self._held if is_all or held.end <= self._num_shown]
        self._held = self._held[len(shown) :]
        return Chunk(text, self.finish, self.index, tuple(held.logprob for held in shown))
