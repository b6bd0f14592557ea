"""TTFT and TPOT of our spans against the provider's own clock, in every form of a stream.

The provider writes down when it sent each content; both processes read one monotonic clock. True
TTFT is from the application's call to the first content's leaving the provider, so the error holds
the loopback, the client's own parsing and ours. True TPOT is the span of the contents over the
tokens they carry less one. Forms take turns; each was called before, so no call imports anything.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from inspect import isawaitable
from statistics import median
from typing import Any, NamedTuple

import anthropic
import openai
from benchmarks.bars import Bar
from benchmarks.sdk import script
from benchmarks.sdk.bench import Bench

import longpole
from longpole.testing import Spans, capture_spans
from longpole.vocab import keys

TTFT_MS, TPOT_MS = 1.0, 0.1
MESSAGES: Any = [{"role": "user", "content": "What decides the height of the tent?"}]
CHAT: Any = {
    "model": "gpt-4o-mini",
    "messages": MESSAGES,
    "stream_options": {"include_usage": True},
}
RESPONSES: Any = {"model": "gpt-4o-mini", "input": "What decides the height of the tent?"}
CLAUDE: Any = {"model": "claude-sonnet-4-5", "messages": MESSAGES, "max_tokens": 64}


class Form(NamedTuple):
    """One form of a streamed call of the client of that name.

    ``make`` takes client and headers; ``then`` gets what that returned (or its coroutine gave) and
    returns the context manager that holds the stream; ``read`` says what to iterate inside.
    """

    name: str
    client: str
    make: Callable[[Any, Any], Any]
    then: Callable[[Any], Any] = lambda made: made
    read: Callable[[Any], Any] = lambda entered: entered


def _forms_of(name: str, client: str, resource: Callable[[Any], Any], asked: Any) -> list[Form]:
    def create(client: Any, headers: Any) -> Any:
        return resource(client).create(stream=True, extra_headers=headers, **asked)

    def helper(client: Any, headers: Any) -> Any:
        return resource(client).stream(extra_headers=headers, **asked)

    def raw(client: Any, headers: Any) -> Any:
        made = resource(client).with_raw_response
        return made.create(stream=True, extra_headers=headers, **asked)

    def streaming(client: Any, headers: Any) -> Any:
        made = resource(client).with_streaming_response
        return made.create(stream=True, extra_headers=headers, **asked)

    return [
        Form(f"{name} create", client, create),
        Form(f"{name} .stream", client, helper),
        Form(f"{name} raw", client, raw, then=lambda raw: raw.parse()),
        Form(f"{name} streaming", client, streaming, read=lambda body: body.iter_lines()),
    ]


FORMS = (
    *_forms_of("chat", "openai", lambda client: client.chat.completions, CHAT),
    *_forms_of("responses", "openai", lambda client: client.responses, RESPONSES),
    *_forms_of("messages", "anthropic", lambda client: client.messages, CLAUDE),
)


class Taken(NamedTuple):
    """One call: when it was made, and its span's attributes."""

    case: str
    start_ns: int
    attributes: dict[str, Any]


def clock(bench: Bench) -> list[Bar]:
    """The worst form's median error; every form's is printed."""
    rounds = bench.num(12)
    taken: list[tuple[str, Taken]] = []
    with capture_spans() as spans, _clients(bench.url) as (clients, aclients):
        runner = asyncio.Runner()
        for number in range(rounds + 1):
            for form in FORMS:
                case = f"clock/{form.name}-{number}"
                found = _sync(form, clients[form.client], case, spans)
                afound = runner.run(_async(form, aclients[form.client], f"{case}-async", spans))
                if number:
                    taken += [(f"{form.name}, sync", found), (f"{form.name}, async", afound)]
        runner.run(_close(aclients))
        runner.close()
    truth = {line["case"]: line for line in map(json.loads, bench.truth.open())}
    ttft: dict[str, list[float]] = defaultdict(list)
    tpot: dict[str, list[float]] = defaultdict(list)
    for name, call in taken:
        sent = truth[call.case]["content_ns"]
        found_ms = float(call.attributes[keys.TIME_TO_FIRST_CONTENT]) * 1e3
        ttft[name].append(found_ms - (sent[0] - call.start_ns) / 1e6)
        num = script.STREAMED_TOKENS[name.partition(" ")[0]]
        true_ms = (sent[-1] - sent[0]) / 1e6 / (num - 1)
        tpot[name].append(float(call.attributes[keys.TIME_PER_OUTPUT_TOKEN]) * 1e3 - true_ms)
    bench.say(f"{'error, ms':<34}{'TTFT p50':>10}{'p90':>8}{'max':>8}{'TPOT p50':>12}{'max':>8}")
    for name in ttft:
        one, other = sorted(map(abs, ttft[name])), sorted(map(abs, tpot[name]))
        bench.say(
            f"{name:<34}{median(one):>10.3f}{one[int(len(one) * 0.9)]:>8.3f}{one[-1]:>8.3f}"
            f"{median(other):>12.4f}{other[-1]:>8.4f}"
        )
    return [
        _bar("TTFT error, worst form", ttft, TTFT_MS),
        _bar("TPOT error, worst form", tpot, TPOT_MS),
    ]


def _bar(name: str, errors: dict[str, list[float]], need: float) -> Bar:
    medians = {form: median(map(abs, found)) for form, found in errors.items()}
    worst = max(medians, key=lambda form: medians[form])
    every = [abs(error) for found in errors.values() for error in found]
    sides: dict[str, float | str] = {
        "worst_form": worst,
        "num_forms": len(medians),
        "num_calls": len(every),
        "median_of_all_ms": median(every),
        "largest_of_all_ms": max(every),
        "share_within_bar": sum(error <= need for error in every) / len(every),
    }
    return Bar(name, medians[worst], "ms", "<=", need, sides)


@contextmanager
def _clients(url: str) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    ours: dict[str, Any] = {"api_key": "k", "base_url": f"{url}/v1"}
    theirs: dict[str, Any] = {"api_key": "k", "base_url": url}
    sync: dict[str, Any] = {
        "openai": openai.OpenAI(**ours),
        "anthropic": anthropic.Anthropic(**theirs),
    }
    other: dict[str, Any] = {
        "openai": openai.AsyncOpenAI(**ours),
        "anthropic": anthropic.AsyncAnthropic(**theirs),
    }
    for client in (*sync.values(), *other.values()):
        longpole.wrap(client)
    yield sync, other
    for client in sync.values():
        client.close()


async def _close(clients: dict[str, Any]) -> None:
    for client in clients.values():
        await client.close()


def _sync(form: Form, client: Any, case: str, spans: Spans) -> Taken:
    start_ns = time.perf_counter_ns()
    with form.then(form.make(client, {"x-bench": case})) as entered:
        for _ in form.read(entered):
            pass
    return Taken(case, start_ns, dict(spans[-1].attributes or {}))


async def _async(form: Form, client: Any, case: str, spans: Spans) -> Taken:
    start_ns = time.perf_counter_ns()
    made = await _value(form.make(client, {"x-bench": case}))
    async with await _value(form.then(made)) as entered:
        async for _ in form.read(entered):
            pass
    return Taken(case, start_ns, dict(spans[-1].attributes or {}))


async def _value(found: Any) -> Any:
    return await found if isawaitable(found) else found
