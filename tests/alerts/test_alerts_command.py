"""``longpole alerts`` beside a watch that runs."""

import json

import pytest
from click.testing import CliRunner

from longpole.errors import BadInput, LongpoleError, UsageError
from longpole_analytics.alerts_command import alerts

from .fakes import serving, slack
from .harness import slo

TOML = """
[slo.rag]
metric = "ttft_ms"
threshold = 2000
target = 0.99
period = "30d"

[alerts]
allow_hosts = "127.0.0.1"

[alerts.sinks.chat]
kind = "slack"
url = "${env:SLACK_URL}"
"""


def run(*arguments, exit_code=0, **env):
    result = CliRunner().invoke(alerts, [str(word) for word in arguments], env=env)
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == exit_code, result.output
    return result.stdout


@pytest.fixture
def burning(scene):
    it = scene(a=slo(), b=slo(where="route = 'chat'"))
    it.fill(60, good=20)
    it.fill(12, bad=20)
    return it


def listed(it):
    return json.loads(run("list", "--db", it.folder, "--json"))


def test_list_shows_what_fires_what_ended_and_what_was_sent(burning):
    found = listed(burning)
    assert found["schema"] == "longpole.alerts/1"
    (alert,) = found["alerts"]
    assert alert["slo"] == "a"
    assert alert["event"]["summary"].startswith("PAGE a: burn ")
    assert [d["state"] for d in found["deliveries"]] == ["sent"]
    assert alert["event"]["summary"] in run("list", "--db", burning.folder)
    burning.fill(8, good=20)
    found = listed(burning)
    assert found["alerts"] == []
    assert [each["status"] for each in found["ended"]] == ["resolved"]
    assert "RESOLVED a" in run("list", "--db", burning.folder)


def test_ack_by_the_objectives_name(burning):
    name = listed(burning)["alerts"][0]["fingerprint"]
    assert name in run("ack", "a", "--for", "9999d", "--db", burning.folder)
    burning.look(burning.now_s + 5)
    # taken on at the real time, which is after the made one
    assert burning.told == [("firing", "page"), ("ack", "page")]
    with pytest.raises(BadInput, match="no alert 'b' fires"):
        run("ack", "b", "--db", burning.folder)


def test_silence_and_its_end(burning):
    said = run("silence", "b", "--for", "90d", "--comment", "deploy", "--db", burning.folder)
    assert said.startswith("silence 1: b until ")
    (found,) = listed(burning)["silences"]
    assert (found["slo"], found["comment"]) == ("b", "deploy")
    assert "deploy" in run("list", "--db", burning.folder)
    run("silence", "--end", "1", "--db", burning.folder)
    assert listed(burning)["silences"] == []
    with pytest.raises(BadInput):
        run("silence", "--end", "1", "--db", burning.folder)
    with pytest.raises(UsageError):
        run("silence", "b", "--for", "soon", "--db", burning.folder)


def test_test_sends_a_marked_alert_and_its_end(tmp_path):
    config = tmp_path / "longpole.toml"
    config.write_text(TOML)
    with serving(slack) as (url, got):
        said = run("test", "chat", "--config", config, SLACK_URL=f"{url}/x")
    assert said == "sink 'chat' took a test alert and its end\n"
    assert [each.json["text"][:5] for each in got] == ["TEST ", "TEST "]
    with pytest.raises(LongpoleError, match="did not take"):
        run("test", "chat", "--config", config, SLACK_URL=f"{url}/x")
    with pytest.raises(UsageError, match="there are: chat"):
        run("test", "pager", "--config", config, SLACK_URL="http://x")
    with pytest.raises(UsageError, match="SLACK_URL"):
        run("test", "chat", "--config", config, SLACK_URL=None)


def test_a_folder_that_is_not_there_is_named(tmp_path):
    with pytest.raises(UsageError, match="nowhere"):
        run("list", "--db", tmp_path / "nowhere")
