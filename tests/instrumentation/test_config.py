"""Configuration: precedence, unknown keys, and what ``longpole config`` may show."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from longpole import config
from longpole.commands import show_config
from longpole.errors import UsageError

DEFAULTS: dict[str, config.Scalar | None] = {"port": 8501, "host": "127.0.0.1", "note": None}


def test_environment_beats_file_beats_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "longpole.toml"
    file.write_text('[dashboard]\nport = 9000\nhost = "localhost"\n')
    monkeypatch.setenv("LONGPOLE_DASHBOARD_PORT", "9100")
    found = config.settings("dashboard", DEFAULTS, file)
    assert found["port"] == config.Setting(9100, "environment")
    assert found["host"] == config.Setting("localhost", "file")
    assert found["note"] == config.Setting(None, "default")


def test_the_file_is_found_upward(tmp_path: Path) -> None:
    (tmp_path / "longpole.toml").write_text("[dashboard]\n")
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    assert config.find_file(inner) == tmp_path / "longpole.toml"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[dashboard]\nprot = 1\n", "did you mean 'port'"),
        ("[dashbord]\nport = 1\n", r"did you mean 'dashboard'"),
        ("[dashboard\n", "cannot read"),
        ("[dashboard]\nport = [1]\n", "expected one value"),
    ],
)
def test_a_wrong_file_says_what_and_where(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "longpole.toml"
    file.write_text(text)
    with pytest.raises(UsageError, match=message):
        config.settings("dashboard", DEFAULTS, file)


def test_a_wrong_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LONGPOLE_DASHBOARD_PORT", "many")
    with pytest.raises(UsageError, match=r"LONGPOLE_DASHBOARD_PORT.*'many'"):
        config.settings("dashboard", DEFAULTS)


def test_config_shows_sources_and_never_a_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LONGPOLE_SDK_HASH_KEY", "a-secret-value")
    for arguments in ([], ["--json"]):
        shown = CliRunner().invoke(show_config, arguments)
        assert shown.exit_code == 0, shown.output
        assert "a-secret-value" not in shown.output
        assert "***" in shown.output
    document = json.loads(shown.output)
    assert document["schema"] == "longpole.config/1"
    assert document["tables"]["sdk"]["hash_key"] == {"value": "***", "source": "environment"}
    assert document["tables"]["collector"]


def test_tables_within_a_table_are_read_by_name_and_no_settings(tmp_path: Path) -> None:
    file = tmp_path / "longpole.toml"
    file.write_text('[collector]\ndb = "x"\n[collector.projects.web]\nredact = ["a", "b"]\n')
    assert config.subtables("collector", "projects", file) == {"web": {"redact": ["a", "b"]}}
    assert config.settings("collector", {"db": "y"}, file)["db"].value == "x"
    file.write_text("[collector]\nprojects = 5\n")
    with pytest.raises(UsageError, match=r"\[collector.projects.NAME\]"):
        config.subtables("collector", "projects", file)
    file.write_text("[dashboard.projects.web]\nx = 1\n")
    with pytest.raises(UsageError, match="unknown key 'projects'"):
        config.settings("dashboard", {"port": 1}, file)
    file.write_text("")
    assert config.subtables("collector", "projects", file) == {}
