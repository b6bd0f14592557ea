"""Ten minutes at half the maximum rate with four readers: memory flat, no error, counts exact."""

from __future__ import annotations

import time
from threading import Event, Thread

import numpy as np
from benchmarks.bars import Bar, info
from benchmarks.collector.bench import DAY_NS, Bench
from benchmarks.collector.load import Order
from benchmarks.collector.mix import ask
from benchmarks.collector.process import Collector, collecting
from benchmarks.collector.throughput import rates

_NUM_READERS = 4
_SOAK_S = 600
_WARM_UP_SHARE = 0.2
_SAMPLE_S = 2.0
_PAUSE_S = 0.5
_DROPPED = ("spans_rejected", "spans_dropped", "spans_duplicate", "requests_refused")


def soak(bench: Bench) -> list[Bar]:
    """Growth of resident memory after the first fifth, failures, and spans missing or too many."""
    _, max_rate = rates(bench)
    duration_s = bench.seconds(_SOAK_S)
    failures: list[str] = []
    answers_ms: list[float] = []
    stop = Event()
    with collecting(bench.folder / "soak") as collector:
        order = Order(
            f"{collector.url}/v1/traces",
            int(max_rate / 2 * duration_s),
            seed=5,
            spans_per_s=max_rate / 2,
            limit_s=duration_s * 1.5,
            window_ns=int(duration_s * 1e9),
        )
        bench.loader.start(order)
        samples: list[tuple[float, float]] = []
        threads = [
            Thread(target=_read, args=(collector, stop, answers_ms, failures))
            for _ in range(_NUM_READERS)
        ]
        threads.append(Thread(target=_watch, args=(collector, stop, samples)))
        for thread in threads:
            thread.start()
        sent = bench.loader.result()
        stop.set()
        for thread in threads:
            thread.join()
        collector.wait_stored(sent.num_spans)
        collector.wait_settled()
        difference = collector.count() - sent.num_spans
        dropped = {name: collector.metric(f"longpole_{name}_total") for name in _DROPPED}
    growth, slope = _growth(samples)
    sides: dict[str, float | str] = {
        "mib_per_minute": slope,
        "rss_max_mib": max(mib for _, mib in samples),
        "rss_mib_each_minute": _each_minute(samples),
        "duration_s": sent.wall_s,
        "num_spans": sent.num_spans,
        "asked_spans_per_s": max_rate / 2,
        "achieved_spans_per_s": sent.num_spans / sent.wall_s,
        "num_busy_answers": sent.num_busy,
        "ack_p99_ms": sent.ack_p99_ms,
    }
    errors: dict[str, float | str] = {**dropped, "first_failure": (failures or ["none"])[0]}
    num_errors = len(failures) + sum(dropped.values())
    return [
        Bar("soak_growth", growth, "%", "<=", 10, sides),
        Bar("soak_errors", num_errors, "", "==", 0, errors),
        Bar("soak_miscounted", abs(difference), "spans", "==", 0, {}),
        info("soak_query_p99", float(np.quantile(answers_ms, 0.99)), "ms", {}),
    ]


def _read(collector: Collector, stop: Event, answers_ms: list[float], failures: list[str]) -> None:
    """A reader that looks at the last day, all the time."""
    while not stop.is_set():
        now_ns = time.time_ns()
        try:
            window = (now_ns - DAY_NS, now_ns + DAY_NS)
            answers_ms += ask(collector, window, 1, stop, _PAUSE_S)
        except Exception as error:  # noqa: BLE001 - counted
            failures.append(repr(error))


def _watch(collector: Collector, stop: Event, samples: list[tuple[float, float]]) -> None:
    begun = time.monotonic()
    while not stop.wait(_SAMPLE_S):
        samples.append((time.monotonic() - begun, collector.tree.rss_mib()))


def _each_minute(samples: list[tuple[float, float]]) -> str:
    of_minute = {int(passed_s // 60): mib for passed_s, mib in samples}
    return " ".join(f"{mib:.0f}" for mib in of_minute.values())


def _growth(samples: list[tuple[float, float]]) -> tuple[float, float]:
    """Growth of a fitted line in percent of its mean, and MiB a minute; the start left out."""
    kept = samples[int(len(samples) * _WARM_UP_SHARE) :]
    times_s, mib = np.array(kept).T
    slope = float(np.polyfit(times_s, mib, 1)[0])
    return 100 * slope * (times_s[-1] - times_s[0]) / float(mib.mean()), slope * 60
