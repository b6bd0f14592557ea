"""The weekly report: its figures are the commands', its forms the document's, its names inert."""

import json
import re
import shlex
from html.parser import HTMLParser

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from longpole.cli import main
from longpole.errors import UsageError
from longpole_analytics.report.base import Cell, Rows, Text
from longpole_analytics.report.build import sections
from longpole_analytics.report.html import page
from longpole_analytics.report.markdown import text
from longpole_analytics.report.weeks import iso

from . import week_of_spans
from .week_of_spans import WEEK

TOML = """
[slo.ttft]
metric = "ttft_ms"
threshold = 2000
target = 0.99
period = "7d"
where = "route = 'rag.search'"
owner = "search"

[slo.broken]
metric = "ttft_ms"
threshold = 2000
target = 0.99
period = "7d"
where = "no_such_column = 1"

[budget."rag.search"]
prefill = {p95_ms = 1000, owner = "platform"}

[report]
schedule = "mon 07:00 Europe/Berlin"
"""
TIME = ["--since", iso(WEEK.since_ns), "--at", iso(WEEK.until_ns)]


def run(*words, exit_code=0):
    result = CliRunner().invoke(main, [str(word) for word in words])
    assert result.exit_code == exit_code, (result.output, result.stderr, result.exception)
    return result


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    found = tmp_path_factory.mktemp("week")
    week_of_spans.write(found / "spans.parquet")
    (found / "longpole.toml").write_text(TOML)
    return found


@pytest.fixture(scope="module")
def document(folder):
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        return json.loads(run("report", "spans.parquet", "--week", "2026-W37", "--json").stdout)


def test_a_week_is_the_zones_own(document):
    window = document["window"]
    assert (window["week"], window["tz"]) == ("2026-W37", "Europe/Berlin")
    assert window["since"] == "2026-09-06T22:00:00Z"
    assert (window["num_traces"], window["hours"]) == (300, 168.0)
    assert window["days_without_data"] == []


def test_causes_coverage_and_changes_are_those_of_top(document, folder):
    top = json.loads(run("top", folder / "spans.parquet", *TIME, "--json").stdout)
    causes = document["causes"]["causes"]
    assert causes
    assert causes[0]["where"]["prompt_version"] == "v42"
    assert causes[0]["stage"] == "prefill"
    assert [{name: row[name] for name in top["causes"][0]} for row in causes] == top["causes"]
    names = top["coverage"].keys()
    assert {name: document["coverage"][name] for name in names} == top["coverage"]
    changes = (document["changes"] or {"changes": []})["changes"]
    assert [{name: row[name] for name in top["changes"][0]} for row in changes] == top["changes"]
    assert top["changes"]


def test_what_a_list_of_causes_does_not_hold(document):
    cause = document["causes"]["causes"][0]
    assert cause["owner"] == "platform"
    assert cause["route_versions"] == ["7"]
    assert cause["history"] == {"state": "new", "last_rank": None, "num_weeks": 1}
    assert cause["extra_ms_p99"] is None  # of so few there is none
    assert [link["trace_id"] for link in cause["links"]] == cause["exemplars"][:3]


def test_promises_are_those_of_slo_check(document, folder, tmp_path):
    config = tmp_path / "longpole.toml"
    config.write_text(TOML.replace("no_such_column = 1", "true"))
    slo = run("slo", "check", "--config", config, "--file", folder / "spans.parquet", *TIME[2:],
              "--json", exit_code=3)  # fmt: skip
    (ours,) = document["slos"]["slos"]
    theirs = next(row for row in json.loads(slo.stdout)["slos"] if row["id"] == "ttft")
    assert {name: ours[name] for name in theirs} == theirs
    assert ours["verdict"] == "missed"
    assert ours["before"]["verdict"] == "missed"
    assert [each["id"] for each in document["slos"]["broken"]] == ["broken"]


def test_slow_hours_are_what_requests_took_above_the_promise(document, folder):
    asked = (
        "SELECT sum(ttft_ms - 2000) / 3.6e6 AS h FROM calls WHERE ttft_ms > 2000 "
        f"AND start_ns >= {WEEK.since_ns} AND start_ns < {WEEK.until_ns}"
    )
    rows = json.loads(run("query", asked, "--json", "--file", folder / "spans.parquet").stdout)
    assert document["slos"]["slow_hours"] == pytest.approx(rows["rows"][0][0])


def test_cache_and_cost_are_those_of_cache(document, folder):
    cache = json.loads(run("cache", folder / "spans.parquet", *TIME, "--json").stdout)
    told = document["cache"]
    assert told["hits"]["all"] == cache["hits"]["all"]
    for name in ("cost", "wasted_writes", "break_even", "prices"):
        assert told[name] == cache[name]
    assert told["hits"]["all"]["saved_usd"] > 0


