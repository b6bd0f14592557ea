"""What is kept of alerts: bounded, in order, whole, and nobody else's to read."""

import sqlite3
import sys
from types import SimpleNamespace

import pytest

from longpole.errors import Unreachable
from longpole_analytics.alerts import ledger as module
from longpole_analytics.alerts.ledger import FILE, FOLDER, Ledger
from longpole_analytics.alerts.net import Gate, Later, Never
from longpole_analytics.alerts.sinks import email
from longpole_analytics.alerts.sinks.base import Post, make_sinks
from longpole_analytics.alerts.trial import trial

from .fakes import mailing


def event(name, status="firing"):
    return {"fingerprint": name, "status": status}


@pytest.fixture
def ledger(tmp_path):
    made = Ledger(tmp_path)
    yield made
    made.close()


def test_the_outbox_is_bounded_and_says_what_it_gave_up(ledger, monkeypatch):
    monkeypatch.setattr(module, "MAX_WAITING", 5)
    for number in range(8):
        ledger.put(["it"], event(f"a{number}"), 1.0)
    assert ledger.num_waiting() == {"it": 5}
    states = [(d["fingerprint"], d["state"]) for d in ledger.deliveries(10)]
    assert states[-3:] == [(f"a{n}", "failed") for n in (2, 1, 0)]


def test_the_news_of_one_alert_come_in_order(ledger):
    ledger.put(["it"], event("a"), 1.0)
    ledger.put(["it"], event("a", "resolved"), 2.0)
    first = ledger.due("it", 3.0)
    assert first.status == "firing"
    ledger.later(first, 9.0, "busy", 1)
    assert ledger.due("it", 8.0) is None  # its end waits for it
    ledger.sent(ledger.due("it", 9.0))
    assert ledger.due("it", 9.0).status == "resolved"


def test_one_alert_that_waits_holds_up_no_other(ledger):
    ledger.put(["it"], event("a"), 1.0)
    ledger.later(ledger.due("it", 1.0), 99.0, "busy", 1)
    ledger.put(["it"], event("b"), 2.0)
    assert ledger.due("it", 2.0).fingerprint == "b"


def test_a_refresh_does_not_pile_up(ledger):
    for second in range(9):
        ledger.put(["it"], event("a"), float(second), is_refresh=True)
    assert ledger.num_waiting() == {"it": 1}


def test_half_a_transaction_is_none(ledger):
    def fail():
        with ledger.transaction():
            ledger.put(["it"], event("a"), 1.0)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert ledger.num_waiting() == {}


def test_the_files_are_nobody_elses_to_read(ledger, tmp_path):
    ledger.note("a", "b")
    for path in (tmp_path / FOLDER).iterdir():
        assert path.stat().st_mode & 0o077 == 0, path


def test_what_a_newer_one_wrote_and_what_is_no_database_is_refused(tmp_path):
    made = Ledger(tmp_path)
    made.close()
    with sqlite3.connect(tmp_path / FOLDER / FILE) as db:
        db.execute("UPDATE meta SET value = '99' WHERE key = 'version'")
    db.close()
    for _ in range(2):
        with pytest.raises(Unreachable, match="newer"):
            Ledger(tmp_path)
    (tmp_path / FOLDER / FILE).write_bytes(b"x" * 5000)
    with pytest.raises(Unreachable, match="cannot be opened"):
        Ledger(tmp_path)


# --- sinks without a watch ----------------------------------------------------------------------
def posts():
    return [Post(each, is_refresh=False, now_s=1.8e9) for each in trial("http://x", 18 * 10**17)]


def test_mail_to_another_machine_is_not_sent_in_the_clear():
    with mailing() as (port, mails), email._Smtp("127.0.0.1", port, "127.0.0.1") as server:
        with pytest.raises(Never, match="STARTTLS"):
            email._secure(server, {"host": "mx", "username": None}, is_loopback=False)
        email._secure(server, {"host": "mx", "username": None}, is_loopback=True)
    assert mails == []


def test_apprise_gets_plain_text(monkeypatch):
    sent, answers = [], [True, False]

    class Apprise:
        def add(self, url):
            return url.startswith("json://")

        def notify(self, **given):
            sent.append(given)
            return answers.pop(0)

    (made,) = make_sinks({"it": {"kind": "apprise", "url": "json://host"}})
    monkeypatch.setitem(sys.modules, "apprise", None)
    with pytest.raises(Never, match="not installed"):
        made.kind.send(posts()[0], made.options, Gate())
    monkeypatch.setitem(sys.modules, "apprise", SimpleNamespace(Apprise=Apprise))
    made.kind.send(posts()[0], made.options, Gate())
    with pytest.raises(Later):
        made.kind.send(posts()[1], made.options, Gate())
    assert [each["body_format"] for each in sent] == ["text", "text"]
    assert [each["notify_type"] for each in sent] == ["failure", "success"]
