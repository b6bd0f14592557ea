"""The report by itself: once a week, after rests and restarts too; brought to every sink."""

import email
import json
from datetime import UTC, datetime
from email import policy

import pytest
from click.testing import CliRunner
from tests.analytics.week_of_spans import write

from longpole.cli import main
from longpole.errors import BadInput, UsageError
from longpole_analytics.alerts.sinks.webhook import signature
from longpole_analytics.report.plugin import WATCHER
from longpole_analytics.report.settings import load_report
from longpole_analytics.report.watch import RETRY_S, ReportWatch
from longpole_collector.watching import Seat

from . import fakes
from .made_store import MadeStore

DAY_S = 86_400.0
TOML = """
[report]
schedule = "mon 07:00 Europe/Berlin"
sinks = "{sinks}"

[alerts]
allow_hosts = "127.0.0.1"
{tables}
"""
DOCUMENT = {
    "schema": "longpole.report/1",
    "project": "default",
    "title": "Latency report, <b>2026-W37</b>",
    "window": {"since_ns": 1},
    "dashboard": "http://127.0.0.1:8501",
    "summary": {"lines": ["Promises: 1 met.", "<!channel> *first*"]},
}


def at(text):
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


class Desk:
    """A watch with a clock of its own, and a maker that writes down what it was asked for."""

    def __init__(self, folder, sinks="", tables=""):
        self.folder, self.made, self.fault = folder, [], None
        path = folder / "longpole.toml"
        path.write_text(TOML.format(sinks=sinks, tables=tables))
        self.settings = load_report(path)
        self.store = MadeStore()
        self.open()

    def open(self):
        self.watch = ReportWatch(
            Seat("default", self.folder, self.store), self.settings, self.make, lambda: 0.0
        )

    def again(self):
        self.watch.stop()
        self.open()

    def make(self, window, folder):
        if self.fault:
            raise self.fault
        self.made.append(window.week)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "report.json").write_text(json.dumps(DOCUMENT))
        (folder / "report.md").write_text("# the week\n")
        (folder / "report.html").write_text("<!doctype html><p>the week</p>")

    def look(self, text):
        self.watch.tick(at(text))

    def close(self):
        self.watch.stop()
        self.store.close()


@pytest.fixture
def desk(tmp_path):
    made = []

    def make(**given):
        made.append(Desk(tmp_path, **given))
        return made[-1]

    yield make
    for each in made:
        each.close()


def test_one_report_a_week_at_the_zones_hour(desk):
    ours = desk()
    for text in ("2026-09-10T12:00", "2026-09-14T04:59", "2026-09-14T05:00", "2026-09-14T05:01"):
        ours.look(text)
    assert ours.made == ["2026-W37"]
    for text in ("2026-10-19T05:00", "2026-10-26T05:59", "2026-10-26T06:00", "2026-11-02T06:00"):
        ours.look(text)  # winter time from October 25th on
    assert ours.made == ["2026-W37", "2026-W42", "2026-W43", "2026-W44"]
    assert (ours.folder / "reports/2026-W44/report.html").is_file()


def test_the_first_start_makes_up_for_nothing(desk):
    ours = desk()
    ours.look("2026-09-14T08:00")
    assert ours.made == []
    ours.look("2026-09-21T05:00")
    assert ours.made == ["2026-W38"]


def test_after_a_rest_one_is_made_and_only_one(desk):
    ours = desk()
    ours.look("2026-09-10T12:00")
    ours.again()
    ours.look("2026-10-07T12:00")  # three moments were missed
    ours.look("2026-10-07T12:01")
    ours.again()
    ours.look("2026-10-07T12:02")
    assert ours.made == ["2026-W40"]
    ours.look("2026-10-12T05:00")
    assert ours.made == ["2026-W40", "2026-W41"]


def test_a_clock_that_is_set_back_makes_no_second_one(desk):
    ours = desk()
    for text in ("2026-09-10T12:00", "2026-09-14T05:00", "2026-09-13T00:00", "2026-09-14T05:00"):
        ours.look(text)
    assert ours.made == ["2026-W37"]


def test_what_could_not_be_made_is_made_later(desk):
    ours = desk()
    ours.look("2026-09-10T12:00")
    ours.fault = BadInput("the store is closed")
    due = at("2026-09-14T05:00")
    ours.watch.tick(due)
    ours.fault = None
    ours.watch.tick(due + RETRY_S - 1)
    assert ours.made == []
    ours.watch.tick(due + RETRY_S)
    assert ours.made == ["2026-W37"]
    assert 'longpole_reports_total{outcome="made"} 1' in ours.watch.prometheus()
    assert 'longpole_reports_total{outcome="failed"} 1' in ours.watch.prometheus()


