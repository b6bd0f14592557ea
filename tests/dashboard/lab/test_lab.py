"""Every recipe runs, on real engines, and one is named; in processes of their own."""

import json
import os
import subprocess
import sys
from pathlib import Path

from longpole_dashboard.lab.catalogue import all_recipes

LAB = ("-c", "from longpole.cli import main; main()", "lab")
SMALL = Path(__file__).with_name("small_run.py")
NAMED = "approval-wait"
TIMEOUT_S = 900


def told(*words):
    done = subprocess.run(
        [sys.executable, *words],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        env={**os.environ, "NO_COLOR": "1"},
        check=False,
    )
    assert done.returncode in (0, 3), done.stderr
    return done.stdout


def test_every_recipe_runs_and_loses_no_request() -> None:
    recipes = all_recipes()
    runs = [json.loads(line) for line in told(str(SMALL), "0.03").splitlines()]
    assert [each["recipe"] for each in runs] == list(recipes)
    for each in runs:
        recipe, played = recipes[each["recipe"]], each["played"]
        assert each["truth"] == {
            "shape": recipe.truth.shape,
            "sub_cause": recipe.truth.sub_cause,
        }
        assert min(played["num_sent"].values()) >= 1
        assert played["num_failed"]["baseline"] == 0
        assert each["verdict"]["shape"] is None or each["verdict"]["evidence"]


def test_a_large_cause_is_named_from_the_traces_and_its_run_is_kept(tmp_path) -> None:
    kept = tmp_path / "runs.jsonl"
    words = ("score", NAMED, "--seeds", "1", "--scale", "0.2", "--runs", str(kept), "--json")
    (run,) = json.loads(told(*LAB, *words))["runs"]
    assert (run["verdict"], run["sub_verdict"]) == ("workflow_slow_wait", "approval")
    assert [json.loads(line)["recipe"] for line in kept.read_text("utf-8").splitlines()] == [NAMED]
