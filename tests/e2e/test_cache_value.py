"""The time a cache saved, told from calls alone, against the same prompts without a cache.

A real model with real weights answers prompts of which half share their beginning. ``longpole
cache`` sees the calls of the engine that has its prefix cache; the truth is what the very same
prompts take on an engine that has none. Both engines answer by turns and times are those of the
computing thread, so that what else the machine does counts on neither side.
"""

import json
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import polars as pl
import pytest
from click.testing import CliRunner

from longpole.errors import UsageError
from longpole_analytics.cache_command import cache
from longpole_engine.answers import Delivery
from longpole_engine.config import EngineConfig, Weights
from longpole_engine.engine import Engine
from longpole_engine.lab import words
from longpole_engine.models.checkpoint import Checkpoint
from longpole_engine.models.loader import SMOLLM2_INSTALL, load
from longpole_engine.telemetry.events import RequestRecord, Timeline, now_ns
from longpole_engine.types import Chunk, Request, SamplingParams

SIZES = (96, 128, 160)
NUM_EACH = 8
"""Prompts of each size that share their beginning, the first of which writes it; as many do not."""
NUM_OWN = 32
WITHIN = 0.15
NUM_ROUNDS = 3


class Answer(NamedTuple):
    ttft_ms: float
    num_cached: int


class Serving:
    """An engine of one request at a time, stepped by hand."""

    def __init__(self, model: Checkpoint, *, is_prefix_cached: bool) -> None:
        config = EngineConfig(
            weights=Weights.INT8,
            max_num_seqs=1,
            max_model_tokens=256,
            prefix_cache_mb=32,
            num_threads=1,
            is_prefix_cached=is_prefix_cached,
        )
        self._engine = Engine(model, config, self._post)
        self._engine.warm_up()

    @staticmethod
    def _post(deliveries: Sequence[Delivery]) -> None:
        for sink, chunk in deliveries:
            sink(chunk)

    def answer(self, prompt: tuple[int, ...]) -> Answer:
        """One token."""
        came: list[int] = []
        record = RequestRecord(Timeline(now_ns()), input_tokens=len(prompt))

        def sink(_chunk: Chunk) -> None:
            came.append(time.thread_time_ns())

        params = SamplingParams(1, temperature=0.0, is_eos_ignored=True)
        begun = time.thread_time_ns()
        self._engine.submit(Request(f"r{record.timeline}", prompt, params, sink, record))
        while self._engine.step():
            pass
        return Answer((came[0] - begun) / 1e6, record.cached_tokens or 0)


@pytest.fixture(scope="module")
def smollm2() -> Checkpoint:
    try:
        return load("smollm2")
    except UsageError:
        pytest.skip(f"no weights: {SMOLLM2_INSTALL}")


def prompts(vocab_size: int) -> list[tuple[int, ...]]:
    """By turns one that begins as others do and one of its own, the sizes mixed."""
    found = []
    for number in range(NUM_EACH):
        for size in SIZES:
            own = 1000 + 10 * number + SIZES.index(size)
            shared = words(size, size - NUM_OWN, vocab_size)
            found.append(shared + words(own, NUM_OWN, vocab_size))
            found.append(words(own + 5000, size, vocab_size))
    return found


def told(asked: list[tuple[int, ...]], answers: list[Answer], file: Path) -> dict[str, Any]:
    """What ``longpole cache`` says of the time saved."""
    pl.DataFrame(
        {
            "start_ns": [10**18 + 10**9 * number for number in range(len(asked))],
            "provider": "vllm",
            "request_model": "smollm2",
            "input_tokens": [len(prompt) for prompt in asked],
            "cached_input_tokens": [each.num_cached for each in answers],
            "ttft_ms": [each.ttft_ms for each in answers],
        }
    ).write_parquet(file)
    done = CliRunner().invoke(cache, [str(file), "--json"])
    assert done.exit_code == 0, done.output
    (found,) = json.loads(done.stdout)["speed"]
    return dict(found)


def test_the_time_that_a_cache_saved_is_what_its_hits_take_without_it(
    smollm2: Checkpoint, tmp_path: Path
) -> None:
    """A machine that is busy with something else in one round gets another.

    Noise parts the numbers, never brings them together each time.
    """
    asked = prompts(smollm2.config.vocab_size)
    without = Serving(smollm2, is_prefix_cached=False)
    for _ in range(NUM_ROUNDS):
        with_it = Serving(smollm2, is_prefix_cached=True)
        answers, saved = [], []
        for prompt in asked:
            answers.append(with_it.answer(prompt))
            if answers[-1].num_cached:
                saved.append(without.answer(prompt).ttft_ms - answers[-1].ttft_ms)
        assert len(saved) == len(SIZES) * (NUM_EACH - 1)
        truth = median(saved)
        found = told(asked, answers, tmp_path / "calls.parquet")
        off = [abs(found[name]["ms"] / truth - 1) for name in ("by_model", "by_matching")]
        if found["verdict"] == "saves" and max(off) <= WITHIN:
            return
    pytest.fail(f"told {found}, measured {truth}")
