"""How late requests are sent at 200 a second, for a minute."""

from __future__ import annotations

from benchmarks.bars import Bar
from benchmarks.load.bench import Bench
from benchmarks.load.generators import Ask, run

_RATE = 200
_SECONDS = 60


def lag(bench: Bench) -> list[Bar]:
    """The p99 of the time between when a request was due and when it was sent."""
    with bench.target(0.2, 0.02) as url:
        ask = Ask(url, "target", _RATE, bench.num(_RATE * _SECONDS, 2_000), 16)
        found = run("longpole", ask, bench.tokenizer(), bench.out("lag")).document
    late = found["send_lag_ms"]
    sides = {
        "num": float(late["num"]),
        "p50_ms": late["p50"],
        "p95_ms": late["p95"],
        "max_ms": late["max"],
        "asked_per_s": found["asked_per_s"],
        "sent_per_s": found["sent_per_s"],
    }
    return [Bar("send-time error, p99", late["p99"], "ms", "<=", 2.0, sides)]
