"""The demo's question: which route, stage, slice and remedy; and silence where data is thin."""

import polars as pl
import pytest

from longpole.vocab import Stage
from longpole_analytics.advice import NEXT_CHECK
from longpole_analytics.finding import find

from .populations import FAULTY_ROUTE, shop


@pytest.mark.parametrize("objective_ms", [200.0, None])
@pytest.mark.parametrize("num_traces", [60, 120, 240, 400])
@pytest.mark.parametrize("seed", range(3))
def test_the_planted_fault_is_named(num_traces, objective_ms, seed):
    finding = find(*shop(num_traces, seed=seed), objective_ms=objective_ms)
    assert finding.route == FAULTY_ROUTE
    assert finding.stage == Stage.PREFILL
    assert finding.where == {"prompt_version": "v2"}
    assert finding.cause.of_slow > 0.9
    assert finding.share_of_excess > 0.7
    assert any(fact.startswith("cached tokens 8") for fact in finding.why)
    assert "the prefix differs from call to call" in finding.why
    assert finding.do == (
        "the prefix changed with prompt_version=v2: move what varies behind the stable prefix"
    )
    # Half of the traces are slow, so the median lies between both halves and moves less.
    assert (150 if finding.quantile > 0.5 else 40) < finding.what_if_ms < 300


@pytest.mark.parametrize(
    ("num_traces", "quantile"), [(60, 0.5), (140, 0.9), (280, 0.95), (2000, 0.95)]
)
def test_the_quantile_named_is_one_the_traces_carry(num_traces, quantile):
    finding = find(*shop(num_traces), objective_ms=200.0)
    assert finding.quantile == quantile
    assert finding.num_traces * (1 - finding.quantile) >= 10


def test_lines_read_as_a_finding():
    lines = dict(find(*shop(400), objective_ms=200.0).lines())
    assert lines["route"].startswith(
        "shop.question   150 of 300 traces over the objective of 200 ms"
    )
    assert "(p95 ttft 3" in lines["route"]
    assert lines["long pole"].startswith("prefill: 9")
    assert lines["slice"].startswith("prompt_version=v2: ")
    assert "what-if: p95 -2" in lines["do"]


@pytest.mark.parametrize("num_traces", [0, 12, 20])
def test_thin_data_gives_no_finding(num_traces):
    traces, stages, calls = shop(24)
    few = (frame.filter(pl.col("trace_id") < f"{num_traces:032x}") for frame in (traces, stages))
    assert find(*few, calls, objective_ms=200.0) is None


def test_a_healthy_population_blames_no_slice():
    finding = find(*shop(400, has_fault=False))
    assert finding is None or finding.cause is None
    assert find(*shop(400, has_fault=False), objective_ms=1000.0) is None


def test_no_slice_still_names_the_long_pole_and_the_reason():
    traces, stages, calls = shop(400, has_fault=False)
    finding = find(traces, stages, calls, objective_ms=100.0)
    assert finding.where == {}
    assert finding.why[-1] == "no slice holds slow traces more often than others"
    assert "slice" not in dict(finding.lines())
    assert finding.do == NEXT_CHECK[finding.stage]


def test_every_trace_slow_is_said():
    finding = find(*shop(400), objective_ms=1.0)
    assert finding.where == {}
    assert "every trace is slow" in finding.why[-1]


def test_a_version_that_only_sends_longer_prompts_is_told_so():
    traces, stages, calls = shop(400, extra_input_tokens=400)
    calls = calls.with_columns(cached_input_tokens=pl.lit(None, pl.Int64), prefix_hash=None)
    finding = find(traces, stages, calls, objective_ms=200.0)
    assert finding.stage == Stage.PREFILL
    # All longer prompts are v2 and all v2 prompts are longer: they cannot be told apart.
    assert finding.where == {}


def test_a_state_is_blamed_only_when_nothing_upstream_is_known():
    traces, stages, calls = shop(240)
    finding = find(traces.drop("prompt_version"), stages, calls, objective_ms=200.0)
    assert finding.where == {"cache_state": "miss"}


def test_other_metrics_and_dimensions():
    traces, stages, calls = shop(400)
    region = pl.when(pl.col("prompt_version") == "v2").then(pl.lit("ap")).otherwise(pl.lit("eu"))
    finding = find(
        traces.with_columns(region=region).drop("prompt_version"),
        stages,
        calls,
        metric="wall_ms",
        dimensions=("region",),
    )
    assert finding.metric == "wall_ms"
    assert finding.where == {"region": "ap"}
    assert finding.stage == Stage.PREFILL
