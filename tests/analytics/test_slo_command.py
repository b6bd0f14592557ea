"""``longpole slo`` over flat tables and traces: the document, the text, the exit codes."""

import json
import re
from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq
import pytest
import yaml
from click.testing import CliRunner

from longpole.errors import BadInput, NotEnoughData, Unreachable, UsageError
from longpole.vocab import Stage, keys
from longpole_analytics.minutes import MINUTE_NS
from longpole_analytics.rollup import ROLLUP
from longpole_analytics.slo_command import slo
from longpole_collector.stores.duckdb import DuckStore
from longpole_collector.writer import Writer

from .tables import spans_table
from .traces import span

AT = 1_790_000_040  # a whole minute
TOML = """
[slo.rag-ttft]
metric = "ttft_ms"
threshold = 2000
target = 0.99
period = "30d"
where = "route = 'rag.search'"
class = "interactive"
owner = "search"
"""


def run(*arguments, exit_code=0):
    result = CliRunner().invoke(slo, [str(word) for word in arguments], env={"COLUMNS": "200"})
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == exit_code, result.output
    return result


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "longpole.toml"
    path.write_text(TOML)
    return path


@pytest.fixture
def requests(tmp_path):
    """Ten requests a minute for two hours, the last twenty minutes slow on one route."""
    rows = [
        {
            "start_ns": AT * 10**9 - (120 - minute) * MINUTE_NS + i,
            "route": route,
            "ttft_ms": 5000.0 if minute >= 100 and route == "rag.search" else 100.0,
        }
        for minute in range(120)
        for i in range(10)
        for route in ("rag.search", "chat")
    ]
    path = tmp_path / "requests.parquet"
    pl.DataFrame(rows).write_parquet(path)
    return path


def checked(*arguments, exit_code):
    result = run("check", *arguments, "--json", exit_code=exit_code)
    return json.loads(result.stdout)


def when(minutes_before=0):
    return datetime.fromtimestamp(AT - 60 * minutes_before, UTC).isoformat()


def write(spans, folder, kind):
    """The options that name these spans, in a file or in a store."""
    if kind == "file":
        pq.write_table(spans_table(spans), folder / "traces.parquet")
        return "--file", folder / "traces.parquet"
    store = DuckStore(folder / "db")
    writer = Writer(store, ROLLUP)
    writer.write_spans(spans)
    writer.settle(everything=True)
    store.close()
    return "--db", folder / "db"


