"""Every slow trace of the recorded demo has a place: a stage, a shape or why none, its excess."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from longpole.vocab import Stage
from longpole_analytics.attribution import causes_of
from longpole_analytics.cohort import cohort
from longpole_analytics.coverage import coverage
from longpole_analytics.excess import account
from longpole_analytics.frames import by_trace, spans_from_table
from longpole_analytics.loading import Source, load_requests
from longpole_analytics.shapes import Baseline, shape_of_trace
from longpole_analytics.shapes.base import NAMES, NORMAL
from longpole_analytics.stages import partition

FILE = Path(__file__).parents[2] / "sample_data" / "demo.parquet"
LEAST = 0.9


@pytest.fixture(scope="module")
def requests():
    return load_requests(Source(files=(FILE,)))


@pytest.fixture(scope="module")
def splits():
    spans = by_trace(spans_from_table(pl.read_parquet(FILE)))
    return {trace_id: partition(own) for trace_id, own in spans.items()}


@pytest.mark.parametrize("objective_ms", [500.0, 700.0, 1000.0, None])
@pytest.mark.parametrize("metric", ["e2e_ms", "ttft_ms"])
def test_the_stages_hold_nine_tenths_of_each_slow_traces_excess(requests, metric, objective_ms):
    found = cohort(requests, metric, objective_ms=objective_ms)
    above = account(found)
    assert found.num_slow >= 3
    held = sum(np.maximum(lost, 0.0) for lost in above.by_stage.values())
    assert (above.total > 0).all()
    assert (held >= LEAST * above.total).all()


def test_each_slow_trace_has_a_stage_and_a_shape_or_the_reason_why_not(requests, splits):
    found = cohort(requests, "e2e_ms", objective_ms=700.0)
    slow = found.requests.filter(pl.Series(found.is_slow))
    assert slow.height >= 20
    for trace_id, route in slow.select("trace_id", "route").iter_rows():
        split = splits[trace_id]
        assert sum(time.critical_ns for time in split.stages.values()) == split.wall_ns
        assert split.long_pole is not Stage.TTFT_OPAQUE
        shape = shape_of_trace(split, Baseline.of_route(requests, route, trace_id))
        assert shape.evidence
        assert all(row.n > 0 for row in shape.evidence)
        if shape.name in (None, NORMAL):
            assert shape.sub_cause.startswith(("too few samples: ", "within normal variation"))
        else:
            assert shape.name in NAMES
            assert shape.next_check


def test_nine_tenths_of_the_excess_lie_in_the_planted_slice_or_have_a_reason(requests):
    found = cohort(requests, "e2e_ms", objective_ms=700.0)
    above = account(found)
    answer = causes_of(found, above)
    assert [cause.where for cause in answer.causes] == [{"prompt_version": "v2"}]
    explained = sum(cause.excess_ms_total for cause in answer.causes)
    covered = coverage(requests, found, above, answer)
    assert covered.num_stage == found.num_slow
    rest = found.num_slow - covered.num_slice
    assert explained >= LEAST * above.total.sum() or rest > 0
    assert dict(covered.reasons).get("slice: in none of the causes", 0) == rest
    inside = (found.requests["prompt_version"] == "v2").to_numpy()[found.is_slow]
    assert above.total[inside].sum() == pytest.approx(explained)
