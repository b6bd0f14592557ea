import json
import subprocess
import sys

import pytest
from click.testing import CliRunner

from longpole.cli import main
from longpole.errors import UsageError
from longpole_collector.commands import collect, export_files, import_files, query
from longpole_collector.settings import DEFAULTS, Address, Settings, load_settings


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def invoke(command, *args):
        return CliRunner().invoke(command, [str(arg) for arg in args])

    return invoke


def test_import_then_query(run, data):
    done = run(import_files, data / "request.json", "--db", "d")
    assert (done.exit_code, done.stdout) == (0, "files 1  spans 3  new 3  rejected 0\n")
    done = run(import_files, data / "request.json", "--db", "d", "--json")
    assert json.loads(done.stdout) == {
        "schema": "longpole.import/1",
        "num_spans": 3,
        "num_new": 0,
        "num_rejected": 0,
        "reason": "",
        "num_events": 0,
    }
    done = run(query, "SELECT count(*) AS n FROM spans", "--db", "d", "--json")
    assert json.loads(done.stdout)["rows"] == [[3]]


def test_query_prints_one_document_or_a_table(run, data):
    run(import_files, data / "request.json")
    sql = "SELECT request_model, input_tokens, NULL AS nothing FROM calls"
    done = run(query, sql, "--json")
    assert json.loads(done.stdout) == {
        "schema": "longpole.query/1",
        "columns": ["request_model", "input_tokens", "nothing"],
        "rows": [["small", 100, None]],
    }
    done = run(query, sql)
    assert "request_model" in done.stdout
    assert "100" in done.stdout


def test_a_files_text_cannot_reach_the_terminal_as_control_codes(run, otlp, tmp_path):
    body = otlp.body([otlp.span(name="\x1b[31mred[/bold]")])
    (tmp_path / "evil.pb").write_bytes(body)
    done = run(query, "SELECT name FROM spans", "--file", "evil.pb")
    assert "\x1b" not in done.stdout
    assert "[31mred[/bold]" in done.stdout


def test_export_and_import_meet(run, data, tmp_path):
    run(import_files, data / "otel-genai-agent.otlp.pb")
    for form in ("jsonl", "parquet", "jaeger"):
        done = run(export_files, "--format", form, "--out", f"out.{form}")
        assert (done.exit_code, done.stdout) == (0, "spans 8\n")
        done = run(query, "SELECT count(*) AS n FROM spans", "--file", f"out.{form}", "--json")
        assert json.loads(done.stdout)["rows"] == [[8]]


def test_a_jaeger_file_is_imported_and_its_bad_span_told(run, data, tmp_path):
    document = json.loads((data / "jaeger.json").read_text())
    document["data"][1]["spans"][0]["spanID"] = "not hex"
    (tmp_path / "traces.json").write_text(json.dumps(document))
    done = run(import_files, "traces.json")
    assert (done.exit_code, done.stdout) == (0, "files 1  spans 3  new 3  rejected 1\n")
    assert done.stderr.startswith("rejected: trace 2, span 1: spanID 'not hex'")


def test_rejected_spans_are_told_on_stderr(run, otlp, tmp_path):
    (tmp_path / "bad.pb").write_bytes(otlp.body([otlp.span(span_id=b"x")]))
    done = run(import_files, "bad.pb")
    assert "rejected 1" in done.stdout
    assert "span id of 1 bytes" in done.stderr


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (["query", "SELECT 1", "--db", "nothing-here"], 5, "no data in"),
        (["query", "DROP VIEW spans", "--file", "empty"], 1, "only one SELECT"),
        (["query", "SELECT 1", "--url", "http://127.0.0.1:1"], 5, "no collector answers"),
        (["collect", "--http", "0.0.0.0:0"], 2, "--insecure-no-auth"),
        (["collect", "--grpc", "[::]:0"], 2, "--insecure-no-auth"),
        (["collect", "--http", "nonsense"], 2, "HOST:PORT"),
        (["import", "text", "--db", "d"], 1, "no trace file"),
    ],
)
def test_what_goes_wrong_is_one_sentence_and_an_exit_code(tmp_path, args, code, message):
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "text").write_text("no traces here")
    done = subprocess.run(
        [sys.executable, "-c", "from longpole.cli import main; main()", *args],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == code
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_the_switchboard_knows_the_commands():
    for name in ("collect", "import", "query"):
        assert CliRunner().invoke(main, [name, "--help"]).exit_code == 0
    assert collect.name == "collect"


def test_settings_come_from_flag_environment_and_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "longpole.toml").write_text('[collector]\nhttp = "127.0.0.1:1"\nquery_rows = 7\n')
    monkeypatch.setenv("LONGPOLE_COLLECTOR_QUERY_ROWS", "8")
    found = load_settings(grpc="localhost:2", db=None)
    assert (found.http, found.query_rows, found.grpc) == ("127.0.0.1:1", 8, "localhost:2")
    (tmp_path / "longpole.toml").write_text("[collector]\nquery_rows = -1\n")
    monkeypatch.delenv("LONGPOLE_COLLECTOR_QUERY_ROWS")
    with pytest.raises(UsageError, match="query_rows"):
        load_settings()
    (tmp_path / "longpole.toml").write_text('[collector]\nquery_rows = "many"\n')
    with pytest.raises(UsageError, match="query_rows"):
        load_settings()


def test_defaults_are_the_settings():
    plain = {key: getattr(Settings(), key) for key in DEFAULTS if key != "db"}
    assert plain == {key: value for key, value in DEFAULTS.items() if key != "db"}


@pytest.mark.parametrize(
    ("text", "is_loopback"),
    [
        ("127.0.0.1:0", True),
        ("127.9.9.9:1", True),
        ("localhost:1", True),
        ("[::1]:1", True),
        ("0.0.0.0:1", False),
        ("[::]:1", False),
        ("10.0.0.1:1", False),
        ("example.com:1", False),
    ],
)
def test_loopback_is_told_from_the_world(text, is_loopback):
    assert Address.parse(text).is_loopback is is_loopback


def test_commands_and_settings_load_nothing_heavy():
    code = (
        "import sys, longpole_collector.settings, longpole_collector.commands;"
        "heavy = {'pydantic', 'duckdb', 'pyarrow', 'uvicorn', 'grpc', 'rich', 'httpx'};"
        "sys.exit(', '.join(heavy & set(sys.modules)) or None)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
