"""The engine: requests in, text out, one step after another on a thread of its own.

``submit`` and ``abort`` may be called from any thread; everything else happens in ``step``,
which takes what arrived, has the ledger plan the step and runs it.
"""

import logging
import math
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from torch import Tensor

from longpole.vocab import Stage
from longpole_engine.answer import Answer
from longpole_engine.config import EngineConfig, Eviction
from longpole_engine.kv.manager import KvManager
from longpole_engine.kv.pool import PAGE_TOKENS
from longpole_engine.kv.prefix import num_cacheable
from longpole_engine.models.checkpoint import Checkpoint
from longpole_engine.runner import Rows, Runner
from longpole_engine.sampling.sampler import sample
from longpole_engine.scheduler import ledger
from longpole_engine.scheduler.core import Limits, Piece
from longpole_engine.scheduler.ledger import Ledger
from longpole_engine.telemetry.events import now_ns
from longpole_engine.text.tokenizer import Tokenizer
from longpole_engine.types import Chunk, FinishReason, QueueFull, Request

_log = logging.getLogger("longpole.engine")

Delivery = tuple[Callable[[Chunk], None], Chunk]
"""A chunk and whom it is for."""

_IDLE_WAIT_S: Final = 1.0
_MAX_RETRY_S: Final = 60
_SMOOTHING: Final = 0.1
"""Weight of the newest figure in a running mean."""


