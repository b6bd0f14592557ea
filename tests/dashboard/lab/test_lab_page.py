"""The Lab page shows a recipe by its last run in the folder, else by the sample."""

import json
from html import unescape

import pytest
from tests.dashboard.drawn import drawn, holding, texts
from tests.dashboard.sample import workflow

from longpole_dashboard.lab import shown
from longpole_dashboard.lab.catalogue import all_recipes
from longpole_dashboard.lab.shown import keep, latest

RUN = {
    "schema": "longpole.lab_run/1",
    "recipe": "approval-wait",
    "verdict": {
        "shape": "workflow_slow_wait",
        "sub_cause": "a person's answer",
        "next_check": "see who is waited for",
        "evidence": [
            {"metric": "wait_ms", "quantile": 0.5, "current": 812.0, "baseline": None,
             "ratio": None, "ci95": None, "n": 75},
            {"metric": "model_of_time", "quantile": 0.5, "current": 0.1, "baseline": 0.6,
             "ratio": 0.17, "ci95": None, "n": 75},
        ],
    },
    "is_named": True,
    "is_explained": True,
    "stages": [
        {"stage": "human_wait", "before_ms": 0.0, "now_ms": 800.0},
        {"stage": "prefill", "before_ms": 20.0, "now_ms": 21.0},
    ],
    "played": {"num_sent": {"baseline": 75, "shape": 75}},
}  # fmt: skip


@pytest.fixture
def folder(tmp_path):
    with holding(tmp_path, workflow(1)) as held:
        yield held.folder


def test_the_last_run_of_a_recipe_is_shown_with_its_verdict_and_its_evidence(folder) -> None:
    keep(folder, RUN)
    with drawn("lab", folder, recipe="approval-wait") as app:
        said = unescape(texts(app))
        assert "workflow_slow_wait" in said
        assert "a person's answer" in said
        assert "longpole lab run approval-wait" in [code.value for code in app.code]
        assert "the last run in this data folder" in said


def test_a_recipe_that_was_never_run_says_how_to_run_it(folder, monkeypatch) -> None:
    monkeypatch.setattr(shown, "_sample", dict)
    with drawn("lab", folder, recipe="tool-tail") as app:
        assert "was not run yet" in texts(app)
        assert "longpole lab run tool-tail" in [code.value for code in app.code]


def test_a_run_that_cannot_be_read_is_none(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(shown, "_sample", dict)
    assert latest("approval-wait", tmp_path) is None
    keep(tmp_path, RUN)
    assert latest("approval-wait", tmp_path) == (RUN, False)
    path = tmp_path / "lab" / "approval-wait.json"
    for broken in ("", "[]", "{}", '{"recipe": "tool-tail"}', "nonsense"):
        path.write_text(broken)
        assert latest("approval-wait", tmp_path) is None
    assert latest("approval-wait", None) is None


def test_the_sample_holds_runs_of_recipes_there_are() -> None:
    for name, run in shown._sample().items():
        assert name in all_recipes()
        assert json.dumps(run, allow_nan=False)
        assert run["truth"]["shape"] == all_recipes()[name].truth.shape
