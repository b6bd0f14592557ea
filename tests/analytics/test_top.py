"""``longpole top`` over flat tables and traces: the document, the text, and what it refuses."""

import json
from pathlib import Path

import polars as pl
import pytest
from click.testing import CliRunner

from longpole.errors import BadInput, LongpoleError, NotEnoughData, UsageError
from longpole_analytics.loading import Source, load_requests, window
from longpole_analytics.requests import STAGE_TIMES
from longpole_analytics.top_command import top

from .made_requests import made

DATA = Path(__file__).parent / "data" / "tail_attribution.parquet"
SAMPLE = Path(__file__).parents[2] / "sample_data" / "demo.parquet"
NOW_NS = 1_800_000_000_000_000_000
HOSTILE = "\x1b[31mred\x1b[0m[bold]"


def run(*arguments, error=None):
    result = CliRunner().invoke(top, [str(a) for a in arguments], env={"COLUMNS": "160"})
    if error is None:
        assert result.exception is None, result.output
    else:
        assert isinstance(result.exception, error), result.exception
    return result


class TestDocument:
    def test_it_is_the_contracts(self):
        document = json.loads(run(DATA, "--json").stdout)
        assert document["schema"] == "longpole.top/1"
        assert {"window", "causes", "coverage"} < set(document)
        for cause in document["causes"]:
            assert set(cause) >= {
                "rank",
                "stage",
                "where",
                "route",
                "num_traces",
                "share_of_slow",
                "risk_ratio",
                "ci95",
                "excess_ms_total",
                "excess_ms_p50",
                "exemplars",
            }
        assert [(c["rank"], c["stage"], c["where"]) for c in document["causes"]] == [
            (1, "later_decode", {"model": "large"}),
            (2, "later_decode", {"replica": "r7"}),
            (3, "queue", {"region": "ap", "prompt_version": "p16"}),
        ]
        assert document["window"]["num_slow"] == 998
        assert document["coverage"]["stage"] == 1.0
        assert document["coverage"]["slice"] > 0.9
        assert document["coverage"]["attributed"] == 0.0
        assert {"reason": "route: no route version", "num_traces": 998} in document["coverage"][
            "reasons"
        ]

    def test_the_same_bytes_twice(self):
        assert run(DATA, "--json").stdout == run(DATA, "--json").stdout

    def test_by_route_looks_at_each_apart(self):
        document = json.loads(run(DATA, "--json", "--by", "route").stdout)
        routes = {cause["route"] for cause in document["causes"]}
        assert routes == {"chat", "search", "agent", "report"}
        assert all("route" not in cause["where"] for cause in document["causes"])
        totals = [cause["excess_ms_total"] for cause in document["causes"]]
        assert totals == sorted(totals, reverse=True)

    def test_by_another_dimension_names_it_in_the_slice(self):
        document = json.loads(run(DATA, "--json", "--by", "model").stdout)
        assert all("model" in cause["where"] for cause in document["causes"])

    @pytest.mark.parametrize(
        ("slow", "num_slow"), [("p99", 199), ("p95", 998), ("7348.4", 1000), ("7348.4ms", 1000)]
    )
    def test_slow_is_a_quantile_or_milliseconds(self, slow, num_slow):
        window = json.loads(run(DATA, "--json", "--slow", slow).stdout)["window"]
        assert window["num_slow"] == num_slow

    def test_a_condition_chooses(self):
        document = json.loads(run(DATA, "--json", "--where", "model <> 'large'").stdout)
        assert document["window"]["num_traces"] == 20_000 - 3031
        assert {"model": "large"} not in [cause["where"] for cause in document["causes"]]

    def test_changes_are_told(self, tmp_path):
        frame = made(4000, 0, routes=1)
        is_new = pl.int_range(pl.len()) >= 2000
        frame = frame.with_columns(
            prompt_version=pl.when(is_new).then(pl.lit("v42")).otherwise(pl.lit("v41")),
            queue_ms=pl.col("queue_ms") + pl.when(is_new).then(700.0).otherwise(0.0),
            e2e_ms=pl.col("e2e_ms") + pl.when(is_new).then(700.0).otherwise(0.0),
        ).drop("flags")
        frame.write_parquet(tmp_path / "x.parquet")
        (change,) = json.loads(run(tmp_path / "x.parquet", "--json").stdout)["changes"]
        assert change["where"] == {"prompt_version": "v42"}
        assert change["previous"] == {"prompt_version": "v41"}
        assert change["stages"][0]["stage"] == "queue"
        text = run(tmp_path / "x.parquet").stdout
        assert "prompt_version v41 -> v42 at 1970-01-01 00:33:20 UTC" in text
        assert "queue p50 +7" in text


