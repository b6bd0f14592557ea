"""``longpole whatif`` over files, a store and a collector: the same answer, and honest ones."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from longpole.cli import main
from longpole.errors import BadInput, UsageError
from longpole.vocab import Stage
from longpole_analytics import loading, span_loading
from longpole_analytics.span_loading import numbered
from longpole_analytics.stats import quantile
from longpole_analytics.whatif_command import whatif

from .rolled import table_of
from .tables import spans_table
from .traces import span

NUM_TRACES = 120


def traces(num=NUM_TRACES):
    """Workflows of a tool beside a search, of two routes; every tool takes some time more."""
    spans = []
    for number in range(num):
        facts = {
            "trace_id": f"{number + 1:032x}",
            "route": "shop" if number % 2 else "o'hara",
        }
        root, tool, search = (f"{number + 1:012x}{part:04x}" for part in (1, 2, 3))
        spans += [
            span(root, None, number, number + 400 + 10 * number, **facts),
            span(tool, root, number, number + 300 + 10 * number, stage=Stage.TOOL, **facts),
            span(search, root, number, number + 290, stage=Stage.RETRIEVAL, **facts),
        ]
    return spans


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "many.parquet"
    pq.write_table(spans_table(traces()), path)
    return path


def run(*arguments, exit_code=0, ask=("--stage", "tool", "--faster-by", "0.5")):
    words = [str(word) for word in (*ask, *arguments)]
    result = CliRunner().invoke(whatif, words, env={"COLUMNS": "140"})
    if result.exit_code != exit_code and result.exception:
        raise result.exception
    assert result.exit_code == exit_code, result.output
    return result


def walls(numbers, part=1.0):
    """The wall time of these workflows with the tool at a part of its time."""
    return [max((300 + 10 * n) * part, 290) + 100 for n in numbers]


class TestDocument:
    def test_every_quantile_is_that_of_the_replayed_traces(self, file):
        found = json.loads(run("--file", file, "--json").stdout)
        assert found["schema"] == "longpole.whatif/1"
        assert (found["stage"], found["faster_by"]) == ("tool", 0.5)
        assert (found["num_traces"], found["num_incomplete"]) == (NUM_TRACES, 0)
        assert found["num_faster"] == NUM_TRACES
        assert found["assumption"] == "if everything else stays equal"
        median, *unknown = found["quantiles"]
        now = quantile(walls(range(NUM_TRACES)), 0.5)
        then = quantile(walls(range(NUM_TRACES), 0.5), 0.5)
        assert (median["current_ms"], median["replayed_ms"]) == (now, pytest.approx(then))
        assert median["change_ms"] == pytest.approx(then - now)
        low, high = median["ci95"]
        assert low <= median["change_ms"] <= high < 0
        assert [each["current_ms"] for each in unknown] == [None, None]
        assert [each["n"] for each in unknown] == [NUM_TRACES, NUM_TRACES]

    def test_nothing_faster_changes_nothing(self, file):
        ask = ("--stage", "tool", "--faster-by", "0")
        found = json.loads(run("--file", file, "--json", ask=ask).stdout)
        assert found["num_faster"] == 0
        assert found["quantiles"][0]["change_ms"] == 0.0
        assert found["quantiles"][0]["ci95"] == [0.0, 0.0]

    def test_twice_gives_the_same_bytes(self, file):
        assert run("--file", file, "--json").stdout == run("--file", file, "--json").stdout

    def test_only_the_route_and_what_meets_the_condition(self, file):
        found = json.loads(run("--file", file, "--json", "--route", "o'hara").stdout)
        assert (found["num_traces"], found["route"]) == (NUM_TRACES // 2, "o'hara")
        now = quantile(walls(range(0, NUM_TRACES, 2)), 0.5)
        assert found["quantiles"][0]["current_ms"] == now
        slow = json.loads(run("--file", file, "--json", "--where", "e2e_ms > 1000").stdout)
        assert slow["num_traces"] == sum(wall > 1000 for wall in walls(range(NUM_TRACES)))
        since = ("--since", "1970-01-01T00:00:00.100Z", "--at", "1970-01-01T00:00:00.110Z")
        assert json.loads(run("--file", file, "--json", *since).stdout)["num_traces"] == 10
        both = ("--where", "e2e_ms > 1000 or false -- slow", "--route", "shop")
        assert json.loads(run("--file", file, "--json", *both).stdout)["num_traces"] == 30

    def test_incomplete_traces_are_left_out_and_counted(self, tmp_path):
        spans = traces()
        spans[0] = spans[0]._replace(parent_id="f" * 16)
        pq.write_table(spans_table(spans), tmp_path / "some.parquet")
        found = json.loads(run("--file", tmp_path / "some.parquet", "--json").stdout)
        assert (found["num_traces"], found["num_incomplete"]) == (NUM_TRACES - 1, 1)


class TestText:
    def test_it_says_what_would_change_and_how_sure_that_is(self, file):
        text = run("--file", file).stdout
        assert "what if tool took 50 % less: 120 traces" in text
        assert "too few samples" in text
        assert "if everything else stays equal" in text
        (median,) = [line for line in text.splitlines() if line.startswith("p50")]
        assert median.split()[1:3] == ["990", "ms"]

    def test_a_route_cannot_move_the_terminal(self, file):
        result = run("--file", file, "--route", "\x1b[31mno such", exit_code=1)
        assert "nothing to replay" in str(result.exception)


class TestNothing:
    def test_no_trace_is_too_little(self, file):
        asked = ["whatif", "--stage", "tool", "--faster-by", "1", "--file", str(file)]
        assert whatif.name == "whatif"
        result = CliRunner().invoke(main, [*asked, "--route", "none"])
        assert result.exit_code == 4

    def test_only_parts_of_a_whole(self, file):
        for share in ("1.5", "-0.1"):
            ask = ("--stage", "tool", "--faster-by", share)
            assert run("--file", file, ask=ask, exit_code=2).stdout == ""
        with pytest.raises(UsageError, match="nan"):
            run("--file", file, ask=("--stage", "tool", "--faster-by", "nan"), exit_code=0)

    def test_a_table_of_requests_has_no_spans(self, tmp_path):
        pq.write_table(pa.table({"ttft_ms": [1.0]}), tmp_path / "flat.parquet")
        with pytest.raises(BadInput):
            run("--file", tmp_path / "flat.parquet")


class TestStore:
    @pytest.fixture
    def folder(self, file, tmp_path):
        words = ["import", "--db", str(tmp_path / "db"), str(file)]
        done = CliRunner().invoke(main, words)
        assert done.exit_code == 0, done.output
        return tmp_path / "db"

    def test_a_folder_gives_what_the_file_gives(self, folder, file):
        for more in ((), ("--route", "shop")):
            stored = run("--db", folder, "--json", *more).stdout
            assert stored == run("--file", file, "--json", *more).stdout


class PagedReader:
    """A store that answers as a running collector does, page by page."""

    def __init__(self, table):
        self.table = table
        self.pages = 0

    def sql(self, query, params=()):
        import duckdb

        self.pages += 1
        with duckdb.connect() as con:
            con.register("spans", self.table)
            return con.sql(query, params=list(params)).to_arrow_table()


def test_a_collector_is_asked_page_by_page(monkeypatch):
    table = spans_table(traces(50))
    reader = PagedReader(table)
    monkeypatch.setattr("longpole_collector.stores.remote.RemoteReader", PagedReader)
    monkeypatch.setattr(loading, "PAGE_ROWS", 7)
    found = numbered(span_loading._rows(reader, []))
    assert reader.pages == 150 // 7 + 1
    assert found.num_rows == 150
    keys = [(name, "ascending") for name in ("trace_hi", "trace_lo", "span_id")]
    assert found.sort_by(keys) == table_of(traces(50)).sort_by(keys)


class TestNumbers:
    def test_ids_are_read_whatever_the_pieces(self):
        table = spans_table(traces(20))
        pieces = pa.concat_tables([table.slice(at, 7) for at in range(0, table.num_rows, 7)])
        whole = numbered(table)
        assert whole == table_of(traces(20))
        assert numbered(pieces).combine_chunks() == whole
        assert numbered(table.slice(5, 9)) == whole.slice(5, 9).combine_chunks()
        assert numbered(table.slice(0, 0)).num_rows == 0

    @pytest.mark.parametrize("trace_id", ["abc", "x" * 32, "A" * 32, ""])
    def test_what_is_no_id_is_said(self, trace_id):
        table = spans_table([span("00000000000000a0", None, 0, 1, trace_id=trace_id)])
        with pytest.raises(BadInput, match="trace_id"):
            numbered(table)

    def test_all_digits_count(self):
        spans = [
            span("fedcba9876543210", "0123456789abcdef", 0, 1, trace_id="0123456789abcdef" * 2)
        ]
        (row,) = numbered(spans_table(spans)).to_pylist()
        assert row["span_id"] == 0xFEDCBA9876543210
        assert row["parent_id"] == row["trace_hi"] == row["trace_lo"] == 0x0123456789ABCDEF
        assert np.uint64(row["span_id"]) > np.uint64(2**63)
