"""What the measurements share."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from benchmarks.collector.load import Loader, Order, Sent
from benchmarks.collector.process import Collector

DAY_NS = 86_400 * 1_000_000_000


@dataclass
class Bench:
    """What the measurements share: a folder, a sender, the size of it all, the rates found."""

    folder: Path
    scale: float = 1.0
    """All numbers of spans and all durations are multiplied by this; below 1 only tries scripts."""
    spans_per_cpu_s: float = 0.0
    """Stored, bodies of 512; 0 until measured."""
    max_spans_per_s: float = 0.0
    """By the clock, bodies of 512, roll-ups done: what can go on for ever; 0 until measured."""
    say: Callable[[str], None] = field(default=lambda text: None)

    @cached_property
    def loader(self) -> Loader:
        """The sender's process."""
        return Loader()

    def close(self) -> None:
        """End the sender."""
        if "loader" in self.__dict__:
            self.loader.close()

    def spans(self, number: int) -> int:
        """A number of spans at this scale."""
        return max(2_048, int(number * self.scale))

    def seconds(self, number: float) -> float:
        """A duration at this scale, 5 s at least."""
        return max(5.0, number * self.scale)


class Cost(NamedTuple):
    """What one measured run of the collector took."""

    num_spans: int
    stored_cpu_s: float
    stored_wall_s: float
    settled_cpu_s: float
    settled_wall_s: float
    num_dirty: float
    """Traces without their roll-up when all spans were stored."""
    sent: Sent


def measure(bench: Bench, collector: Collector, order: Order) -> Cost:
    """Send; CPU time of the collector until a query counts every span, and until roll-ups are done.

    The collector must hold a settled store when this begins.
    """
    before = collector.count()
    tree = collector.tree
    cpu_s = tree.cpu_s()
    bench.loader.start(order)
    begun = time.perf_counter()
    sent = bench.loader.result()
    collector.wait_stored(before + sent.num_spans)
    stored_cpu_s, stored_wall_s = tree.cpu_s() - cpu_s, time.perf_counter() - begun
    num_dirty = collector.metric("longpole_dirty_traces")
    assert collector.count() == before + sent.num_spans
    collector.wait_settled()
    settled_cpu_s, settled_wall_s = tree.cpu_s() - cpu_s, time.perf_counter() - begun
    return Cost(
        sent.num_spans, stored_cpu_s, stored_wall_s, settled_cpu_s, settled_wall_s, num_dirty, sent
    )