class TestText:
    def test_a_cause_is_one_line(self):
        lines = run(DATA).stdout.splitlines()
        assert lines[0] == "998 of 20000 traces slow: e2e_ms over p95 of the route"
        assert lines[2].startswith("1  later_decode  model=large")
        assert "67 % (669)" in lines[2]
        assert any(
            line.startswith("coverage    of 998 slow or failed: stage 100 %") for line in lines
        )

    def test_hostile_names_are_inert(self, tmp_path):
        frame = made(6000, 0, planted=[{"replica": "r7"}], share=0.9).drop("flags")
        frame.with_columns(
            replica=pl.col("replica").replace("r7", HOSTILE), route=pl.lit(HOSTILE)
        ).write_parquet(tmp_path / "x.parquet")
        text = run(tmp_path / "x.parquet").stdout
        assert "\x1b" not in text
        assert "replica=[31mred[0m[bold]" in text


class TestTraces:
    def test_a_file_of_traces_is_read_and_its_change_named(self):
        result = run(SAMPLE, "--metric", "ttft_ms", "--slow", "400", "--json")
        document = json.loads(result.stdout)
        (cause,) = document["causes"]
        assert (cause["where"], cause["stage"]) == ({"prompt_version": "v2"}, "prefill")
        assert [change["where"] for change in document["changes"]] == [{"prompt_version": "v2"}]

    def test_too_few_is_not_enough_evidence_and_still_a_document(self):
        result = run(SAMPLE, "--metric", "ttft_ms", "--json", error=NotEnoughData)
        assert json.loads(result.stdout)["causes"] == []
        assert json.loads(result.stdout)["coverage"]["no_cause"].startswith("too few slow traces")

    def test_clipping_splits_anew(self):
        kept, cut = (
            load_requests(Source(files=(SAMPLE,)), overhang=overhang).sort("trace_id")
            for overhang in ("detach", "clip")
        )
        assert kept["trace_id"].equals(cut["trace_id"])
        assert cut["e2e_ms"].null_count() == 0
        for frame in (kept, cut):
            stages = sum(frame[n].fill_null(0) for n in frame.columns if n in STAGE_TIMES)
            assert (stages - frame["e2e_ms"]).abs().max() < 1e-6


class TestRefusals:
    @pytest.mark.parametrize(
        ("arguments", "error", "words"),
        [
            (["--metric", "speed"], UsageError, "no metric 'speed'"),
            (["--slow", "fast"], UsageError, "--slow 'fast'"),
            (["--slow", "-5"], UsageError, "--slow"),
            (["--slow", "nan"], UsageError, "--slow"),
            (["--by", "colour"], UsageError, "no dimension 'colour'"),
            (["--where", "colour = 1"], BadInput, "condition"),
            (["--since", "24h"], BadInput, "start_ns"),
            (["--at", "noon"], UsageError, "--at 'noon'"),
        ],
    )
    def test_one_sentence_each(self, arguments, error, words):
        assert words in str(run(DATA, *arguments, error=error).exception)

    @pytest.mark.parametrize("num", [0, 1, 19])
    def test_next_to_nothing_is_said(self, tmp_path, num):
        made(20, 0).head(num).drop("flags").write_parquet(tmp_path / "x.parquet")
        for extra in ([], ["--by", "route"], ["--json"]):
            result = run(tmp_path / "x.parquet", *extra, error=LongpoleError)
            assert "nothing to rank" in str(result.exception)


class TestWindow:
    def test_times_and_spans_of_time(self):
        assert window(None, None, NOW_NS) == (None, None)
        assert window("24h", None, NOW_NS) == (NOW_NS - 86_400 * 10**9, None)
        assert window("2027-01-15T08:00:00Z", None, NOW_NS) == (NOW_NS, None)
        assert window("30m", "2027-01-15T08:00:00", 0) == (NOW_NS - 1800 * 10**9, NOW_NS)
        assert window(None, "2027-01-15T10:00:00+02:00", 0) == (None, NOW_NS)

    def test_requests_outside_are_left_out(self, tmp_path):
        made(100, 0).drop("flags").write_parquet(tmp_path / "x.parquet")
        source = Source(files=(tmp_path / "x.parquet",))
        found = load_requests(source, since_ns=10 * 10**9, until_ns=20 * 10**9)
        assert found["start_ns"].to_list() == [n * 10**9 for n in range(10, 20)]
