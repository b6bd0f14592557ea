from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longpole.errors import BadInput
from longpole.vocab import Stage
from longpole_analytics.loading import Source, load_requests, select
from longpole_analytics.requests import STAGE_TIMES, dimension_names, from_flat, from_views


def calls(*rows: dict[str, object]) -> pl.DataFrame:
    base = {
        "trace_id": "t",
        "span_id": "s",
        "start_ns": 0,
        "end_ns": 10,
        "provider": "p",
        "request_model": "m",
        "input_tokens": 5,
        "cached_input_tokens": None,
        "output_tokens": 2,
        "num_chunks": 2,
        "ttft_ms": 1.0,
        "ttfv_ms": 1.0,
        "tpot_ms": 1.0,
        "stall_ms": None,
        "chunk_gap_max_ms": None,
        "num_attempts": 1,
        "tokens_per_chunk": 1.0,
        "error_type": None,
        "cache_state": None,
    }
    return pl.DataFrame([{**base, **row} for row in rows], infer_schema_length=None)


def traces(*ids: str, **more: object) -> pl.DataFrame:
    return pl.DataFrame(
        [
            {"trace_id": i, "start_ns": n, "wall_ms": 9.0, "route": "r", "flags": [], **more}
            for n, i in enumerate(ids)
        ],
        schema_overrides={"flags": pl.List(pl.String)},
    )


def stage_rows(*rows: tuple[str, str, float]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=["trace_id", "stage", "critical_ms"], orient="row")


def test_the_stage_columns_are_the_stages() -> None:
    assert {name.removesuffix("_ms") for name in STAGE_TIMES} == {str(stage) for stage in Stage}


def test_a_flat_table_keeps_what_it_knows_and_names_the_rest_dimensions() -> None:
    flat = pl.DataFrame(
        {
            "region": ["eu"],
            "slice_id": [7],
            "decode_ms": [90.0],
            "cached_tokens": [3],
            "output_tokens": [10],
            "e2e_ms": [float("nan")],
            "cold": [True],
            "cost_usd": [1.0],
        }
    )
    found = from_flat(flat)
    assert dimension_names(found) == ["region", "slice_id"]
    row = found.row(0, named=True)
    assert (row["region"], row["slice_id"]) == ("eu", "7")
    assert (row["later_decode_ms"], row["cached_input_tokens"]) == (90.0, 3)
    assert row["tpot_ms"] == 10.0
    assert row["is_cold"] is True
    assert row["e2e_ms"] is None
    assert row["queue_ms"] is None


def test_tpot_of_one_token_is_unknown() -> None:
    found = from_flat(pl.DataFrame({"decode_ms": [5.0, 5.0], "output_tokens": [1, None]}))
    assert found["tpot_ms"].to_list() == [None, None]


def test_a_column_of_the_wrong_kind_is_named() -> None:
    with pytest.raises(BadInput, match="cannot be read"):
        from_flat(pl.DataFrame({"e2e_ms": ["fast"]}))


def test_a_workflow_sums_its_calls_and_shows_its_slowest() -> None:
    found = from_views(
        traces("t"),
        stage_rows(("t", "prefill", 4.0), ("t", "tool", 3.0)),
        calls(
            {"span_id": "a", "end_ns": 20, "ttft_ms": 3.0, "request_model": "m"},
            {"span_id": "b", "start_ns": 5, "end_ns": 9, "num_attempts": 3, "request_model": "n"},
        ),
    )
    row = found.row(0, named=True)
    assert (row["input_tokens"], row["output_tokens"], row["num_turns"]) == (10, 4, 2)
    assert row["cached_input_tokens"] is None
    assert (row["ttft_ms"], row["num_attempts"]) == (3.0, 3)
    assert (row["prefill_ms"], row["tool_ms"], row["queue_ms"]) == (4.0, 3.0, 0.0)
    assert row["e2e_ms"] == 9.0
    assert row["request_model"] is None
    assert row["provider"] == "p"
    assert row["is_error"] is False


