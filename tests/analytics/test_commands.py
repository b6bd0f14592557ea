"""``longpole explain`` over a real store: by id, by prefix, by file; as text and as a document."""

import json
from dataclasses import replace
from itertools import pairwise

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from longpole.cli import main
from longpole.vocab import Stage
from longpole_analytics.explain import document
from longpole_analytics.stages import StageTime, partition

from .tables import spans_table
from .traces import MS, TRACE_ID, engine, span, streamed

HOSTILE = "\x1b[31mchat\x1b[0m \u202e[bold]evil[/bold]\r\n=cmd()"
OTHER_ID = "4bf92f" + "0" * 26


def trace():
    return [
        span("00000000000000a0", None, 100, 1100, operation="invoke_workflow", outcome="accepted"),
        span("00000000000000a1", "00000000000000a0", 100, 200, stage=Stage.RETRIEVAL),
        streamed("00000000000000a2", "00000000000000a0", 210, 1000, 400, 780, name=HOSTILE),
        *(
            part._replace(span_id=f"{number:016x}", parent_id=parent)
            for number, (part, parent) in enumerate(
                zip(
                    engine("e", "c", 5000, {"queue": 80, "prefill": 300, "decode": 360}),
                    ["00000000000000a2", *["00000000000000b0"] * 3],
                    strict=True,
                ),
                start=0xB0,
            )
        ),
    ]


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "one.parquet"
    pq.write_table(spans_table(trace()), path)
    return path


def run(*arguments, exit_code=0):
    result = CliRunner().invoke(main, ["explain", *map(str, arguments)], env={"COLUMNS": "140"})
    assert result.exit_code == exit_code, result.output
    return result


class TestDocument:
    def test_it_is_the_contracts(self, file):
        found = json.loads(run(file, "--json").stdout)
        assert list(found) == [
            "schema",
            "trace_id",
            "wall_ms",
            "outcome",
            "stages",
            "critical_path",
            "long_pole",
            "shape",
            "what_if",
            "opportunities",
            "flags",
        ]
        assert found["schema"] == "longpole.explain/1"
        assert (found["trace_id"], found["wall_ms"]) == (TRACE_ID, 1000.0)
        assert (found["outcome"], found["long_pole"]) == ("accepted", "later_decode")
        stages = {row["stage"]: row for row in found["stages"]}
        assert stages["prefill"] == {
            "stage": "prefill",
            "critical_ms": 300.0,
            "total_ms": 300.0,
            "share": 0.3,
        }
        assert sum(row["critical_ms"] for row in found["stages"]) == pytest.approx(1000.0)
        assert sum(row["share"] for row in found["stages"]) == pytest.approx(1.0)
        path = found["critical_path"]
        assert (path[0]["start_ms"], path[-1]["end_ms"]) == (0.0, 1000.0)
        assert all(a["end_ms"] == b["start_ms"] for a, b in pairwise(path))
        assert found["what_if"][0] == {
            "stage": "later_decode",
            "faster_by": 0.5,
            "saved_ms": 180.0,
        }
        assert len(found["what_if"]) == 3
        assert (found["opportunities"], found["flags"]) == ([], [])
        shape = found["shape"]
        assert list(shape) == ["name", "sub_cause", "evidence", "next_check"]
        assert shape["name"] is None
        assert "too few samples: 0 like requests" in shape["sub_cause"]

    def test_twice_gives_the_same_bytes(self, file):
        assert run(file, "--json").stdout == run(file, "--json").stdout
        assert run(file).stdout == run(file).stdout

    def test_a_share_of_nothing_is_unknown(self, tmp_path):
        split = partition([span("00000000000000a0", None, 0, 0)])
        split = replace(split, stages={Stage.TOOL: StageTime(0, 5)})
        assert document(split, None)["stages"][0]["share"] is None

    def test_a_prefix_of_the_id_is_enough(self, file):
        by_prefix = run(TRACE_ID[:6].upper(), "--file", file, "--json")
        assert by_prefix.stdout == run(TRACE_ID, "--file", file, "--json").stdout

    def test_overhang_changes_the_path(self, tmp_path):
        spans = [
            span("00000000000000a0", None, 0, 100),
            span("00000000000000a1", "00000000000000a0", 5, 400, stage=Stage.TOOL),
        ]
        pq.write_table(spans_table(spans), tmp_path / "log.parquet")
        poles = {
            rule: json.loads(run(tmp_path / "log.parquet", "--json", "--overhang", rule).stdout)[
                "long_pole"
            ]
            for rule in ("detach", "clip")
        }
        assert poles == {"detach": "other", "clip": "tool"}


