"""How many spans a CPU-second brings safely into the store, beside what parsing alone would cost.

Parsing is protobuf's own ``FromString`` over the same bodies in the same run, nothing else: the
sender parses the acknowledged bodies, 2 MiB at a time, so that both sides share the machine's good
and bad moments. (Parsed with nothing else running, the same bodies are told as ``parse_alone``.)
The collector's side is its whole process, from before the first request until ``SELECT count(*)``
counts every span: HTTP or gRPC, log, sync, decoding, normalising, insert, roll-ups meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple

from benchmarks.bars import Bar, info
from benchmarks.collector.bench import Bench, Cost, measure
from benchmarks.collector.load import Order
from benchmarks.collector.payload import SPANS_PER_TRACE
from benchmarks.collector.process import Collector, collecting

_WARM_UP_SPANS = 300_000
_ALONE_SPANS = 300_000


class _Rates(NamedTuple):
    """Spans a CPU-second: stored, parsed meanwhile, parsed alone; and what the run took."""

    stored: float
    parsed: float
    alone: float
    cost: Cost

    def bar(self, name: str, need: float | None = None) -> Bar:
        """The share of the parsing rate that is reached; asked for if ``need`` is given."""
        relation = "" if need is None else ">="
        return Bar(name, self.stored / self.parsed, "x", relation, need or 0.0, self._sides())

    def _sides(self) -> dict[str, float | str]:
        cost = self.cost
        return {
            "stored_spans_per_cpu_s": self.stored,
            "parse_only_spans_per_cpu_s": self.parsed,
            "parse_alone_spans_per_cpu_s": self.alone,
            "settled_spans_per_cpu_s": cost.num_spans / cost.settled_cpu_s,
            "stored_us_per_span": 1e6 / self.stored,
            "parse_only_us_per_span": 1e6 / self.parsed,
            "settled_us_per_span": 1e6 * cost.settled_cpu_s / cost.num_spans,
            "num_spans": cost.num_spans,
            "num_traces_rolled_up_when_stored": max(
                0, cost.num_spans / SPANS_PER_TRACE - cost.num_dirty
            ),
            "wall_spans_per_s": cost.num_spans / cost.stored_wall_s,
            "settled_wall_spans_per_s": cost.num_spans / cost.settled_wall_s,
            "ack_p50_ms": cost.sent.ack_p50_ms,
            "ack_p99_ms": cost.sent.ack_p99_ms,
            "num_busy_answers": cost.sent.num_busy,
            "sender_cpu_s": cost.sent.cpu_s,
        }


def large(bench: Bench) -> list[Bar]:
    """Bodies of 512 spans over HTTP; also over gRPC, and compressed."""
    with _warm(bench, 512) as collector:
        found = _run(bench, collector, Order(_door(collector), 2_000_000))
        bench.spans_per_cpu_s = found.stored
        bench.max_spans_per_s = found.cost.num_spans / found.cost.settled_wall_s
        over_grpc = _run(bench, collector, Order(collector.grpc, 500_000, seed=2))
        zipped = _run(bench, collector, Order(_door(collector), 300_000, seed=3, is_gzip=True))
    return [
        found.bar("large", 0.10),
        info("max_rate", bench.max_spans_per_s, "spans/s", {}),
        over_grpc.bar("large_grpc"),
        zipped.bar("large_gzip"),
    ]


def small(bench: Bench) -> list[Bar]:
    """Bodies of 10 spans over HTTP; also over gRPC."""
    with _warm(bench, 10) as collector:
        found = _run(bench, collector, Order(_door(collector), 1_000_000, 10))
        over_grpc = _run(bench, collector, Order(collector.grpc, 200_000, 10, seed=2))
    return [found.bar("small", 0.03), over_grpc.bar("small_grpc")]


@contextmanager
def _warm(bench: Bench, per_body: int) -> Iterator[Collector]:
    """A collector that has compiled and cached what it will, and has nothing left to do."""
    with collecting(bench.folder / f"rate-{per_body}") as collector:
        num_spans = bench.spans(_WARM_UP_SPANS)
        sent = bench.loader.send(Order(_door(collector), num_spans, per_body, seed=9))
        collector.wait_stored(sent.num_spans)
        collector.wait_settled()
        collector.wait_idle()
        yield collector


def _run(bench: Bench, collector: Collector, order: Order) -> _Rates:
    """Spans stored a CPU-second, spans parsed a CPU-second, and the rest."""
    order = replace(order, num_spans=bench.spans(order.num_spans))
    alone = bench.loader.parse(replace(order, num_spans=min(order.num_spans, _ALONE_SPANS)))
    cost = measure(bench, collector, replace(order, is_parsed=not order.is_gzip))
    parse = cost.num_spans / cost.sent.parse_cpu_s if cost.sent.parse_cpu_s else alone
    rate = cost.num_spans / cost.stored_cpu_s
    bench.say(f"{order.address}, {order.per_body} a body: {rate:,.0f} of {parse:,.0f} spans/cpu-s")
    return _Rates(rate, parse, alone, cost)


def _door(collector: Collector) -> str:
    return f"{collector.url}/v1/traces"


def rates(bench: Bench) -> tuple[float, float]:
    """Spans stored a CPU-second and spans a second by the clock, measured now if not before."""
    if not bench.spans_per_cpu_s:
        bench.say("the rate has to be measured first")
        large(bench)
    return bench.spans_per_cpu_s, bench.max_spans_per_s
