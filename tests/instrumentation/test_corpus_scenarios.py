"""The scenarios of the recordings, with our own spans: every fact equals the provider's truth.

The provider of the benchmark runs in another process and writes down when it sent what, by a clock
that both processes read. Several calls are made at once; each has a model name of its own.
"""

import asyncio
import json
import subprocess
import sys
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import anthropic
import httpx2
import openai
import pytest

import longpole
from longpole.testing import capture_spans
from longpole.vocab import keys

ROOT = Path(__file__).parents[2]
WIRES = ("chat", "responses", "messages")
SCENARIOS = (
    "norm",
    "early-role",
    "late-headers",
    "retry",
    "cut",
    "error",
    "one-token",
    "slow",
    "left",
)
HOWS = ("sync", "async")
CASES = [f"{scenario}-{wire}" for wire in WIRES for scenario in SCENARIOS]
CASES += ["tools-chat", "no-usage-chat"]
PLAYED = {"slow": "norm", "left": "norm", "no-usage": "norm"}
AT_ONCE = 4
HOLD_S = 0.02
EARLY_S, LATE_S = 0.06, 0.5
"""How far a time may lie from the truth: never before it, but for where a call is said to begin."""
INPUT = {"chat": 1200, "responses": 1200, "messages": 1456}
STREAMED = {"chat": 18, "responses": 18, "messages": 30}


class Case(NamedTuple):
    """One call: its span's attributes, when it was made, how it ended, the provider's truth."""

    found: dict[str, Any]
    start_ns: int
    error: str | None
    truth: list[dict[str, Any]]

    def since(self, at_ns: int) -> float:
        """Seconds from the call to a moment of the provider."""
        return (at_ns - self.start_ns) / 1e9


Made = dict[str, tuple[int, str | None]]


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Case]:
    file = tmp_path_factory.mktemp("truth") / "truth.jsonl"
    with Provider(file) as url, capture_spans() as spans:
        for wire in WIRES:  # the first call of its kind imports, and ends before the others begin
            _call(f"one-token-{wire}", url, "first")
        with ThreadPoolExecutor(AT_ONCE) as pool:
            made: Made = dict(pool.map(lambda name: _call(name, url), CASES))
        made |= asyncio.run(_calls(url))
        found = {str((s.attributes or {})[keys.REQUEST_MODEL]): s.attributes or {} for s in spans}
        assert len(spans) == len(found) == 2 * len(CASES) + len(WIRES)
    truth: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for line in map(json.loads, file.read_text().splitlines()):
        truth[line["case"].partition("/")[2]].append(line)
    return {name: Case(dict(found[name]), *made[name], truth[name]) for name in made}


class Provider:
    """The benchmark's provider in a process of its own."""

    def __init__(self, file: Path) -> None:
        command = [sys.executable, "-m", "benchmarks.sdk.server", str(file)]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self.process = subprocess.Popen(command, cwd=ROOT, text=True, **pipes)

    def __enter__(self) -> str:
        assert self.process.stdout is not None
        return f"http://127.0.0.1:{int(self.process.stdout.readline())}"

    def __exit__(self, *_: object) -> None:
        with self.process:
            assert self.process.stdin is not None
            self.process.stdin.close()


def _asked(name: str, how: str) -> tuple[str, dict[str, Any]]:
    scenario, _, wire = name.rpartition("-")
    model = f"{name}-{how}"
    asked: dict[str, Any] = {
        "model": model,
        "stream": True,
        "extra_headers": {"x-bench": f"{PLAYED.get(scenario, scenario)}/{model}"},
    }
    if wire == "responses":
        return wire, asked | {"input": "x"}
    if scenario == "no-usage":
        asked["stream_options"] = {"include_usage": False}
    if wire == "messages":
        asked["max_tokens"] = 64
    return wire, asked | {"messages": [{"role": "user", "content": "x"}]}


def _method(client: Any, wire: str) -> Any:
    at = {"chat": "chat.completions", "responses": "responses", "messages": "messages"}[wire]
    for part in at.split("."):
        client = getattr(client, part)
    return client.create


