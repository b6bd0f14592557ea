"""Configuration: precedence, unknown keys, and what ``longpole config`` may show."""

import json
import logging
from pathlib import Path

import pytest
from click.testing import CliRunner

from longpole import config, health, settings
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


# --- references and secrets ---------------------------------------------------------------------
KEYS: dict[str, config.Scalar | None] = {"api_key": None, "port": 1, "url": "", "is_on": False}


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A configuration file to be written, which is the nearest; nothing was warned of yet."""
    monkeypatch.chdir(tmp_path)
    health.reset()
    return tmp_path / "longpole.toml"


def test_what_a_value_refers_to_stands_in_its_place_in_the_defaults_type(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (file.parent / "secret").write_text("s3cret\n")
    monkeypatch.setenv("THE_PORT", "9000")
    monkeypatch.setenv("THE_HOST", "here")
    file.write_text(
        f'[collector]\napi_key = "${{file:{file.parent}/secret}}"\nport = "${{env:THE_PORT}}"\n'
        'url = "http://${env:THE_HOST}:${env:THE_PORT}/${other}"\nis_on = true\n'
    )
    found = config.settings("collector", KEYS, file)
    assert {key: setting.value for key, setting in found.items()} == {
        "api_key": "s3cret",
        "port": 9000,
        "url": "http://here:9000/${other}",
        "is_on": True,
    }
    assert {setting.source for setting in found.values()} == {"file"}
    assert [setting.shown for setting in found.values()] == ["***", "***", "***", True]


def test_tables_within_a_table_may_refer_too(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RULE", "ORD-[0-9]{8}")
    file.write_text(
        '[collector.projects.web]\ncontent = "redact"\nredact = ["${env:RULE}", "b"]\n'
        'deep = {sign = ["${env:RULE}"], num = 3}\n'
    )
    assert config.subtables("collector", "projects", file)["web"] == {
        "content": "redact",
        "redact": ["ORD-[0-9]{8}", "b"],
        "deep": {"sign": ["ORD-[0-9]{8}"], "num": 3},
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('api_key = "${env:NOT_THERE}"', r"\[collector\] api_key: .*'NOT_THERE'.*: set it"),
        ('api_key = "${file:/not/there}"', r"\[collector\] api_key: .*'/not/there'.*No such file"),
        ('api_key = "${file:/dev/zero}"', r"\[collector\] api_key: .*more than 64 KiB"),
        ('port = "${env:HUSH}"', r"\[collector\] port: '\*\*\*' is not a int"),
        ('api_key = "${file:bytes}"', r"\[collector\] api_key: .*no UTF-8 text"),
    ],
)
def test_a_reference_to_nothing_is_named_and_a_secret_is_not(
    file: Path, monkeypatch: pytest.MonkeyPatch, text: str, message: str
) -> None:
    monkeypatch.setenv("HUSH", "hush-hush")
    (file.parent / "bytes").write_bytes(b"hush\xff")
    file.write_text(f"[collector]\n{text}\n")
    with pytest.raises(UsageError, match=message) as caught:
        config.settings("collector", KEYS, file)
    assert "hush" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_a_reference_in_another_table_is_nobodys_trouble(file: Path) -> None:
    file.write_text('[collector]\napi_key = "${env:NOT_THERE}"\n[sdk]\nservice = "shop"\n')
    assert settings.load().service == "shop"


def test_a_secret_in_the_file_itself_gives_one_warning(
    file: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THE_KEY", "from-elsewhere")
    file.write_text('[collector]\napi_key = "in-the-file"\nurl = "x"\n[sdk]\n')
    with caplog.at_level(logging.WARNING, "longpole"):
        for _ in range(3):
            assert config.settings("collector", KEYS, file)["api_key"].value == "in-the-file"
    (record,) = caplog.records
    assert "[collector] api_key: a secret stands in longpole.toml" in record.getMessage()
    assert "in-the-file" not in caplog.text
    caplog.clear()
    file.write_text('[sdk]\nhash_key = "${env:THE_KEY}"\n')
    loaded = settings.load()
    assert loaded.hash_key == "from-elsewhere"
    assert "from-elsewhere" not in repr(loaded)
    assert not caplog.records


def test_config_shows_no_secret_that_is_referred_to(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THE_SERVICE", "hush")
    file.write_text('[sdk]\nservice = "${env:THE_SERVICE}"\n[collector]\napi_key = "hush"\n')
    for arguments in ([], ["--json"]):
        shown = CliRunner().invoke(show_config, arguments)
        assert shown.exit_code == 0, shown.output
        assert "hush" not in shown.output
    document = json.loads(shown.stdout)
    assert document["tables"]["sdk"]["service"] == {"value": "***", "source": "file"}
    assert document["tables"]["collector"]["api_key"]["value"] == "***"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("clickhouse://writer:hush@db.example/longpole", "clickhouse://***@db.example/longpole"),
        ("clickhouse://db.example:8123/longpole?note=a@b", None),
        ("http://127.0.0.1:4318", None),
    ],
)
def test_credentials_in_an_address_are_not_shown(value, shown):
    assert config.Setting(value, "file").shown == (shown or value)
