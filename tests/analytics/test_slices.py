"""Slices: exact quantiles, buckets, local days that survive a change of the clock, bad input."""

import json
import math
import random
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from zoneinfo import ZoneInfo

import duckdb
import polars as pl
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from longpole.errors import BadInput, NotEnoughData, UsageError
from longpole_analytics import stats
from longpole_analytics.frames import spans_from_table
from longpole_analytics.minutes import MINUTE_NS, query, roll_up
from longpole_analytics.requests import from_flat
from longpole_analytics.rollup import ROLLUP
from longpole_analytics.slice_labels import OTHER
from longpole_analytics.slices import SliceRules, rolled_slices, slices
from longpole_analytics.slices_command import slices as command
from longpole_analytics.stage_slices import stage_slices
from longpole_collector.stores import open_reader
from longpole_collector.stores.duckdb import DuckStore
from longpole_collector.stores.minutes import refresh
from longpole_collector.stores.views import macros
from longpole_collector.writer import Writer

DATA = Path(__file__).parent / "data"
SAMPLE = Path(__file__).parents[2] / "sample_data" / "demo.parquet"
TAIL = DATA / "tail_attribution.parquet"
HOUR_NS = 3600 * 10**9


def requests(**columns):
    return from_flat(pl.DataFrame(columns))


def where(found):
    return [tuple(each.where.values()) for each in found.slices]


def one(found):
    (only,) = found.slices
    return only


# --- quantiles ---------------------------------------------------------------------------------
def test_each_slice_has_its_exact_quantiles():
    table = from_flat(pl.read_parquet(TAIL))
    found = slices(table, ["region", "model"])
    assert sum(each.n for each in found.slices) == table.height == 20_000
    assert [each.n for each in found.slices] == sorted((s.n for s in found.slices), reverse=True)
    for each in found.slices:
        ours = table.filter(*(pl.col(name) == value for name, value in each.where.items()))
        values = ours["e2e_ms"].to_list()
        for told in each.quantiles:
            if not stats.is_shown(len(values), told.q):
                assert (told.value, told.low, told.high) == (None, None, None)
                continue
            assert told.value == stats.quantile(values, told.q)
            assert (told.low, told.high) == stats.interval(values, told.q)
        assert each.greatest == max(values)
    assert found.precision == "exact"


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.floats(0, 1e6)), min_size=1, max_size=300),
    st.integers(2, 4),
)
def test_weights_count_as_so_many_requests(rows, weight):
    names, values = zip(*rows, strict=True)
    weighted = slices(
        requests(region=names, e2e_ms=values, weight=[weight] * len(rows)), ["region"]
    )
    repeated = slices(requests(region=names * weight, e2e_ms=values * weight), ["region"])
    of = {each.where["region"]: each for each in repeated.slices}
    for each in weighted.slices:
        again = of[each.where["region"]]
        assert (each.weight, each.n * weight) == (again.n, again.n)
        for told, more in zip(each.quantiles, again.quantiles, strict=True):
            assert told.value is None or told.value == more.value


def test_a_quantile_that_n_does_not_carry_is_left_out():
    for n, shown in ((19, ()), (20, (0.5,)), (100, (0.5, 0.9)), (200, (0.5, 0.9, 0.95))):
        found = one(slices(requests(e2e_ms=[float(k) for k in range(n)]), []))
        assert tuple(told.q for told in found.quantiles if told.value is not None) == shown


# --- dimensions --------------------------------------------------------------------------------
def test_numbers_fall_in_buckets_that_double():
    values = [None, -3, 0, 1, 2, 3, 4, 5, 8, 9, 512, 513, 1024, 1025]
    table = requests(input_tokens=values, e2e_ms=[1.0] * len(values))
    assert where(slices(table, ["input_tokens"])) == [
        *((name,) for name in ("<0", "0", "1", "2", "3-4", "5-8", "9-16", "257-512", "513-1024")),
        ("1025-2048",),
        (None,),
    ]
    in_flight = requests(in_flight=[0.5, 1.0, 1.5, 2.0, math.inf], e2e_ms=[1.0] * 5)
    assert where(slices(in_flight, ["in_flight"]))[:2] == [("1",), ("2",)]


def test_uncached_tokens_are_derived():
    table = requests(input_tokens=[100, 100], cached_input_tokens=[0, 99], e2e_ms=[1.0, 2.0])
    assert where(slices(table, ["uncached_input_tokens"])) == [("1",), ("65-128",)]


def test_rare_values_are_taken_together():
    names = [f"user{k}" for k in range(2000)] + ["big"] * 50
    table = requests(tenant=names, e2e_ms=[1.0] * len(names))
    found = slices(table, ["tenant"], rules=SliceRules(max_values=100, max_slices=5))
    assert where(found)[:2] == [(OTHER,), ("big",)]
    assert found.slices[0].n == 1901
    assert len(found.slices) == 5
    assert found.num_left_out == 96