class TestText:
    def test_it_names_stages_path_pole_and_next_check(self, file):
        text = run(file).stdout
        for part in (
            "drag",
            "slack",
            "wall 1 000 ms",
            "outcome accepted",
            "prefill",
            "30 %",
            "long pole   later_decode: 360 ms",
            "next check  compare output tokens",
            "what if     later_decode took 50 % less: -180 ms",
        ):
            assert part in text
        assert text.index("retrieval") < text.index("long pole")

    def test_what_is_unexplained_before_the_first_content_is_said(self, tmp_path):
        spans = [streamed("00000000000000a0", None, 0, 100, 40, 90)]
        pq.write_table(spans_table(spans), tmp_path / "opaque.parquet")
        text = run(tmp_path / "opaque.parquet").stdout
        assert "opaque      100 % of the time to first content is unexplained" in text

    def test_every_change_to_the_trace_is_said_with_its_number(self, tmp_path):
        spans = [span("00000000000000a0", None, 0, 100, instance_id="app")]
        spans += [
            span(f"00000000000000a{n}", "00000000000000a0", 5, 300 + n, instance_id="app")
            for n in (1, 2)
        ]
        spans.append(span("00000000000000a3", "00000000000000a0", -30, 40, instance_id="engine"))
        pq.write_table(spans_table(spans), tmp_path / "doubts.parquet")
        text = run(tmp_path / "doubts.parquet").stdout
        assert "doubts      clock_skew, overhang_detached (2)" in text
        assert "clock of engine moved by 30 ms" in text

    def test_text_from_spans_cannot_move_the_terminal(self, tmp_path):
        spans = [
            span("00000000000000a0", None, 0, 100, name=HOSTILE, instance_id="a"),
            span("00000000000000a1", "00000000000000a0", -30, 40, instance_id=HOSTILE),
        ]
        pq.write_table(spans_table(spans), tmp_path / "hostile.parquet")
        result = run(tmp_path / "hostile.parquet")
        assert not {"\x1b", "\u202e", "\r"} & set(result.output)
        assert "[bold]evil[/bold]" in result.stdout
        assert "=cmd()" in result.stdout
        assert "clock of" in result.stdout

    def test_a_long_path_is_shortened(self, tmp_path):
        spans = [span("00000000000000a0", None, 0, 1000)]
        spans += [
            span(f"{n + 1:016x}", "00000000000000a0", n * 10, n * 10 + 9, stage=Stage.TOOL)
            for n in range(100)
        ]
        pq.write_table(spans_table(spans), tmp_path / "long.parquet")
        assert "and 160 shorter ones" in run(tmp_path / "long.parquet").stdout

    def test_a_trace_without_a_duration_says_so(self, tmp_path):
        pq.write_table(spans_table([span("00000000000000a0", None, 0, None)]), tmp_path / "o.pq")
        text = run(tmp_path / "o.pq").stdout
        assert "nothing to split" in text
        assert "unfinished_span" in text

    def test_the_end_of_a_stream_that_outlives_the_root_is_said(self, tmp_path):
        spans = [
            span("00000000000000a0", None, 0, 100),
            streamed("00000000000000a1", "00000000000000a0", 5, 400, 50, 390),
        ]
        pq.write_table(spans_table(spans), tmp_path / "stream.parquet")
        assert "until the end of the stream 400 ms" in run(tmp_path / "stream.parquet").stdout


def in_a_row(number, *, first="lookup", second="search", is_apart=False, version="1"):
    """A workflow of two tools, one after the other or side by side."""
    facts = {"trace_id": f"{number:032x}", "route": "shop", "route_version": version}
    tools = {**facts, "stage": Stage.TOOL}
    root = f"{number:012x}0000"
    at = 5 if is_apart else 401
    return [
        span(root, None, 0, 1000, operation="invoke_workflow", **facts),
        span(f"{number:012x}0001", root, 0, 400, name=first, **tools),
        span(f"{number:012x}0002", root, at, at + 500, name=second, **tools),
    ]


class TestShape:
    def test_a_slow_trace_is_compared_with_the_others_of_its_route(self, tmp_path):
        spans = [one for number in range(2, 102) for one in in_a_row(number)]
        other = [one._replace(route="other") for one in in_a_row(200)]
        slow = in_a_row(1)
        slow[0] = slow[0]._replace(end_ns=3000 * MS)
        slow[2] = slow[2]._replace(end_ns=2900 * MS)
        pq.write_table(spans_table([*spans, *other, *slow]), tmp_path / "many.parquet")
        asked = [f"{1:032x}", "--file", tmp_path / "many.parquet"]
        shape = json.loads(run(*asked, "--json").stdout)["shape"]
        assert shape["name"] == "workflow_slow_serial_tools"
        assert shape["evidence"][0]["metric"] == "tool_ms"
        assert 72 <= shape["evidence"][0]["n"] <= 100
        assert shape["next_check"]
        assert "shape       workflow_slow_serial_tools: tool" in run(*asked).stdout
        usual = json.loads(run(f"{7:032x}", *asked[1:], "--json").stdout)["shape"]
        assert (usual["name"], usual["sub_cause"]) == ("normal", "within normal variation")


