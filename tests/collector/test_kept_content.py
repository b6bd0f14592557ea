"""Prompts and answers that a project keeps end in time; its spans do not."""

import json
import secrets
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import httpx
import pytest
from click.testing import CliRunner

from longpole.cli import main
from longpole_collector import kept_content
from longpole_collector.content import Policy, Scrubber, load_key
from longpole_collector.health import Health
from longpole_collector.housekeeping import tidy
from longpole_collector.kept_content import ContentRetention, holds_content, remove_expired
from longpole_collector.settings import ProjectSettings, load_settings
from longpole_collector.stores import open_reader
from longpole_collector.stores.duckdb import DuckStore
from longpole_collector.stores.keeping import Retention
from longpole_collector.writer import Writer

PROTOBUF = {"content-type": "application/x-protobuf"}
DAY_NS = 86_400 * 1_000_000_000
KEY = bytes(range(32))
KEPT = ContentRetention(KEY, is_kept=True, days=7)
FOREVER = Retention(days=None)
SOON = timedelta(seconds=1)


def said():
    """Words that compression does not make much smaller."""
    return secrets.token_hex(2000)


def given(otlp, num):
    """Spans with content in all places, and one without any."""
    message = ("gen_ai.choice", 1, {"message": {"content": said()}, "index": 0})
    link = (bytes([1] * 16), bytes([2] * 8), {"input.value": said(), "why": "retry"})
    full = [
        otlp.span(
            name=f"full {number}",
            attributes={"gen_ai.input.messages": said(), "user.id": "jo", "tries": 3},
            events=[message],
            links=[link],
        )
        for number in range(num)
    ]
    return [*full, otlp.span(name="plain", attributes={"tries": 1, "input.value.length": 4})]


def write(store, otlp, bodies, content="keep"):
    """Store bodies, each as received so many days ago."""
    health = Health()
    writer = Writer(store, None, health, scrubber=Scrubber(Policy(content, KEY), health))
    for age, body in bodies.items():
        received_ns = time.time_ns() - age * DAY_NS
        spans = otlp.spans(body, content=content, key=KEY)
        writer.write_spans([span._replace(received_ns=received_ns) for span in spans])
    writer.settle(everything=True)
    writer.save()


def rows(store, *, without=()):
    found = store.sql("SELECT * EXCLUDE (received_ns) FROM spans ORDER BY trace_id").to_pylist()
    return [{name: row[name] for name in row if name not in without} for row in found]


def test_what_is_left_is_what_would_have_been_dropped_and_younger_days_are_whole(otlp, tmp_path):
    bodies = {age: otlp.body(given(otlp, 3)) for age in (9, 8, 7, 1, 0)}
    store, dropping, keeping = (DuckStore(tmp_path / name) for name in ("db", "drop", "keep"))
    write(store, otlp, bodies)
    now = datetime.now(UTC) + SOON
    for _ in range(6):
        tidy(store, FOREVER, now, content=KEPT)
    old = {age: body for age, body in bodies.items() if age > KEPT.days}
    write(dropping, otlp, old, "drop")
    write(keeping, otlp, {age: body for age, body in bodies.items() if age not in old})
    expected = sorted(rows(dropping) + rows(keeping), key=lambda row: row["trace_id"])
    assert rows(store) == expected
    assert len(expected) == 4 * len(bodies)
    assert [holds_content(store, day) for day in store.days] == [False, False, True, True, True]
    assert [day.is_sorted for day in store.days] == [True, True, False, False, False]
    for each in (store, dropping, keeping):
        each.close()


def test_the_old_bytes_leave_the_disk(otlp, tmp_path):
    store = DuckStore(tmp_path / "db")
    write(store, otlp, {9: otlp.body(given(otlp, 400))})
    (before,) = store.days
    num_bytes = before.num_bytes()
    assert num_bytes > 1_500_000
    tidy(store, FOREVER, content=KEPT)
    (after,) = store.days
    assert not before.path.exists()
    assert after.num_bytes() < num_bytes / 2
    assert [path.name for path in (tmp_path / "db").glob("spans*")] == [after.path.name]
    store.close()


