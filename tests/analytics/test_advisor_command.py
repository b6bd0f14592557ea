"""``longpole advise`` over files and a store: the document, the text, the commands it names."""

import json
import shlex
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from longpole.cli import main
from longpole.errors import BadInput, NotEnoughData, UsageError
from longpole_analytics import advise_loading
from longpole_analytics.advise_command import advise
from longpole_analytics.advise_loading import population_of
from longpole_analytics.rollup import ROLLUP
from longpole_collector.stores import open_reader
from longpole_collector.stores.duckdb import DuckStore
from longpole_collector.writer import Writer

from .advisor_traffic import Traffic
from .advisor_workloads import FAULTS, chat
from .tables import spans_table

ENOUGH = {"over_retrieval": 66, "reasoning_budget": 66, "hedges": 50, "cold_paths": 48,
          "missing_deadlines": 80}  # fmt: skip
"""Workflows of a fault that needs more of them to be sure."""
SAMPLE = Path(__file__).parents[2] / "sample_data" / "demo.parquet"


def run(*arguments, exit_code=0):
    result = CliRunner().invoke(advise, [str(a) for a in arguments], env={"COLUMNS": "200"})
    if result.exit_code != exit_code and result.exception:
        raise result.exception
    return result


@pytest.fixture(scope="module")
def spans():
    traffic = Traffic(31)
    chat(traffic, 20)
    for name, fault in FAULTS.items():
        if name != "client_serialization":
            fault(traffic, ENOUGH.get(name, 24))
    return traffic.spans


@pytest.fixture(scope="module")
def file(spans, tmp_path_factory):
    path = tmp_path_factory.mktemp("advise") / "spans.parquet"
    pq.write_table(spans_table(spans), path)
    return path


@pytest.fixture(scope="module")
def document(file):
    return json.loads(run(file, "--json").stdout)


def test_the_document_is_the_same_from_a_file_and_from_a_store(spans, document, tmp_path):
    store = DuckStore(tmp_path / "db")
    writer = Writer(store, ROLLUP)
    writer.write_spans(spans)
    writer.settle(everything=True)
    store.close()
    from_file = document
    from_store = json.loads(run("--db", tmp_path / "db", "--json").stdout)
    assert from_file["schema"] == "longpole.advise/1"
    assert from_file["num_traces"] == from_store["num_traces"]
    assert [a["rule"] for a in from_file["advice"]] == [a["rule"] for a in from_store["advice"]]
    assert {a["rule"] for a in from_file["advice"]} == set(FAULTS) - {"client_serialization"}
    for ours, theirs in zip(from_file["advice"], from_store["advice"], strict=True):
        assert ours["saving"] == theirs["saving"]
    totals = [advice["saving"]["total_ms"] for advice in from_file["advice"]]
    assert totals == sorted(totals, reverse=True)


def test_every_command_that_advice_names_runs(file, document):
    reader = open_reader(files=(file,))
    try:
        for advice in document["advice"]:
            longpole, query, sql = shlex.split(advice["verify"])
            assert (longpole, query) == ("longpole", "query")
            assert reader.sql(sql).num_rows, sql
    finally:
        reader.close()
    result = CliRunner().invoke(main, [query, sql, "--file", str(file), "--json"])
    assert result.exit_code == 0, result.output


def test_the_text_tells_rank_reason_and_what_to_do(file):
    text = run(file, "--rule", "serial_tools").stdout
    assert "1. serial_tools   route orders" in text
    for word in ("why", "evidence", "saves", "confidence", "change", "verify", "traces"):
        assert f"   {word} " in text
    assert "All of it together" in text


def test_a_condition_narrows_the_traces(file):
    document = json.loads(run(file, "--where", "route = 'letter'", "--json").stdout)
    assert document["num_traces"] == 24
    assert [advice["rule"] for advice in document["advice"]] == ["not_streamed"]
    with pytest.raises(NotEnoughData):
        run(file, "--where", "route = 'nowhere'")


class Small:
    """A reader whose store gives only so many spans at once."""

    def __init__(self, reader, num_spans):
        self._reader, self._num_spans = reader, num_spans

    def sql(self, query, params=()):
        found = self._reader.sql(query, params)
        if "FROM spans" in query and found.num_rows > self._num_spans:
            raise BadInput(f"more than {self._num_spans} rows")
        return found


def test_a_store_that_gives_less_at_once_tells_of_the_same_traces(file, monkeypatch):
    ever = (0, 2**62)
    reader = open_reader(files=(file,))
    try:
        whole = population_of(reader, None, ever)
        monkeypatch.setattr(advise_loading, "PAGE_ROWS", 800)
        parts = population_of(Small(reader, 600), None, ever)
    finally:
        reader.close()
    assert whole.table.num_rows > 1_500
    assert sorted(parts.table["span_id"].to_pylist()) == sorted(whole.table["span_id"].to_pylist())
    starts = parts.table["start_ns"].to_pylist()
    assert starts == sorted(starts)
    assert parts.traces["is_sound"].sum() == whole.traces["is_sound"].sum() > 0


def test_no_advice_is_an_answer(tmp_path):
    traffic = Traffic(32)
    chat(traffic, 40)
    pq.write_table(spans_table(traffic.spans), tmp_path / "clean.parquet")
    result = run(tmp_path / "clean.parquet")
    assert result.stdout == "40 traces: 0 advice\n"


def test_what_cannot_be_read_is_one_sentence(tmp_path):
    pq.write_table(spans_table([]), tmp_path / "none.parquet")
    with pytest.raises((NotEnoughData, BadInput)):
        run(tmp_path / "none.parquet")
    (tmp_path / "flat.csv").write_text("route,e2e_ms\na,1\n")
    with pytest.raises(BadInput, match="flat table"):
        run(tmp_path / "flat.csv")
    with pytest.raises(UsageError, match="no such rule; there are avoidable_calls"):
        run(SAMPLE, "--rule", "magic")


def test_thresholds_come_from_the_configuration(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert json.loads(run(SAMPLE, "--json").stdout)["advice"]
    (tmp_path / "longpole.toml").write_text("[analytics.advisor]\nmin_calls = 500\n")
    assert not json.loads(run(SAMPLE, "--json").stdout)["advice"]
    (tmp_path / "longpole.toml").write_text("[analytics.advisor]\nmin_cals = 500\n")
    with pytest.raises(UsageError, match="did you mean 'min_calls'"):
        run(SAMPLE)


def test_the_switchboard_knows_both_commands():
    for name in ("advise", "audit"):
        result = CliRunner().invoke(main, [name, "--help"])
        assert result.exit_code == 0
        assert "--json" in result.output
