"""What a store's counts by minute say, and what the calls and workflows say that they count."""

from functools import cache
from pathlib import Path

import polars as pl

from longpole_analytics import minutes as truth
from longpole_analytics.frames import spans_from_table
from longpole_collector.stores import open_reader

CORPUS = Path(__file__).parent / "corpus"
SLICE = ("service", "route", "prompt_version", "request_model")
OF_CALLS = ("ttft_ms", "tpot_ms", "e2e_ms")
MINUTE_NS = 60_000_000_000
LATER_NS = 4_000_000_000_000_000_000


@cache
def captured():
    """The spans of all captures."""
    reader = open_reader(files=sorted(CORPUS.glob("*.otlp.pb")))
    try:
        return spans_from_table(reader.sql("SELECT * FROM spans"))
    finally:
        reader.close()


def counted(store):
    names = ["start_ns", *SLICE, "metric", "bucket", "num", "sum_ns", "min_ms", "max_ms"]
    found = pl.from_arrow(store.sql("SELECT * FROM minutes"))
    rows = truth.merge([found], by=["start_ns", *SLICE])
    return rows.select(pl.col(names)).rows()


def expected(store):
    names = ["start_ns", *SLICE, "metric", "bucket", "num", "sum_ns", "min_ms", "max_ms"]
    calls = pl.from_arrow(store.sql("SELECT * FROM calls"))
    traces = pl.from_arrow(store.sql("SELECT * FROM traces")).with_columns(
        request_model=pl.lit(None, pl.String)
    )
    parts = [truth.roll_up(calls, OF_CALLS, SLICE), truth.roll_up(traces, ["wall_ms"], SLICE)]
    return truth.merge(parts).select(pl.col(names)).rows()


def by_hour(store, view):
    hours = f"SELECT start_ns // {60 * MINUTE_NS} AS hour, {', '.join(SLICE)}, metric, bucket"
    sums = "sum(num) AS num, min(min_ms) AS min_ms, max(max_ms) AS max_ms"
    return store.sql(f"{hours}, {sums} FROM {view} GROUP BY ALL ORDER BY ALL").to_pylist()


def staged(store, view="stage_minutes"):
    asked = f"SELECT start_ns, {', '.join(SLICE[:3])}, stage, sum(num) AS num, "
    return store.sql(f"{asked} sum(critical_ns) AS ns FROM {view} GROUP BY ALL ORDER BY ALL")


def expected_stages(store, width_ns=MINUTE_NS):
    start = f"start_ns // {width_ns} * {width_ns} AS start_ns, {', '.join(SLICE[:3])}"
    return store.sql(
        f"SELECT {start}, NULL::VARCHAR AS stage, count(*) AS num, sum(coalesce(wall_ns, 0)) AS ns "
        f"FROM traces GROUP BY ALL UNION ALL SELECT {start}, stage, count(*), sum(critical_ns) "
        "FROM traces JOIN trace_stages USING (trace_id) WHERE critical_ns > 0 GROUP BY ALL "
        "ORDER BY ALL"
    )


def assert_stages_are_counted(store):
    assert staged(store) == expected_stages(store)
    assert staged(store, "stage_hours") == expected_stages(store, 60 * MINUTE_NS)
    assert staged(store).num_rows
