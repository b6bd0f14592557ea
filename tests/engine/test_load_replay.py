"""Traffic that a real collector recorded comes again as it was: times, lengths, prefixes, waits."""

import time
from collections.abc import Iterator, Sequence
from itertools import takewhile
from pathlib import Path
from random import Random

import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.trace import set_span_in_context

from longpole import prefix
from longpole.errors import BadInput, Unreachable
from longpole.vocab import keys
from longpole_analytics.rollup import ROLLUP
from longpole_collector.app import background
from longpole_collector.settings import Settings
from longpole_engine.load import prompts, replay

SECOND_NS = 1_000_000_000
MINUTE_AGO_NS = time.time_ns() - 60 * SECOND_NS
NUM_SHARED = 300
WORDS = Random(5).choices(("tent", "river", "stone", "evening", "to", "and", "sleeping"), k=900)
PROMPTS = {
    "a": WORDS[:400],
    "b": [*WORDS[:NUM_SHARED], *WORDS[400:440]],
    "c": WORDS[700:800],
}
BLOCK_WORDS = 256 / (len(" ".join(WORDS)) / len(WORDS))
Call = tuple[float, float, int, str]
"""When it began and ended, seconds; tokens out; its prompt, a token a word."""
WORKFLOWS: dict[str, list[Call]] = {
    "shop": [(0.0, 1.0, 20, "a"), (3.5, 4.0, 7, "b")],
    "help": [(2.0, 2.5, 3, "c")],
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
    for begin_s, end_s, num_output, prompt in calls:
        chain = prefix.chain(prefix.Keyed(b"k"), " ".join(PROMPTS[prompt]).encode())
        span = tracer.start_span(
            "chat m",
            set_span_in_context(root),
            start_time=MINUTE_AGO_NS + round(begin_s * SECOND_NS),
            attributes={
                keys.OPERATION: "chat",
                keys.REQUEST_MODEL: "m",
                keys.ROUTE: route,
                keys.INPUT_TOKENS: len(PROMPTS[prompt]),
                keys.OUTPUT_TOKENS: num_output,
                keys.PROMPT_CHAIN: chain.hashes,
                keys.PROMPT_NUM_BLOCKS: chain.num_blocks,
                keys.PROMPT_BLOCK: chain.unit,
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
    assert lengths == [(400, 20), (340, 7), (100, 3)]
    assert [turn.wait_s for turn in shop.turns] == [0.0, 2.5]


def test_prompts_share_what_they_shared_and_no_more(url: str) -> None:
    shop, other = found(url)
    first, second, third = (
        prompts.text(turn, turn.input_tokens or 0, "x").split()
        for turn in (*shop.turns, *other.turns)
    )
    assert (len(first), len(second), len(third)) == (400, 340, 100)
    num_shared = sum(takewhile(bool, (a == b for a, b in zip(first, second, strict=False))))
    # whole blocks are hashed: what is shared of the next one is not told
    assert NUM_SHARED - 1.5 * BLOCK_WORDS <= num_shared <= NUM_SHARED + 0.5 * BLOCK_WORDS
    assert first[:25] != third[:25]


def test_blocks_of_tokens_are_as_long_as_they_say() -> None:
    chain = prefix.chain(prefix.Keyed(b"k"), b"a" * 300, tokenize=lambda text: [*text.encode()])
    row = {"chain": chain.hashes, "input_tokens": 340, "num_blocks": 5, "block": chain.unit}
    assert chain.num_blocks == 5
    assert list(replay._block_tokens([row]).values()) == [64]


def test_one_route_and_a_faster_clock(url: str) -> None:
    (only,) = found(url, "shop", speed=5.0)
    assert [turn.wait_s for turn in only.turns] == [0.0, 0.5]
    with pytest.raises(BadInput, match="nothing to replay"):
        found(url, "nowhere")


def test_more_than_can_be_read_at_once_is_refused_not_cut(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay, "MAX_CALLS", 3)
    with pytest.raises(BadInput, match="more than 3 calls"):
        found(url)
    assert len(found(url, "shop")) == 1


def test_no_collector_is_told() -> None:
    with pytest.raises(Unreachable, match="no collector"):
        found("http://127.0.0.1:1")
