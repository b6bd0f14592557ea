"""The answers under way: rows of logits become tokens, tokens text, and text leaves in chunks."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from torch import Tensor

from longpole.vocab import Stage
from longpole_engine.answer import Answer
from longpole_engine.group import Group
from longpole_engine.scheduler.core import Piece
from longpole_engine.scheduler.ledger import Ledger
from longpole_engine.scheduler.ledger import Sequence as Seq
from longpole_engine.speculative.speculator import Speculator
from longpole_engine.telemetry.events import now_ns
from longpole_engine.telemetry.steps import Part, StepLog
from longpole_engine.types import Chunk, FinishReason, Request

Delivery = tuple[Callable[[Chunk], None], Chunk]
"""A chunk and whom it is for."""

SMOOTHING: Final = 0.1
"""Weight of the newest figure in a running mean."""


class Answers:
    """All requests of an engine from arrival to end.

    Args:
        books: the scheduler's.
        speculator: drafts.
        steps: the log of the step's parts.
        max_tokens: longest sequence.
        token_bytes: the bytes of a token id.
        eos_ids: tokens that end an answer.
    """

    def __init__(
        self,
        books: Ledger,
        speculator: Speculator,
        steps: StepLog,
        max_tokens: int,
        token_bytes: Callable[[int], bytes],
        eos_ids: Collection[int],
    ) -> None:
        self.deliveries: list[Delivery] = []
        self.seconds_per_answer = 1.0
        self._books = books
        self._speculator = speculator
        self._steps = steps
        self._max_tokens = max_tokens
        self._token_bytes = token_bytes
        self._eos_ids = eos_ids
        self._groups: dict[str, Group] = {}
        self._of: dict[str, tuple[Group, Answer]] = {}

    def add(self, request: Request) -> None:
        """A request joins the line."""
        arrived_s = request.record.timeline.received_ns / 1e9
        group = Group(request, arrived_s, self._max_tokens, self._token_bytes, self._eos_ids)
        self._groups[request.id] = group
        self._of[request.id] = group, group.answers[0]
        self._books.add(group.answers[0].seq)

    def group(self, name: str) -> Group:
        """The request a sequence belongs to."""
        return self._of[name][0]

    def answer(self, name: str) -> Answer:
        """The answer a sequence holds."""
        return self._of[name][1]

    def drop(self, request_id: str) -> None:
        """Forget a request. Unknown ids do nothing."""
        group = self._groups.pop(request_id, None)
        for name in [name for name, (other, _) in self._of.items() if other is group]:
            self._books.remove(name)
            del self._of[name]

    def fail(self, name: str, reason: FinishReason, error_type: str) -> None:
        """End the request that a sequence belongs to; one ended already is left alone."""
        if name not in self._of:
            return
        request = self.group(name).request
        request.record.error_type = error_type
        request.record.finish_reason = reason.value
        self.deliveries.append((request.sink, Chunk("", reason)))
        self.drop(request.id)

    def put_back(self, seq: Seq, at_ns: int) -> None:
        """A sequence waits again; a request whose other sequences go on does not."""
        group = self.group(seq.id)
        group.request.record.num_preempted += 1
        if group.beams is not None:
            group.beams.rows.pop(seq.id, None)
        if group.is_single and not self._has_begun_search(group):
            group.request.record.timeline.begin(Stage.QUEUE, at_ns)

    def let_in(self, seq: Seq, at_ns: int) -> None:
        """A sequence has a place."""
        group = self.group(seq.id)
        if group.is_single and not self._has_begun_search(group):
            is_resumed = seq.num_left == 1 and seq.num_computed >= seq.num_prompt
            stage = Stage.LATER_DECODE if is_resumed else Stage.PREFILL
            group.request.record.timeline.begin(stage, at_ns)

    def decoding(self) -> list[Answer]:
        """Those whose next row is a decoding one and may have drafts after it."""
        running = self._books.running.values()
        return [
            self.answer(seq.id)
            for seq in running
            if seq.num_left == 1 and len(seq.tokens) > seq.num_prompt and not self._is_beam(seq)
        ]

    def take(
        self,
        pieces: Sequence[tuple[Seq, Piece]],
        logits: Tensor,
        laws: Mapping[str, Sequence[Tensor]],
        *,
        is_decode: bool,
    ) -> None:
        """Book what was computed, choose the next tokens, set out their text.

        Args:
            pieces: that ran.
            logits: rows of those that are complete: one, and one after each draft.
            laws: the drafts' distributions, where they have any.
            is_decode: the pieces were decoding rows.
        """
        counted: set[str] = set()
        ready: list[tuple[Seq, Tensor]] = []
        at = 0
        for seq, piece in pieces:
            self._books.computed(seq, piece.num_tokens)
            group = self.group(seq.id)
            record = group.request.record
            record.num_steps += group.request.id not in counted
            counted.add(group.request.id)
            if seq.num_left:
                continue
            rows = logits[at : at + 1 + piece.num_drafts]
            at += len(rows)
            ready.append((seq, rows))
            if is_decode and len(seq.tokens) > seq.num_prompt:
                record.num_decode_steps += 1
                record.decode_rows += len(pieces)
            elif group.is_single:
                record.timeline.begin(Stage.FIRST_DECODE, now_ns())
        chosen = [(seq, rows, self._chosen(seq, rows, laws)) for seq, rows in ready]
        if chosen:
            self._steps.mark(Part.SAMPLE)
        for seq, rows, tokens in chosen:
            if self._is_beam(seq):
                self._search(seq, rows)
            else:
                self._accept(seq, rows, tokens, is_decode=is_decode)
        if chosen:
            self._steps.mark(Part.DETOKENISE)

    def _is_beam(self, seq: Seq) -> bool:
        return self.group(seq.id).beams is not None

    @staticmethod
    def _has_begun_search(group: Group) -> bool:
        return group.beams is not None and len(group.beams.live) > 1

    def _chosen(
        self,
        seq: Seq,
        rows: Tensor,
        laws: Mapping[str, Sequence[Tensor]],
    ) -> list[tuple[Answer, list[int]]]:
        """The tokens of an answer, and of those that begin beside it: these come first."""
        group, answer = self._of[seq.id]
        if group.beams is not None:
            return []
        found = []
        if group.is_single and answer.num_output == 0:
            found = [(one, self._tokens(one, rows, None)) for one in group.begin()]
        return [*found, (answer, self._tokens(answer, rows, laws.get(seq.id)))]

    def _tokens(self, answer: Answer, rows: Tensor, laws: Sequence[Tensor] | None) -> list[int]:
        adjusted = answer.adjusted(rows, answer.seq.drafts)
        return self._speculator.checked(answer, adjusted, laws)

    def _accept(
        self,
        seq: Seq,
        rows: Tensor,
        chosen: list[tuple[Answer, list[int]]],
        *,
        is_decode: bool,
    ) -> None:
        """Take the tokens of a step into the answers; send what can be shown."""
        group, first = self._of[seq.id]
        record, at_ns = group.request.record, now_ns()
        is_first = first.num_output == 0
        for answer, tokens in chosen:
            num_drafts = len(answer.seq.drafts)
            needs_row = answer.request.params.num_top is not None
            needs_row |= answer.request.params.num_answers > answer.request.params.num_choices
            num_taken = 0
            for token, row in zip(tokens, rows, strict=False):
                answer.accept(token, self._eos_ids, row if needs_row else None)
                record.token_ns.append(at_ns)
                num_taken += 1
                if answer.finish:
                    break
            self._speculator.observe(answer, num_drafts, tokens)
            record.num_drafted += num_drafts
            record.num_accepted += min(num_taken, len(tokens) - 1)
            if answer is not first and not answer.finish:
                self._books.fork(first.seq.id, answer.seq)
                self._of[answer.seq.id] = group, answer
            if num_drafts and not answer.finish:
                self._books.checked(answer.seq, len(tokens) - 1)
        record.output_tokens = group.num_output
        if is_first or not is_decode:
            record.timeline.begin(Stage.LATER_DECODE, at_ns)
        for answer, _ in chosen:
            sink = group.request.sink
            self.deliveries += [(sink, chunk) for chunk in group.chunks(answer)]
            if answer.finish:
                self._books.remove(answer.seq.id)
                self._of.pop(answer.seq.id, None)
        if group.is_done:
            self._end(group, at_ns)

    def _search(self, seq: Seq, rows: Tensor) -> None:
        """A beam has its row; the last of a round takes the search a step on."""
        group, first = self._of[seq.id]
        assert group.beams is not None  # noqa: S101 - asked for searches only
        group.beams.rows[seq.id] = rows[-1]
        if not group.beams.is_ready:
            return
        record, at_ns = group.request.record, now_ns()
        if len(group.beams.live[seq.id].tokens) == 0:
            first.seq.num_seats = 1
            record.timeline.begin(Stage.LATER_DECODE, at_ns)
        record.token_ns.append(at_ns)
        names = list(group.beams.live)
        going = group.expand(self._books)
        for name in names:
            self._of.pop(name, None)
        self._of |= dict.fromkeys(going, (group, first))
        if not going:
            chunks = group.found()
            self.deliveries += [(group.request.sink, chunk) for chunk in chunks]
            record.output_tokens = group.num_output
            self._end(group, at_ns)

    def _end(self, group: Group, at_ns: int) -> None:
        reason = group.finish_reason()
        record = group.request.record
        record.finish_reason = reason.value if reason else None
        if reason is FinishReason.ERROR:
            record.error_type = "engine_error"
        record.timeline.begin(Stage.STREAM, at_ns)
        seconds = at_ns / 1e9 - group.arrived_s
        self.seconds_per_answer += SMOOTHING * (seconds - self.seconds_per_answer)
        self._groups.pop(group.request.id, None)
