"""TTFT and TPOT as the client and the engine's own clock see them, ours and AIPerf's.

Both generators send the same load to the same engine, one after the other. The engine's spans are
kept by a collector; those that began while a generator ran are its requests, so that each is
compared with the engine's clock on its own requests.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from benchmarks.bars import Bar
from benchmarks.collector.process import Collector, collecting, serving, wait_until
from benchmarks.load.bench import Bench
from benchmarks.load.generators import Ask, Measured, run
from benchmarks.sdk.environment import Unavailable

_RATE = 0.3
_INPUT_TOKENS = 384
_TOKENS = 32
_NUM = 20
_READY_S = 180.0
_TIMES = ("ttft_ms", "tpot_ms")
_ENGINES = (
    "SELECT avg(engine_ttft_ns) / 1e6, avg(engine_decode_ns / (output_tokens - 1)) / 1e6, "
    "count(*) FROM spans WHERE is_engine AND engine_ttft_ns IS NOT NULL AND output_tokens > 1 "
    "AND start_ns >= {0} AND start_ns < {1}"
)


def agree(bench: Bench) -> list[Bar]:
    """The largest share by which a client and the engine differ, and the two clients."""
    ratios: dict[str, tuple[float, float]] = {}
    sides: dict[str, float | str] = {}
    with collecting(bench.folder / "agree") as collector:
        log = bench.folder / "engine.log"
        with serving(_engine(collector), log):
            url = _address(log)
            for name in ("longpole", "aiperf"):
                try:
                    ratios[name] = _ratios(bench, collector, name, url, sides)
                except Unavailable as error:
                    bench.missing[name] = str(error)
    worst = [_off(ratio) for each in ratios.values() for ratio in each]
    bars = [Bar("client's times / engine's, off by", max(worst), "", "<=", 0.02, sides)]
    if "aiperf" in ratios:
        pairs = zip(ratios["longpole"], ratios["aiperf"], strict=True)
        between = max(_off(ours / theirs) for ours, theirs in pairs)
        bars.append(Bar("our times / AIPerf's, off by", between, "", "<=", 0.02, {}))
    return bars


def _off(ratio: float) -> float:
    return abs(ratio - 1)


def _ratios(
    bench: Bench, collector: Collector, name: str, url: str, sides: dict[str, float | str]
) -> tuple[float, float]:
    """A generator's TTFT and TPOT over the engine's, of its own requests."""
    ask = Ask(url, "smollm2", _RATE, bench.num(_NUM, 5), _TOKENS, _INPUT_TOKENS)
    begun_ns = time.time_ns()
    done: Measured = run(name, ask, bench.tokenizer("smollm2"), bench.out(name))
    ended_ns = time.time_ns()
    statement = _ENGINES.format(begun_ns, ended_ns)
    wait_until(
        lambda: int(collector.query(statement)[0][2]) >= done.num, "the engine's spans", 60, 0.5
    )
    ((*engine, num),) = collector.query(statement)
    if num != done.num:
        raise Unavailable(f"the engine saw {num} requests, {name} {done.num}")
    theirs = (done.ttft_ms, done.tpot_ms)
    for key, client, own in zip(_TIMES, theirs, engine, strict=True):
        sides[f"{name}_{key}"] = client
        sides[f"engine_of_{name}_{key}"] = own
    ttft, tpot = (client / own for client, own in zip(theirs, engine, strict=True))
    return ttft, tpot


def _engine(collector: Collector) -> list[str | Path]:
    run_it = "from longpole.cli import main; main()"
    environ = f"LONGPOLE_ENGINE_OTLP_ENDPOINT={collector.url}"
    serve = ["engine", "serve", "--port", "0", "--speculation", "off"]
    return ["env", environ, sys.executable, "-c", run_it, *serve]


def _address(log: Path) -> str:
    """Of the engine, once it says that it is ready."""
    mark = "engine ready"
    wait_until(lambda: mark in log.read_text(errors="replace"), mark, _READY_S, 0.2)
    line = next(line for line in log.read_text().splitlines() if mark in line)
    return line.split()[2]
