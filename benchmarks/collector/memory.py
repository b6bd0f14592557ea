"""Resident memory of the collector after many spans."""

from __future__ import annotations

from benchmarks.bars import Bar
from benchmarks.collector.bench import Bench, measure
from benchmarks.collector.load import Order
from benchmarks.collector.process import collecting


def memory(bench: Bench) -> list[Bar]:
    """What is resident when 5 M spans have come in at full rate and are rolled up; and the peak."""
    with collecting(bench.folder / "memory") as collector:
        empty_mib = collector.tree.rss_mib()
        order = Order(f"{collector.url}/v1/traces", bench.spans(5_000_000))
        cost = measure(bench, collector, order)
        tree = collector.tree
        sides: dict[str, float | str] = {
            "rss_before_mib": empty_mib,
            "peak_mib": tree.peak_mib(),
            "num_spans": cost.num_spans,
            "stored_us_per_span": 1e6 * cost.stored_cpu_s / cost.num_spans,
            "settled_us_per_span": 1e6 * cost.settled_cpu_s / cost.num_spans,
        }
        return [Bar("memory", tree.rss_mib() * (1 << 20) / 1e6, "MB", "<", 1000, sides)]
