"""CPU time for each streamed token, ours over the better of the peers'."""

from __future__ import annotations

from benchmarks.bars import Bar, info
from benchmarks.load.bench import Bench
from benchmarks.load.generators import GENERATORS, PEERS, Ask, Measured, run
from benchmarks.sdk.environment import Unavailable

_RATE = 50
_TOKENS = 100
_SHORT, _LONG = 200, 1_200


def cpu(bench: Bench) -> list[Bar]:
    """A long run less a short one: what starting and ending cost falls out."""
    costs: dict[str, float] = {}
    sides: dict[str, float | str] = {}
    short, long = bench.num(_SHORT), bench.num(_LONG, 80)
    for name in ("longpole", *PEERS):
        try:
            first, second = (_run(bench, name, num) for num in (short, long))
        except Unavailable as error:
            bench.missing[name] = str(error)
            continue
        spent_s = second.cpu_s - first.cpu_s
        costs[name] = spent_s / ((long - short) * _TOKENS) * 1e6
        sides[f"{name}_us_per_token"] = costs[name]
        sides[f"{name}_whole_short_run_s"] = first.cpu_s
    peers = [costs[name] for name in PEERS if name in costs]
    if not peers:
        return [info("CPU per token", costs["longpole"], "us", sides)]
    ratio = costs["longpole"] / min(peers)
    return [Bar("CPU per token / better peer", ratio, "x", "<=", 0.5, sides)]


def _run(bench: Bench, name: str, num: int) -> Measured:
    bench.say(f"{GENERATORS[name].title}: {num} requests of {_TOKENS} tokens")
    with bench.target(0.2, 0.02) as url:
        ask = Ask(url, "target", _RATE, num, _TOKENS)
        return run(name, ask, bench.tokenizer(), bench.out(name))
