"""The example of gates in CI: its checks can be read, and both pipelines run them."""

import re

import yaml
from tests.examples.running import EXAMPLES

from longpole_analytics.gates.config import load_gates

FOLDER = EXAMPLES / "ci"


def test_the_checks_can_be_read_with_the_rollback_too(tmp_path, monkeypatch):
    gates = load_gates(FOLDER / "gate.toml")
    assert {check.kind for check in gates.checks} == {
        *("budget", "regression", "scorecard", "coverage"),
    }
    assert gates.rollback is None
    monkeypatch.setenv("LONGPOLE_ROLLBACK_SECRET", "hush")
    text = (FOLDER / "gate.toml").read_text()
    (tmp_path / "gate.toml").write_text(re.sub(r"^# (?=\[|\w+ = )", "", text, flags=re.MULTILINE))
    rollback = load_gates(tmp_path / "gate.toml").rollback
    assert (rollback.secret, rollback.checks) == ("hush", {"candidate"})


def test_both_pipelines_run_the_gate_and_keep_its_findings():
    github = yaml.safe_load((FOLDER / "github-actions.yml").read_text())
    steps = github["jobs"]["gate"]["steps"]
    assert any("longpole gate" in step.get("run", "") for step in steps)
    gitlab = yaml.safe_load((FOLDER / "gitlab-ci.yml").read_text())
    assert gitlab["latency"]["artifacts"]["reports"]["junit"] == "gate.xml"
    assert "--rollback" in gitlab["latency-rollback"]["script"][-1]
