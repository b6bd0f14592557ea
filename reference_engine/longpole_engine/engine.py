"""The engine: requests in, text out, one step after another on a thread of its own.

``submit`` and ``abort`` may be called from any thread; everything else happens in ``step``,
which takes what arrived, asks the scheduler for a plan and runs it.
"""

import logging
import secrets
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from longpole.vocab import Stage
from longpole_engine.config import EngineConfig
from longpole_engine.kv.prefix import BLOCK_TOKENS, num_blocks
from longpole_engine.models.checkpoint import Checkpoint
from longpole_engine.runner import Runner
from longpole_engine.sampling.sampler import Draw, sample
from longpole_engine.scheduler.core import State, plan
from longpole_engine.telemetry.events import now_ns
from longpole_engine.text.detokenize import Detokenizer
from longpole_engine.text.stops import StopBuffer
from longpole_engine.text.tokenizer import Tokenizer
from longpole_engine.types import Chunk, FinishReason, QueueFull, Request

_log = logging.getLogger("longpole.engine")

Delivery = tuple[Callable[[Chunk], None], Chunk]
"""A chunk and whom it is for."""

_IDLE_WAIT_S: Final = 1.0


class _Sequence:
    """A request inside the engine; while it runs, its slot is its index among the running."""

    def __init__(self, request: Request, tokenizer: Tokenizer) -> None:
        self.request = request
        seed = request.params.seed
        self.seed = secrets.randbits(63) if seed is None else seed
        self.output: list[int] = []
        self.detokenizer = Detokenizer(tokenizer.token_bytes)
        self.stops = StopBuffer(request.params.stop)

    @property
    def num_stored(self) -> int:
        """Positions whose keys and values are in the slot: all but the newest token's."""
        return len(self.request.prompt) + len(self.output) - 1

    def draw(self) -> Draw:
        p = self.request.params
        return Draw(p.temperature, p.top_p, p.top_k, self.seed, len(self.output))


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
        self.num_failed_steps = 0
        self._runner = Runner(checkpoint, config)
        self._eos_ids = frozenset(checkpoint.text.eos_ids)
        self._post = post
        self._changed = threading.Condition()
        self._arrived: deque[Request] = deque()
        self._aborted: set[str] = set()
        self._waiting: dict[str, _Sequence] = {}
        self._running: list[_Sequence] = []
        self._deliveries: list[Delivery] = []
        self._is_stopping = False

    @property
    def max_tokens(self) -> int:
        """Longest sequence, prompt and answer together."""
        return self._runner.max_tokens

    def warm_up(self) -> None:
        """Run the model once, on the thread that will run the steps."""
        self._runner.warm_up()

    def submit(self, request: Request) -> None:
        """Queue a request; its chunks follow through its sink, the last with a finish reason.

        Raises:
            QueueFull: as many requests wait as the configuration allows.
        """
        with self._changed:
            num_waiting = len(self._arrived) + len(self._waiting)
            if num_waiting >= self.config.max_queue:
                raise QueueFull(f"{num_waiting} requests are waiting: try again later")
            self._arrived.append(request)
            request.record.timeline.begin(Stage.QUEUE, now_ns())
            self._changed.notify()

    def abort(self, request_id: str) -> None:
        """Forget a request; its slot is free at the next step. Unknown ids do nothing."""
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
        todo = plan(
            State(
                tuple(self._waiting),
                tuple(seq.request.id for seq in self._running),
                self.config.max_num_seqs,
            )
        )
        if not (todo.prefill or todo.decode):
            return False
        decoding = list(self._running)
        try:
            for request_id in todo.prefill:
                self._prefill(self._waiting.pop(request_id))
            if decoding:
                self._decode(decoding)
        except Exception:  # noqa: BLE001 - counted; the requests fail, the engine lives on
            self.num_failed_steps += 1
            _log.exception("a step failed: %d requests end with an error", len(self._running))
            self._fail_running()
        self._flush()
        return True

    def _take_news(self) -> None:
        with self._changed:
            arrived, self._arrived = list(self._arrived), deque()
            aborted, self._aborted = self._aborted, set()
            for request in arrived:
                self._waiting[request.id] = _Sequence(request, self.tokenizer)
        for request_id in aborted:
            self._waiting.pop(request_id, None)
        for seq in [seq for seq in self._running if seq.request.id in aborted]:
            self._leave(seq)

    def _prefill(self, seq: _Sequence) -> None:
        request, record = seq.request, seq.request.record
        slot = len(self._running)
        self._running.append(seq)
        record.timeline.begin(Stage.PREFILL, now_ns())
        logits, num_cached = self._runner.prefill(request.prompt, slot)
        record.cached_tokens = num_cached
        record.cache_state = self._cache_state(len(request.prompt), num_cached)
        record.num_steps += 1
        record.timeline.begin(Stage.FIRST_DECODE, now_ns())
        is_finished = self._accept(seq, sample(logits, [seq.draw()])[0])
        self._flush()  # the first token does not wait for the others' step
        self._runner.keep_prefix(request.prompt, slot)
        if is_finished:
            self._leave(seq)

    def _decode(self, decoding: Sequence[_Sequence]) -> None:
        logits = self._runner.decode(
            [seq.output[-1] for seq in decoding], [seq.num_stored for seq in decoding]
        )
        tokens = sample(logits, [seq.draw() for seq in decoding])
        finished = []
        for seq, token in zip(decoding, tokens, strict=True):
            record = seq.request.record
            record.num_steps += 1
            record.num_decode_steps += 1
            record.decode_rows += len(decoding)
            if self._accept(seq, token):
                finished.append(seq)
        for seq in finished:  # slots move only after all rows were read
            self._leave(seq)

    def _accept(self, seq: _Sequence, token: int) -> bool:
        """Take a token into the answer; returns whether it was the last."""
        params, record = seq.request.params, seq.request.record
        seq.output.append(token)
        record.output_tokens = len(seq.output)
        finish: FinishReason | None = None
        if token in self._eos_ids and not params.is_eos_ignored:
            finish, text = FinishReason.STOP, ""
        else:
            text = seq.stops.push(seq.detokenizer.push(token))
            total = len(seq.request.prompt) + len(seq.output)
            if seq.stops.is_stopped:
                finish = FinishReason.STOP
            elif len(seq.output) >= params.max_tokens or total >= self.max_tokens:
                finish = FinishReason.LENGTH
        if finish and not seq.stops.is_stopped:
            text += seq.stops.push(seq.detokenizer.finish()) + seq.stops.finish()
        at_ns = now_ns()
        if len(seq.output) == 1:
            record.timeline.begin(Stage.LATER_DECODE, at_ns)
        if finish:
            record.finish_reason = finish.value
            record.timeline.begin(Stage.STREAM, at_ns)
        self._deliveries.append((seq.request.sink, Chunk(text, finish)))
        return finish is not None

    def _leave(self, seq: _Sequence) -> None:
        """Free a sequence's slot; the last running one moves into it."""
        slot, last = self._running.index(seq), len(self._running) - 1
        moved = self._running.pop()
        if slot != last:
            self._runner.close_gap(slot, last, moved.num_stored)
            self._running[slot] = moved

    def _fail_running(self) -> None:
        for seq in self._running:
            seq.request.record.error_type = "engine_error"
            seq.request.record.finish_reason = FinishReason.ERROR.value
            self._deliveries.append((seq.request.sink, Chunk("", FinishReason.ERROR)))
        self._running.clear()

    def _flush(self) -> None:
        if self._deliveries:
            deliveries, self._deliveries = self._deliveries, []
            self._post(deliveries)

    def _cache_state(self, num_prompt: int, num_cached: int) -> str:
        blocks = num_blocks(num_prompt)
        if not (self.config.is_prefix_cached and blocks):
            return "ineligible"
        if num_cached == 0:
            return "miss"
        return "hit" if num_cached == blocks * BLOCK_TOKENS else "partial"
