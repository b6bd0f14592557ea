"""The answers of one request: one, several on a shared prompt, or the beams of a search."""

import secrets
from collections.abc import Callable, Collection
from dataclasses import replace

from longpole_engine.answer import Answer
from longpole_engine.sampling.beam import Beam, BeamSearch
from longpole_engine.scheduler.ledger import Ledger, Sequence
from longpole_engine.types import Chunk, FinishReason, Request

_Bytes = Callable[[int], bytes]


class Group:
    """A request inside the engine.

    One sequence runs the prompt; when its first row is there, the others begin beside it on the
    same pages.

    Args:
        request: what was asked.
        arrived_s: when, on the engine's clock.
        max_tokens: longest sequence the engine runs.
        token_bytes: the bytes of a token id.
        eos_ids: tokens that end an answer.
    """

    def __init__(
        self,
        request: Request,
        arrived_s: float,
        max_tokens: int,
        token_bytes: _Bytes,
        eos_ids: Collection[int],
    ) -> None:
        params = request.params
        self.request = request
        self.arrived_s = arrived_s
        self._seed = secrets.randbits(62) if params.seed is None else params.seed
        self._token_bytes = token_bytes
        self._eos_ids = eos_ids
        self._num_named = 0
        first = Sequence(
            request.id,
            list(request.prompt),
            min(max_tokens, len(request.prompt) + params.max_tokens),
            arrived_s,
            request.priority,
            request.slo_s,
            None if request.deadline_s is None else arrived_s + request.deadline_s,
            request.salt,
            request.session,
            num_seats=params.num_answers,
        )
        self.answers = [self._answer(0, first)]
        self.beams: BeamSearch | None = None
        if params.is_beam:
            ends = () if params.is_eos_ignored else eos_ids
            num_output = first.max_tokens - first.num_prompt
            self.beams = BeamSearch(params.best_of, num_output, ends, request.id)

    @property
    def is_single(self) -> bool:
        """Whether there is, so far, one sequence."""
        return len(self.answers) == 1

    @property
    def num_output(self) -> int:
        """Tokens of all answers."""
        return sum(answer.num_output for answer in self.answers)

    @property
    def is_done(self) -> bool:
        """Whether all answers have ended."""
        return all(answer.finish for answer in self.answers)

    def begin(self) -> list[Answer]:
        """The other answers, once the prompt is there; not yet in the books."""
        first = self.answers[0]
        first.seq.num_seats = 1
        for index in range(1, self.request.params.num_answers):
            self.answers.append(self._answer(index, self._copy(first.seq)))
        return self.answers[1:]

    def chunks(self, answer: Answer) -> list[Chunk]:
        """What can be sent now that an answer has moved on.

        Where answers compete nothing goes out before the last has ended.
        """
        params = self.request.params
        if params.num_answers == params.num_choices:
            return [answer.chunk()]
        if not self.is_done:
            return []
        ranked = sorted(self.answers, key=lambda one: -one.mean_logprob)[: params.num_choices]
        return [one.chunk()._replace(choice=index) for index, one in enumerate(ranked)]

    def expand(self, books: Ledger) -> list[str]:
        """One round of the search: beams fork, go on or end.

        Returns:
            Names of the sequences that go on; none when the search is over.
        """
        assert self.beams is not None  # noqa: S101 - called for searches only
        successors = self.beams.expand()
        live: dict[str, Beam] = {}
        reused: dict[str, int] = {}
        for parent, token, beam in successors:
            seq = books.running[parent]
            if parent in reused:
                child = self._copy(seq)
                child.tokens.append(token)
                books.fork(parent, child)
                live[child.id] = beam
            else:
                reused[parent] = token
                live[parent] = beam
        for parent, token in reused.items():  # after all forks, which copy the parent's tokens
            books.running[parent].tokens.append(token)
        for name in self.beams.live.keys() - live.keys():
            books.remove(name)
        self.beams.name(live)
        return list(live)

    def found(self) -> list[Chunk]:
        """The search's best answers, as text."""
        assert self.beams is not None  # noqa: S101 - called for searches only
        first = self.answers[0].seq
        self.answers = []
        for index, beam in enumerate(self.beams.finished[: self.request.params.num_choices]):
            seq = replace(first, tokens=list(self.request.prompt))
            answer = self._answer(index, seq)
            for token in beam.tokens:
                answer.accept(token, self._eos_ids, None)
            self.answers.append(answer)
        return [answer.chunk() for answer in self.answers]

    def finish_reason(self) -> FinishReason | None:
        """Why the request ended: a failure, else its last answer's reason."""
        reasons = [answer.finish for answer in self.answers]
        return FinishReason.ERROR if FinishReason.ERROR in reasons else reasons[-1]

    def _answer(self, index: int, seq: Sequence) -> Answer:
        return Answer(self.request, self._seed + index, seq, self._token_bytes, index)

    def _copy(self, seq: Sequence) -> Sequence:
        """A sequence like another, under a name of its own."""
        self._num_named += 1
        copy = replace(
            seq,
            id=f"{self.request.id}/{self._num_named}",
            tokens=list(seq.tokens),
            drafts=[],
            num_seats=1,
        )
        copy.num_prompt = seq.num_prompt
        return copy