class TestCheck:
    def test_a_breached_objective_is_exit_code_3(self, config, requests):
        found = checked("--config", config, "--file", requests, "--at", when(), exit_code=3)
        assert found["schema"] == "longpole.slo/1"
        (told,) = found["slos"]
        assert (told["id"], told["status"]) == ("rag-ttft", "firing")
        assert told["events"] == {"bad": 200, "total": 1200, "left_out": 0}
        assert told["budget"]["remaining"] == pytest.approx(1 - 200 / 12)
        page = told["rules"][0]
        assert {key: page[key] for key in ("severity", "long", "short", "factor", "factor_used",
                                           "status")} == {
            "severity": "page", "long": "1h", "short": "5m", "factor": 14.4, "factor_used": 14.4,
            "status": "firing",
        }  # fmt: skip
        assert page["burn_long"] == pytest.approx(200 / 600 / 0.01)
        assert page["burn_short"] == pytest.approx(100)

    def test_an_earlier_moment_is_fine(self, config, requests):
        found = checked("--config", config, "--file", requests, "--at", when(20), exit_code=0)
        (told,) = found["slos"]
        assert (told["status"], told["events"]["bad"]) == ("inactive", 0)
        assert told["budget"]["remaining"] == 1

    def test_no_events_are_exit_code_4(self, config, requests):
        config.write_text(TOML.replace("rag.search", "nobody"))
        with pytest.raises(NotEnoughData, match="rag-ttft"):
            checked("--config", config, "--file", requests, "--at", when(), exit_code=4)

    def test_the_document_is_the_same_bytes_each_time(self, config, requests):
        texts = {
            run("check", "--config", config, "--file", requests, "--at", when(), "--json",
                exit_code=3).stdout
            for _ in range(2)
        }  # fmt: skip
        assert len(texts) == 1

    def test_text_says_which_rule_and_how_fast(self, config, requests):
        result = run("check", "--config", config, "--file", requests, "--at", when(), exit_code=3)
        assert "rag-ttft: page firing: burn 33.3x (1h), 100x (5m), above 14.4" in result.stdout
        assert "breached: rag-ttft" in result.stderr

    def test_offsets_of_local_time_tell_the_two_hours_apart_that_share_a_name(self, tmp_path):
        # 2026-10-25, 02:30 in Berlin, before and after the clocks go back
        first_ns = 1_792_888_200 * 10**9
        starts = [first_ns + minute * MINUTE_NS for minute in range(-60, 0)]
        path, config = tmp_path / "r.parquet", tmp_path / "c.toml"
        pl.DataFrame({"start_ns": starts, "e2e_ms": [1.0] * 60}).write_parquet(path)
        config.write_text('[slo.a]\nmetric = "e2e_ms"\nthreshold = 5\ntarget = 0.9\nperiod = "1h"')
        where = ("--config", config, "--file", path, "--at")
        summer = checked(*where, "2026-10-25T02:30:00+02:00", exit_code=0)
        assert summer["slos"][0]["events"]["total"] == 60
        with pytest.raises(NotEnoughData):
            checked(*where, "2026-10-25T02:30:00+01:00", exit_code=4)

    def test_traces_are_read_with_their_workflows_facts(self, config, tmp_path):
        spans = []
        for number in range(30):
            facts = {"trace_id": f"{number + 1:032x}", "route": "shop"}
            root, tool = (f"{number + 1:012x}{part:04x}" for part in (1, 2))
            took = 900 if number < 20 else 9000
            begun = AT * 1000 - number * 1000 - took
            spans += [
                span(root, None, begun, begun + took, operation="invoke_workflow",
                     outcome="accepted", time_to_accepted_ns=took * 10**6, **facts),
                span(tool, root, begun, begun + 5, stage=Stage.TOOL, **facts),
            ]  # fmt: skip
        path = tmp_path / "traces.parquet"
        pq.write_table(spans_table(spans), path)
        config.write_text(
            '[slo.done]\nmetric = "time_to_accepted_ms"\nthreshold = 1000\ntarget = 0.9\n'
            'period = "1d"\nfloors = [{metric = "accepted", target = 0.9}]\n'
            '[slo.wall]\nmetric = "e2e_ms"\nthreshold = 1000\ntarget = 0.9\nperiod = "1d"\n'
        )
        found = checked("--config", config, "--file", path, "--at", when(), exit_code=3)
        for told in found["slos"]:
            assert (told["events"]["bad"], told["events"]["total"]) == (10, 30)
        assert found["slos"][0]["floors"][0]["status"] == "met"

    @pytest.mark.parametrize("kind", ["file", "store"])
    def test_what_only_the_outcome_tells_is_asked_for_where_it_is_promised(
        self, config, tmp_path, kind
    ):
        spans = []
        for number in range(30):
            begun = AT * 1000 - number * 1000 - 900
            said = {f"{keys.OUTCOME_FACT_PREFIX}freshness": str(100 * number)}
            if number % 3:  # the others do not say
                said[f"{keys.OUTCOME_FACT_PREFIX}quality"] = "0.9" if number % 3 == 1 else "much"
            root = f"{number + 1:016x}"
            spans += [
                span(root, None, begun, begun + 800, operation="invoke_workflow",
                     outcome="accepted", attributes=said, trace_id=f"{number + 1:032x}"),
            ]  # fmt: skip
        where = write(spans, tmp_path, kind)
        config.write_text(
            '[slo.new]\nmetric = "freshness"\nthreshold = 1000\ntarget = 0.9\nperiod = "1d"\n'
            '[slo.quick]\nmetric = "e2e_ms"\nthreshold = 1000\ntarget = 0.9\nperiod = "1d"\n'
            'floors = [{metric = "quality", threshold = 0.95, target = 0.5}]\n'
        )
        found = checked("--config", config, *where, "--at", when(), exit_code=3)
        new, quick = found["slos"]
        assert (new["events"]["bad"], new["events"]["total"]) == (19, 30)
        (floor,) = quick["floors"]
        assert (floor["bad"], floor["total"], floor["status"]) == (10, 10, "missed")
        assert (quick["events"]["bad"], quick["is_breached"]) == (0, True)


