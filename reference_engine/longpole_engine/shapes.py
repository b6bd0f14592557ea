"""The catalogue of latency shapes: named settings and a workload that make each one happen.

Every shape runs twice, as it is and with its cause taken away (the control), and says what changed.
"""

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from longpole.errors import UsageError
from longpole_engine.config import Batching, Preemption, Speculation, Weights
from longpole_engine.lab import Ask, Outcome, middle, p, run, words
from longpole_engine.models.checkpoint import Checkpoint
from longpole_engine.models.loader import load

Numbers = dict[str, float]
Side = tuple[Mapping[str, Any], list[Ask]]
"""Settings and workload."""

_STORY: Final = "Once upon a time, in a village by the sea, there lived a lighthouse keeper who"


class Scene(NamedTuple):
    """What a shape runs on; ``extra`` are settings of both sides, e.g. threads."""

    model: str
    checkpoint: Checkpoint
    num_long: int
    extra: Mapping[str, Any]


class Shown(NamedTuple):
    """What a run of a shape measured, on both sides; the settings are the shape's."""

    settings: Mapping[str, Any]
    shape: Numbers
    control: Numbers


@dataclass(frozen=True)
class Shape:
    """One entry.

    ``key`` is the number that tells the shape from its control, ``is_shown`` whether two sides'
    numbers do.
    """

    name: str
    text: str
    key: str
    is_shown: Callable[[Numbers, Numbers], bool]
    run: Callable[[Scene], Shown]


def find(name: str) -> Shape:
    """A shape of the catalogue.

    Raises:
        UsageError: there is none of this name.
    """
    if name not in SHAPES:
        raise UsageError(f"no shape '{name}': choose {', '.join(SHAPES)}")
    return SHAPES[name]


def _both(sides: Callable[[Checkpoint, int], tuple[Side, Side]]) -> Callable[[Scene], Shown]:
    """Run two workloads through engines stepped by hand."""

    def show(scene: Scene) -> Shown:
        made = sides(scene.checkpoint, scene.num_long)
        shape, control = (
            _numbers(run(scene.checkpoint, {**scene.extra, **settings}, asks))
            for settings, asks in made
        )
        return Shown(made[0][0], shape, control)

    return show


def _times(key: str, factor: float) -> Callable[[Numbers, Numbers], bool]:
    """The number is at least so many times the control's, and not 0."""
    return lambda shape, control: shape[key] > 0 and shape[key] >= factor * control[key]


def _is_vain_hit(shape: Numbers, control: Numbers) -> bool:
    return shape["cached_share"] >= 0.5 and shape["e2e_p50_ms"] >= 0.75 * control["e2e_p50_ms"]


def _is_thrash(shape: Numbers, control: Numbers) -> bool:
    return shape["cached_share"] < 0.5 * control["cached_share"]


def _asks(checkpoint: Checkpoint, jobs: list[tuple[int, int, int]], first: int = 0) -> list[Ask]:
    """Requests without a common prefix, from arrival, prompt length and answer length."""
    size = checkpoint.config.vocab_size
    return [
        Ask(after, words(first + number, length, size), num)
        for number, (after, length, num) in enumerate(jobs)
    ]


def _saturated(checkpoint: Checkpoint, _: int) -> tuple[Side, Side]:
    # Two seats and answers of 24 steps serve a request every 12 steps.
    settings = {"max_num_seqs": 2, "is_prefix_cached": False}
    return (
        (settings, _asks(checkpoint, [(6 * n, 16, 24) for n in range(12)])),
        (settings, _asks(checkpoint, [(24 * n, 16, 24) for n in range(12)])),
    )


def _long_prompt(checkpoint: Checkpoint, num_long: int) -> tuple[Side, Side]:
    settings = {"is_prefix_cached": False}
    return (
        (settings, _asks(checkpoint, [(60 * n, num_long, 8) for n in range(3)])),
        (settings, _asks(checkpoint, [(60 * n, 32, 8) for n in range(3)])),
    )


def _stalls(checkpoint: Checkpoint, num_long: int) -> tuple[Side, Side]:
    jobs = [*((0, 16, 60) for _ in range(4)), (20, num_long, 4)]
    common = {"is_prefix_cached": False}
    return (
        ({**common, "is_chunked": False}, _asks(checkpoint, jobs)),
        ({**common, "is_chunked": True}, _asks(checkpoint, jobs)),
    )


