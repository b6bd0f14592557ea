"""Spans of some weeks, the last with a planted fault: a prompt version slow to prefill."""

import pyarrow.parquet as pq

from longpole_analytics.report.weeks import week

from .tables import spans_table
from .traces import MS, span, streamed

WEEK = week("2026-W37", "Europe/Berlin")
DAY_MS = 86_400_000
HOSTILE = "<img src=x onerror=alert(1)>|`a`](http://evil.example)\x1b[31m\u202e=cmd()"


def trace(number, start_ms, *, prompt, slow, route="rag.search", tool="lookup"):
    """A workflow: a tool, then a streamed call whose prefill the engine tells."""
    trace_id = f"{number + 1:032x}"
    named = {"route": route, "route_version": "7", "prompt_version": prompt, "trace_id": trace_id}
    ttft = (4000 if slow else 300) + number % 97
    end = 100 + ttft + 400 + number % 13
    ids = [f"{4 * number + place + 1:016x}" for place in range(3)]
    return [
        span(ids[0], None, start_ms, start_ms + end + 20, name=route, outcome="accepted", **named),
        span(ids[1], ids[0], start_ms, start_ms + 100, name=tool, stage="tool", **named),
        streamed(
            ids[2],
            ids[0],
            start_ms + 100,
            start_ms + end,
            ttft,
            end - 100,
            provider="openai",
            request_model="gpt-4o",
            input_tokens=2000,
            cached_input_tokens=0 if slow else 1024,
            output_tokens=50,
            prefill_ns=(ttft - 50) * MS,
            **named,
        ),
    ]


def spans(per_week=(300, 300, 60), *, hostile=False):
    """Traces of the week, of the one before and so on; v42 comes in the middle of the week."""
    found, number = [], 0
    for back, num in enumerate(per_week):
        since_ms = WEEK.since_ns / 1e6 - back * 7 * DAY_MS
        for place in range(num):
            at_ms = since_ms + (place + 0.5) * 7 * DAY_MS / num
            is_new = back == 0 and place >= num // 2 and place % 2 == 0
            prompt = "v42" if is_new else "v41"
            slow = (is_new and place % 4 == 0) or place % 60 == 1
            tool = HOSTILE if hostile else "lookup"
            if hostile and is_new:
                prompt = HOSTILE
            found += trace(number, at_ms, prompt=prompt, slow=slow, tool=tool)
            number += 1
    return found


def write(path, **given):
    """Such spans as a file of traces."""
    pq.write_table(spans_table(spans(**given)), path)
    return path
