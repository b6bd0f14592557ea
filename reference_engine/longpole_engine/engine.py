"""The engine: requests in, text out, one step after another on a thread of its own.

``submit`` and ``abort`` may be called from any thread; everything else happens in ``step``,
which takes what arrived, has the ledger plan the step and runs it.
"""

import logging
import math
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import cached_property
from typing import Any, Final

from longpole.errors import BadInput
from longpole.vocab import Stage
from longpole_engine.answers import SMOOTHING, Answers, Delivery
from longpole_engine.config import EngineConfig, Eviction
from longpole_engine.kv.manager import KvManager, Movers
from longpole_engine.kv.pool import PAGE_TOKENS, num_pages
from longpole_engine.kv.prefix import num_cacheable
from longpole_engine.models.checkpoint import Checkpoint
from longpole_engine.runner import Rows, Runner
from longpole_engine.sampling.structured import Grammars, Matcher
from longpole_engine.scheduler import ledger
from longpole_engine.scheduler.core import Limits, Piece
from longpole_engine.scheduler.ledger import Ledger
from longpole_engine.speculative.speculator import Job, Speculator
from longpole_engine.telemetry.events import now_ns
from longpole_engine.telemetry.steps import Part, StepLog
from longpole_engine.text.tokenizer import Tokenizer
from longpole_engine.types import FinishReason, QueueFull, Request

_log = logging.getLogger("longpole.engine")

_IDLE_WAIT_S: Final = 1.0
_MAX_RETRY_S: Final = 60