def test_the_trace_is_the_one_that_explain_explains(document, folder):
    told = document["example"]
    explained = json.loads(
        run("explain", told["trace_id"], "--file", folder / "spans.parquet", "--json").stdout
    )
    assert {name: told[name] for name in explained} == explained
    assert [span["name"] for span in told["spans"]] == [
        "rag.search",
        "lookup",
        told["spans"][2]["name"],
    ]
    assert [span["depth"] for span in told["spans"]] == [0, 1, 1]
    on_path = sum(
        each["end_ms"] - each["start_ms"] for span in told["spans"] for each in span["critical"]
    )
    assert on_path == pytest.approx(told["wall_ms"])
    # the slow request in the middle of those that the first cause is to blame for
    cause = document["causes"]["causes"][0]
    assert cause["where"]["prompt_version"] == "v42"


def test_every_command_that_is_shown_can_be_run(document, folder, monkeypatch):
    monkeypatch.chdir(folder)
    (folder / "longpole.toml").write_text(TOML.replace("no_such_column = 1", "true"))
    told = {each["name"]: each["command"] for each in document["sections"]}
    assert {name for name, command in told.items() if command} == {
        *("slos", "causes", "stages", "example", "changes", "cache", "coverage"),
    }
    for name, command in told.items():
        if command:
            run(*shlex.split(command)[1:], "--json", exit_code=3 if name == "slos" else 0)
    (folder / "longpole.toml").write_text(TOML)


def test_the_means_of_stages_are_what_the_statement_says(document, folder, monkeypatch):
    monkeypatch.chdir(folder)
    command = next(s["command"] for s in document["sections"] if s["name"] == "stages")
    rows = json.loads(run(*shlex.split(command)[1:], "--json").stdout)["rows"]
    asked = {(route, is_slow, stage): ms for route, is_slow, stage, ms in rows if ms}
    ours = {
        (route["route"], bar["requests"] == "slow", each["stage"]): each["mean_ms"]
        for route in document["stages"]["routes"]
        for bar in route["bars"]
        if bar["when"] == "now"
        for each in bar["stages"]
    }
    assert ours == pytest.approx(asked)
    for route in document["stages"]["routes"]:
        for bar in route["bars"]:
            assert sum(s["mean_ms"] for s in bar["stages"]) == pytest.approx(bar["mean_ms"])


def test_the_summary_has_five_lines_and_says_what_to_do(document):
    lines = document["summary"]["lines"]
    assert len(lines) == 5
    assert "missed (ttft)" in lines[0]
    assert "prefill with prompt_version=v42" in lines[2]
    assert "v41 -> v42" in lines[3]
    assert lines[4].startswith("Do first: ")


