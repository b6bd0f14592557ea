"""``longpole shapes``: populations from files and stores, as text and as a document."""

import json
import time

import polars as pl
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from longpole.errors import BadInput, NotEnoughData, UsageError
from longpole.vocab import Stage
from longpole_analytics.shapes_command import shapes

from .population_generator import populations
from .tables import spans_table
from .traces import span

BOTH = ("--baseline", "period = '0'", "--current", "period = '1'")


@pytest.fixture
def file(tmp_path):
    frame, labels = populations(1, per_label=1)
    frame.write_parquet(tmp_path / "flat.parquet")
    return tmp_path / "flat.parquet", labels


def run(*arguments):
    result = CliRunner().invoke(shapes, [str(a) for a in arguments], env={"COLUMNS": "140"})
    if result.exception is not None:
        raise result.exception
    return result


def test_the_document_is_that_of_the_contract(file) -> None:
    path, labels = file
    found = json.loads(run(path, *BOTH, "--by", "slice_id", "--json").stdout)
    assert found["schema"] == "longpole.shapes/1"
    assert {s["where"]["slice_id"]: s["shape"] for s in found["slices"]} == labels
    for part in found["slices"]:
        assert list(part)[:5] == ["where", "shape", "sub_cause", "evidence", "next_check"]
        assert list(part)[5:] == ["excess_ms", "also"]
        for other in part["also"]:
            assert list(other) == ["shape", "sub_cause", "excess_ms", "evidence", "next_check"]
        for row in part["evidence"]:
            assert list(row) == [
                "metric",
                "quantile",
                "current",
                "baseline",
                "ratio",
                "ci95",
                "n",
            ]


def test_the_same_command_prints_the_same_bytes(file) -> None:
    path, _ = file
    words = (path, *BOTH, "--by", "slice_id", "--json")
    assert run(*words).stdout == run(*words).stdout


def test_the_text_names_shape_evidence_and_next_check(file) -> None:
    path, _ = file
    text = run(path, *BOTH, "--by", "slice_id").stdout
    assert "14 slices: 13 with a shape, 1 normal, 0 with too few samples" in text
    for word in ("high_ttft_queue", "next check", "p50", "95 %"):
        assert word in text


def test_names_from_data_cannot_move_the_cursor(tmp_path) -> None:
    frame, _ = populations(1, per_label=1)
    frame = frame.filter(pl.col("slice_id") == 7).with_columns(where=pl.lit("a\x1b[2Jb"))
    frame.write_parquet(tmp_path / "flat.parquet")
    text = run(tmp_path / "flat.parquet", *BOTH, "--by", "where").stdout
    assert "\x1b" not in text
    assert "high_tpot" in text


def test_a_csv_is_read_and_without_columns_there_is_one_slice(file, tmp_path) -> None:
    path, _ = file
    pl.read_parquet(path).filter(pl.col("slice_id") == 7).write_csv(tmp_path / "flat.csv")
    found = json.loads(run(tmp_path / "flat.csv", *BOTH, "--json").stdout)
    assert [(s["where"], s["shape"]) for s in found["slices"]] == [({}, "high_tpot")]


def test_wrong_options_are_named(file) -> None:
    path, _ = file
    with pytest.raises(UsageError, match="both --baseline and --current"):
        run(path, "--baseline", "true")
    with pytest.raises(BadInput, match="--by planet"):
        run(path, *BOTH, "--by", "planet")
    with pytest.raises(BadInput, match="columns: trace_id"):
        run(path, "--baseline", "perio = 1", "--current", "true")
    with pytest.raises(BadInput, match="start_ns"):
        run(path)


def test_too_few_requests_are_said_in_the_document_and_by_the_exit(file) -> None:
    path, _ = file
    with pytest.raises(NotEnoughData):
        run(path, "--baseline", "false", "--current", "true")


def test_thresholds_come_from_the_configuration(file, tmp_path, monkeypatch) -> None:
    path, _ = file
    (tmp_path / "longpole.toml").write_text("[analytics.shapes]\nmin_ratoi = 9.0\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=r"min_ratio|unknown table"):
        run(path, *BOTH)


# --- by time --------------------------------------------------------------------------------------
NOW_S = 1_790_000_000
DAY_S = 86_400
AT = "2026-09-21T14:13:20Z"


def workflows(num, first_s, step_s, tool_ms, prefix):
    spans = []
    for number in range(num):
        start_ms = (first_s + number * step_s) * 1000
        trace_id = f"{prefix}{number:031x}"
        facts = {"trace_id": trace_id, "route": "shop"}
        length = tool_ms + number % 7
        root, tool = f"{prefix}{number:014x}0", f"{prefix}{number:014x}1"
        spans += [
            span(root, None, start_ms, start_ms + length + 50, **facts),
            span(tool, root, start_ms, start_ms + length, stage=Stage.TOOL, **facts),
        ]
    return spans


@pytest.fixture
def week(tmp_path):
    """A week of tools of 200 ms, then a day of tools of 900 ms."""
    usual = workflows(150, NOW_S - 8 * DAY_S + 60, 4000, 200, "a")
    slow = workflows(150, NOW_S - DAY_S + 60, 500, 900, "b")
    path = tmp_path / "spans.parquet"
    pq.write_table(spans_table([*usual, *slow]), path)
    return path


def test_the_last_day_is_compared_with_the_week_before(week) -> None:
    for words in ((), ("--overhang", "clip"), ("--by", "route")):
        found = json.loads(run(week, "--at", AT, "--json", *words).stdout)
        (only,) = found["slices"]
        assert only["shape"] == "workflow_slow_serial_tools"
        first = only["evidence"][0]
        assert (first["metric"], first["n"]) == ("tool_ms", 150)
        assert first["ratio"] == pytest.approx(4.4, abs=0.2)


def test_since_moves_the_border_and_at_the_end(week) -> None:
    found = json.loads(run(week, "--at", AT, "--since", "12h", "--json").stdout)
    assert found["slices"][0]["evidence"][0]["n"] < 150
    before = "2026-09-20T14:13:20Z"
    found = json.loads(run(week, "--at", before, "--json").stdout)
    assert found["slices"][0]["shape"] == "normal"


def test_without_at_now_is_the_end(week, monkeypatch) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: NOW_S * 10**9)
    assert run(week, "--json").stdout == run(week, "--at", AT, "--json").stdout
    monkeypatch.setattr(time, "time_ns", lambda: (NOW_S + 30 * DAY_S) * 10**9)
    with pytest.raises(NotEnoughData):
        run(week, "--json")