def test_content_ends_whatever_the_policy_is_by_then_and_after_a_restart(otlp, tmp_path):
    store = DuckStore(tmp_path / "db")
    write(store, otlp, {9: otlp.body(given(otlp, 1)), 0: otlp.body(given(otlp, 1))})
    tidy(store, FOREVER, content=KEPT._replace(days=30))
    store.close()
    store = DuckStore(tmp_path / "db")
    assert [holds_content(store, day) for day in store.days] == [True, True]
    tidy(store, FOREVER, content=KEPT._replace(is_kept=False))
    assert [holds_content(store, day) for day in store.days] == [False, True]
    assert ["gen_ai.input.messages" in str(row) for row in rows(store)].count(True) == 2
    words = [str(row["attributes"]) for row in rows(store) if row["name"] == "full 0"]
    assert sorted("gen_ai.input.messages.hash" in word for word in words) == [False, True]
    store.close()


def test_a_project_that_never_kept_anything_is_left_alone(otlp, tmp_path):
    store = DuckStore(tmp_path / "db")
    write(store, otlp, {9: otlp.body(given(otlp, 1))}, "redact")
    before = rows(store)
    tidy(store, FOREVER, content=KEPT._replace(is_kept=False))
    assert rows(store) == before
    assert [day.is_sorted for day in store.days] == [True]
    store.close()


def test_a_day_that_is_left_half_way_is_done_again(otlp, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(kept_content, "_ROWS", 4)
    monkeypatch.setattr(kept_content, "_SAVE_ROWS", 5)
    caplog.set_level("INFO")
    store = DuckStore(tmp_path / "db")
    write(store, otlp, {9: otlp.body(given(otlp, 20))})
    kept_content.note_kept(store, KEPT)
    asked = iter([False, False, True])
    assert remove_expired(store, KEPT, is_stopping=lambda: next(asked)) == []
    left = sum("messages.hash" not in str(row) for row in rows(store)) - 1
    assert left == 12
    (day,) = remove_expired(store, KEPT)
    assert "removed the prompts and answers of 12 spans" in caplog.text
    assert not holds_content(store, day)
    assert sum("messages.hash" in str(row) for row in rows(store)) == 20
    assert len(rows(store)) == 21
    assert remove_expired(store, KEPT) == []
    store.close()


@pytest.mark.parametrize("is_running", [False, True])
def test_prune_ends_it_too_and_compacts_no_day_that_holds_some(
    otlp, settings, collecting, eventually, monkeypatch, tmp_path, is_running
):
    monkeypatch.chdir(tmp_path)
    own = '[collector.projects.default]\ncontent = "keep"\nkeep_days = 2\n'
    (tmp_path / "longpole.toml").write_text(own)
    key = load_key(settings.db)
    store = DuckStore(settings.db)
    health = Health()
    writer = Writer(store, None, health, scrubber=Scrubber(Policy("keep", key), health))
    for age in (3, 1):
        spans = otlp.spans(otlp.body(given(otlp, 1)), content="keep", key=key)
        aged = [span._replace(received_ns=time.time_ns() - age * DAY_NS) for span in spans]
        writer.write_spans(aged)
    writer.settle(everything=True)
    store.close()

    def prune():
        words = ["prune", "--compact", "--db", str(settings.db), "--json"]
        done = CliRunner().invoke(main, words)
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)

    if is_running:
        own_settings = load_settings(db=settings.db, http=settings.http, grpc=settings.grpc)
        with collecting(own_settings) as collector:
            body = otlp.body(given(otlp, 1))
            httpx.post(
                f"{collector.url}/v1/traces", content=body, headers=PROTOBUF, trust_env=False
            ).raise_for_status()
            eventually(lambda: collector.store.sql("SELECT * FROM spans").num_rows == 6)
            done = prune()
    else:
        done = prune()
    first = (datetime.now(UTC) - timedelta(days=3)).strftime("%Y%m%d")
    assert done["rewritten"] == [first]
    reader = open_reader(db=settings.db)
    found = [str(row) for row in rows(reader)]
    reader.close()
    assert len(found) == (6 if is_running else 4)
    assert sum("gen_ai.input.messages.hash" in row for row in found) == 1


def test_a_collector_notes_what_it_keeps_when_it_stops(otlp, settings, collecting, eventually):
    keeping = replace(settings, projects={"default": ProjectSettings("keep")})
    with collecting(keeping) as collector:
        body = otlp.body(given(otlp, 1))
        httpx.post(
            f"{collector.url}/v1/traces", content=body, headers=PROTOBUF, trust_env=False
        ).raise_for_status()
        eventually(lambda: collector.store.sql("SELECT * FROM spans").num_rows == 2)
    store = DuckStore(settings.db)
    assert [holds_content(store, day) for day in store.days] == [True]
    store.close()
