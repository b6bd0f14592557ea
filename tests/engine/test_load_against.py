"""The same load to two targets in turn, judged by `longpole compare`; through real doors."""

import asyncio
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.engine.targets import Keeps

from longpole.cli import main
from longpole_collector.stores import open_reader
from longpole_engine.load.against import Pairs, Side, within
from longpole_engine.load.arrivals import Session, Turn
from longpole_engine.load.proxy import Faults, Proxy
from longpole_engine.load.run import Plan

COMMAND = (sys.executable, "-c", "from longpole.cli import main; main()", "load")
GONE = "http://127.0.0.1:1"
LATE_S = 0.1
TIMEOUT_S = 120
SPANS = 8
"""Of a request in the engine."""


@pytest.fixture(scope="module")
def served(serve: Callable[..., Any]) -> Any:
    return serve()


@pytest.fixture(scope="module")
def engine(served: Any) -> str:
    url: str = served.url
    return url


@pytest.fixture(scope="module")
def proxied(engine: str) -> Iterator[Proxy]:
    """The same engine behind a line that holds up each piece; its port is ``proxied.port``."""
    loop = asyncio.new_event_loop()
    made: Any = Proxy(engine, Faults({}, 1, jitter_s=LATE_S))
    server = loop.run_until_complete(made.serve())
    made.port = server.sockets[0].getsockname()[1]
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield made
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    server.close()
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()


def words(first: str, second: str, db: Path, *more: str) -> list[str]:
    load = ("--arrivals", "constant:40", "--model", "tiny", "--input-tokens", "4")
    short = ("--output-tokens", "3", "--timeout", "20s")
    return [first, "--against", second, *load, *short, "--db", str(db), *more]