def test_a_dimension_nobody_sent_is_named():
    table = requests(region=[None, None], model=["m", None], e2e_ms=[1.0, 2.0])
    table = table.with_columns(pl.col("region").cast(pl.String))
    assert slices(table, ["region", "model"]).not_sent == ("region",)


# --- local time --------------------------------------------------------------------------------
WEEKS = [
    ("Europe/Berlin", "2026-10-22", 25, "2026-10-25"),
    ("Europe/Berlin", "2026-03-26", 23, "2026-03-29"),
    ("America/New_York", "2026-10-29", 25, "2026-11-01"),
    ("America/New_York", "2026-03-05", 23, "2026-03-08"),
]


@pytest.mark.parametrize(("tz", "first", "hours", "day"), WEEKS, ids=str)
def test_days_have_their_local_hours_when_the_clock_changes(tz, first, hours, day):
    """One request every 20 minutes of a week: each local day has as many as it has hours."""
    begin = datetime.fromisoformat(first).replace(tzinfo=ZoneInfo(tz))
    end = begin + timedelta(days=7)  # the same time of day, by the wall clock
    starts = range(int(begin.timestamp()) * 10**9, int(end.timestamp()) * 10**9, HOUR_NS // 3)
    table = requests(start_ns=list(starts), e2e_ms=[1.0] * len(starts))
    days = slices(table, ["day"], tz=tz)
    local = [datetime.fromtimestamp(at / 1e9, ZoneInfo(tz)) for at in starts]
    expected: dict[str, int] = {}
    for at in local:
        expected[at.strftime("%Y-%m-%d")] = expected.get(at.strftime("%Y-%m-%d"), 0) + 1
    assert {each.where["day"]: each.n for each in days.slices} == expected
    assert expected[day] == 3 * hours
    assert where(days) == sorted(where(days))
    assert all(n == 72 for name, n in expected.items() if name != day)
    by_hour = slices(table, ["hour"], tz=tz, rules=SliceRules(max_slices=10_000))
    assert {each.n for each in by_hour.slices} == {3}, "the hour that comes twice is two hours"
    assert len(by_hour.slices) == len(starts) / 3
    stamps = [datetime.strptime(name, "%Y-%m-%d %H:%M %z") for (name,) in where(by_hour)]
    assert all(b - a == timedelta(hours=1) for a, b in pairwise(stamps))
    rolled = rolled_slices(roll_up(table, ["e2e_ms"]), ["day"], tz=tz)
    assert {each.where["day"]: each.n for each in rolled.slices} == expected


def test_times_that_come_again_are_in_their_order():
    starts = [k * 7 * HOUR_NS for k in range(300)]
    table = requests(start_ns=starts, e2e_ms=[1.0] * 300)
    names = [name for (name,) in where(slices(table, ["weekday"]))]
    assert names == ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"]
    assert where(slices(table, ["hour_of_day"])) == [(f"{k:02d}",) for k in range(24)]
    assert where(slices(table, ["month"]))[0] == ("1970-01",)
    assert where(slices(table, ["week"]))[0] == ("1970-W01",)


def test_an_unknown_zone_or_column_is_a_sentence():
    table = requests(start_ns=[0], e2e_ms=[1.0], region=["x"])
    for by, how, words in (
        (["day"], {"tz": "Mars/Olympus"}, "no time zone"),
        (["day"], {"tz": "../etc"}, "no time zone"),
        (["nope"], {}, "no dimension 'nope'"),
        (["region", "region"], {}, "named twice"),
    ):
        with pytest.raises(BadInput, match=words):
            slices(table, by, **how)
    with pytest.raises(BadInput, match="no metric 'region'"):
        slices(table, ["region"], "region")


# --- bad input ---------------------------------------------------------------------------------
def test_strange_values_are_no_values():
    table = requests(e2e_ms=[None, math.nan, math.inf, -math.inf, -5.0, 0.0, 1.0])
    found = one(slices(table, []))
    assert (found.n, found.num_unknown, found.greatest) == (3, 4, 1.0)
    with pytest.raises(BadInput, match="weight"):
        slices(requests(e2e_ms=[1.0], weight=[-1.0]), [])


def test_nothing_gives_nothing():
    empty = requests(e2e_ms=[], route=[])
    assert slices(empty, ["route"]).slices == ()
    assert slices(empty, ["input_tokens", "day"]).slices == ()
    assert slices(empty, []).slices == ()
    nulls = slices(requests(e2e_ms=[None] * 50, route=["a"] * 50), ["route"])
    assert (one(nulls).n, one(nulls).num_unknown, one(nulls).greatest) == (0, 50, None)
    same = one(slices(requests(e2e_ms=[7.0] * 1000), []))
    assert {told.value for told in same.quantiles} == {7.0}


def test_a_value_unique_to_each_row_is_bounded():
    n = 5000
    table = requests(id=[f"{k}" for k in range(n)], e2e_ms=[1.0] * n)
    found = slices(table, ["id"])
    assert len(found.slices) == 1000
    assert sum(each.n for each in found.slices) + found.num_left_out >= n - 1


# --- rolled up ---------------------------------------------------------------------------------
def test_rolled_up_slices_are_within_one_percent():
    source = random.Random(2)
    table = from_flat(pl.read_parquet(TAIL)).with_columns(
        start_ns=pl.Series([source.randrange(10**13) for _ in range(20_000)])
    )
    exact = {tuple(s.where.values()): s for s in slices(table, ["region", "hour"]).slices}
    found = rolled_slices(roll_up(table, ["e2e_ms"], ["region"]), ["region", "hour"])
    assert found.precision == "+-1 %"
    assert len(found.slices) == len(exact)
    for each in found.slices:
        truth = exact[tuple(each.where.values())]
        assert (each.n, each.greatest) == (truth.n, truth.greatest)
        for told, true in zip(each.quantiles, truth.quantiles, strict=True):
            for ours, theirs in zip(told, true, strict=True):
                assert ours == (theirs if theirs is None else pytest.approx(theirs, rel=0.0203))
            if true.value is not None:
                assert told.value == pytest.approx(true.value, rel=0.0100001)


def test_rolled_up_values_have_no_lengths():
    rows = roll_up(requests(start_ns=[0], e2e_ms=[1.0]), ["e2e_ms"])
    with pytest.raises(BadInput, match="not kept"):
        rolled_slices(rows, ["num"])
    assert rolled_slices(rows, [], "ttft_ms").slices == ()


WINDOWS = [
    (None, None),
    (0, None),
    (90 * MINUTE_NS, 150 * MINUTE_NS),
    (61 * MINUTE_NS, 119 * MINUTE_NS),
    (60 * MINUTE_NS, 120 * MINUTE_NS),
    (59 * MINUTE_NS + 1, 300 * MINUTE_NS - 1),
    (None, 61 * MINUTE_NS),
    (130 * MINUTE_NS, 131 * MINUTE_NS),
]


@pytest.mark.parametrize(("since", "until"), WINDOWS)
@pytest.mark.parametrize("grain", [None, "minutes"])
def test_hours_and_minutes_together_cover_a_window_once(since, until, grain):
    source = random.Random(4)
    starts = [source.randrange(0, 400 * MINUTE_NS) for _ in range(3000)]
    table = requests(start_ns=starts, e2e_ms=[source.expovariate(0.01) for _ in starts])
    columns = "metric, bucket, num, sum_ns::DOUBLE / 1e6 AS sum_ms, min_ms, max_ms"
    rows = roll_up(table, ["e2e_ms"]).with_columns(pl.col("sum_ns").cast(pl.Int64))
    asked = query([], is_timed=False, since_ns=since, until_ns=until, grain=grain)
    with duckdb.connect() as con:
        con.execute(macros())
        con.register("rows", rows.to_arrow())
        con.execute(f"CREATE VIEW minutes AS SELECT start_ns, {columns} FROM rows")
        con.execute(
            f"CREATE VIEW hours AS SELECT start_ns // {HOUR_NS} * {HOUR_NS} AS start_ns, metric, "
            "bucket, sum(num) AS num, sum(sum_ms) AS sum_ms, min(min_ms) AS min_ms, "
            "max(max_ms) AS max_ms FROM minutes GROUP BY ALL"
        )
        found = con.sql(asked).pl()
    low = -1 if since is None else since // MINUTE_NS * MINUTE_NS
    high = math.inf if until is None else -(-until // MINUTE_NS) * MINUTE_NS
    inside = [at for at in starts if low <= at < high]
    assert found["num"].sum() == len(inside)
    truth = table.filter(pl.col("start_ns").is_in(inside))
    assert found["sum_ms"].sum() == pytest.approx(truth["e2e_ms"].sum(), abs=0.01)


# --- the command -------------------------------------------------------------------------------
def run(*arguments):
    return CliRunner().invoke(command, [str(a) for a in arguments])


def test_the_command_prints_a_document():
    answer = run(TAIL, "--by", "region", "--json")
    document = json.loads(answer.stdout)
    assert document["schema"] == "longpole.slices/1"
    assert document["precision"] == "exact"
    assert {s["where"]["region"] for s in document["slices"]} == {"ap", "eu", "us"}
    assert all(len(s["quantiles"]) == 4 for s in document["slices"])
    assert run(TAIL, "--by", "region", "--json").stdout == answer.stdout


def test_the_command_prints_a_table():
    answer = run(TAIL, "--by", "region,cache_state", "--where", "region = 'ap'")
    assert "e2e_ms by region, cache_state   exact" in answer.stdout
    assert "not sent    cache_state" in answer.stdout
    assert answer.stdout.count("(unknown)") == 1
    spans = run(SAMPLE, "--by", "route,hour", "--metric", "ttft_ms", "--tz", "Asia/Kathmandu")
    assert "+0545" in spans.stdout.replace("\n", "")


def test_the_command_tells_stages_of_all_and_of_the_slowest():
    asked = (SAMPLE, "--by", "prompt_version", "--stages")
    answer = run(*asked)
    assert "mean on the critical path, by stage" in answer.stdout
    assert "above p99  n 0       too few" in answer.stdout
    document = json.loads(run(*asked, "--json").stdout)
    plain = json.loads(run(*asked[:-1], "--json").stdout)
    assert document.keys() - plain.keys() == {"stages"}
    for each in document["stages"]:
        (whole, *_) = each["parts"]
        assert sum(stage["share"] for stage in whole["stages"]) == pytest.approx(1)
        assert sum(stage["mean_ms"] for stage in whole["stages"]) == pytest.approx(whole["mean"])
    assert isinstance(run(*asked, "--rolled").exception, UsageError)


def test_stages_count_each_request_by_its_weight_and_only_where_they_are_known():
    rows = [
        {
            "e2e_ms": 10.0 * (1 + i % 40),
            "queue_ms": 4.0 * (i % 40),
            "tool_ms": 5.0,
            "weight": 1 + i % 3,
        }
        for i in range(300)
    ]
    rows += [{"e2e_ms": 1e6}, {"e2e_ms": None, "queue_ms": 1.0}]
    table = pl.DataFrame(rows, infer_schema_length=None)
    repeated = [{**row, "weight": 1} for row in rows for _ in range(row.get("weight") or 1)]
    weighed, plain = (
        stage_slices(from_flat(given), []).slices[0]
        for given in (table, pl.DataFrame(repeated, infer_schema_length=None))
    )
    assert weighed.num_unknown == 2
    for ours, theirs in zip(weighed.parts, plain.parts, strict=True):
        assert ours.limit == theirs.limit
        assert ours.mean == (None if theirs.mean is None else pytest.approx(theirs.mean))
        assert [s.stage for s in ours.stages] == [s.stage for s in theirs.stages]
        for one, other in zip(ours.stages, theirs.stages, strict=True):
            assert one.mean_ms == pytest.approx(other.mean_ms)
    above = weighed.parts[1]
    kept = [row for row in rows[:300] if row["e2e_ms"] > above.limit]
    queue = sum(row["queue_ms"] * row["weight"] for row in kept) / sum(r["weight"] for r in kept)
    assert {s.stage.value: s.mean_ms for s in above.stages} == pytest.approx(
        {"queue": queue, "tool": 5.0}
    )
    with pytest.raises(BadInput, match="no metric"):
        stage_slices(from_flat(table), [], "nope")


def test_the_command_says_what_is_wrong():
    assert isinstance(run(TAIL, "--by", ",").exception, UsageError)
    assert isinstance(run(TAIL, "--where", "region = 'mars'").exception, NotEnoughData)
    assert isinstance(run(TAIL, "--by", "nope").exception, BadInput)
    assert isinstance(run(TAIL, "--rolled").exception, UsageError)


def test_the_command_reads_the_counts_of_a_store(rolled_store):
    common = ("--db", rolled_store, "--json", "--metric", "wall_ms", "--by")
    exact = json.loads(run(*common, "service").stdout)
    args = ("--rolled", *common)
    rolled = json.loads(run(*args, "service").stdout)
    assert rolled["precision"] == "+-1 %"
    count = {s["where"]["service"]: s["n"] for s in exact["slices"]}
    assert {s["where"]["service"]: s["n"] for s in rolled["slices"]} == count
    for by in ("day", "route,hour", "minute"):
        again = json.loads(run(*args, by).stdout)
        assert sum(s["n"] for s in again["slices"]) == sum(count.values())
    none = run("--db", rolled_store, "--rolled", "--where", "service = 'nobody'")
    assert isinstance(none.exception, NotEnoughData)
    assert isinstance(run(*args, "input_tokens").exception, UsageError)
    assert isinstance(run(*args, "service", "--where", "nonsense(").exception, BadInput)


@pytest.fixture
def rolled_store(tmp_path):
    reader = open_reader(files=[SAMPLE])
    spans = spans_from_table(reader.sql("SELECT * FROM spans"))
    reader.close()
    folder = tmp_path / "db"
    store = DuckStore(folder)
    writer = Writer(store, ROLLUP)
    writer.write_spans(spans)
    writer.settle(everything=True)
    refresh(store, 4 * 10**18)
    store.close()
    return folder
