"""Runs a workload through an engine stepped by hand and measures what its requests lived through.

Requests arrive after so many steps, not at times: the same things happen on any machine, only the
milliseconds differ.
"""

import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import median
from typing import Any, Final, NamedTuple

from longpole.vocab import Stage
from longpole_engine.config import EngineConfig
from longpole_engine.engine import Engine
from longpole_engine.models.checkpoint import Checkpoint
from longpole_engine.telemetry.events import RequestRecord, Timeline, now_ns
from longpole_engine.telemetry.story import tell
from longpole_engine.types import Chunk, FinishReason, Request, SamplingParams

_MAX_S: Final = 120.0
_FIRST_PLAIN: Final = 300


class Ask(NamedTuple):
    """A request: when it arrives, its prompt, the length of its answer."""

    after_step: int
    prompt: tuple[int, ...]
    num_output: int


class Outcome(NamedTuple):
    """What one request lived through, in milliseconds; ``gaps_ms`` between its tokens."""

    queue_ms: float
    ttft_ms: float
    e2e_ms: float
    tpot_ms: float
    gaps_ms: list[float]
    num_cached: int
    num_input: int
    num_preempted: int
    num_drafted: int
    num_accepted: int
    num_steps: int
    wait_ms: float
    """Within its prompt and its answer: parts of steps that served others."""


def words(first: int, num: int, vocab_size: int) -> tuple[int, ...]:
    """Plain tokens, different for each ``first``."""
    room = vocab_size - _FIRST_PLAIN
    return tuple(_FIRST_PLAIN + (first * 7919 + index * 31) % room for index in range(num))


def run(
    checkpoint: Checkpoint,
    settings: Mapping[str, Any],
    asks: Sequence[Ask],
    *,
    is_warm: bool = True,
) -> list[Outcome]:
    """The outcomes of all requests, in order; after two minutes the rest is given up and missing.

    Args:
        checkpoint: the model.
        settings: fields of :class:`EngineConfig` that are not at their default.
        asks: the requests in order of arrival.
        is_warm: the model runs once before the first request.
    """
    engine = Engine(checkpoint, EngineConfig(**{"max_queue": 10_000} | dict(settings)), _post)
    if is_warm:
        engine.warm_up()
    waiting = [(f"r{number}", ask) for number, ask in enumerate(asks)]
    records: dict[str, RequestRecord] = {}
    num_steps, deadline = 0, time.monotonic() + _MAX_S
    while time.monotonic() < deadline:
        while waiting and waiting[0][1].after_step <= num_steps:
            name, ask = waiting.pop(0)
            records[name] = _submit(engine, name, ask)
        is_moving = engine.step()
        num_steps += 1
        if not is_moving:
            if not waiting:
                break
            num_steps = max(num_steps, waiting[0][1].after_step)
    done = [(name, record) for name, record in records.items() if record.timeline.closed_ns]
    return [_outcome(engine, name, record) for name, record in done]


def p(values: Sequence[float], share: float) -> float:
    """A quantile, of the values themselves; 0 of none."""
    ranked = sorted(values)
    return ranked[min(len(ranked) - 1, int(share * len(ranked)))] if ranked else 0.0


def middle(values: Sequence[float]) -> float:
    """The median; 0 of none."""
    return median(values) if values else 0.0


def _submit(engine: Engine, name: str, ask: Ask) -> RequestRecord:
    record = RequestRecord(Timeline(now_ns()), response_id=name, input_tokens=len(ask.prompt))

    def sink(chunk: Chunk) -> None:
        if chunk.finish:
            record.timeline.close(now_ns())

    params = SamplingParams(ask.num_output, temperature=0.0, is_eos_ignored=True)
    engine.submit(Request(name, ask.prompt, params, sink, record))
    return record


def _post(deliveries: Sequence[Any]) -> None:
    for sink, chunk in deliveries:
        sink(chunk)


def _outcome(engine: Engine, name: str, record: RequestRecord) -> Outcome:
    story = tell(name, record, engine.steps)
    phases = record.timeline.phases()
    spent: dict[Stage, int] = {}
    for phase in phases:
        spent[phase.stage] = spent.get(phase.stage, 0) + phase.end_ns - phase.start_ns
    times = record.token_ns or [phases[-1].end_ns]
    if record.finish_reason in (FinishReason.ERROR, FinishReason.EXPIRED):
        times = [phases[-1].end_ns]
    waits = [m for m in story.moments if m.what in ("wait_prefill", "wait_decode")]
    return Outcome(
        queue_ms=spent.get(Stage.QUEUE, 0) / 1e6,
        ttft_ms=(times[0] - phases[0].start_ns) / 1e6,
        e2e_ms=(phases[-1].end_ns - phases[0].start_ns) / 1e6,
        tpot_ms=(times[-1] - times[0]) / max(1, len(times) - 1) / 1e6,
        gaps_ms=[(after - before) / 1e6 for before, after in pairwise(times)],
        num_cached=record.cached_tokens or 0,
        num_input=record.input_tokens or 0,
        num_preempted=record.num_preempted,
        num_drafted=record.num_drafted,
        num_accepted=record.num_accepted,
        num_steps=record.num_steps,
        wait_ms=sum(moment.end_ns - moment.start_ns for moment in waits) / 1e6,
    )