class Engine:
    """Continuous batching over one model.

    Args:
        checkpoint: the model.
        config: formats and limits.
        post: receives each step's chunks with their sinks, on the step's thread.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        config: EngineConfig,
        post: Callable[[Sequence[Delivery]], None],
    ) -> None:
        self.config = config
        self.tokenizer = Tokenizer(checkpoint.text.tokenizer_json)
        self.num_steps = 0
        self.num_failed_steps = 0
        self._runner = Runner(checkpoint, config)
        self.kv = KvManager(
            self._runner.store.num_pages,
            self._runner.store,
            self._runner.num_cached_pages if config.is_prefix_cached else None,
            is_session_aware=config.eviction is Eviction.SESSION,
        )
        self.ledger = Ledger(
            self.kv,
            Limits(
                config.max_num_seqs,
                config.max_step_tokens,
                config.policy,
                config.batching,
                config.is_chunked,
            ),
            config.preemption,
        )
        self._eos_ids = frozenset(checkpoint.text.eos_ids)
        self._post = post
        self._changed = threading.Condition()
        self._arrived: deque[Request] = deque()
        self._aborted: set[str] = set()
        self._answers: dict[str, Answer] = {}
        self._deliveries: list[Delivery] = []
        self._seconds_per_answer = 1.0
        self._is_stopping = False

    @property
    def max_tokens(self) -> int:
        """Longest sequence, prompt and answer together."""
        return self._runner.max_tokens

    @property
    def num_waiting(self) -> int:
        """Requests that hold no pages: in line, or not yet taken in."""
        return len(self._arrived) + len(self.ledger.waiting)

    @property
    def num_running(self) -> int:
        """Sequences that hold pages."""
        return len(self.ledger.running)

    def warm_up(self) -> None:
        """Run the model once, on the thread that will run the steps."""
        self._runner.warm_up()

    def submit(self, request: Request) -> None:
        """Queue a request; its chunks follow through its sink, the last with a finish reason.

        Raises:
            QueueFull: as many requests wait as the configuration allows.
        """
        with self._changed:
            num_waiting = self.num_waiting
            if num_waiting >= self.config.max_queue:
                wait_s = num_waiting * self._seconds_per_answer / self.config.max_num_seqs
                raise QueueFull(
                    f"{num_waiting} requests are waiting: try again later",
                    max(1, min(_MAX_RETRY_S, math.ceil(wait_s))),
                )
            self._arrived.append(request)
            request.record.timeline.begin(Stage.QUEUE, now_ns())
            self._changed.notify()

    def abort(self, request_id: str) -> None:
        """Forget a request; its pages are free at the next step. Unknown ids do nothing."""
        with self._changed:
            self._aborted.add(request_id)
            self._changed.notify()

    def run(self) -> None:
        """Step until :meth:`stop`; what is then unfinished is dropped."""
        while not self._is_stopping:
            if not self.step():
                with self._changed:
                    if not (self._arrived or self._aborted or self._is_stopping):
                        self._changed.wait(_IDLE_WAIT_S)

    def stop(self) -> None:
        """Make :meth:`run` return after the step in progress."""
        with self._changed:
            self._is_stopping = True
            self._changed.notify()

    def step(self) -> bool:
        """One round: take arrivals and aborts, plan, run. Returns whether anything ran."""
        self._take_news()
        now = now_ns()
        step = self.ledger.step(now / 1e9)
        if step.is_empty:
            return False
        self.num_steps += 1
        self._note(step, now)
        try:
            if step.prefill:
                self._prefill(step.prefill)
                self._flush()  # a first token does not wait for the others' step
            if step.decode:
                self._decode(step.decode)
        except Exception:  # noqa: BLE001 - counted; the requests fail, the engine lives on
            self.num_failed_steps += 1
            _log.exception("a step failed: %d requests end with an error", self.num_running)
            for name in list(self.ledger.running):
                self._fail(name, FinishReason.ERROR, "engine_error")
        self._flush()
        return True

    def _take_news(self) -> None:
        with self._changed:
            aborted, self._aborted = self._aborted, set()
            for request in self._arrived:
                arrived_s = request.record.timeline.received_ns / 1e9
                answer = Answer(request, arrived_s, self.max_tokens, self.tokenizer.token_bytes)
                self._answers[request.id] = answer
                self.ledger.add(answer.seq)
            self._arrived.clear()
        for name in aborted:
            self.ledger.remove(name)
            self._answers.pop(name, None)

    def _note(self, step: ledger.Step, at_ns: int) -> None:
        """What the plan means for the requests' records."""
        for seq in step.expired:
            self._fail(seq.id, FinishReason.EXPIRED, "deadline_exceeded")
        for seq in step.preempted:
            record = self._answers[seq.id].request.record
            record.num_preempted = seq.num_preempted
            record.timeline.begin(Stage.QUEUE, at_ns)
        for seq in step.admitted:
            record = self._answers[seq.id].request.record
            is_resumed = seq.num_left == 1 and seq.num_computed >= seq.num_prompt
            record.timeline.begin(Stage.LATER_DECODE if is_resumed else Stage.PREFILL, at_ns)
            record.cached_tokens = seq.num_cached
            record.cache_state = self._cache_state(seq.num_prompt, seq.num_cached or 0)

    def _prefill(self, pieces: list[tuple[ledger.Sequence, Piece]]) -> None:
        began_ns = now_ns()
        rows = [self._rows(seq, piece) for seq, piece in pieces]
        logits = self._runner.prompt(rows)
        num_tokens = sum(piece.num_tokens for _, piece in pieces)
        seconds = (now_ns() - began_ns) / 1e9 / num_tokens
        self.ledger.seconds_per_token += _SMOOTHING * (seconds - self.ledger.seconds_per_token)
        self._finish_rows(pieces, logits, is_decode=False)

    def _decode(self, pieces: list[tuple[ledger.Sequence, Piece]]) -> None:
        logits = self._runner.decode([self._rows(seq, piece) for seq, piece in pieces])
        self._finish_rows(pieces, logits, is_decode=True)

    def _rows(self, seq: ledger.Sequence, piece: Piece) -> Rows:
        start, end = seq.num_computed, seq.num_computed + piece.num_tokens
        pages = self.kv.pages(seq.id)
        return Rows(pages, start, seq.tokens[start:end], int(end == len(seq.tokens)))

    def _finish_rows(
        self, pieces: list[tuple[ledger.Sequence, Piece]], logits: Tensor, *, is_decode: bool
    ) -> None:
        """Book what was computed, choose the next tokens, send their text."""
        ready: list[Answer] = []
        for seq, piece in pieces:
            self.ledger.computed(seq, piece.num_tokens)
            answer = self._answers[seq.id]
            record = answer.request.record
            record.num_steps += 1
            if seq.num_left == 0:
                ready.append(answer)
                if is_decode and answer.num_output:
                    record.num_decode_steps += 1
                    record.decode_rows += len(pieces)
                else:
                    record.timeline.begin(Stage.FIRST_DECODE, now_ns())
        if ready:
            tokens = sample(logits, [answer.draw() for answer in ready])
            for answer, token in zip(ready, tokens, strict=True):
                self._accept(answer, token, is_decode=is_decode)

    def _accept(self, answer: Answer, token: int, *, is_decode: bool) -> None:
        record = answer.request.record
        chunk = answer.accept(token, self._eos_ids)
        record.output_tokens = answer.num_output
        at_ns = now_ns()
        if answer.num_output == 1 or not is_decode:
            record.timeline.begin(Stage.LATER_DECODE, at_ns)
        self._deliveries.append((answer.request.sink, chunk))
        if chunk.finish:
            record.finish_reason = chunk.finish.value
            record.timeline.begin(Stage.STREAM, at_ns)
            seconds = at_ns / 1e9 - answer.seq.arrived_s
            self._seconds_per_answer += _SMOOTHING * (seconds - self._seconds_per_answer)
            self.ledger.remove(answer.request.id)
            del self._answers[answer.request.id]

    def _fail(self, name: str, reason: FinishReason, error_type: str) -> None:
        self.ledger.remove(name)
        request = self._answers.pop(name).request
        request.record.error_type = error_type
        request.record.finish_reason = reason.value
        self._deliveries.append((request.sink, Chunk("", reason)))

    def _flush(self) -> None:
        if self._deliveries:
            deliveries, self._deliveries = self._deliveries, []
            self._post(deliveries)

    def _cache_state(self, num_prompt: int, num_cached: int) -> str:
        num_pages = num_cacheable(num_prompt)
        if not (self.config.is_prefix_cached and num_pages):
            return "ineligible"
        if num_cached == 0:
            return "miss"
        return "hit" if num_cached == num_pages * PAGE_TOKENS else "partial"