def test_every_sink_gets_it_once_signed_and_inert(desk, tmp_path):
    (tmp_path / "secret").write_text("s\n")
    with (
        fakes.serving(fakes.webhook) as (hook, hooked),
        fakes.serving(fakes.slack) as (slack, slacked),
        fakes.mailing() as (port, mails),
    ):
        ours = desk(
            sinks="hook, room, post",
            tables=f"""
[alerts.sinks.hook]
kind = "webhook"
url = "{hook}/x"
secret = "${{file:{tmp_path}/secret}}"
[alerts.sinks.room]
kind = "slack"
url = "{slack}/y"
[alerts.sinks.post]
kind = "email"
host = "127.0.0.1"
port = {port}
from = "longpole@example.com"
to = "team@example.com"
""",
        )
        for text in ("2026-09-10T12:00", "2026-09-14T05:00", "2026-09-14T05:10"):
            ours.look(text)
        ours.again()
        ours.look("2026-09-14T05:20")
    (got,) = hooked
    assert got.json == DOCUMENT
    told = signature("s", got.headers["x-longpole-timestamp"], got.body)
    assert got.headers["x-longpole-signature"] == told
    (message,) = slacked
    assert message.json["text"] == "Latency report, &lt;b&gt;2026-W37&lt;/b&gt;"
    assert all(b["text"]["type"] == "plain_text" for b in message.json["blocks"] if "text" in b)
    (mail,) = [email.message_from_bytes(each, policy=policy.default) for each in mails]
    assert mail["Subject"] == DOCUMENT["title"]
    assert "the week" in mail.get_body(("plain",)).get_content()
    assert "the week" in mail.get_body(("html",)).get_content()


def test_a_sink_that_is_away_gets_it_later_and_one_that_refuses_never(desk):
    answers = [(503, {}, b""), (204, {}, b"")]
    with fakes.serving(lambda _: answers.pop(0)) as (url, got):
        ours = desk(sinks="hook", tables=f'[alerts.sinks.hook]\nkind = "webhook"\nurl = "{url}"')
        for text in ("2026-09-10T12:00", "2026-09-14T05:00"):
            ours.look(text)
        assert len(got) == 1
        ours.again()
        ours.look("2026-09-14T05:10")
        ours.look("2026-09-14T05:20")
    assert len(got) == 2
    assert ours.watch._book.states() == {("2026-W37", "hook"): "sent"}


def test_a_private_place_that_is_not_listed_is_not_sent_to(desk):
    ours = desk(
        sinks="hook", tables='[alerts.sinks.hook]\nkind = "webhook"\nurl = "http://10.0.0.1/"'
    )
    for text in ("2026-09-10T12:00", "2026-09-14T05:00", "2026-09-14T05:20"):
        ours.look(text)
    assert ours.watch._book.states() == {("2026-W37", "hook"): "failed"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[report]\nschedule = "daily"', "write a day"),
        ('[report]\nshedule = "mon 07:00"', "did you mean 'schedule'"),
        ('[report]\nschedule = "mon 07:00"\nsinks = "x"', r"no \[alerts.sinks.x\]"),
        (
            '[report]\nschedule = "mon 07:00"\nsinks = "x"\n[alerts.sinks.x]\nkind = "pagerduty"',
            "one of email, slack, webhook",
        ),
    ],
)
def test_what_cannot_be_is_a_sentence(text, said, tmp_path):
    (tmp_path / "longpole.toml").write_text(text)
    with pytest.raises(UsageError, match=said):
        load_report(tmp_path / "longpole.toml")


def test_nothing_is_watched_without_a_schedule(tmp_path, monkeypatch):
    (tmp_path / "longpole.toml").write_text('[report]\nfolder = "here"\n')
    monkeypatch.chdir(tmp_path)
    assert WATCHER.configure() is None
    (tmp_path / "longpole.toml").write_text('[report]\nschedule = "mon 07:00"\n')
    begin = WATCHER.configure()
    assert begin(Seat("other", tmp_path, MadeStore())) is None
    watch = begin(Seat("default", tmp_path, MadeStore()))
    watch.start()
    watch.stop()


def test_the_report_is_made_by_a_process_of_its_own(tmp_path):
    """From a real store, as ``longpole report`` makes it."""
    (tmp_path / "longpole.toml").write_text('[report]\nschedule = "mon 07:00 Europe/Berlin"\n')
    settings = load_report(tmp_path / "longpole.toml")
    spans = write(tmp_path / "spans.parquet", per_week=(40,))
    done = CliRunner().invoke(main, ["import", str(spans), "--db", str(tmp_path / "db")])
    assert done.exit_code == 0, done.output
    store = MadeStore()
    watch = ReportWatch(Seat("default", tmp_path / "db", store), settings)
    watch.tick(at("2026-09-10T12:00"))
    watch.tick(at("2026-09-14T07:00"))
    watch.stop()
    store.close()
    made = tmp_path / "db/reports/2026-W37"
    document = json.loads((made / "report.json").read_text())
    assert (document["window"]["week"], document["window"]["num_traces"]) == ("2026-W37", 40)
    assert (made / "report.html").is_file()