# --- forms --------------------------------------------------------------------------------------
class Read(HTMLParser):
    """Tags, attributes and text of a page."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.attributes, self.texts = [], [], []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]

    def handle_data(self, data):
        self.texts.append(data)


def test_both_forms_show_all_that_the_document_says(document):
    html, markdown = " ".join(Read(page(document)).texts), text(document)
    for each in document["sections"]:
        for piece in sections()[each["name"]].show(document[each["name"]]):
            cells = []
            if isinstance(piece, Text):
                cells = [piece.text]
            elif isinstance(piece, Rows):
                cells = [c.text if isinstance(c, Cell) else c for row in piece.rows for c in row]
            for cell in cells:
                assert cell in html
        assert each["title"] in markdown
    assert document["causes"]["causes"][0]["next_step"] in markdown


def test_a_page_asks_for_nothing_and_runs_nothing(document):
    html = page(document)
    found = Read(html)
    assert len(html.encode()) < 500_000
    assert not {"script", "link", "img", "iframe", "object", "embed", "base"} & set(found.tags)
    assert {name for _, name, _ in found.attributes if name.startswith("on")} == set()
    assert [v for _, n, v in found.attributes if n in ("src", "xlink:href", "srcset")] == []
    assert [t for t, n, _ in found.attributes if n == "href" and t != "a"] == []
    assert "@import" not in html
    assert re.findall(r"url\(([^)]*)\)", html) in ([], ["#opaque"] * html.count("url(#opaque)"))
    assert "default-src 'none'" in html


def test_hostile_names_are_inert(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    week_of_spans.write(tmp_path / "spans.parquet", per_week=(120,), hostile=True)
    run("report", "spans.parquet", "--week", "2026-W37", "--tz", "Europe/Berlin", "--out", "o")
    html = (tmp_path / "o/report.html").read_text()
    found = Read(html)
    assert "img" not in found.tags
    assert "onerror" in " ".join(found.texts)  # shown as text
    assert [v for _, n, v in found.attributes if n == "href" and "evil" in v] == []
    markdown = (tmp_path / "o/report.md").read_text()
    prose = re.sub(r"^(`{3,})sh\n.*?\n\1$", "", markdown, flags=re.MULTILINE | re.DOTALL)
    assert "<img" not in prose
    assert "](http://evil" not in prose
    assert re.search(r"(?<!\\)\|.*onerror.*(?<!\\)\|`a`", prose) is None
    for form in (html, markdown):
        assert "\x1b" not in form
        assert "\u202e" not in form


# --- thin, empty, partial -----------------------------------------------------------------------
def test_a_week_without_data_says_so(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(folder)
    out = tmp_path / "o"
    said = run("report", "spans.parquet", "--week", "2027-W01", "--out", out, exit_code=4)
    assert "no request began" in said.stderr
    document = json.loads((out / "report.json").read_text())
    assert document["summary"]["is_quiet"]
    assert document["causes"] is None
    assert "nothing to report" in (out / "report.md").read_text()
    assert (out / "report.html").read_text().startswith("<!doctype html>")


def test_a_quiet_week_is_short(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    quiet = [
        span
        for number in range(40)
        for span in week_of_spans.trace(
            number, WEEK.since_ns / 1e6 + number * 3_600_000, prompt="v1", slow=False
        )
    ]
    pq.write_table(week_of_spans.spans_table(quiet), tmp_path / "spans.parquet")
    words = ["report", "spans.parquet", "--week", "2026-W37", "--tz", "Europe/Berlin"]
    document = json.loads(run(*words, "--json").stdout)
    assert document["summary"]["is_quiet"]
    assert document["summary"]["lines"][4] == "Nothing to do: a quiet week."
    assert document["example"] is None
    assert len(document["window"]["days_without_data"]) == 5
    assert "quiet week" in run(*words).stdout


def test_a_report_over_the_edge_of_what_is_kept_says_so(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    late = [s for s in week_of_spans.spans((80,)) if s.start_ns >= WEEK.since_ns + 3 * 86_400e9]
    pq.write_table(week_of_spans.spans_table(late), tmp_path / "spans.parquet")
    words = ["report", "spans.parquet", "--week", "2026-W37", "--tz", "Europe/Berlin", "--json"]
    document = json.loads(run(*words).stdout)
    window = document["window"]
    assert window["is_partial"]
    assert window["days_without_data"] == ["2026-09-07", "2026-09-08", "2026-09-09"]
    assert any("Data begin only on" in line for line in document["summary"]["lines"])
    for cause in document["causes"]["causes"]:
        assert cause["history"]["state"] == "unknown"  # nothing is kept of the week before


def test_a_table_full_of_nulls_gives_a_report(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = "\n".join(f"{WEEK.since_ns + n * 10**12},{n if n % 2 else ''},," for n in range(60))
    (tmp_path / "t.csv").write_text(f"start_ns,e2e_ms,route,queue_ms\n{rows}\n")
    run("report", "t.csv", "--week", "2026-W37", "--tz", "Europe/Berlin", "--out", "o")
    document = json.loads((tmp_path / "o/report.json").read_text())
    assert document["window"]["num_traces"] == 60
    assert document["example"] is None


# --- the command --------------------------------------------------------------------------------
def test_the_command_writes_what_is_asked_for(document, folder, tmp_path, monkeypatch):
    monkeypatch.chdir(folder)
    run("report", "spans.parquet", "--week", "2026-W37", "--out", tmp_path / "a")
    assert sorted(p.name for p in (tmp_path / "a").iterdir()) == [
        *("report.html", "report.json", "report.md"),
    ]
    again = json.loads((tmp_path / "a/report.json").read_text())
    assert again == document  # the same data give the same report
    run("report", "spans.parquet", "--week", "2026-W37", "--out", tmp_path / "b.html")
    assert (tmp_path / "b.html").read_text() == (tmp_path / "a/report.html").read_text()
    run("report", "spans.parquet", "--week", "2026-W37", "--format", "md", "--out", tmp_path / "c")
    assert [p.name for p in (tmp_path / "c").iterdir()] == ["report.md"]
    day = ["--since", "24h", "--at", "2026-09-12T00:00:00Z", "--json"]
    window = json.loads(run("report", "spans.parquet", *day).stdout)["window"]
    assert (window["week"], window["hours"]) == (None, 24.0)
    assert window["num_traces"] < 60


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--week", "2026-37"], "an ISO week"),
        (["--week", "2026-W54"], "an ISO week"),
        (["--week", "2026-W37", "--since", "24h"], "leave out --since"),
        (["--tz", "Mars/Olympus"], "no time zone"),
        (["--since", "2027-01-01", "--at", "2026-01-01"], "ends before it begins"),
        (["--json", "--out", "x"], "leave out --out"),
        (["--format", "html", "--format", "md"], "need a folder"),
        (["--slow", "fast"], "write a quantile"),
    ],
)
def test_the_command_says_what_is_wrong(words, said, folder, monkeypatch):
    monkeypatch.chdir(folder)
    result = CliRunner().invoke(main, ["report", "spans.parquet", *words], standalone_mode=False)
    assert result.exit_code == UsageError.exit_code
    assert said in result.stderr