def _head_of_line(checkpoint: Checkpoint, _: int) -> tuple[Side, Side]:
    jobs = [(0, 16, 400 if n % 8 == 0 else 50) for n in range(16)]
    return (
        ({"batching": Batching.STATIC, "max_num_seqs": 8}, _asks(checkpoint, jobs)),
        ({"batching": Batching.CONTINUOUS, "max_num_seqs": 8}, _asks(checkpoint, jobs)),
    )


def _high_tpot(checkpoint: Checkpoint, _: int) -> tuple[Side, Side]:
    return (
        (
            {"weights": Weights.FP32, "max_num_seqs": 16},
            _asks(checkpoint, [(0, 16, 24) for _ in range(16)]),
        ),
        ({"max_num_seqs": 1}, _asks(checkpoint, [(0, 16, 24)])),
    )


def _eviction(checkpoint: Checkpoint, _: int) -> tuple[Side, Side]:
    need = 6 * (32 + 96) // 16
    jobs = [(0, 32, 96) for _ in range(6)]
    common = {"is_prefix_cached": False, "preemption": Preemption.RECOMPUTE}
    return (
        ({**common, "kv_pages": need * 6 // 10}, _asks(checkpoint, jobs)),
        ({**common, "kv_pages": need}, _asks(checkpoint, jobs)),
    )


def _hit_no_gain(checkpoint: Checkpoint, _: int) -> tuple[Side, Side]:
    size = checkpoint.config.vocab_size
    asks = [Ask(80 * n, (*words(1, 32, size), *words(50 + n, 4, size)), 64) for n in range(4)]
    return ({"is_prefix_cached": True}, asks), ({"is_prefix_cached": False}, asks)


def _thrash(checkpoint: Checkpoint, num_long: int) -> tuple[Side, Side]:
    size = checkpoint.config.vocab_size
    system = words(1, num_long // 4, size)
    stamped = [Ask(60 * n, (*words(90 + n, 4, size), *system), 4) for n in range(6)]
    stable = [Ask(60 * n, (*system, *words(90 + n, 4, size)), 4) for n in range(6)]
    return ({"is_prefix_cached": True}, stamped), ({"is_prefix_cached": True}, stable)


def _bad_drafts(checkpoint: Checkpoint, _: int) -> tuple[Side, Side]:
    from longpole_engine.text.tokenizer import Tokenizer

    story = tuple(Tokenizer(checkpoint.text.tokenizer_json).encode(_STORY))
    settings = {
        "speculation": Speculation.SELF,
        "num_drafts": 8,
        "is_draft_dynamic": False,
        "is_prefix_cached": False,
    }
    asks = [Ask(0, story, 48)]
    return (settings, asks), ({"is_prefix_cached": False}, asks)


def _cold_start(scene: Scene) -> Shown:
    """From nothing to the first token: converting, building, no warm-up; beside a warm engine."""
    ask = [Ask(0, words(1, 32, scene.checkpoint.config.vocab_size), 2)]
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder, _environment("XDG_CACHE_HOME", folder):
        checkpoint = load(scene.model)
        loaded = time.perf_counter()
        cold = run(checkpoint, scene.extra, ask, is_warm=False)[0]
        built_ms = (time.perf_counter() - loaded) * 1e3 - cold.e2e_ms
    load_ms = (loaded - begun) * 1e3
    warm = run(scene.checkpoint, scene.extra, ask)[0]
    return Shown(
        {"is_warm": False},
        {
            "load_ms": load_ms,
            "build_ms": built_ms,
            "ttft_ms": cold.ttft_ms,
            "first_token_ms": load_ms + built_ms + cold.ttft_ms,
        },
        {"load_ms": 0.0, "build_ms": 0.0, "ttft_ms": warm.ttft_ms, "first_token_ms": warm.ttft_ms},
    )


@contextmanager
def _environment(key: str, value: str) -> Iterator[None]:
    before = os.environ.get(key)
    os.environ[key] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[key]
        else:
            os.environ[key] = before


def _slow_client(scene: Scene) -> Shown:
    from longpole_engine.slow_client import read

    fast = read(scene.model, scene.extra, 0.0, 0.0)
    # Slow for as long as the answer takes to make, and some more: by then the connection is full.
    slow = read(scene.model, scene.extra, 0.1, fast.took_s + 2)
    settings = {"reader": "256 bytes every 100 ms"}
    shape, control = ({"client_stall_ms": one.stall_ms} for one in (slow, fast))
    return Shown(settings, shape, control)


def _numbers(outcomes: list[Outcome]) -> Numbers:
    """What every shape's table shows."""
    gaps = [gap for one in outcomes for gap in one.gaps_ms]
    num_input = sum(one.num_input for one in outcomes)
    num_drafted = sum(one.num_drafted for one in outcomes)
    e2e_ms = sum(one.e2e_ms for one in outcomes)
    return {
        "requests": float(len(outcomes)),
        "steps": float(sum(one.num_steps for one in outcomes)),
        "queue_p90_ms": p([one.queue_ms for one in outcomes], 0.9),
        "queue_p50_ms": middle([one.queue_ms for one in outcomes]),
        "ttft_p50_ms": middle([one.ttft_ms for one in outcomes]),
        "e2e_p50_ms": middle([one.e2e_ms for one in outcomes]),
        "tpot_p50_ms": middle([one.tpot_ms for one in outcomes]),
        "gap_p50_ms": middle(gaps),
        "gap_p99_ms": p(gaps, 0.99),
        "queue_share": sum(one.queue_ms for one in outcomes) / e2e_ms if e2e_ms else 0.0,
        "cached_share": sum(one.num_cached for one in outcomes) / num_input if num_input else 0.0,
        "preempted": float(sum(one.num_preempted for one in outcomes)),
        "accepted_share": (
            sum(one.num_accepted for one in outcomes) / num_drafted if num_drafted else 0.0
        ),
        "waited_for_others_ms": sum(one.wait_ms for one in outcomes),
    }


_LIST: Final = (
    Shape(
        "queue-saturation",
        "requests come twice as fast as two seats serve them",
        "queue_share",
        _times("queue_share", 2.0),
        _both(_saturated),
    ),
    Shape(
        "long-prompt",
        "long prompts and no prefix cache: the first token is late",
        "ttft_p50_ms",
        _times("ttft_p50_ms", 2.0),
        _both(_long_prompt),
    ),
    Shape(
        "decode-stalls",
        "a long prompt arrives while others stream, and is not cut into chunks",
        "gap_p99_ms",
        _times("gap_p99_ms", 1.5),
        _both(_stalls),
    ),
    Shape(
        "head-of-line",
        "static batches of seven short answers and a long one",
        "queue_p90_ms",
        _times("queue_p90_ms", 1.2),
        _both(_head_of_line),
    ),
    Shape(
        "high-tpot",
        "sixteen sequences at a time in fp32, beside one in int4",
        "tpot_p50_ms",
        _times("tpot_p50_ms", 1.2),
        _both(_high_tpot),
    ),
    Shape(
        "eviction-spikes",
        "room for 60 % of the keys and values: sequences are put back and computed again",
        "preempted",
        _times("preempted", 1.0),
        _both(_eviction),
    ),
    Shape(
        "cache-hit-no-speedup",
        "a short shared prefix is found, the time goes into long answers",
        "e2e_p50_ms",
        _is_vain_hit,
        _both(_hit_no_gain),
    ),
    Shape(
        "cache-thrash",
        "a timestamp stands before the system prompt, so no prefix is ever found",
        "cached_share",
        _is_thrash,
        _both(_thrash),
    ),
    Shape(
        "speculation-hurts",
        "eight drafts a step from the model's first layers, on a story",
        "tpot_p50_ms",
        _times("tpot_p50_ms", 1.05),
        _both(_bad_drafts),
    ),
    Shape(
        "cold-start",
        "weights are read anew and the first request comes before any warm-up",
        "first_token_ms",
        _times("first_token_ms", 1.2),
        _cold_start,
    ),
    Shape(
        "slow-client",
        "a client reads its stream slowly: the connection takes no more",
        "client_stall_ms",
        _times("client_stall_ms", 2.0),
        _slow_client,
    ),
)

SHAPES: Final = {shape.name: shape for shape in _LIST}