class TestBadInput:
    def test_a_condition_on_a_column_that_is_not_there_names_the_objective(self, config, requests):
        config.write_text(TOML.replace("route =", "rout ="))
        with pytest.raises(BadInput, match=r"objective 'rag-ttft'.*rout"):
            checked("--config", config, "--file", requests, "--at", when(), exit_code=1)

    def test_a_store_out_of_reach(self, config, tmp_path):
        with pytest.raises(Unreachable):
            run("check", "--config", config, "--db", tmp_path / "none", exit_code=5)
        with pytest.raises(Unreachable):
            run("check", "--config", config, "--url", "http://127.0.0.1:9", exit_code=5)

    def test_requests_that_do_not_know_when_they_began(self, config, tmp_path):
        path = tmp_path / "r.csv"
        path.write_text("ttft_ms\n1\n")
        with pytest.raises(BadInput, match="start_ns"):
            run("check", "--config", config, "--file", path, exit_code=1)

    def test_two_files_with_one_name(self, config, tmp_path):
        other = tmp_path / "other.toml"
        other.write_text(TOML.replace("rag-ttft", "RAG_ttft"))
        with pytest.raises(UsageError, match=r"'rag-ttft' in .*longpole\.toml and 'RAG_ttft' in"):
            run("validate", "--config", config, "--config", other, exit_code=2)

    def test_a_table_twice_a_file_of_nothing_and_no_file(self, config, tmp_path):
        config.write_text(TOML + TOML)
        with pytest.raises(UsageError, match="cannot read"):
            run("validate", "--config", config, exit_code=2)
        config.write_text("")
        with pytest.raises(UsageError, match="no objective in"):
            run("validate", "--config", config, exit_code=2)
        for name in ("none.toml", "none.yaml"):
            with pytest.raises(UsageError, match="cannot read"):
                run("validate", "--config", tmp_path / name, exit_code=2)

    @pytest.mark.parametrize("where", ["route = ", "1); DROP TABLE t; SELECT (1"])
    def test_a_condition_that_is_no_condition(self, config, where):
        config.write_text(TOML.replace("route = 'rag.search'", where))
        with pytest.raises(UsageError, match="objective 'rag-ttft' where"):
            run("validate", "--config", config, exit_code=2)

    def test_a_hostile_owner_moves_no_cursor(self, config):
        config.write_text(TOML.replace('"search"', '"\\u001b[2J[red]x"'))
        assert "\x1b[2J" not in run("list", "--config", config).stdout
        assert "[red]x" in run("list", "--config", config).stdout


class TestForms:
    def test_what_the_page_shows_is_read(self, tmp_path):
        page = (Path(__file__).parents[2] / "docs" / "slo.md").read_text()
        for form, ending in (("toml", "toml"), ("yaml", "yaml")):
            path = tmp_path / f"slo.{ending}"
            path.write_text(re.search(rf"```{form}\n(.*?)```", page, re.DOTALL)[1])
            found = json.loads(run("list", "--config", path, "--json").stdout)
            assert [each["objective"] for each in found["slos"]] == [
                "ttft_ms <= 2000 for 99 % over 30d"
            ]

    def test_export_is_openslo_that_is_read_back(self, config, tmp_path):
        written = run("export", "--config", config).stdout
        (document,) = yaml.safe_load_all(written)
        assert (document["apiVersion"], document["kind"]) == ("openslo/v1", "SLO")
        path = tmp_path / "slo.yaml"
        path.write_text(written)
        tables = run("export", "--config", path, "--format", "toml").stdout
        again = tmp_path / "again.toml"
        again.write_text(tables)
        assert run("export", "--config", again).stdout == written

    def test_list_and_validate(self, config):
        found = json.loads(run("list", "--config", config, "--json").stdout)
        assert [each["id"] for each in found["slos"]] == ["rag-ttft"]
        text = run("list", "--config", config).stdout
        assert "ttft_ms <= 2000 for 99 % over 30d" in text
        assert "page 14.4x (1h & 5m)" in text
        assert "1 objectives can be read" in run("validate", "--config", config).stdout
        config.write_text(TOML.replace("30d", "7d"))
        found = json.loads(run("validate", "--config", config, "--json").stdout)
        assert "below 1" in found["slos"][0]["warnings"][0]
