"""What-if against reality: a stage is really made faster, and p50 moves as predicted."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.examples.running import Stack, stack

from longpole_analytics.stats import quantile
from longpole_analytics.whatif_command import whatif
from longpole_collector.stores import open_reader
from longpole_dashboard.processes import Child, free_port, longpole_command

APP = Path(__file__).with_name("whatif_app.py")
NUM_TRACES = 40
WITHIN = 0.15
NUM_ROUNDS = 3


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with stack(tmp_path_factory.mktemp("whatif")) as found:
        yield found


@pytest.fixture(scope="module")
def uncached(running: Stack) -> str:
    """An engine like the other one, but without prefix cache."""
    port = free_port(0)
    words = ("engine", "serve", "--model", "tiny", "--no-prefix-cache", "--port", str(port))
    child = Child(
        "uncached",
        longpole_command(*words),
        log=running.folder / "uncached.log",
        env=running.env,
    )
    running.group.start(child).wait_ready(f"http://127.0.0.1:{port}/health")
    return f"http://127.0.0.1:{port}/v1"


def run_both(running: Stack, *kinds: str) -> None:
    """Run the application with two kinds by turns; back when all their traces are settled."""
    command = [sys.executable, str(APP), str(NUM_TRACES), *kinds]
    subprocess.run(command, env=running.env, check=True, timeout=300)
    for kind in kinds:
        version = kind.split(",")[0]
        wanted = f"route_version = '{version}' AND 'incomplete_trace' NOT IN (SELECT unnest(flags))"
        running.rows(f"SELECT * FROM traces WHERE {wanted} AND num_spans > 8", NUM_TRACES)


def stage_ms(running: Stack, version: str, stage: str) -> float:
    """The median of a stage's critical time."""
    with closing(open_reader(url=running.collector)) as reader:
        found = reader.sql(
            "SELECT critical_ms FROM trace_stages JOIN traces USING (trace_id) "
            "WHERE route_version = ? AND stage = ?",
            [version, stage],
        )
    median = quantile(found.column(0).to_pylist(), 0.5)
    assert median is not None
    return median


def asked(running: Stack, version: str, stage: str, faster_by: float) -> dict[str, Any]:
    words = ["--url", running.collector, "--route", "ask", "--where", f"route_version='{version}'"]
    words += ["--stage", stage, "--faster-by", str(faster_by), "--json"]
    done = CliRunner().invoke(whatif, words)
    assert done.exit_code == 0, done.output
    document: dict[str, Any] = json.loads(done.stdout)
    assert document["num_traces"] == NUM_TRACES
    median: dict[str, Any] = document["quantiles"][0]
    return median


def assert_as_predicted(guess: Callable[[int], tuple[dict[str, Any], dict[str, Any]]]) -> None:
    """The replayed p50 is the one that was measured, and it really moved.

    A machine that is busy with something else in one half of a round gets another round: noise
    parts the two, never brings them together each time.
    """
    for number in range(NUM_ROUNDS):
        predicted, real = guess(number)
        moved = predicted["current_ms"] - real["current_ms"]
        off = abs(predicted["replayed_ms"] - real["current_ms"]) / real["current_ms"]
        if moved > WITHIN * predicted["current_ms"] and off <= WITHIN:
            return
    pytest.fail(f"predicted {predicted}, measured {real}")


def test_a_tool_that_sleeps_half_as_long(running: Stack) -> None:
    engine = running.env["OPENAI_BASE_URL"]

    def guess(number: int) -> tuple[dict[str, Any], dict[str, Any]]:
        slow, fast = f"slow-tool-{number}", f"fast-tool-{number}"
        run_both(running, f"{slow},0.4,{engine}", f"{fast},0.2,{engine}")
        return asked(running, slow, "tool", 0.5), asked(running, fast, "tool", 0.0)

    assert_as_predicted(guess)


def test_an_engine_with_its_prefix_cache(running: Stack, uncached: str) -> None:
    def guess(number: int) -> tuple[dict[str, Any], dict[str, Any]]:
        without, with_it = f"uncached-{number}", f"cached-{number}"
        run_both(
            running, f"{without},0,{uncached}", f"{with_it},0,{running.env['OPENAI_BASE_URL']}"
        )
        before, after = (stage_ms(running, version, "prefill") for version in (without, with_it))
        faster_by = 1 - after / before
        return (
            asked(running, without, "prefill", faster_by),
            asked(running, with_it, "prefill", 0.0),
        )

    assert_as_predicted(guess)
