"""The planted causes are found, the confounder is not, and thin data is called thin."""

from pathlib import Path

import polars as pl
import pytest

from longpole.errors import BadInput
from longpole.vocab import Stage
from longpole_analytics.attribution import attribute
from longpole_analytics.population import TTFT_STAGES, population, stage_column

from .populations import shop

DATA = Path(__file__).parent / "data"
STAGES = (Stage.QUEUE, Stage.PREFILL, Stage.LATER_DECODE, Stage.TOOL)
DIMENSIONS = ("region", "prompt_version", "model", "tenant", "replica")


@pytest.fixture(scope="module")
def requests():
    columns = ("queue_ms", "prefill_ms", "decode_ms", "tool_ms")
    names = dict(zip(columns, map(stage_column, STAGES), strict=True))
    table = pl.read_parquet(DATA / "tail_attribution.parquet").rename(names)
    return table.with_row_index("trace_id").with_columns(
        pl.col("trace_id").cast(pl.String), pl.col(pl.Float32).cast(pl.Float64)
    )


def causes(frame, **rules):
    found = attribute(frame, "e2e_ms", dimensions=DIMENSIONS, stages=STAGES, **rules)
    return {next(iter(c.where.items())): c for c in found.causes}


class TestPlantedCauses:
    def test_slices_and_stages_are_named(self, requests):
        found = causes(requests)
        assert found["model", "large"].stage == Stage.LATER_DECODE
        assert found["replica", "r7"].stage == Stage.LATER_DECODE
        assert found["prompt_version", "p16"].stage == Stage.QUEUE

    def test_the_tenant_that_sends_long_prompts_is_not_blamed(self, requests):
        assert ("tenant", "t2") not in causes(requests)
        only_tenant = attribute(requests, "e2e_ms", dimensions=["tenant"], stages=STAGES)
        assert only_tenant.causes == ()

    def test_a_cause_is_sized_against_the_others(self, requests):
        cause = causes(requests)["model", "large"]
        assert cause.ci95[0] < cause.risk_ratio < cause.ci95[1]
        assert cause.of_slow > 4 * cause.of_rest
        assert cause.num_slow == pytest.approx(668, abs=5)
        assert cause.excess_ms_total > cause.num_slow * 1000
        assert len(cause.exemplars) == 10

    def test_same_rows_same_answer_in_any_order(self, requests):
        assert causes(requests.sample(fraction=1.0, shuffle=True, seed=3)) == causes(requests)

    def test_labels_without_meaning_explain_nothing(self, requests):
        shuffled = requests.with_columns(pl.col(n).shuffle(seed=7) for n in DIMENSIONS)
        assert causes(shuffled) == {}


class TestThinData:
    def test_few_traces(self, requests):
        found = attribute(requests.head(19), "e2e_ms", dimensions=DIMENSIONS, stages=STAGES)
        assert (found.causes, found.reason) == ((), "too few traces: 19 of 20")

    def test_few_slow_traces(self, requests):
        found = attribute(requests.head(100), "e2e_ms", dimensions=DIMENSIONS, stages=STAGES)
        assert found.causes == ()
        assert found.reason.startswith("too few slow traces")

    def test_only_slow_traces(self, requests):
        found = attribute(
            requests.head(100), "e2e_ms", dimensions=DIMENSIONS, stages=STAGES, objective_ms=0.0
        )
        assert found.reason.startswith("every trace is slow")

    def test_no_traces(self, requests):
        found = attribute(requests.head(0), "e2e_ms", dimensions=DIMENSIONS, stages=STAGES)
        assert found.num_traces == 0


class TestPopulation:
    def test_one_row_per_trace_with_its_slowest_call(self):
        traces, stages, calls = shop(40)
        slower = calls.head(1).with_columns(ttft_ms=pl.lit(9999.0), request_model=pl.lit("large"))
        frame = population(
            traces,
            stages,
            pl.concat([calls, slower]),
            metric="ttft_ms",
            dimensions=("route", "request_model", "region"),
        )
        assert frame.height == 40
        first = frame.filter(pl.col("trace_id") == calls["trace_id"][0]).row(0, named=True)
        assert first["ttft_ms"] == 9999.0
        assert (first["request_model"], first["region"]) == (None, None)
        assert first[stage_column(Stage.TOOL)] == 0.0

    def test_incomplete_traces_and_those_without_the_metric_are_left_out(self):
        traces, stages, calls = shop(40)
        broken = pl.when(pl.int_range(pl.len()) == 0).then(pl.lit(["incomplete_trace"]))
        traces = traces.with_columns(flags=broken.otherwise(pl.col("flags")))
        frame = population(traces, stages, calls.head(30), metric="ttft_ms", dimensions=("route",))
        assert frame.height == 29

    def test_an_unknown_metric_is_refused_by_name(self):
        with pytest.raises(BadInput, match="no metric 'speed'"):
            population(*shop(20), metric="speed", dimensions=())

    def test_time_to_first_content_is_explained_by_its_own_stages_only(self):
        frame = population(*shop(240), metric="ttft_ms", dimensions=("route", "prompt_version"))
        found = attribute(
            frame,
            "ttft_ms",
            dimensions=("prompt_version",),
            stages=TTFT_STAGES,
            objective_ms=200.0,
        )
        (cause,) = found.causes
        assert (cause.where, cause.stage) == ({"prompt_version": "v2"}, Stage.PREFILL)
        assert cause.share_of_excess > 0.9
