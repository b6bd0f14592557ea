"""The local provider of all measurements: it keeps time, and writes down what it did when.

    python -m benchmarks.sdk.server TRUTH

It speaks OpenAI's chat and Responses protocols and Anthropic's Messages, one write per event, and
plays the scenario that the header ``x-bench: SCENARIO/ID`` names (:mod:`benchmarks.sdk.script`).
When a request is over it adds one line of JSON to the file TRUTH: moments of
``time.perf_counter_ns``, which on Linux is one clock for all processes. It prints its port, and
stops when its stdin closes.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from benchmarks.sdk import script

sys.path.append(str(Path(__file__).parents[2] / "tests" / "instrumentation"))

from fake_server import FakeServer, Out, Received

RETRY_AFTER_MS = 100
HEADERS = {"openai-processing-ms": 180, "x-request-id": "req_1", "request-id": "req_1"}


class Provider(FakeServer):
    """The skeleton of the tests' fake providers, with a clock."""

    truth = Path()

    async def respond(self, request: Received, out: Out) -> None:
        """Answer one request, then write down what happened."""
        case = request.headers.get("x-bench", "norm/0")
        scenario = case.partition("/")[0]
        wire = script.WIRES[request.path.partition("?")[0].rpartition("/")[2]]
        body = request.body
        truth: dict[str, Any] = {
            "case": case,
            "received_ns": request.at_ns,
            "content_ns": [],
            "status": 200,
            "is_usage_asked": "usage" in str(body.get("stream_options")),
            "has_traceparent": "traceparent" in request.headers,
        }
        try:
            if scenario == "retry" and self.tries(case) < 3:
                await _error(out, truth, 429)
            elif scenario == "bad":
                await _error(out, truth, 400)
            elif body.get("stream"):
                await _stream(out, truth, wire, scenario, request)
            else:
                await asyncio.sleep(script.WHOLE_S)
                truth["first_event_ns"] = time.perf_counter_ns()
                await out.json(wire.whole(body), headers=HEADERS)
        finally:
            truth["done_ns"] = time.perf_counter_ns()
            with self.truth.open("a") as file:
                file.write(json.dumps(truth) + "\n")


async def _error(out: Out, truth: dict[str, Any], status: int) -> None:
    truth["status"] = status
    error = {"message": "no", "type": "rate_limit_error", "code": "context_length_exceeded"}
    retry = {"Retry-After-Ms": RETRY_AFTER_MS} if status == 429 else {}
    await out.json({"type": "error", "error": error}, status, retry)


async def _stream(
    out: Out, truth: dict[str, Any], wire: script.Wire, scenario: str, request: Received
) -> None:
    begun = asyncio.get_running_loop().time() - (time.perf_counter_ns() - request.at_ns) / 1e9
    is_burst = scenario.startswith("burst:")
    is_late = scenario == "late-headers"
    if not is_late:
        out.begin("text/event-stream", HEADERS)
    has_begun = not is_late
    for step in wire.stream(scenario, request.body):
        wait_s = begun + step.at_s - asyncio.get_running_loop().time()
        if wait_s > 0 and not is_burst:
            await asyncio.sleep(wait_s)
        if not has_begun:
            out.begin("text/event-stream", HEADERS)
            has_begun = True
        if step.document == script.CUT:
            truth["cut_ns"] = time.perf_counter_ns()
            await out.cut()
        event = step.document if isinstance(step.document, str) else json.dumps(step.document)
        named = f"event: {step.document['type']}\n" if wire.is_named else ""  # type: ignore[index]
        data = f"{named}data: {event}\n\n".encode()
        now_ns = time.perf_counter_ns()
        truth.setdefault("first_event_ns", now_ns)
        if step.is_content:
            truth["content_ns"].append(now_ns)
        if is_burst:
            out.write(data)
        else:
            await out.send(data)
    await out.end()


def main() -> None:
    """Serve until stdin closes."""
    Provider.truth = Path(sys.argv[1])
    with suppress(KeyboardInterrupt):
        Provider.main()


if __name__ == "__main__":
    main()
