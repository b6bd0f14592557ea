"""One answer in the making: its tokens become text, and some token is the last."""

import secrets
from collections.abc import Callable, Collection

from longpole_engine.sampling.sampler import Draw
from longpole_engine.scheduler.ledger import Sequence
from longpole_engine.text.detokenize import Detokenizer
from longpole_engine.text.stops import StopBuffer
from longpole_engine.types import Chunk, FinishReason, Request


class Answer:
    """A request inside the engine.

    Args:
        request: what was asked.
        arrived_s: when, on the engine's clock.
        max_tokens: longest sequence the engine runs.
        token_bytes: the bytes of a token id.
    """

    def __init__(
        self,
        request: Request,
        arrived_s: float,
        max_tokens: int,
        token_bytes: Callable[[int], bytes],
    ) -> None:
        params = request.params
        self.request = request
        self.seed = secrets.randbits(63) if params.seed is None else params.seed
        self.seq = Sequence(
            request.id,
            list(request.prompt),
            min(max_tokens, len(request.prompt) + params.max_tokens),
            arrived_s,
            request.priority,
            request.slo_s,
            None if request.deadline_s is None else arrived_s + request.deadline_s,
            request.salt,
            request.session,
        )
        self._detokenizer = Detokenizer(token_bytes)
        self._stops = StopBuffer(params.stop)

    @property
    def num_output(self) -> int:
        """The answer's tokens so far."""
        return len(self.seq.tokens) - self.seq.num_prompt

    def draw(self) -> Draw:
        """How to choose the next token."""
        p = self.request.params
        return Draw(p.temperature, p.top_p, p.top_k, self.seed, self.num_output)

    def accept(self, token: int, eos_ids: Collection[int]) -> Chunk:
        """Take a token in; the text it completes, and the reason if it was the last."""
        seq = self.seq
        seq.tokens.append(token)
        finish: FinishReason | None = None
        if token in eos_ids and not self.request.params.is_eos_ignored:
            finish, text = FinishReason.STOP, ""
        else:
            text = self._stops.push(self._detokenizer.push(token))
            if self._stops.is_stopped:
                finish = FinishReason.STOP
            elif len(seq.tokens) >= seq.max_tokens:
                finish = FinishReason.LENGTH
        if finish and not self._stops.is_stopped:
            text += self._stops.push(self._detokenizer.finish()) + self._stops.finish()
        return Chunk(text, finish)
