"""Every recipe runs, on real engines, and a few are named; in one process of its own."""

import json
import os
import subprocess
import sys

import pytest

from longpole_dashboard.lab.catalogue import all_recipes

COMMAND = (sys.executable, "-c", "from longpole.cli import main; main()", "lab")
NAMED = ("approval-wait", "slow-retrieval")
TIMEOUT_S = 900


def lab(*words):
    done = subprocess.run(
        [*COMMAND, *words],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        env={**os.environ, "NO_COLOR": "1"},
        check=False,
    )
    assert done.returncode in (0, 3), done.stderr
    return done


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """Every recipe once, with few requests."""
    kept = tmp_path_factory.mktemp("lab") / "runs.jsonl"
    lab("score", "--seeds", "1", "--scale", "0.03", "--runs", str(kept), "--json")
    return [json.loads(line) for line in kept.read_text("utf-8").splitlines()]


def test_every_recipe_runs_and_loses_no_request(small) -> None:
    recipes = all_recipes()
    assert [each["recipe"] for each in small] == list(recipes)
    for each in small:
        recipe, played = recipes[each["recipe"]], each["played"]
        assert each["truth"] == {
            "shape": recipe.truth.shape,
            "sub_cause": recipe.truth.sub_cause,
        }
        assert min(played["num_sent"].values()) >= 1
        assert played["num_failed"]["baseline"] == 0
        assert each["verdict"]["shape"] is None or each["verdict"]["evidence"]


def test_a_large_cause_is_named_from_the_traces(tmp_path) -> None:
    done = lab("score", *NAMED, "--seeds", "1", "--scale", "0.12", "--json")
    found = json.loads(done.stdout)
    assert [run["verdict"] for run in found["runs"]] == [run["truth"] for run in found["runs"]]
    assert [run["sub_verdict"] for run in found["runs"]] == ["approval", "retrieval"]
