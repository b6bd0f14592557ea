"""Every case of the fact table through one library, in its own environment; started by ``facts``.

    python -m benchmarks.sdk.take_facts LIBRARY URL OUT

Writes, as JSON to OUT, for each case when the application called and what spans the library made.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import anthropic
import openai
import openai.resources.chat.completions.completions
import openai.resources.responses.responses
from benchmarks.sdk.libraries import LIBRARIES, Collected
from opentelemetry.sdk.trace import ReadableSpan
from pydantic import BaseModel

MESSAGES: Any = [{"role": "user", "content": "What decides the height of the tent?"}]
CHAT: Any = {"model": "gpt-4o-mini", "messages": MESSAGES}
USAGE: Any = {"stream_options": {"include_usage": True}}
RESPONSES: Any = {"model": "gpt-4o-mini", "input": "What decides the height of the tent?"}
CLAUDE: Any = {"model": "claude-sonnet-4-5", "messages": MESSAGES, "max_tokens": 64}
_HOLD_S = 0.05


class Answer(BaseModel):
    """What ``.parse()`` is asked for."""

    answer: int


Headers = dict[str, str]
Case = Callable[[Any, Headers], None]


def _drain(stream: Any) -> None:
    for _ in stream:
        pass


def _slow(stream: Any) -> None:
    for _ in stream:
        time.sleep(_HOLD_S)


def _abandon(stream: Any) -> None:
    for _ in range(3):
        next(stream)
    stream.close()


def _chat(how: Callable[[Any], None] = _drain, asked: Any = USAGE) -> Case:
    def case(client: Any, headers: Headers) -> None:
        create = client.chat.completions.create
        how(create(stream=True, extra_headers=headers, **asked, **CHAT))

    return case


def _whole(client: Any, headers: Headers) -> None:
    client.chat.completions.create(extra_headers=headers, **CHAT)


def _parse(client: Any, headers: Headers) -> None:
    client.chat.completions.parse(response_format=Answer, extra_headers=headers, **CHAT)


def _raw(client: Any, headers: Headers) -> None:
    create = client.chat.completions.with_raw_response.create
    _drain(create(stream=True, extra_headers=headers, **USAGE, **CHAT).parse())


def _streaming(client: Any, headers: Headers) -> None:
    create = client.chat.completions.with_streaming_response.create
    with create(stream=True, extra_headers=headers, **USAGE, **CHAT) as response:
        _drain(response.iter_lines())


def _responses(client: Any, headers: Headers) -> None:
    client.responses.create(extra_headers=headers, **RESPONSES)


def _responses_stream(client: Any, headers: Headers) -> None:
    _drain(client.responses.create(stream=True, extra_headers=headers, **RESPONSES))


def _messages_stream(client: Any, headers: Headers) -> None:
    _drain(client.messages.create(stream=True, extra_headers=headers, **CLAUDE))


def _messages_helper(client: Any, headers: Headers) -> None:
    with client.messages.stream(extra_headers=headers, **CLAUDE) as stream:
        _drain(stream)


OPENAI: dict[str, tuple[str, Case]] = {
    "chat": ("norm", _chat()),
    "chat no usage": ("norm", _chat(asked={})),
    "chat late headers": ("late-headers", _chat()),
    "chat early role": ("early-role", _chat()),
    "chat one token": ("one-token", _chat()),
    "chat tools": ("tools", _chat()),
    "chat whole": ("norm", _whole),
    "chat retry": ("retry", _chat()),
    "chat error event": ("error", _chat()),
    "chat cut": ("cut", _chat()),
    "chat abandoned": ("norm", _chat(_abandon)),
    "chat slow consumer": ("norm", _chat(_slow)),
    "chat raw": ("norm", _raw),
    "chat streaming": ("norm", _streaming),
    "chat parse": ("norm", _parse),
    "chat bad request": ("bad", _chat()),
    "responses": ("norm", _responses),
    "responses stream": ("norm", _responses_stream),
    "responses error event": ("error", _responses_stream),
}
ANTHROPIC: dict[str, tuple[str, Case]] = {
    "messages stream": ("norm", _messages_stream),
    "messages helper": ("norm", _messages_helper),
    "messages error event": ("error", _messages_stream),
    "messages cut": ("cut", _messages_stream),
}


def told(span: ReadableSpan) -> dict[str, Any]:
    """A span as JSON holds it."""
    return {
        "name": span.name,
        "scope": span.instrumentation_scope.name if span.instrumentation_scope else "",
        "trace_id": f"{span.context.trace_id:032x}" if span.context else "",
        "start_ns": span.start_time,
        "end_ns": span.end_time,
        "status": span.status.status_code.name,
        "attributes": dict(span.attributes or {}),
        "events": [[event.name, event.timestamp] for event in span.events],
    }


def main() -> None:
    """Run every case once for the imports, then once to be looked at."""
    name, url, out = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    exporter = Collected(is_kept=True)
    wrap = LIBRARIES[name].setup(exporter)
    first = wrap(openai.OpenAI(api_key="k", base_url=f"{url}/v1"))
    second = wrap(anthropic.Anthropic(api_key="k", base_url=url, max_retries=0))
    found: dict[str, Any] = {}
    for client, cases in ((first, OPENAI), (second, ANTHROPIC)):
        for label, (scenario, case) in cases.items():
            with suppress(Exception):  # the first call of its kind imports
                case(client, {"x-bench": f"one-token/{name} warm-up"})
            exporter.taken()
            key = f"{scenario}/{name} {label}"
            start_ns, error = time.perf_counter_ns(), None
            try:
                case(client, {"x-bench": key})
            except Exception as raised:  # noqa: BLE001 - the case is to raise, or the library broke it
                error = type(raised).__name__
            end_ns = time.perf_counter_ns()
            gc.collect()
            found[label] = {
                "key": key,
                "start_ns": start_ns,
                "end_ns": end_ns,
                "error": error,
                "spans": [told(span) for span in exporter.taken()],
            }
    out.write_text(json.dumps(found))


if __name__ == "__main__":
    main()
