"""Backup and pruning, on a folder and by the collector that runs on it; what a collector tidies."""

import json
import sqlite3
import stat
import time
from contextlib import closing
from datetime import UTC, datetime, timedelta

import httpx
import pytest
from click.testing import CliRunner

from longpole.cli import main
from longpole.errors import BadInput
from longpole_collector.content import Policy, Scrubber, load_key
from longpole_collector.decode import Format, TooLarge, check
from longpole_collector.health import Health
from longpole_collector.housekeeping import tidy
from longpole_collector.stores import open_reader
from longpole_collector.stores.duckdb import DuckStore
from longpole_collector.stores.keeping import Retention
from longpole_collector.upkeep import backup_folder

PROTOBUF = {"content-type": "application/x-protobuf"}
DAY_NS = 86_400 * 1_000_000_000


def run(*words):
    done = CliRunner().invoke(main, [str(word) for word in words])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def names(folder):
    reader = open_reader(db=folder)
    found = sorted(reader.sql("SELECT name FROM spans")["name"].to_pylist())
    reader.close()
    return found


@pytest.fixture(params=["folder", "running"])
def kept(request, otlp, settings, collecting, eventually):
    """A data folder with spans of two users, with or without its collector."""
    bodies = [
        otlp.body([otlp.span(name=user, attributes={"user.id": user})]) for user in ("ann", "bob")
    ]
    with collecting(settings) as collector:
        for body in bodies:
            httpx.post(
                f"{collector.url}/v1/traces", content=body, headers=PROTOBUF, trust_env=False
            ).raise_for_status()
        eventually(lambda: names(settings.db) == ["ann", "bob"])
        if request.param == "running":
            yield settings.db
            return
    yield settings.db


def test_a_backup_is_a_folder_that_answers_by_itself(kept, tmp_path):
    target = tmp_path / "backups" / "one"
    done = run("backup", target, "--db", kept, "--json")
    assert done["schema"] == "longpole.backup/1"
    assert len(done["files"]) == 1
    assert names(target) == ["ann", "bob"]
    with pytest.raises(BadInput, match="there already"):
        backup_folder(kept, target)
    assert not list(kept.glob("backups/*"))


def test_a_backup_has_what_others_keep_beside_the_spans(kept, tmp_path):
    path = kept / "alerts" / "alerts.sqlite"
    path.parent.mkdir(exist_ok=True)
    with closing(sqlite3.connect(path, isolation_level=None)) as ledger:
        ledger.execute("PRAGMA journal_mode = WAL")
        ledger.execute("CREATE TABLE silences (slo TEXT)")
        ledger.execute("INSERT INTO silences VALUES ('chat')")  # written, not yet in the file
        done = run("backup", tmp_path / "one", "--db", kept, "--json")
    assert "alerts/alerts.sqlite" in done["files"]
    copy = tmp_path / "one" / "alerts" / "alerts.sqlite"
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    with closing(sqlite3.connect(copy)) as ledger:
        assert ledger.execute("SELECT slo FROM silences").fetchall() == [("chat",)]


def test_a_user_is_forgotten_and_nobody_else(kept):
    done = run("prune", "--user", "ann", "--db", kept, "--json")
    assert (done["num_traces"], done["days"]) == (1, [])
    assert names(kept) == ["bob"]


def test_a_users_rejected_spans_are_forgotten_and_nobody_elses(kept):
    """Those that carry the pseudonym, and those of traces that do, in the store or in the file."""
    scrubber = Scrubber(Policy(key=load_key(kept)), Health())
    reader = open_reader(db=kept)
    ((hi, lo),) = (
        (int(row["trace_id"][:16], 16), int(row["trace_id"][16:], 16))
        for row in reader.sql("SELECT trace_id FROM spans WHERE name = 'ann'").to_pylist()
    )
    reader.close()
    traces = {"told": (5, 5), "same trace": (5, 5), "stored": (hi, lo), "other": (7, 7)}
    lines = {
        name: json.dumps({"error": name, "span": {"trace_hi": pair[0], "trace_lo": pair[1]}})
        for name, pair in traces.items()
    }
    lines["told"] = lines["told"].replace("told", scrubber.pseudonym("ann"))
    path = kept / "rejected.jsonl"
    path.write_text("".join(f"{line}\n" for line in (*lines.values(), "cut sh")))
    run("prune", "--user", "ann", "--db", kept, "--json")
    assert path.read_text().splitlines() == [lines["other"], "cut sh"]


def test_compacting_keeps_every_span(kept):
    assert len(run("prune", "--compact", "--db", kept, "--json")["rewritten"]) == 1
    assert names(kept) == ["ann", "bob"]


def test_a_collector_drops_old_days_and_rewrites_those_that_are_over(otlp, tmp_path):
    store = DuckStore(tmp_path / "db")
    now_ns = time.time_ns()
    for age in (40, 3, 0):
        spans = otlp.canonical(otlp.span(name=f"{age} days old"))
        store.append([span._replace(received_ns=now_ns - age * DAY_NS) for span in spans])
    tidy(store, Retention(days=30), datetime.now(UTC) + timedelta(seconds=1))
    found = sorted(store.sql("SELECT name FROM spans")["name"].to_pylist())
    assert found == ["0 days old", "3 days old"]
    assert [day.is_sorted for day in store.days] == [True, False]
    store.close()


# --- bodies made of nothing but many messages ------------------------------------------------
def wrapped(tag, data):
    """A message's bytes as a field of another."""
    length, rest = b"", len(data)
    while rest > 0x7F:
        length, rest = length + bytes([rest & 0x7F | 0x80]), rest >> 7
    return bytes([tag]) + length + bytes([rest]) + data


MANY = b"\x12\x00" * 9_000_000


@pytest.mark.parametrize(
    "body",
    [
        b"\x0a\x00" * 9_000_000,
        wrapped(0x0A, MANY),
        wrapped(0x0A, wrapped(0x12, MANY)),
    ],
    ids=["resources", "scopes", "spans"],
)
def test_millions_of_empty_messages_are_looked_through_or_refused_at_once(body):
    started = time.process_time()
    try:
        found = check(body, Format.PROTOBUF)
        assert found.num_spans == 0
    except TooLarge:
        pass
    assert time.process_time() - started < 5


def test_a_crowd_of_json_groups_is_refused():
    body = json.dumps({"resourceSpans": [{}] * 20_000}).encode()
    with pytest.raises(TooLarge, match="groups"):
        check(body, Format.JSON)
