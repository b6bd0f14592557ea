"""An engine stepped by hand, with the time of every token."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any

from longpole_engine.answers import Delivery
from longpole_engine.config import EngineConfig
from longpole_engine.engine import Engine
from longpole_engine.models.checkpoint import Checkpoint
from longpole_engine.telemetry.events import RequestRecord, Timeline, now_ns
from longpole_engine.types import Request, SamplingParams


class Driver:
    """Submits requests of plain tokens; ``times`` holds, for each, when each token came (s)."""

    def __init__(self, model: Checkpoint, threads: int, **changes: Any) -> None:
        config = EngineConfig(
            **{"num_threads": threads, "num_decode_threads": threads, "max_queue": 10_000} | changes
        )
        self.engine = Engine(model, config, self._post)
        self.engine.warm_up()
        self.times: dict[str, list[float]] = {}
        self.submitted: dict[str, float] = {}
        self.records: dict[str, RequestRecord] = {}
        self.texts: dict[str, str] = {}

    @staticmethod
    def _post(deliveries: Sequence[Delivery]) -> None:
        for sink, chunk in deliveries:
            sink(chunk)

    def submit(self, prompt: Iterable[int], num_output: int, *, has_end: bool = False) -> str:
        """A greedy request, which its own end ends only if ``has_end``; returns its name."""
        name = f"r{len(self.times)}"
        self.times[name], self.texts[name] = [], ""
        self.submitted[name] = time.perf_counter()
        self.records[name] = RequestRecord(Timeline(now_ns()))

        def sink(chunk: Any) -> None:
            self.times[name].append(time.perf_counter())
            self.texts[name] += chunk.text

        params = SamplingParams(num_output, temperature=0.0, is_eos_ignored=not has_end)
        self.engine.submit(Request(name, tuple(prompt), params, sink, self.records[name]))
        return name

    def drain(self) -> float:
        """Step until nothing is left; seconds."""
        begun = time.perf_counter()
        while self.engine.step():
            pass
        return time.perf_counter() - begun

    def ttft_s(self, name: str) -> float:
        """Submission to first token."""
        return self.times[name][0] - self.submitted[name]


def words(first: int, num: int) -> list[int]:
    """Plain tokens, different for each ``first``."""
    return [1000 + (first * 7919 + index * 31) % 40_000 for index in range(num)]