def test_calls_in_flight_are_counted_at_the_start_and_per_model() -> None:
    found = from_views(
        traces("t", "u", "v", "w"),
        stage_rows(("t", "other", 1.0)),
        calls(
            {"trace_id": "t", "start_ns": 0, "end_ns": 10},
            {"trace_id": "u", "start_ns": 4, "end_ns": 10},
            {"trace_id": "v", "start_ns": 5, "end_ns": 9, "request_model": "other"},
            {"trace_id": "w", "start_ns": 10, "end_ns": 12},
        ),
    )
    assert found["in_flight"].to_list() == [1.0, 2.0, 1.0, 1.0]
    assert found["mean_in_flight"].to_list() == [1.6, 2.0, 1.0, 1.0]


@given(
    st.lists(
        st.tuples(st.integers(0, 40), st.integers(0, 20), st.sampled_from([1.0, 2.5, 20.0])),
        min_size=1,
        max_size=12,
    )
)
def test_what_runs_meanwhile_is_counted_by_weight_at_every_moment(spans: Any) -> None:
    names = [str(i) for i in range(len(spans))]
    rows = [
        {"trace_id": name, "start_ns": start, "end_ns": start + took, "weight": weight}
        for name, (start, took, weight) in zip(names, spans, strict=True)
    ]
    found = from_views(
        traces(*names), stage_rows(*((name, "other", 1.0) for name in names)), calls(*rows)
    )
    told = {row["trace_id"]: row for row in found.iter_rows(named=True)}
    for i, (start, took, _) in enumerate(spans):
        row = told[names[i]]
        assert row["in_flight"] >= 1
        moments = [
            1 + sum(w for k, (s, t, w) in enumerate(spans) if k != i and s <= at < s + t)
            for at in range(start, start + took)
        ]
        expected = sum(moments) / took if took else row["in_flight"]
        assert row["mean_in_flight"] == pytest.approx(expected)


def test_a_workflow_keeps_what_it_states_itself_with_or_without_calls() -> None:
    found = from_views(
        traces("t", "u", prompt_version="own"),
        stage_rows(("t", "other", 1.0)),
        calls({"trace_id": "t", "route": "other", "prompt_version": "call", "region": "eu"}),
    ).sort("trace_id")
    assert found["prompt_version"].to_list() == ["own", "own"]
    assert found["route"].to_list() == ["r", "r"]
    assert found["region"].to_list() == ["eu", None]
    assert "num_spans" not in dimension_names(found)


def test_incomplete_traces_are_left_out() -> None:
    frame = traces("t").with_columns(flags=pl.lit(["incomplete_trace"]))
    assert from_views(frame, stage_rows(("t", "other", 1.0)), calls({})).height == 0


def test_a_condition_selects_rows_in_their_order() -> None:
    found = from_flat(pl.DataFrame({"route": ["a", "b", "a"], "e2e_ms": [3.0, 2.0, 1.0]}))
    assert select(found, "route = 'a'")["e2e_ms"].to_list() == [3.0, 1.0]
    assert select(found, None).height == 3
    with pytest.raises(BadInput, match=r"columns: trace_id"):
        select(found, "rout = 'a'")
    with pytest.raises(BadInput):
        select(found, "1=1); DROP TABLE requests; --")
    with pytest.raises(BadInput):
        select(found, "e2e_ms > (SELECT count(*) FROM read_csv('/etc/passwd'))")


def test_flat_files_are_read(tmp_path: Path) -> None:
    frame = pl.DataFrame({"route": ["a"], "e2e_ms": [3.0]})
    frame.write_csv(tmp_path / "x.csv")
    frame.write_parquet(tmp_path / "x.parquet")
    for name in ("x.csv", "x.parquet"):
        assert load_requests(Source(files=(tmp_path / name,)))["e2e_ms"].to_list() == [3.0]
    (tmp_path / "y.parquet").write_bytes(b"no")
    with pytest.raises(BadInput, match=r"y\.parquet"):
        load_requests(Source(files=(tmp_path / "y.parquet",)))