def _call(name: str, url: str, how: str = "sync") -> tuple[str, tuple[int, str | None]]:
    wire, asked = _asked(name, how)
    error = None
    with _client(wire, url, is_async=False) as client:
        start_ns = time.perf_counter_ns()
        try:
            with _method(client, wire)(**asked) as stream:
                for number, _ in enumerate(stream):
                    if name.startswith("left") and number == 5:
                        break
                    if name.startswith("slow"):
                        time.sleep(HOLD_S)
        except (openai.OpenAIError, anthropic.AnthropicError, httpx2.HTTPError) as raised:
            error = type(raised).__name__
    return asked["model"], (start_ns, error)


async def _calls(url: str) -> Made:
    places = asyncio.Semaphore(AT_ONCE)

    async def call(name: str) -> tuple[str, tuple[int, str | None]]:
        async with places:
            return await _acall(name, url)

    return dict(await asyncio.gather(*map(call, CASES)))


async def _acall(name: str, url: str) -> tuple[str, tuple[int, str | None]]:
    wire, asked = _asked(name, "async")
    error = None
    async with _client(wire, url, is_async=True) as client:
        start_ns = time.perf_counter_ns()
        try:
            async with await _method(client, wire)(**asked) as stream:
                number = 0
                async for _ in stream:
                    if name.startswith("left") and number == 5:
                        break
                    if name.startswith("slow"):
                        await asyncio.sleep(HOLD_S)
                    number += 1
        except (openai.OpenAIError, anthropic.AnthropicError, httpx2.HTTPError) as raised:
            error = type(raised).__name__
    return asked["model"], (start_ns, error)


def _client(wire: str, url: str, is_async: bool) -> Any:
    if wire == "messages":
        made = anthropic.AsyncAnthropic if is_async else anthropic.Anthropic
        return longpole.wrap(made(api_key="k", base_url=url))
    other = openai.AsyncOpenAI if is_async else openai.OpenAI
    return longpole.wrap(other(api_key="k", base_url=f"{url}/v1"))


def each(*scenarios: str) -> pytest.MarkDecorator:
    """Those scenarios (or all) on every wire they were played on, sync and async."""
    names = [n for n in CASES if not scenarios or n.rpartition("-")[0] in scenarios]
    return pytest.mark.parametrize("name", [f"{n}-{how}" for n in names for how in HOWS])


def wire_of(name: str) -> str:
    return name.split("-")[-2]


def is_near(value_s: float, true_s: float) -> bool:
    return true_s - EARLY_S < value_s < true_s + LATE_S


WHOLE = ("norm", "early-role", "late-headers", "retry", "slow", "tools")


@each()
def test_times_are_the_providers(cases: dict[str, Case], name: str) -> None:
    case = cases[name]
    last = case.truth[-1]
    assert is_near(case.found[keys.TIME_TO_FIRST_CONTENT], case.since(last["content_ns"][0]))
    assert is_near(case.found[keys.TIME_TO_FIRST_CHUNK], case.since(last["first_event_ns"]))
    assert case.found[keys.TIME_TO_FIRST_CHUNK] <= case.found[keys.TIME_TO_FIRST_CONTENT]
    if not name.startswith(("left", "slow")):
        assert is_near(case.found[keys.TIME_TO_LAST_CONTENT], case.since(last["content_ns"][-1]))


@each()
def test_chunks_are_those_that_were_sent(cases: dict[str, Case], name: str) -> None:
    case = cases[name]
    num_sent = len(case.truth[-1]["content_ns"])
    offsets = case.found[keys.CHUNK_OFFSETS_US]
    assert case.found[keys.CHUNK_COUNT] == len(offsets)
    assert list(offsets) == sorted(offsets)
    if name.startswith("left"):
        assert 0 < len(offsets) < num_sent
    else:
        assert len(offsets) == num_sent


@each(*WHOLE)
def test_tokens_of_a_whole_stream(cases: dict[str, Case], name: str) -> None:
    found, wire = cases[name].found, wire_of(name)
    assert cases[name].error is None
    assert found[keys.INPUT_TOKENS] == INPUT[wire]
    assert found[keys.CACHED_INPUT_TOKENS] == 1024
    assert found[keys.OUTPUT_TOKENS] == 30
    assert found.get(keys.REASONING_TOKENS) == (None if wire == "messages" else 12)
    assert found.get(keys.CACHE_WRITE_TOKENS) == (256 if wire == "messages" else None)
    assert found[keys.STREAM_STATE] == "completed"
    assert keys.ERROR_TYPE not in found


