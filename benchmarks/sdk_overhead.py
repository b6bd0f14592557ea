"""What ``longpole.wrap`` adds to a call and to a streamed chunk, in CPU time of the calling thread.

The bare and the wrapped client take turns against a local server in another process that speaks
the real protocol; the difference of their medians is the overhead. Spans go through a batch
processor to an exporter that throws them away, so the calling thread pays what it pays in
production. Wrapping asks the server for token counts, which is one more chunk to parse; the side
``bare+usage`` asks too, so the difference to it is longpole's and OpenTelemetry's own work. A
"call" is a stream of three chunks.

    python benchmarks/sdk_overhead.py [--rounds 100] [--json]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import openai
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

import longpole

SERVER = Path(__file__).parent.parent / "tests" / "instrumentation" / "fake_openai.py"
CHUNKS = 300
WARM_UP = 5
MESSAGES: Any = [{"role": "user", "content": "x"}]
USAGE: Any = {"stream_options": {"include_usage": True}}
Read = Callable[[str], int]


class Nowhere(SpanExporter):
    """Takes every span and keeps none."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Always a success."""
        return SpanExportResult.SUCCESS


@contextmanager
def server() -> Iterator[str]:
    """The fake server in a process of its own; it stops when its stdin closes."""
    process = subprocess.Popen(  # noqa: S603 - our own file
        [sys.executable, str(SERVER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield f"http://127.0.0.1:{int(process.stdout.readline())}/v1"
    finally:
        process.stdin.close()
        process.wait(10)
        process.stdout.close()


def sync_reader(client: openai.OpenAI, **options: Any) -> Read:
    """Reads one stream; returns the thread's CPU time in ns."""

    def read(model: str) -> int:
        start = time.thread_time_ns()
        create = client.chat.completions.create
        for _ in create(model=model, messages=MESSAGES, stream=True, **options):
            pass
        return time.thread_time_ns() - start

    return read


def async_reader(
    client: openai.AsyncOpenAI, loop: asyncio.AbstractEventLoop, **options: Any
) -> Read:
    """The same on an event loop."""

    async def stream(model: str) -> None:
        create = client.chat.completions.create
        async for _ in await create(model=model, messages=MESSAGES, stream=True, **options):
            pass

    def read(model: str) -> int:
        start = time.thread_time_ns()
        loop.run_until_complete(stream(model))
        return time.thread_time_ns() - start

    return read


def measure(sides: dict[str, Read], rounds: int) -> dict[str, dict[str, float]]:
    """Median microseconds of each side per call and per chunk; sides take turns."""
    taken: dict[str, dict[int, list[int]]] = {side: {1: [], CHUNKS: []} for side in sides}
    shuffle = random.Random(7).shuffle  # noqa: S311 - so that no side always follows another
    for chunks in (1, CHUNKS):
        for number in range(rounds + WARM_UP):
            order = list(sides)
            shuffle(order)
            for side in order:
                ns = sides[side](f"burst:{chunks}")
                if number >= WARM_UP:
                    taken[side][chunks].append(ns)
    result = {}
    for side, by_chunks in taken.items():
        short, long = median(by_chunks[1]) / 1e3, median(by_chunks[CHUNKS]) / 1e3
        result[side] = {"call_us": short, "chunk_us": (long - short) / (CHUNKS - 1)}
    for name in ("bare", "bare+usage"):
        result[f"added to {name}"] = {
            key: result["wrapped"][key] - result[name][key] for key in ("call_us", "chunk_us")
        }
    return result


def run(rounds: int) -> dict[str, dict[str, dict[str, float]]]:
    """Both clients, measured one after the other."""
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(Nowhere()))
    trace.set_tracer_provider(provider)
    loop = asyncio.new_event_loop()
    with server() as url:
        bare, wrapped = (openai.OpenAI(api_key="k", base_url=url) for _ in range(2))
        longpole.wrap(wrapped)
        sides = {
            "bare": sync_reader(bare),
            "bare+usage": sync_reader(bare, **USAGE),
            "wrapped": sync_reader(wrapped),
        }
        result = {"sync": measure(sides, rounds)}
        abare, awrapped = (openai.AsyncOpenAI(api_key="k", base_url=url) for _ in range(2))
        longpole.wrap(awrapped)
        sides = {
            "bare": async_reader(abare, loop),
            "bare+usage": async_reader(abare, loop, **USAGE),
            "wrapped": async_reader(awrapped, loop),
        }
        result["async"] = measure(sides, rounds)
        bare.close()
        wrapped.close()
        loop.run_until_complete(abare.close())
        loop.run_until_complete(awrapped.close())
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()
    assert not longpole.stats().num_internal_errors
    return result


def main() -> None:
    """Print the figures of both sides, or one JSON document."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--json", action="store_true", dest="as_json")
    arguments = parser.parse_args()
    result = run(arguments.rounds)
    if arguments.as_json:
        print(json.dumps({"schema": "longpole.bench.sdk_overhead/1", **result}))
        return
    for client, sides in result.items():
        for side, figures in sides.items():
            call, chunk = figures["call_us"], figures["chunk_us"]
            print(f"{client:5} {side:20} {call:8.1f} us/call {chunk:8.2f} us/chunk")


if __name__ == "__main__":
    main()
