"""Documents of sampled traces tell of all that came, and say so; weights of one change none."""

import json

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from longpole_analytics.advisor import advise
from longpole_analytics.advisor._population import population
from longpole_analytics.audit_lines import audited
from longpole_analytics.cache.report import OF_KEPT, report
from longpole_analytics.cache.rules import CacheRules
from longpole_analytics.measures import cold_starts, reasoning, retries
from longpole_analytics.measures_command import measures as measures_command
from longpole_analytics.prices import shipped
from longpole_analytics.queueing import queueing
from longpole_analytics.step_measures import fan_out, guesses
from longpole_analytics.weighted import sampling
from longpole_analytics.wording import sampled_text

from .advisor_traffic import Traffic
from .advisor_workloads import FAULTS
from .sampled import ALL, drawn, requests_of, spans_of
from .tables import spans_table

RULES = CacheRules()


# --- advice -------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def traffic():
    found = Traffic(41)
    for name in ("avoidable_calls", "premium_tier"):
        FAULTS[name](found, 30)
    return spans_table(found.spans)


def with_weight(table, weight):
    place = table.column_names.index("weight")
    given = table.set_column(place, "weight", pa.array([weight] * len(table), pa.float64()))
    return population(given, shipped(), is_compiled=False)


@pytest.fixture(scope="module")
def plain_population(traffic):
    return population(traffic, shipped(), is_compiled=False)


def test_advice_on_sampled_traces_saves_what_all_of_them_would(traffic, plain_population):
    plain, own = (advise(each).document() for each in (plain_population, with_weight(traffic, 7.0)))
    assert own["sampling"]["num_stood_for"] == 7 * own["num_traces"] == 7 * plain["num_traces"]
    assert own["together_ms"] == pytest.approx(7 * plain["together_ms"])
    assert [each["rule"] for each in own["advice"]] == [each["rule"] for each in plain["advice"]]
    assert any(each["saving"]["usd"] for each in plain["advice"])
    for mine, theirs in zip(own["advice"], plain["advice"], strict=True):
        assert mine["saving"]["total_ms"] == pytest.approx(7 * theirs["saving"]["total_ms"])
        if theirs["saving"]["usd"] is not None:
            assert mine["saving"]["usd"] == pytest.approx(7 * theirs["saving"]["usd"])
        assert mine["share_of_traces"] == pytest.approx(theirs["share_of_traces"])
        assert mine["num_traces"] == theirs["num_traces"]


# --- weights of one -----------------------------------------------------------------------------
def test_weights_of_one_change_no_document(traffic, plain_population):
    ones = ALL.with_columns(weight=pl.lit(1.0))
    looks = pl.DataFrame(schema={"start_ns": pl.Int64})
    plain, own = (
        json.dumps(report(each, looks, shipped(), RULES, (60.0,)), sort_keys=True)
        for each in (ALL, ones)
    )
    assert own == plain
    for measure in (retries, cold_starts, reasoning):
        assert measure(ones) == measure(ALL)
    for each in (fan_out, guesses):
        assert repr(each(spans_of(8, 1.0))) == repr(each(spans_of(8)))
    alone = requests_of(lambda _rng, num: [1.0] * num)
    assert queueing(alone, servers=2) == queueing(alone.drop("weight"), servers=2)
    one = with_weight(traffic, 1.0)
    for judge in (advise, audited):
        plain, own = (json.dumps(judge(each).document()) for each in (plain_population, one))
        assert own == plain


# --- what is said of it -------------------------------------------------------------------------
def test_a_document_says_that_it_is_of_sampled_calls_and_what_the_kept_alone_tell():
    looks = pl.DataFrame(schema={"start_ns": pl.Int64})
    kept = drawn(1)
    told = report(kept, looks, shipped(), RULES, (60.0,))["sampling"]
    assert told["num_kept"] == kept.height
    assert told["num_stood_for"] == pytest.approx(kept["weight"].sum())
    assert told["of_kept"] == list(OF_KEPT)
    assert sampling(ALL) is None


def test_a_command_says_it_in_its_document(tmp_path):
    path = tmp_path / "spans.parquet"
    both = [*spans_of(6, 4.0), *spans_of(12)[6 * 7 :]]
    pq.write_table(spans_table(both), path)
    document = json.loads(CliRunner().invoke(measures_command, [str(path), "--json"]).stdout)
    assert document["num_calls"] == 6 * 4 + 6
    assert document["sampling"]["num_kept"] == 12
    assert document["fan_out"]["unused_ms"] == pytest.approx(30 * 2 * 40)
    said = sampled_text(document["sampling"], "calls")
    assert said.startswith("12 calls that were kept stand for 30; told by the kept ones alone: ")
