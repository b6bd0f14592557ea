"""What calls cost, by hand: the bills of every provider from its own answer, and sums of them."""

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longpole_analytics.cost import cost_by, priced, unpriced, waste_by_kind, wasted
from longpole_analytics.price_overrides import with_overrides
from longpole_analytics.prices import shipped

from .bills import BILLS, NOON


def row(provider="openai", model="gpt-4o", **facts):
    plain = {"provider": provider, "request_model": model, "start_ns": NOON}
    return {**plain, "input_tokens": 1000, "output_tokens": 100, **facts}


def costs(*rows):
    names = dict.fromkeys(name for each in rows for name in each)
    return priced(pl.DataFrame([{**names, **each} for each in rows]), shipped())


@pytest.mark.parametrize("name", BILLS)
def test_a_bill_is_what_the_provider_would_send(name):
    provider, model, facts, usage, dollars = BILLS[name]
    (found,) = costs(row(provider, model, **{**usage, **facts})).to_dicts()
    assert found["cost_usd"] == pytest.approx(dollars, rel=1e-9), found
    parts = ("input_cost_usd", "cached_cost_usd", "write_cost_usd", "output_cost_usd")
    assert sum(found[part] for part in parts) == pytest.approx(dollars, rel=1e-9)


def test_an_engine_of_ones_own_has_no_price_until_the_user_sets_one():
    assert costs(row("vllm", "qwen-3"))["cost_problem"].to_list() == ["unknown_model"]
    own = with_overrides(shipped(), '[prices."vllm/qwen-3"]\ninput = 0.1\noutput = 0.2\n')
    found = priced(pl.DataFrame([row("vllm", "qwen-3")]), own)
    assert found["cost_usd"].item() == pytest.approx(0.00012)


def test_the_real_call_without_its_cache_would_have_cost_more():
    (found,) = costs(
        row("anthropic", "claude-sonnet-4-6", input_tokens=30_721, output_tokens=67)
    ).to_dicts()
    assert found["cost_usd"] == pytest.approx(0.093168, abs=1e-9)


# --- bad input ----------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("facts", "problem"),
    [
        ({"request_model": "no-such-model"}, "unknown_model"),
        ({"request_model": None}, "unknown_model"),
        ({"provider": None, "request_model": None}, "unknown_model"),
        ({"service_tier": "made-up"}, "unknown_tier"),
        ({"input_tokens": None}, "unknown_tokens"),
        ({"output_tokens": None}, "unknown_tokens"),
        ({"input_tokens": -1}, "negative_tokens"),
        ({"cached_input_tokens": -5}, "negative_tokens"),
        ({"cached_input_tokens": 1001}, "parts_exceed_input"),
        ({"cached_input_tokens": 600, "cache_write_tokens": 401}, "parts_exceed_input"),
        ({"reasoning_tokens": 101}, "parts_exceed_output"),
        (
            {"service_tier": "priority", "start_ns": NOON - 80 * 86_400 * 10**9},
            "no_price_at_that_time",
        ),
    ],
)
def test_what_cannot_be_priced_has_no_cost_but_a_reason(facts, problem):
    (found,) = costs(row(**facts)).to_dicts()
    assert found["cost_usd"] is None
    assert found["price_version"] is None
    assert found["cost_problem"] == problem


def test_what_cannot_be_priced_is_listed():
    found = unpriced(costs(row(), row(model="x-1"), row(model="x-1"), row(input_tokens=-1)))
    assert found.select("request_model", "cost_problem", "num_calls").rows() == [
        ("x-1", "unknown_model", 2),
        ("gpt-4o", "negative_tokens", 1),
    ]


def test_a_provider_that_says_the_cost_wins():
    said = row("x_ai", "grok-4", reported_cost_usd=0.5)
    unknown = row("x_ai", "grok-99", reported_cost_usd=0.25)
    found = costs(said, unknown)
    assert found["cost_usd"].to_list() == [0.5, 0.25]
    assert found["price_version"].unique().to_list() == ["reported by the provider"]
    assert found["cost_problem"].null_count() == 2


def test_a_cost_in_another_currency_is_not_taken_for_dollars():
    found = costs(
        row(reported_cost_usd=9.0, reported_currency="EUR"),
        row(model="x-1", reported_cost_usd=9.0, reported_currency="EUR"),
    )
    assert found["cost_usd"].to_list() == [pytest.approx(0.0035), None]
    assert found["cost_note"].to_list() == ["other_currency"] * 2
    assert found["cost_problem"].to_list() == [None, "other_currency"]


def test_a_total_that_contradicts_its_parts_is_marked():
    found = costs(
        row(total_tokens=1100),
        row(total_tokens=1150, reasoning_tokens=50),
        row(total_tokens=7),
    )
    assert found["cost_note"].to_list() == [None, None, "total_contradicts_parts"]
    # reasoning beside the output: 150 tokens at 10.00
    assert found["cost_usd"].to_list() == pytest.approx([0.0035, 0.004, 0.0035])


