"""``longpole explain`` over a real store: by id, by prefix, by file; as text and as a document."""

import json
from itertools import pairwise

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from longpole.cli import main
from longpole.vocab import Stage

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
        document = json.loads(run(file, "--json").stdout)
        assert list(document) == [
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
        assert document["schema"] == "longpole.explain/1"
        assert (document["trace_id"], document["wall_ms"]) == (TRACE_ID, 1000.0)
        assert (document["outcome"], document["long_pole"]) == ("accepted", "later_decode")
        stages = {row["stage"]: row for row in document["stages"]}
        assert stages["prefill"] == {
            "stage": "prefill",
            "critical_ms": 300.0,
            "total_ms": 300.0,
            "share": 0.3,
        }
        assert sum(row["critical_ms"] for row in document["stages"]) == pytest.approx(1000.0)
        assert sum(row["share"] for row in document["stages"]) == pytest.approx(1.0)
        path = document["critical_path"]
        assert (path[0]["start_ms"], path[-1]["end_ms"]) == (0.0, 1000.0)
        assert all(a["end_ms"] == b["start_ms"] for a, b in pairwise(path))
        assert document["what_if"][0] == {
            "stage": "later_decode",
            "faster_by": 0.5,
            "saved_ms": 180.0,
        }
        assert len(document["what_if"]) == 3
        assert (document["shape"], document["opportunities"], document["flags"]) == (None, [], [])

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
