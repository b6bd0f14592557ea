"""Every shape of the catalogue happens when it is asked for, on the tiny model."""

import json
from typing import Any

import pytest
from click.testing import CliRunner

from longpole.errors import UsageError
from longpole_engine import lab
from longpole_engine.commands import engine
from longpole_engine.models.checkpoint import Checkpoint
from longpole_engine.shapes import SHAPES, Scene, Shown, find
from longpole_engine.slow_client import read

EXTRA = {"num_threads": 1, "prefix_cache_mb": 4}
BY_COUNT = ("queue-saturation", "eviction-spikes", "cache-thrash")
"""Shapes whose number is no time."""


def run(name: str, checkpoint: Checkpoint) -> Shown:
    return find(name).run(Scene("tiny", checkpoint, 512, EXTRA))


@pytest.mark.parametrize("name", BY_COUNT)
def test_a_shape_shows(name: str, tiny_model: Checkpoint) -> None:
    shown = run(name, tiny_model)
    assert find(name).is_shown(shown.shape, shown.control)


def test_a_long_prompt_is_late_and_a_whole_one_takes_fewer_steps(tiny_model: Checkpoint) -> None:
    late = run("long-prompt", tiny_model)
    assert late.shape["ttft_p50_ms"] > late.control["ttft_p50_ms"]
    whole = run("decode-stalls", tiny_model)
    assert whole.shape["steps"] < whole.control["steps"]
    assert whole.shape["waited_for_others_ms"] > 0


def test_a_vain_hit_is_a_hit(tiny_model: Checkpoint) -> None:
    shown = run("cache-hit-no-speedup", tiny_model)
    assert shown.shape["cached_share"] > 0.5
    assert shown.control["cached_share"] == 0


def test_head_of_line_blocking_keeps_the_next_batch_waiting(tiny_model: Checkpoint) -> None:
    shown = run("head-of-line", tiny_model)
    assert shown.shape["queue_p90_ms"] > shown.control["queue_p90_ms"]
    assert shown.shape["requests"] == 16


def test_drafts_are_made_in_the_shape_and_not_beside_it(tiny_model: Checkpoint) -> None:
    shown = run("speculation-hurts", tiny_model)
    assert shown.shape["steps"] < shown.control["steps"]  # a random model's layers agree
    assert shown.control["accepted_share"] == 0


def test_a_cold_start_is_told_apart(tiny_model: Checkpoint) -> None:
    shown = run("cold-start", tiny_model)
    assert shown.shape["first_token_ms"] >= shown.shape["ttft_ms"] > 0
    assert shown.shape["load_ms"] > 0


def test_a_slow_reader_stalls_the_connection() -> None:
    slow = read("tiny", EXTRA, pause_s=0.1, slow_s=3)
    assert slow.took_s > 3
    assert slow.stall_ms > 100  # in three seconds it read a tenth of the answer


def test_the_same_workload_gives_the_same_steps(tiny_model: Checkpoint) -> None:
    asks = [lab.Ask(3 * n, lab.words(n, 10, 512), 4) for n in range(4)]
    first, second = (lab.run(tiny_model, EXTRA, asks) for _ in range(2))
    assert [one.num_steps for one in first] == [one.num_steps for one in second] == [4] * 4
    assert [one.num_input for one in first] == [10] * 4


def test_every_row_of_the_catalogue_is_named() -> None:
    done = CliRunner().invoke(engine, ["shape"])
    assert done.exit_code == 0
    assert [line.split()[0] for line in done.output.splitlines()] == list(SHAPES)
    assert len(SHAPES) == 11


def test_the_command_prints_both_sides_and_json() -> None:
    arguments: list[Any] = ["shape", "cache-thrash", "--model", "tiny", "--long-tokens", "256"]
    arguments += ["--threads", "1"]
    plain = CliRunner().invoke(engine, arguments)
    assert plain.exit_code == 0, plain.output
    assert "cached_share" in plain.output
    (row,) = json.loads(CliRunner().invoke(engine, [*arguments, "--json"]).output)["shapes"]
    assert row["is_shown"] is True
    assert row["shape"].keys() == row["control"].keys()


def test_an_unknown_shape_is_refused_with_the_names() -> None:
    with pytest.raises(UsageError, match="queue-saturation"):
        find("none")
