"""How many streams one process reads at once."""

from __future__ import annotations

from benchmarks.bars import Bar, info
from benchmarks.load.bench import Bench
from benchmarks.load.generators import Ask, run

_RATE = 250
_TOKENS = 100
_GAP_S = 0.1
_TTFT_S = 0.5
_NUM = 4_000


def streams(bench: Bench) -> list[Bar]:
    """The most in flight, and how its times differ from the provider's plan then."""
    with bench.target(_TTFT_S, _GAP_S) as url:
        ask = Ask(url, "target", _RATE, bench.num(_NUM), _TOKENS)
        done = run("longpole", ask, bench.tokenizer(), bench.out("streams"))
    found = done.document
    sides = {
        "failed": float(sum(found["failures"].values())),
        "tokens_per_s": found["output_tokens_per_s"],
        "cpu_share_of_a_core": found["generator_cpu_s"] / found["duration_s"],
        "send_lag_max_ms": found["send_lag_ms"]["max"],
    }
    ttft = {"plan_ms": _TTFT_S * 1e3, "measured_ms": done.ttft_ms}
    tpot = {"plan_ms": _GAP_S * 1e3, "measured_ms": done.tpot_ms}
    return [
        Bar("streams at once", float(found["max_in_flight"]), "", ">=", 2_000, sides),
        info("TTFT then / plan", done.ttft_ms / 1e3 / _TTFT_S, "x", ttft),
        info("TPOT then / plan", done.tpot_ms / 1e3 / _GAP_S, "x", tpot),
    ]