class TestOpportunities:
    def explained(self, tmp_path, *others):
        spans = [*in_a_row(1), *(one for other in others for one in other)]
        pq.write_table(spans_table(spans), tmp_path / "many.parquet")
        done = run(f"{1:032x}", "--file", tmp_path / "many.parquet", "--json")
        return json.loads(done.stdout)["opportunities"]

    def test_a_row_of_tools_is_one(self, tmp_path):
        assert self.explained(tmp_path) == [
            {
                "kind": "serial",
                "evidence": "E1",
                "span_ids": [f"{1:012x}0001", f"{1:012x}0002"],
                "names": ["lookup", "search"],
                "saved_ms": 400.0,
                "bound_ms": 400.0,
                "parallelism": 1.0,
                "num_traces_apart": 0,
                "rate_limit_risk": None,
            }
        ]

    def test_other_traces_of_the_route_and_version_are_asked(self, tmp_path):
        apart = [in_a_row(number, is_apart=True) for number in (2, 3)]
        other_version = in_a_row(4, is_apart=True, version="2")
        (one,) = self.explained(tmp_path, *apart, other_version, in_a_row(5))
        assert (one["evidence"], one["num_traces_apart"]) == ("E1", 2)
        (one,) = self.explained(tmp_path, *apart, in_a_row(6, is_apart=True))
        assert (one["evidence"], one["num_traces_apart"]) == ("E2", 3)

    def test_the_thresholds_are_configuration(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "longpole.toml").write_text("[analytics.serial]\nmin_traces_apart = 2\n")
        apart = [in_a_row(number, is_apart=True) for number in (2, 3)]
        (one,) = self.explained(tmp_path, *apart)
        assert one["evidence"] == "E2"

    def test_the_text_says_what_is_known(self, tmp_path):
        pq.write_table(spans_table(in_a_row(1)), tmp_path / "one.parquet")
        text = run(tmp_path / "one.parquet").stdout
        assert "in parallel lookup | search: -400 ms (at most 400 ms), E1: nothing is" in text


class TestWhichTrace:
    def test_the_slowest_of_a_file_is_explained_and_that_is_said(self, tmp_path):
        slow = [s._replace(trace_id=OTHER_ID, end_ns=(s.end_ns or 0) + MS) for s in trace()]
        pq.write_table(spans_table([*trace(), *slow]), tmp_path / "two.parquet")
        result = run(tmp_path / "two.parquet", "--json")
        assert json.loads(result.stdout)["trace_id"] == OTHER_ID
        assert "2 traces; this is the slowest." in result.stderr

    def test_an_ambiguous_prefix_lists_what_it_may_mean(self, tmp_path):
        other = [s._replace(trace_id=OTHER_ID) for s in trace()]
        pq.write_table(spans_table([*trace(), *other]), tmp_path / "two.parquet")
        result = run("4bf92f", "--file", tmp_path / "two.parquet", exit_code=2)
        assert TRACE_ID in result.stderr
        assert OTHER_ID in result.stderr

    @pytest.mark.parametrize("trace_id", ["abcdef", "0" * 32])
    def test_an_unknown_trace_is_an_error(self, file, trace_id):
        result = run(trace_id, "--file", file, exit_code=1)
        assert result.stderr.startswith(f"Error: no trace {trace_id}")
        assert result.stdout == ""

    def test_neither_file_nor_id(self):
        result = run("no-such.json", exit_code=2)
        assert "neither a file nor a trace id" in result.stderr

    def test_a_file_without_spans_says_so(self, tmp_path):
        (tmp_path / "empty.json").write_text('{"resourceSpans": []}')
        assert "no spans in the file" in run(tmp_path / "empty.json", exit_code=1).stderr

    def test_no_data_folder_is_out_of_reach(self, tmp_path):
        result = run(TRACE_ID, "--db", tmp_path / "nothing", exit_code=5)
        assert result.stderr.startswith("Error: ")


class TestProject:
    """A project's traces lie in a folder of their own."""

    @pytest.fixture
    def folder(self, file, tmp_path):
        words = ["import", "--db", str(tmp_path / "db"), "--project", "shop", str(file)]
        done = CliRunner().invoke(main, words)
        assert done.exit_code == 0, done.output
        return tmp_path / "db"

    def test_its_folder_is_read_and_no_other(self, folder):
        asked = [TRACE_ID, "--db", folder, "--json"]
        found = json.loads(run(*asked, "--project", "shop").stdout)
        assert found["trace_id"] == TRACE_ID
        assert "no data in" in run(*asked, exit_code=5).stderr
        assert "no data in" in run(*asked, "--project", "other", exit_code=5).stderr
        assert "project 'Sh/op'" in run(*asked, "--project", "Sh/op", exit_code=2).stderr

    def test_the_folder_may_be_the_configured_one(self, folder, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "longpole.toml").write_text(f'[collector]\ndb = "{folder}"\n')
        assert json.loads(run(TRACE_ID, "--project", "shop", "--json").stdout)["wall_ms"] == 1000.0

    def test_elsewhere_it_says_what_decides(self, file):
        for words in (["--url", "http://127.0.0.1:1"], ["--file", file]):
            done = run(TRACE_ID, "--project", "shop", *words, exit_code=2)
            assert "with --url the key (LONGPOLE_COLLECTOR_API_KEY) decides" in done.stderr