class Engine:
    """Continuous batching over one model.

    Args:
        checkpoint: the model.
        config: formats and limits.
        post: receives each step's chunks with their sinks, on the step's thread.
        draft: the smaller model, for speculation ``draft``.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        config: EngineConfig,
        post: Callable[[Sequence[Delivery]], None],
        draft: Checkpoint | None = None,
    ) -> None:
        self.config = config
        self.tokenizer = Tokenizer(checkpoint.text.tokenizer_json)
        self.num_steps = 0
        self.num_failed_steps = 0
        self.steps = StepLog()
        self._runner = Runner(checkpoint, config)
        self._speculator = Speculator(config, checkpoint, self._runner, draft)
        other = self._speculator.mover
        self.kv = KvManager(
            self._runner.store.num_pages,
            Movers(self._runner.store, other) if other else self._runner.store,
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
        self._answers = Answers(
            self.ledger,
            self._speculator,
            self.steps,
            self.max_tokens,
            self.tokenizer.token_bytes,
            frozenset(checkpoint.text.eos_ids),
        )
        self._text = checkpoint.text
        self._vocab_size = checkpoint.config.vocab_size
        self._post = post
        self._changed = threading.Condition()
        self._arrived: deque[Request] = deque()
        self._aborted: set[str] = set()
        self._texts: list[tuple[Sequence[int], Future[list[float]]]] = []
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

    def read_bytes(self, num_decode_rows: int, num_prompt_rows: int) -> int:
        """Bytes of weights that a step of so many rows reads at least."""
        return self._runner.read_bytes(num_decode_rows, num_prompt_rows)

    def warm_up(self) -> None:
        """Run the model once, on the thread that will run the steps."""
        self._runner.warm_up()

    def submit(self, request: Request) -> None:
        """Queue a request; its chunks follow through its sink, the last with a finish reason.

        Raises:
            QueueFull: as many requests wait as the configuration allows.
            BadInput: it asks for more sequences at once than there can be.
        """
        self._check(request)
        with self._changed:
            num_waiting = self.num_waiting
            if num_waiting >= self.config.max_queue:
                wait_s = num_waiting * self._answers.seconds_per_answer / self.config.max_num_seqs
                raise QueueFull(
                    f"{num_waiting} requests are waiting: try again later",
                    max(1, min(_MAX_RETRY_S, math.ceil(wait_s))),
                )
            self._arrived.append(request)
            request.record.timeline.begin(Stage.QUEUE, now_ns())
            self._changed.notify()

    @property
    def vocab_size(self) -> int:
        """Number of tokens the model knows."""
        return self._vocab_size

    def grammar(self, schema: Mapping[str, Any] | None) -> Matcher:
        """A JSON form for answers; see :meth:`longpole_engine.sampling.structured.Grammars.json`.

        Raises:
            UsageError: the extra is missing.
            BadInput: the schema cannot be used.
        """
        return self._grammars.json(schema)

    @cached_property
    def _grammars(self) -> Grammars:
        return Grammars(self._text.tokenizer_json, self._text.eos_ids)

    def embed(self, tokens: Sequence[int]) -> "Future[list[float]]":
        """The mean of a text's last hidden states, of length 1, worked out between steps."""
        found: Future[list[float]] = Future()
        with self._changed:
            self._texts.append((tokens, found))
            self._changed.notify()
        return found

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
                    if not (self._arrived or self._aborted or self._texts or self._is_stopping):
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
        self.steps.begin(now)
        self._speculator.propose(self._answers.decoding())
        step = self.ledger.step(now / 1e9)
        if step.is_empty:
            return False
        self.steps.mark(Part.PLAN)
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
                self._answers.fail(name, FinishReason.ERROR, "engine_error")
        self._flush()
        self.steps.end(self.num_steps, step.plan, self.num_waiting, self.num_running)
        return True

    def _check(self, request: Request) -> None:
        num = request.params.num_answers
        if num > self.config.max_num_seqs:
            raise BadInput(
                f"{num} answers at once are asked for: at most {self.config.max_num_seqs}"
            )
        longest = min(self.max_tokens, len(request.prompt) + request.params.max_tokens)
        if request.params.is_beam and num * (num_pages(longest) + 1) > self.kv.pool.num_pages:
            raise BadInput(f"{num} beams of {longest} tokens do not fit into the memory")

    def _take_news(self) -> None:
        with self._changed:
            aborted, self._aborted = self._aborted, set()
            for request in self._arrived:
                self._answers.add(request)
            self._arrived.clear()
            texts, self._texts = self._texts, []
        for name in aborted:
            self._answers.drop(name)
        for tokens, found in texts:
            if found.set_running_or_notify_cancel():
                try:
                    found.set_result(self._runner.embed(tokens))
                except Exception as error:  # noqa: BLE001 - it is the caller's to handle
                    found.set_exception(error)

    def _note(self, step: ledger.Step, at_ns: int) -> None:
        """What the plan means for the requests' records."""
        for seq in step.expired:
            self._answers.fail(seq.id, FinishReason.EXPIRED, "deadline_exceeded")
        for seq in step.preempted:
            self._answers.put_back(seq, at_ns)
        for seq in step.admitted:
            self._answers.let_in(seq, at_ns)
            record = self._answers.group(seq.id).request.record
            record.cached_tokens = seq.num_cached
            record.cache_state = self._cache_state(seq.num_prompt, seq.num_cached or 0)

    def _prefill(self, pieces: list[tuple[ledger.Sequence, Piece]]) -> None:
        began_ns = now_ns()
        rows = [self._rows(seq, piece) for seq, piece in pieces]
        logits = self._runner.prompt(rows)
        self._speculator.prompt([self._answers.answer(seq.id) for seq, _ in pieces], rows)
        self.steps.mark(Part.PREFILL)
        num_tokens = sum(piece.num_tokens for _, piece in pieces)
        seconds = (now_ns() - began_ns) / 1e9 / num_tokens
        self.ledger.seconds_per_token += SMOOTHING * (seconds - self.ledger.seconds_per_token)
        self._answers.take(pieces, logits, {}, is_decode=False)

    def _decode(self, pieces: list[tuple[ledger.Sequence, Piece]]) -> None:
        for seq, piece in pieces:
            del seq.drafts[piece.num_drafts :]  # what the plan had no room for
        laws = self._speculator.draft(
            [
                Job(self._answers.answer(seq.id), self.kv.pages(seq.id), piece.num_drafts)
                for seq, piece in pieces
                if piece.num_drafts
            ]
        )
        logits = self._runner.decode([self._rows(seq, piece) for seq, piece in pieces])
        self.steps.mark(Part.DECODE)
        self._answers.take(pieces, logits, laws, is_decode=True)

    def _rows(self, seq: ledger.Sequence, piece: Piece) -> Rows:
        start, end = seq.num_computed, seq.num_computed + piece.num_tokens
        tokens = seq.tokens[start:end]
        num_logits = 0
        if end == len(seq.tokens):
            num_logits = 1 + piece.num_drafts
            tokens += seq.drafts[: piece.num_drafts]
        return Rows(self.kv.pages(seq.id), start, tokens, num_logits)

    def _flush(self) -> None:
        if self._answers.deliveries:
            deliveries, self._answers.deliveries = self._answers.deliveries, []
            self._post(deliveries)
            self.steps.mark(Part.FLUSH)

    def _cache_state(self, num_prompt: int, num_cached: int) -> str:
        num_pages = num_cacheable(num_prompt)
        if not (self.config.is_prefix_cached and num_pages):
            return "ineligible"
        if num_cached == 0:
            return "miss"
        return "hit" if num_cached == num_pages * PAGE_TOKENS else "partial"
