"""Every recipe runs, on real engines, and one is named; in processes of their own."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

from longpole_dashboard.lab.catalogue import all_recipes

LONGPOLE = ("-c", "from longpole.cli import main; main()")
SMALL = Path(__file__).with_name("small_run.py")
NAMED = "approval-wait"
TIMEOUT_S = 900


def ran(*words):
    done = subprocess.run(
        [sys.executable, *words],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        env={**os.environ, "NO_COLOR": "1"},
        check=False,
    )
    assert done.returncode in (0, 3), done.stderr
    return done


def test_every_recipe_runs_and_loses_no_request_and_a_prediction_is_checked() -> None:
    recipes = all_recipes()
    *runs, knob = [json.loads(line) for line in ran(str(SMALL), "0.03").stdout.splitlines()]
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
    assert (knob["knob"], min(knob["n"]) >= 5) == ("no-approval", True)
    median = knob["quantiles"][0]
    # a person takes 0.4 s, drawn within a third around it
    assert 260 <= median["before_ms"] - median["predicted_ms"] <= 540
    assert abs(median["error"]) < 0.25


def test_a_large_cause_is_named_told_and_kept(tmp_path) -> None:
    db, kept = tmp_path / "data", tmp_path / "runs.jsonl"
    done = ran(*LONGPOLE, "lab", "run", NAMED, "--scale", "0.2", "--db", str(db))
    lines = done.stdout.splitlines()
    assert lines[0].startswith(f"{NAMED}: 30 requests in ")
    assert lines[1:3] == [
        "truth    workflow_slow_wait / approval",
        "verdict  workflow_slow_wait / approval",
    ]
    assert any(line.startswith("wait_ms ") and " ms " in line for line in lines)
    assert any(line.startswith("next check  see who is waited for") for line in lines)
    assert "block 10 of 10: " in done.stderr
    again = next(line for line in lines if line.startswith("again "))
    assert "workflow_slow_wait" in ran(*LONGPOLE, *shlex.split(again)[2:]).stdout
    document = json.loads((db / "lab" / f"{NAMED}.json").read_text("utf-8"))
    kept.write_text(json.dumps(document) + "\n", "utf-8")
    words = ("lab", "score", NAMED, "--seeds", "1", "--runs", str(kept), "--json")
    scored = json.loads(ran(*LONGPOLE, *words).stdout)  # which plays nothing again
    assert (scored["runs"][0]["verdict"], scored["runs"][0]["sub_verdict"]) == (
        "workflow_slow_wait",
        "approval",
    )