@each("norm", "early-role", "late-headers", "retry", "tools")
def test_tpot_is_over_the_tokens_that_were_streamed(cases: dict[str, Case], name: str) -> None:
    case = cases[name]
    sent, num = case.truth[-1]["content_ns"], STREAMED[wire_of(name)] - 1
    decode_s = case.found[keys.TIME_PER_OUTPUT_TOKEN] * num
    assert abs(decode_s - (sent[-1] - sent[0]) / 1e9) < LATE_S


@each("one-token")
def test_one_token_has_no_tpot(cases: dict[str, Case], name: str) -> None:
    assert cases[name].found[keys.CHUNK_COUNT] == 1
    assert keys.TIME_PER_OUTPUT_TOKEN not in cases[name].found


@each("no-usage")
def test_tokens_that_were_not_sent_are_unknown(cases: dict[str, Case], name: str) -> None:
    found = cases[name].found
    assert found[keys.STREAM_STATE] == "completed"
    assert not {keys.INPUT_TOKENS, keys.OUTPUT_TOKENS, keys.TIME_PER_OUTPUT_TOKEN} & set(found)


@each("retry")
def test_attempts_are_those_that_were_made(cases: dict[str, Case], name: str) -> None:
    case = cases[name]
    assert [attempt["status"] for attempt in case.truth] == [429, 429, 200]
    assert case.found[keys.RESEND_COUNT] == 2
    assert [str(status) for status in case.found[keys.ATTEMPT_STATUS]] == ["429", "429", "200"]
    assert abs(case.found[keys.RETRY_TIME] - case.since(case.truth[-1]["received_ns"])) < LATE_S
    waits = [(b["received_ns"] - a["done_ns"]) / 1e9 for a, b in pairwise(case.truth)]
    assert abs(case.found[keys.RETRY_WAIT] - sum(waits)) < LATE_S
    assert case.found[keys.RETRY_WAIT] >= 0.2 * 0.75  # what was asked for, less the client's jitter


@each("norm", "early-role", "late-headers", "cut", "error", "one-token", "slow", "left", "tools")
def test_one_attempt_is_no_retry(cases: dict[str, Case], name: str) -> None:
    assert len(cases[name].truth) == 1
    assert cases[name].found[keys.RESEND_COUNT] == 0


@each("cut", "error")
def test_failures_inside_the_stream(cases: dict[str, Case], name: str) -> None:
    case = cases[name]
    is_passed_on = name.startswith("error-responses")  # this library gives it out as an event
    assert (case.error is None) == is_passed_on
    assert case.found[keys.STREAM_STATE] == "error"
    if name.startswith("error"):
        code = "overloaded_error" if wire_of(name) == "messages" else "server_error"
        assert case.found[keys.ERROR_TYPE] == code
    else:
        assert case.found[keys.ERROR_TYPE] in ("APIConnectionError", "RemoteProtocolError")
    assert keys.FINISH_REASONS not in case.found


@each("left")
def test_a_stream_that_was_left(cases: dict[str, Case], name: str) -> None:
    case = cases[name]
    assert case.error is None
    assert case.found[keys.STREAM_STATE] == "closed_early"
    assert not {keys.ERROR_TYPE, keys.FINISH_REASONS} & set(case.found)


@each("slow")
def test_a_slow_consumer_is_told_apart(cases: dict[str, Case], name: str) -> None:
    found = cases[name].found
    assert found[keys.CONSUMER_HOLD] >= HOLD_S * found[keys.CHUNK_COUNT]


@each("tools")
def test_tool_calls_are_content_that_nobody_sees(cases: dict[str, Case], name: str) -> None:
    found = cases[name].found
    assert list(found[keys.FINISH_REASONS]) in (["tool_calls"], ["tool_call"])
    assert keys.TIME_TO_FIRST_VISIBLE not in found