def test_a_model_renamed_on_the_way_is_priced_by_the_name_that_answered():
    found = costs(
        row(model="my-deployment", response_model="gpt-4o-2024-11-20"),
        row(model="gpt-4o", response_model="something-new"),
    )
    assert found["model_key"].to_list() == ["openai/gpt-4o"] * 2


def test_an_empty_table_costs_nothing():
    found = priced(pl.DataFrame(schema={"provider": pl.String}), shipped())
    assert found.height == 0
    assert "cost_usd" in found.columns
    assert priced(pl.DataFrame([row()]), shipped()).height == 1


@given(
    st.lists(
        st.tuples(*(st.one_of(st.none(), st.integers(-5, 10_000)) for _ in range(4))), max_size=20
    )
)
def test_any_counts_give_a_cost_or_a_reason_and_keep_their_order(counts):
    names = ("input_tokens", "cached_input_tokens", "cache_write_tokens", "output_tokens")
    rows = [{**row(), **dict(zip(names, each, strict=True))} for each in counts]
    schema = {**dict.fromkeys(names, pl.Int64), "provider": pl.String, "request_model": pl.String}
    found = priced(pl.DataFrame(rows, schema={**schema, "start_ns": pl.Int64}), shipped())
    assert found.select(names).rows() == counts
    for cost, problem in found.select("cost_usd", "cost_problem").rows():
        assert (cost is None) != (problem is None)
        assert cost is None or cost >= 0


# --- sums ---------------------------------------------------------------------------------------
def workflows():
    """Calls of a million input tokens, 2.50 each."""
    big = {"input_tokens": 1_000_000, "output_tokens": 0}
    return costs(
        row(**big, trace_id="a", route="x", tenant="t1"),
        row(**big, trace_id="a", route="x", tenant="t1"),
        row(**big, trace_id="b", route="x", tenant="t1"),
        row(**big, trace_id="c", route="y", tenant="t2"),
        row(**{**big, "input_tokens": None}, trace_id="d", route="y", tenant="t2"),
    )


def outcomes(**said):
    rows = {"trace_id": list(said), "outcome": list(said.values())}
    return pl.DataFrame(rows, schema={"trace_id": pl.String, "outcome": pl.String})


def test_rejected_workflows_are_paid_by_the_accepted_ones():
    said = outcomes(a="accepted", b="rejected", c=None, d=None)
    by_route = {each["route"]: each for each in cost_by(workflows(), ["route"], said).to_dicts()}
    assert by_route["x"]["cost_usd"] == pytest.approx(7.5)
    assert by_route["x"]["cost_per_accepted_usd"] == pytest.approx(7.5)
    assert by_route["x"]["num_workflows"] == 2
    assert by_route["y"]["cost_per_accepted_usd"] is None
    assert by_route["y"]["num_unknown_outcome"] == 2
    assert by_route["y"]["num_unpriced"] == 1
    (whole,) = cost_by(workflows(), (), said).to_dicts()
    assert whole["cost_usd"] == pytest.approx(10.0)
    assert whole["num_calls"] == 5


def test_a_call_without_a_price_leaves_the_cost_of_an_outcome_unknown():
    said = outcomes(a="accepted", b="accepted", c="accepted", d="accepted")
    by_tenant = {each["tenant"]: each for each in cost_by(workflows(), ["tenant"], said).to_dicts()}
    assert by_tenant["t1"]["cost_per_accepted_usd"] == pytest.approx(3.75)
    assert by_tenant["t2"]["cost_per_accepted_usd"] is None
    by_workflow = cost_by(workflows(), ["trace_id"], said)
    assert by_workflow.filter(trace_id="a")["cost_usd"].item() == pytest.approx(5.0)
    assert by_workflow.filter(trace_id="d")["cost_usd"].item() is None


def test_every_waste_is_told_once():
    big = {"input_tokens": 1_000_000, "output_tokens": 0, "route": "x"}
    rows = [
        row(**big, trace_id="a", error_type="429", start_ns=NOON),
        row(**big, trace_id="a", start_ns=NOON + 1),
        row(**big, trace_id="b", error_type="500"),
        row(**big, trace_id="c", stream_state="closed_early"),
        row(**big, trace_id="d", branch_state="cancelled", error_type="x"),
        row(**big, trace_id="e", speculation_state="expired"),
        row(**big, trace_id="f", speculation_state="used"),
        row(**big, trace_id="g"),
    ]
    said = outcomes(a="accepted", b="failed", g="rejected")
    found = wasted(costs(*rows), said)
    assert found["waste"].to_list() == [
        "retried",
        None,
        "failed",
        "abandoned",
        "cancelled_branch",
        "unused_speculation",
        None,
        "not_accepted",
    ]
    kinds = waste_by_kind(found)
    assert kinds["cost_usd"].to_list() == [2.5] * 6
    assert kinds["share_of_cost"].sum() == pytest.approx(6 / 8)
    assert set(kinds["num_unpriced"]) == {0}
