"""What each library adds to a streamed call and to each of its chunks, in CPU time.

Bare and wrapped take turns in one process (:mod:`benchmarks.sdk.take_overhead`); what is compared
is the difference within each round. Its median comes with the interval that holds the true median
in 95 of 100 such runs.
"""

from __future__ import annotations

from statistics import median
from typing import Any, NamedTuple

from benchmarks.bars import Bar, info
from benchmarks.sdk.bench import Bench
from benchmarks.sdk.environment import Unavailable, run_in
from benchmarks.sdk.libraries import LIBRARIES, OURS
from benchmarks.sdk.take_overhead import CHUNKS

CHUNK_US, CALL_US = 5.0, 250.0


class Added(NamedTuple):
    """Microseconds: the median, and the interval around it."""

    us: float
    low_us: float
    high_us: float
    bare_us: float
    """The bare client's own."""


def _median(differences: list[float], bare: float) -> Added:
    ordered = sorted(differences)
    half = 0.98 * len(ordered) ** 0.5
    low = max(0, int(len(ordered) / 2 - half))
    high = min(len(ordered) - 1, int(len(ordered) / 2 + half))
    return Added(median(ordered), ordered[low], ordered[high], bare)


def _added(taken: dict[str, Any], bare: str, wrapped: str) -> dict[str, Added]:
    calls, streams = str(1), str(CHUNKS)
    short = list(zip(taken[bare][calls], taken[wrapped][calls], strict=True))
    long = list(zip(taken[bare][streams], taken[wrapped][streams], strict=True))
    call = [(after - before) / 1e3 for before, after in short]
    of_call, num = median(call), CHUNKS - 1
    chunk = [((after - before) / 1e3 - of_call) / num for before, after in long]
    bare_call = median(before for before, _ in short) / 1e3
    bare_chunk = (median(before for before, _ in long) / 1e3 - bare_call) / num
    return {"call": _median(call, bare_call), "chunk": _median(chunk, bare_chunk)}


def overhead(bench: Bench) -> list[Bar]:
    """Ours against the bars and against each peer."""
    found: dict[str, dict[str, dict[str, Added]]] = {}
    for name, library in LIBRARIES.items():
        try:
            told = run_in(library, "take_overhead", f"{bench.url}/v1", str(bench.num(40)))
        except Unavailable as error:
            bench.say(f"{library.title:<22} not measured: {error}")
            bench.missing[name] = str(error)
            continue
        found[name] = {
            kind: _added(taken, "bare", "wrapped") for kind, taken in told["taken"].items()
        }
        _say(bench, library.title, f"openai {told['openai']}", found[name])
        if name == OURS:
            pairs = {
                kind: _added(taken, "bare, not asked", "wrapped, not asked")
                for kind, taken in told["taken"].items()
            }
            _say(bench, library.title, "and one chunk more, as it asks for usage", pairs)
            span_us = median(told["span_alone_ns"]) / 1e3
            bench.say(f"OpenTelemetry's span with 20 attributes alone: {span_us:.0f} us\n")
    return [bar for what in ("chunk", "call") for bar in _bars(what, found)]


def _say(bench: Bench, title: str, note: str, found: dict[str, dict[str, Added]]) -> None:
    for kind, added in found.items():
        call, chunk = added["call"], added["chunk"]
        bench.say(
            f"{title:<22}{kind:<6} call {call.us:+7.0f} us [{call.low_us:.0f}, {call.high_us:.0f}]"
            f" on {call.bare_us:.0f}; chunk {chunk.us:+6.2f} us"
            f" [{chunk.low_us:.2f}, {chunk.high_us:.2f}] on {chunk.bare_us:.1f}  ({note})"
        )


def _bars(what: str, found: dict[str, dict[str, dict[str, Added]]]) -> list[Bar]:
    if OURS not in found:
        return []
    need = CHUNK_US if what == "chunk" else CALL_US
    bars = []
    for kind in ("sync", "async"):
        ours = found[OURS][kind][what]
        sides = {f"{name}_us": each[kind][what].us for name, each in found.items() if name != OURS}
        low: dict[str, float | str] = {"low_us": ours.low_us, "high_us": ours.high_us}
        bars.append(Bar(f"added per {what}, {kind}", ours.us, "us", "<=", need, {**low, **sides}))
        if sides:
            least = min(sides.values())
            name = f"  the least of {len(sides)} peers"
            bars.append(Bar(name, ours.us / least, "of it", "<", 1.0, {"peer_us": least}))
        else:
            bars.append(info("  no peer ran", 0.0, "", {}))
    return bars