def test_a_slower_candidate_is_worse_and_its_traces_tell_release_and_block(
    engine: str, proxied: Any, tmp_path: Path
) -> None:
    asked = words(engine, f"http://127.0.0.1:{proxied.port}", tmp_path, "--json")
    more = ("--blocks", "2", "--requests", "6", "--against-release", "v2", "--target", "p50:e2e_ms")
    done = subprocess.run(
        [*COMMAND, *asked, *more], capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert done.returncode == 3, done.stderr
    told = json.loads(done.stdout)
    assert told["schema"] == "longpole.load_against/1"
    assert [(b["pair"], b["release"], b["num_completed"]) for b in told["blocks"]] == [
        (1, "base", 6), (1, "v2", 6), (2, "base", 6), (2, "v2", 6),
    ]  # fmt: skip
    assert (told["num_whole_pairs"], told["is_partial"]) == (2, False)
    card = told["compare"]
    assert (card["verdict"], card["target"]["metric"]) == ("worse", "e2e_ms")
    assert card["target"]["ratio"] > 1
    reader = open_reader(db=tmp_path)
    try:
        rows = reader.sql(
            "SELECT route_version AS release, count(*) AS num,"
            " list_sort(list(DISTINCT attributes['longpole.outcome.fact.block'])) AS blocks"
            " FROM spans WHERE parent_id IS NULL GROUP BY 1 ORDER BY 1"
        ).to_pylist()
    finally:
        reader.close()
    own = sorted(f"{pair}.{number}" for pair in (1, 2) for number in range(6))
    assert rows == [{"release": name, "num": 12, "blocks": own} for name in ("base", "v2")]


def test_ctrl_c_keeps_what_came_and_gives_no_verdict(
    served: Any, engine: str, tmp_path: Path
) -> None:
    num_before = len(served.exporter.get_finished_spans())
    asked = words(engine, engine, tmp_path, "--blocks", "3", "--requests", "100000", "--json")
    with subprocess.Popen(
        [*COMMAND, *asked], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        deadline = time.monotonic() + TIMEOUT_S
        while time.monotonic() < deadline:
            # each side was asked once, and then some
            if len(served.exporter.get_finished_spans()) > num_before + SPANS * 4:
                break
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        out, said = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 4, said
    told = json.loads(out)
    assert (told["is_partial"], told["num_whole_pairs"], told["compare"]) == (True, 0, None)
    assert told["blocks"][0]["is_partial"]
    assert "fewer than two pairs" in said


class Nowhere:
    """No traces are kept, but of which part they would be."""

    def __init__(self) -> None:
        self.parts: list[Any] = []

    def of(self, model: str, part: Any) -> "Nowhere":
        self.parts.append((model, part.release, part.named(7)))
        return self

    def begin(self, *_: Any) -> tuple[None, str]:
        return None, ""

    def end(self, *_: Any) -> None: ...

    def flush(self) -> bool:
        return True


async def test_both_get_the_same_load_and_nothing_that_the_other_left_in_a_cache() -> None:
    first, second, nowhere = Keeps(), Keeps(), Nowhere()
    shared = [Session(0.0, (Turn(0.0, 9, number + 2, (1, 2, number)),)) for number in range(3)]
    pairs = Pairs(
        Plan("m"),
        (Side("base", "a", first, "m"), Side("cand", "b", second, "n")),
        10,
        lambda pair: shared,
        nowhere,  # type: ignore[arg-type]
    )
    await pairs()
    texts = [[each["messages"][0]["content"].split() for each in s.asked] for s in (first, second)]
    assert len(texts[0]) == len(texts[1]) == 30
    assert [words[1:] for words in texts[0]] == [words[1:] for words in texts[1]]
    assert {words[0] for words in texts[0]}.isdisjoint(words[0] for words in texts[1])
    lengths = [[each["max_tokens"] for each in side.asked] for side in (first, second)]
    assert lengths[0] == lengths[1]
    assert nowhere.parts[:4] == [
        ("m", "base", "1"), ("n", "cand", "1"), ("m", "base", "2"), ("n", "cand", "2"),
    ]  # fmt: skip
    assert len(pairs.whole) == 20


@pytest.mark.parametrize(
    ("plan", "num"),
    [
        (Plan("m", max_requests=6, turns=3), 2),
        (Plan("m", max_requests=7, turns=3), 3),
        (Plan("m", duration_s=2.5), 3),
        (Plan("m"), 5),
    ],
)
def test_a_block_is_of_whole_sessions(plan: Plan, num: int) -> None:
    every = [Session(float(at)) for at in range(5)]
    assert within(every, plan) == every[:num]


def test_a_recorded_session_counts_by_its_own_turns() -> None:
    every = [Session(float(at), (Turn(), Turn())) for at in range(5)]
    assert within(every, Plan("m", max_requests=3, turns=4)) == every[:2]


async def test_a_pair_that_was_stopped_is_not_whole() -> None:
    def stop(run: Any) -> None:
        if len(pairs.blocks) == 4:
            pairs.stop()

    sides = (Side("base", "a", Keeps(), "m"), Side("cand", "b", Keeps(), "m"))
    every = [Session(0.0), Session(0.0), Session(0.01)]
    pairs = Pairs(Plan("m"), sides, 5, lambda pair: every, Nowhere(), stop)  # type: ignore[arg-type]
    await pairs()
    assert pairs.is_stopped
    assert [block.pair for block in pairs.blocks] == [1, 1, 2, 2]
    assert [block.pair for block in pairs.whole] == [1, 1]


@pytest.mark.parametrize(
    ("asked", "code", "said"),
    [
        (("URL", "--against", GONE, "--otlp", GONE), 5, f"candidate ({GONE}) does not answer"),
        ((GONE, "--against", "URL", "--otlp", GONE), 5, f"base ({GONE}) does not answer"),
        (("URL", "--against", "URL", "--otlp", GONE), 5, "no collector answers"),
        (("URL", "--against", "URL", "--blocks", "1"), 2, "--blocks"),
        (("URL", "--against", "URL", "--release", "candidate"), 2, "name them apart"),
        (("URL", "--against", "URL", "--warm-up", "1s"), 2, "--warm-up"),
        (("URL", "--against", "engine:speed=2"), 2, "a KEY of [engine]"),
        (("URL", "--against", "nowhere", "--otlp", GONE), 2, "no address"),
        (("URL", "--blocks", "4"), 2, "--blocks goes with --against"),
        (("--command", "false", "--against", "cat", "--otlp", GONE), 5, "base (false) does not"),
    ],
)
def test_what_cannot_be_played_is_told_before_it_begins(
    engine: str, asked: tuple[str, ...], code: int, said: str
) -> None:
    given = [engine if word == "URL" else word for word in asked]
    load = (
        "--arrivals",
        "constant:20",
        "--requests",
        "2",
        "--model",
        "tiny",
        "--input-tokens",
        "4",
    )
    done = CliRunner().invoke(main, ["load", *given, *load])
    assert done.exit_code == code, done.output
    assert said in done.output
