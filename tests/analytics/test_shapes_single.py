"""The shape of one trace against its route."""

import numpy as np
import polars as pl
import pytest

from longpole.vocab import Stage
from longpole_analytics.requests import from_flat
from longpole_analytics.shapes import Baseline, shape_of_trace
from longpole_analytics.shapes._single import SHAPE_OF
from longpole_analytics.shapes.base import NAMES
from longpole_analytics.stages import partition

from .traces import TRACE_ID, call, span

NUM = 200


def requests(n=NUM, route="r", **columns):
    """Requests of a route: 300 ms of queue and tool, 1000 of decoding, more for longer ones."""
    random = np.random.default_rng(1)
    tokens = random.integers(50, 200, n)
    base = {
        "trace_id": [f"t{number}" for number in range(n)],
        "route": [route] * n,
        "input_tokens": random.integers(500, 2000, n),
        "output_tokens": tokens,
        "queue_ms": random.uniform(80, 120, n),
        "prefill_ms": random.uniform(80, 120, n),
        "tool_ms": random.uniform(180, 220, n),
        "later_decode_ms": 10.0 * tokens,
        "retry_ms": np.zeros(n),
    }
    base["e2e_ms"] = 400 + 10.0 * tokens
    return from_flat(pl.DataFrame(base | columns))


def trace(queue=100, prefill=100, tool=200, decode=1000, retry=0, **facts):
    """A tool, then a call whose engine tells its phases; ``retry`` before the call's answer."""
    known = {"input_tokens": 1000, "output_tokens": 100} | facts
    ends = np.cumsum([tool, retry, queue, prefill, decode])
    end = int(ends[-1])
    return partition(
        [
            span("root", None, 0, end),
            span("tool", "root", 0, tool, stage=Stage.TOOL),
            span("again", "root", tool, tool + retry, stage=Stage.RETRY),
            call(
                "call",
                "root",
                tool + retry,
                end,
                is_streamed=True,
                ttft_ns=(queue + prefill) * 10**6,
                last_content_ns=(queue + prefill + decode) * 10**6,
                **known,
            ),
            span("queue", "call", tool + retry, tool + retry + queue, stage=Stage.QUEUE),
        ]
    )


def shape(split, frame=None):
    return shape_of_trace(split, Baseline.of_route(requests() if frame is None else frame, "r"))


def test_every_stage_has_a_name_of_the_closed_set() -> None:
    assert set(SHAPE_OF) == set(Stage)
    assert set(SHAPE_OF.values()) <= set(NAMES)


def test_a_usual_trace_is_within_normal_variation() -> None:
    frame = requests().with_columns(ttft_opaque_ms=pl.lit(200.0))
    found = shape(trace(), frame)
    assert (found.name, found.sub_cause) == ("normal", "within normal variation")


@pytest.mark.parametrize(
    ("slow", "name", "stage"),
    [
        ({"tool": 2000}, "workflow_slow_serial_tools", "tool"),
        ({"retry": 3000}, "workflow_slow_retries", "retry"),
        ({"decode": 5000}, "high_tpot", "later_decode"),
    ],
)
def test_the_stage_that_is_furthest_beyond_usual_names_the_shape(slow, name, stage) -> None:
    found = shape(trace(**slow))
    assert (found.name, found.sub_cause.split("; ")[0]) == (name, stage)
    first = found.evidence[0].document()
    assert first["metric"] == f"{stage}_ms"
    assert first["current"] == sum(slow.values())
    assert first["n"] >= 72
    assert found.next_check
    assert found.excess_ms == pytest.approx(first["current"] - first["baseline"])


def test_a_longer_answer_than_all_before_is_mix_and_not_slowness() -> None:
    found = shape(trace(decode=9000, output_tokens=900))
    assert found.name == "mix_longer_outputs"
    assert "output_tokens" in [row.metric for row in found.evidence]


def test_length_is_matched_before_a_stage_is_called_slow() -> None:
    assert shape(trace(decode=1900, output_tokens=190)).name == "normal"
    assert shape(trace(decode=1900, output_tokens=60)).name == "high_tpot"


def test_a_route_with_few_requests_or_none_gets_a_sentence() -> None:
    for frame in (requests(20), requests(200, route="other"), requests(0)):
        found = shape(trace(), frame)
        assert found.name is None
        assert "too few samples" in found.sub_cause
        assert found.document()["evidence"][0]["current"] == 1400


def test_a_baseline_leaves_the_trace_itself_out_and_null_is_a_route() -> None:
    frame = requests(3).with_columns(
        trace_id=pl.Series(["a", TRACE_ID, "b"]), route=pl.lit(None, pl.String)
    )
    kept = Baseline.of_route(frame, None, TRACE_ID).requests
    assert kept["trace_id"].to_list() == ["a", "b"]
    assert Baseline.of_route(frame.drop("route"), "any").requests.height == 3


def test_unknown_tokens_and_stages_are_borne() -> None:
    bare = requests().with_columns(
        pl.lit(None, pl.Int64).alias("input_tokens"), pl.lit(None, pl.Float64).alias("tool_ms")
    )
    found = shape(trace(tool=9000, input_tokens=None), bare)
    assert found.name in NAMES
    empty = partition([])
    assert shape(empty).name in (*NAMES, None)


@pytest.mark.parametrize("name", ["prompt_version", "route_version"])
def test_what_a_version_made_usual_is_told_against_the_others(name) -> None:
    """Half of the route runs a version in which the tool takes two seconds."""
    versions = np.array(["v1", "v2"] * NUM)
    frame = requests(2 * NUM, **{name: versions}).with_columns(
        tool_ms=pl.when(pl.Series(versions == "v2")).then(pl.col("tool_ms") + 1800).otherwise(200)
    )
    base = Baseline.of_route(frame, "r")
    slow = trace(tool=2000)
    assert shape_of_trace(slow, base).name == "normal"
    found = shape_of_trace(slow, base, facts={name: "v2"})
    assert found.name == "workflow_slow_serial_tools"
    assert f"usual for {name} v2, not for others" in found.sub_cause
    assert found.evidence[0].baseline == 200
    assert shape_of_trace(trace(), base, facts={name: "v1"}).name == "normal"
