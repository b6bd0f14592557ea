"""Traffic that a real collector recorded comes again as it was: times, lengths, prefixes, waits."""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.trace import set_span_in_context

from longpole.errors import BadInput, Unreachable
from longpole.vocab import keys
from longpole_analytics.rollup import ROLLUP
from longpole_collector.app import background
from longpole_collector.settings import Settings
from longpole_engine.load import prompts, replay

SECOND_NS = 1_000_000_000
MINUTE_AGO_NS = time.time_ns() - 60 * SECOND_NS
CHAINS = {"a": (1, 2, 3, 4), "b": (1, 2, 5, 6), "c": (7, 8, 9, 10)}
Call = tuple[float, float, int, int, str]
"""When it began and ended, seconds; tokens in and out; its chain."""
WORKFLOWS: dict[str, list[Call]] = {
    "shop": [(0.0, 1.0, 400, 20, "a"), (3.5, 4.0, 400, 7, "b")],
    "help": [(2.0, 2.5, 100, 3, "c")],
}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    db: Path = tmp_path_factory.mktemp("replay") / "data"
    with background(Settings(db=db, http="127.0.0.1:0", grpc="127.0.0.1:0"), ROLLUP) as collector:
        deadline = time.monotonic() + 60
        while not collector.ingest.is_ready and time.monotonic() < deadline:
            time.sleep(0.02)
        provider = TracerProvider()
        exporter = OTLPSpanExporter(f"{collector.url}/v1/traces")
        provider.add_span_processor(SimpleSpanProcessor(exporter))
        for route, calls in WORKFLOWS.items():
            send(provider, route, calls)
        provider.shutdown()
        while time.monotonic() < deadline:
            try:
                if sum(len(s.turns) for s in found(collector.url)) == 3:
                    break
            except BadInput:
                pass  # nothing is stored yet
            time.sleep(0.05)
        yield collector.url


def send(provider: TracerProvider, route: str, calls: Sequence[Call]) -> None:
    tracer = provider.get_tracer(keys.SCOPE_SDK)
    begun_ns = MINUTE_AGO_NS + round(calls[0][0] * SECOND_NS)
    root = tracer.start_span(
        "invoke_workflow",
        start_time=begun_ns,
        attributes={keys.OPERATION: "invoke_workflow", keys.ROUTE: route},
    )
    for begin_s, end_s, num_input, num_output, chain in calls:
        hashes = "".join(f"{number:016x}" for number in CHAINS[chain])
        span = tracer.start_span(
            "chat m",
            set_span_in_context(root),
            start_time=MINUTE_AGO_NS + round(begin_s * SECOND_NS),
            attributes={
                keys.OPERATION: "chat",
                keys.REQUEST_MODEL: "m",
                keys.ROUTE: route,
                keys.INPUT_TOKENS: num_input,
                keys.OUTPUT_TOKENS: num_output,
                keys.PROMPT_CHAIN: hashes,
            },
        )
        span.end(MINUTE_AGO_NS + round(end_s * SECOND_NS))
    root.end(MINUTE_AGO_NS + round(calls[-1][1] * SECOND_NS))


def found(url: str, route: str | None = None, speed: float = 1.0) -> list[replay.Session]:
    return replay.sessions(url, None, MINUTE_AGO_NS - SECOND_NS, route, speed)


def test_times_lengths_and_waits_are_those_of_the_store(url: str) -> None:
    shop, other = found(url)
    assert (shop.due_s, other.due_s) == (0.0, 2.0)
    lengths = [(turn.input_tokens, turn.output_tokens) for turn in (*shop.turns, *other.turns)]
    assert lengths == [(400, 20), (400, 7), (100, 3)]
    assert [turn.wait_s for turn in shop.turns] == [0.0, 2.5]


def test_prompts_share_what_they_shared_and_no_more(url: str) -> None:
    shop, other = found(url)
    first, second, third = (
        prompts.text(turn, turn.input_tokens or 0, "x").split()
        for turn in (*shop.turns, *other.turns)
    )
    assert (len(first), len(second), len(third)) == (400, 400, 100)
    assert first[:200] == second[:200]
    assert first[200:205] != second[200:205]
    assert first[:25] != third[:25]


def test_one_route_and_a_faster_clock(url: str) -> None:
    (only,) = found(url, "shop", speed=5.0)
    assert [turn.wait_s for turn in only.turns] == [0.0, 0.5]
    with pytest.raises(BadInput, match="nothing to replay"):
        found(url, "nowhere")


def test_no_collector_is_told() -> None:
    with pytest.raises(Unreachable, match="no collector"):
        found("http://127.0.0.1:1")
