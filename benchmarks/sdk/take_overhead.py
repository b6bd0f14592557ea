"""Added CPU time of one library, measured in its own environment; started by ``overhead``.

    python -m benchmarks.sdk.take_overhead LIBRARY URL ROUNDS OUT

Writes each call's CPU time of the calling thread, in nanoseconds, as JSON to OUT. Both sides of a
pair ask for token counts, so that they read the same chunks; of ours there is also a pair that
does not ask, where ours does: that costs one more chunk to parse.
"""

from __future__ import annotations

import asyncio
import gc
import json
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import openai
import openai.resources.chat.completions.completions  # openai loads them late
import openai.resources.responses.responses
from benchmarks.sdk.libraries import LIBRARIES, OURS, Collected
from benchmarks.sdk.patches import Patches
from opentelemetry import trace

CHUNKS = 300
WARM_UP = 4
CALLS_A_ROUND = 8
"""Short streams in a round, for one long one: what a call costs is small beside its own noise."""
ASKED: Any = {"stream_options": {"include_usage": True}}
MESSAGES: Any = [{"role": "user", "content": "What decides the height of the tent?"}]
Read = Callable[[int], int]


def sync_read(client: openai.OpenAI, options: Any) -> Read:
    """Reads one stream; returns the thread's CPU time in ns."""

    def read(num: int) -> int:
        headers = {"x-bench": f"burst:{num}/0"}
        start = time.thread_time_ns()
        for _ in client.chat.completions.create(
            model="gpt-4o-mini", messages=MESSAGES, stream=True, extra_headers=headers, **options
        ):
            pass
        return time.thread_time_ns() - start

    return read


def async_read(client: openai.AsyncOpenAI, options: Any, loop: asyncio.AbstractEventLoop) -> Read:
    """The same on an event loop."""

    async def stream(headers: dict[str, str]) -> None:
        async for _ in await client.chat.completions.create(
            model="gpt-4o-mini", messages=MESSAGES, stream=True, extra_headers=headers, **options
        ):
            pass

    def read(num: int) -> int:
        headers = {"x-bench": f"burst:{num}/0"}
        start = time.thread_time_ns()
        loop.run_until_complete(stream(headers))
        return time.thread_time_ns() - start

    return read


def take(
    reads: dict[str, Read], patches: Patches, exporter: Collected, rounds: int
) -> dict[str, dict[int, list[int]]]:
    """The sides take turns in random order; a side named ``bare`` must leave no span."""
    taken: dict[str, dict[int, list[int]]] = {side: {1: [], CHUNKS: []} for side in reads}
    shuffle = random.Random(7).shuffle  # noqa: S311 - so that no side always follows another
    num_spans = dict.fromkeys(reads, 0)
    _flush()
    for number in range(rounds + WARM_UP):
        for num in (*[1] * CALLS_A_ROUND, CHUNKS):
            order = list(reads)
            shuffle(order)
            for side in order:
                patches.put("bare" not in side)
                before = exporter.num
                ns = reads[side](num)
                if number < WARM_UP:
                    _flush()
                    num_spans[side] += exporter.num - before
                else:
                    taken[side][num].append(ns)
        if number == WARM_UP - 1:
            gc.collect()
    for side, num in num_spans.items():
        assert bool(num) == ("bare" not in side), f"{side}: {num} spans"
    return taken


def _flush() -> None:
    flush: Any = getattr(trace.get_tracer_provider(), "force_flush", bool)
    flush()


def span_alone() -> list[int]:
    """CPU time of OpenTelemetry's own span with 20 attributes, in ns: nobody's call is below it."""
    attributes = {f"gen_ai.attribute_{number}": f"value {number}" for number in range(20)}
    tracer = trace.get_tracer("bench")
    taken = []
    for _ in range(500):
        start = time.thread_time_ns()
        tracer.start_span("chat gpt-4o-mini", attributes=attributes).end()
        taken.append(time.thread_time_ns() - start)
    return taken


def main() -> None:
    """Measure what the command line names."""
    name, url, rounds, out = sys.argv[1], sys.argv[2], int(sys.argv[3]), Path(sys.argv[4])
    exporter = Collected(is_kept=False)
    patches = Patches()
    wrap = LIBRARIES[name].setup(exporter)
    found = patches.find()
    loop = asyncio.new_event_loop()
    how: dict[str, Any] = {"api_key": "k", "base_url": url}
    options = {"bare": ASKED, "wrapped": ASKED}
    if name == OURS:
        options |= {"bare, not asked": {}, "wrapped, not asked": {}}
    reads: dict[str, dict[str, Read]] = {"sync": {}, "async": {}}
    for side, asked in options.items():
        patches.put("bare" not in side)
        client, aclient = openai.OpenAI(**how), openai.AsyncOpenAI(**how)
        if "bare" not in side:
            client, aclient = wrap(client), wrap(aclient)
        reads["sync"][side] = sync_read(client, asked)
        reads["async"][side] = async_read(aclient, asked, loop)
    taken = {kind: take(sides, patches, exporter, rounds) for kind, sides in reads.items()}
    loop.run_until_complete(loop.shutdown_asyncgens())
    document = {
        "taken": taken,
        "patches": found,
        "openai": openai.__version__,
        "span_alone_ns": span_alone(),
    }
    out.write_text(json.dumps(document))


if __name__ == "__main__":
    main()
