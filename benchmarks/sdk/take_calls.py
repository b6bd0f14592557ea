"""An application that makes calls when it is told to; started by ``dead``.

    python -m benchmarks.sdk.take_calls ENDPOINT

Spans go to ENDPOINT by longpole's defaults. The client's HTTP transport answers in this process,
so that a call is short. It reads a number of calls per line of stdin and answers each line with
one of JSON: every call's wall time in nanoseconds, resident memory, and longpole's own counts.
"""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import httpx2
import openai
from benchmarks.sdk import script

import longpole

MESSAGES: Any = [{"role": "user", "content": "What decides the height of the tent?"}]
_ANSWER = json.dumps(script.WIRES["completions"].whole({"model": "gpt-4o-mini"})).encode()
_PAGE = os.sysconf("SC_PAGE_SIZE")


def _answer(request: httpx2.Request) -> httpx2.Response:
    return httpx2.Response(200, content=_ANSWER, headers={"content-type": "application/json"})


def _rss_mib() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE / (1 << 20)


def main() -> None:
    """Make calls until stdin closes."""
    longpole.init(endpoint=sys.argv[1])
    http = httpx2.Client(transport=httpx2.MockTransport(_answer))
    client = longpole.wrap(openai.OpenAI(api_key="k", base_url="http://model/v1", http_client=http))
    for line in sys.stdin:
        taken = []
        for _ in range(int(line)):
            start = time.perf_counter_ns()
            client.chat.completions.create(model="gpt-4o-mini", messages=MESSAGES)
            taken.append(time.perf_counter_ns() - start)
        told = {"ns": taken, "rss_mib": _rss_mib(), **asdict(longpole.stats())}
        print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
