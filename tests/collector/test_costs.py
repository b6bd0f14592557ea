"""What calls cost, through the doors: OTLP in, ``cost_usd`` and ``price_version`` out."""

import json
import logging
import os

import polars as pl
import pyarrow as pa
import pytest
from tests.analytics.bills import BILLS, NOON

from longpole.errors import UsageError
from longpole.vocab import keys
from longpole_analytics.cost import priced
from longpole_analytics.pricer import LOOK_S, ConfiguredPrices
from longpole_analytics.prices import shipped
from longpole_analytics.rollup import ROLLUP
from longpole_collector import pricing
from longpole_collector.content import Policy, Scrubber
from longpole_collector.decode import Format, Received
from longpole_collector.health import Health
from longpole_collector.normalise import Reader
from longpole_collector.pricing import COLUMNS, Pricer
from longpole_collector.stores.duckdb import DuckStore
from longpole_collector.writer import Writer

SENT = {
    "provider": keys.PROVIDER,
    "service_tier": keys.SERVICE_TIER,
    "input_tokens": keys.INPUT_TOKENS,
    "cached_input_tokens": keys.CACHED_INPUT_TOKENS,
    "cache_write_tokens": keys.CACHE_WRITE_TOKENS,
    "cache_write_1h_tokens": keys.CACHE_WRITE_1H_TOKENS,
    "output_tokens": keys.OUTPUT_TOKENS,
    "reasoning_tokens": keys.REASONING_TOKENS,
    "reported_cost_usd": keys.REPORTED_COST,
    "reported_currency": keys.REPORTED_CURRENCY,
}
"""Attributes by the column they fill."""
PLAIN = {"provider": "openai", "model": "gpt-4o", "input_tokens": 1000, "output_tokens": 100}


def sent(otlp, *, start_ns=NOON, parent=b"", trace=None, more=None, **facts):
    """A call as a sender would tell it."""
    facts = PLAIN | facts
    attributes = {keys.OPERATION: "chat", keys.REQUEST_MODEL: facts.pop("model")}
    attributes |= {SENT[name]: value for name, value in facts.items() if value is not None}
    where = {} if trace is None else {"trace_id": trace}
    times = {"start_time_unix_nano": start_ns, "end_time_unix_nano": start_ns + 10**9}
    attributes |= more or {}
    return otlp.span(
        name="chat", kind=3, attributes=attributes, parent_span_id=parent, **times, **where
    )


def stored(otlp, spans, scope=keys.SCOPE_SDK, **how):
    """A store that was sent these."""
    health = Health()
    reader = Reader(health, Scrubber(Policy(), health))
    store = DuckStore(**how)
    writer = Writer(store, ROLLUP)
    body = otlp.body(spans, scope=scope)
    writer.write(reader.table([Received(body, Format.PROTOBUF, NOON)]))
    writer.settle(everything=True)
    return store


def calls_of(otlp, *spans, columns="cost_usd, price_version", **how):
    store = stored(otlp, spans, **how)
    rows = store.sql(f"SELECT {columns} FROM calls ORDER BY start_ns, span_id").to_pylist()
    store.close()
    return rows


# --- by the table -------------------------------------------------------------------------------
def test_bills_by_hand_are_what_the_view_says(otlp):
    spans, expected = [], {}
    for provider, model, facts, usage, dollars in BILLS.values():
        if "cache_storage_token_hours" in facts:
            continue  # what a cache is kept for is billed beside the calls
        known = {name: value for name, value in {**usage, **facts}.items() if name in SENT}
        start_ns = facts.get("start_ns", NOON)
        span = sent(otlp, provider=provider, model=model, start_ns=start_ns, **known)
        spans.append(span)
        expected[span["span_id"].hex()] = dollars
    rows = calls_of(otlp, *spans, columns="span_id, cost_usd, price_version")
    found = {row["span_id"]: row["cost_usd"] for row in rows}
    assert found == pytest.approx(expected, rel=1e-9)
    assert {row["price_version"] for row in rows} == {shipped().version}


def test_the_view_says_what_the_analytics_say(otlp):
    tiers = [None, "batch", "priority", "made-up"]
    models = ["gpt-4o", "gpt-5.4", "nobody's", "gpt-4o-mini"]
    spans = [
        sent(
            otlp,
            model=models[i % 4],
            service_tier=tiers[i // 4 % 4],
            start_ns=NOON - i * 86_400 * 10**9,
            input_tokens=i * 997 if i % 7 else None,
            cached_input_tokens=i if i % 3 else None,
            output_tokens=i % 50,
            reported_cost_usd=0.25 if i % 11 == 0 else None,
            reported_currency="EUR" if i % 22 == 0 else None,
        )
        for i in range(300)
    ]
    store = stored(otlp, spans)
    table = store.sql("SELECT * FROM calls")
    store.close()
    found = priced(pl.DataFrame(table.drop_columns(["cost_usd", "price_version"])), shipped())
    assert found["cost_usd"].to_list() == table["cost_usd"].to_pylist()
    assert found["price_version"].to_list() == table["price_version"].to_pylist()
    assert 0 < found["cost_usd"].null_count() < 300


def test_an_unknown_model_has_no_cost_and_is_listed(otlp):
    store = stored(otlp, [sent(otlp), sent(otlp, provider="vllm", model="mine")])
    rows = store.sql("SELECT request_model, cost_usd, price_version FROM calls ORDER BY 1 DESC")
    assert rows.to_pylist()[0] == {
        "request_model": "mine",
        "cost_usd": None,
        "price_version": None,
    }
    (ledger,) = store.sql("SELECT no_price_ratio, reasons FROM quality").to_pylist()
    store.close()
    assert ledger["no_price_ratio"] == 0.5
    assert {"lack": "price", "reason": "not_priced", "num_calls": 1} in ledger["reasons"]


# --- as the sender says -------------------------------------------------------------------------
def test_a_reported_cost_wins_and_other_money_is_not_taken_for_dollars(otlp):
    rows = calls_of(
        otlp,
        sent(otlp, start_ns=NOON, reported_cost_usd=0.5),
        sent(otlp, start_ns=NOON + 1, reported_cost_usd=0.0),
        sent(otlp, start_ns=NOON + 2, model="mine", reported_cost_usd=0.25),
        sent(otlp, start_ns=NOON + 3, reported_cost_usd=9.0, reported_currency="EUR"),
        sent(otlp, start_ns=NOON + 4, model="x", reported_cost_usd=9.0, reported_currency="EUR"),
    )
    assert [row["cost_usd"] for row in rows] == [0.5, 0.0, 0.25, pytest.approx(0.0035), None]
    told = "reported by the provider"
    versions = [row["price_version"] for row in rows]
    assert versions == [told, told, told, shipped().version, None]


SAID = {
    "openlit.instrumentation.openai": {"gen_ai.usage.cost": 0.125},
    "litellm": {"gen_ai.cost.total_cost": 0.125, "gen_ai.cost.input_cost": 0.1},
    "logfire.openai": {"operation.cost": 0.125},
    "pydantic-ai": {"operation.cost": 0.125},
    "openinference.instrumentation.openai": {
        "openinference.span.kind": "LLM",
        "llm.cost.total": 0.125,
    },
    "langfuse-sdk": {
        "langfuse.observation.type": "generation",
        "langfuse.observation.cost_details": json.dumps({"input": 0.1, "output": 0.025}),
    },
    "mlflow.openai": {
        "mlflow.spanType": '"CHAT_MODEL"',
        "mlflow.llm.cost": json.dumps({"input_cost": 0.1, "total_cost": 0.125}),
    },
    "somebody.else": {"gen_ai.usage.cost": 0.125},
    "ai": {
        "ai.operationId": "ai.generateText.doGenerate",
        "ai.response.providerMetadata": json.dumps({"openrouter": {"usage": {"cost": 0.125}}}),
    },
}


@pytest.mark.parametrize("scope", SAID)
def test_every_library_that_tells_a_cost_is_understood(otlp, scope):
    (row,) = calls_of(
        otlp, sent(otlp, more=SAID[scope]), scope=scope, columns="cost_usd, reported_cost_usd"
    )
    assert row == {"cost_usd": 0.125, "reported_cost_usd": 0.125}


@pytest.mark.parametrize("scope", ["openlit.instrumentation.openai", "somebody.else"])
@pytest.mark.parametrize("nothing", [0, 0.0, -1.0, "free"])
def test_no_money_from_a_library_means_that_it_knows_no_price(otlp, scope, nothing):
    span = sent(otlp, more={"gen_ai.usage.cost": nothing})
    (row,) = calls_of(otlp, span, scope=scope, columns="cost_usd, reported_cost_usd")
    assert row == {"cost_usd": pytest.approx(0.0035), "reported_cost_usd": None}


# --- traces -------------------------------------------------------------------------------------
def test_a_trace_costs_what_its_calls_cost(otlp):
    traces = [bytes([i]) * 16 for i in (1, 2, 3)]
    spans = [
        sent(otlp, trace=traces[0]),
        sent(otlp, trace=traces[0], start_ns=NOON + 5 * 10**9, reported_cost_usd=0.5),
        sent(otlp, trace=traces[1]),
        sent(otlp, trace=traces[1], model="mine", start_ns=NOON + 5 * 10**9),
        otlp.span(trace_id=traces[2], start_time_unix_nano=NOON, end_time_unix_nano=NOON + 9),
    ]
    # the library's span below the framework's: one call, paid once
    spans.append(sent(otlp, trace=traces[0], parent=spans[0]["span_id"]))
    store = stored(otlp, spans)
    rows = store.sql("SELECT cost_usd, num_calls FROM traces ORDER BY trace_id").to_pylist()
    store.close()
    assert [row["num_calls"] for row in rows] == [2, 2, 0]
    assert [row["cost_usd"] for row in rows] == [pytest.approx(0.5035), None, None]


# --- the column costs who asks for it -------------------------------------------------------------
def test_a_query_that_does_not_ask_for_the_cost_does_not_pay_for_it(otlp):
    asked = []

    def price(columns, num):
        asked.append(num)
        return pricing.Priced(pa.repeat(1.0, num), pa.repeat("one", num))

    store = stored(otlp, [sent(otlp) for _ in range(5000)], price=price)
    asked.clear()
    whole = "SELECT count(*), sum(input_tokens), max(provider) FROM calls WHERE route IS NULL"
    plan = store.sql(f"EXPLAIN {whole}").to_pylist()[0]["explain_value"]
    assert pricing.FUNCTION not in plan
    assert store.sql(whole).num_rows == 1
    assert asked == []
    both = store.sql("SELECT sum(cost_usd) AS usd, min(price_version) AS v FROM calls").to_pylist()
    assert both == [{"usd": 5000.0, "v": "one"}]
    assert sum(asked) == 5000  # both columns at once
    store.close()


def test_a_file_and_a_copy_of_it_read_only_have_costs_too(otlp, tmp_path):
    store = stored(otlp, [sent(otlp)], folder=tmp_path / "db")
    store.close()
    again = DuckStore(tmp_path / "db", is_read_only=True)
    assert again.sql("SELECT cost_usd FROM calls")["cost_usd"].to_pylist() == [0.0035]
    assert again.sql("SELECT cost_usd FROM traces")["cost_usd"].to_pylist() == [0.0035]
    again.close()


def test_without_a_pricer_or_with_a_broken_one_there_is_no_cost(otlp, monkeypatch, caplog):
    def broken(columns, num):
        raise RuntimeError("no table today")

    for members in ({}, {"broken": Pricer(lambda: broken)}):
        monkeypatch.setattr(pricing, "load", lambda *_, members=members: members)
        with caplog.at_level(logging.CRITICAL):
            (row,) = calls_of(otlp, sent(otlp))
        assert row == {"cost_usd": None, "price_version": None}


# --- the user's own prices ------------------------------------------------------------------------
OWN = '[prices."vllm/mine"]\ninput = 1.0\noutput = 2.0\n'


def write(file, text, number):
    """Write a file, with a time of its own however fast that goes."""
    file.write_text(text)
    os.utime(file, ns=(number, number))


def test_own_prices_reach_the_view_and_a_half_edited_file_changes_nothing(
    otlp, tmp_path, monkeypatch, caplog
):
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "longpole.toml"
    write(file, OWN, 10**18)
    price = ConfiguredPrices()
    store = stored(otlp, [sent(otlp, provider="vllm", model="mine")], price=price)
    asked = "SELECT cost_usd, price_version FROM calls"

    def cost():
        price.look()
        (row,) = store.sql(asked).to_pylist()
        assert "longpole.toml" in row["price_version"]
        return row["cost_usd"]

    assert cost() == pytest.approx(0.0012)
    for number, text in enumerate(("[prices.", OWN + "otput = 1\n")):
        write(file, text, 10**18 + 1 + number)
        with caplog.at_level(logging.WARNING, "longpole.analytics.pricer"):
            assert cost() == pytest.approx(0.0012)
            assert cost() == pytest.approx(0.0012)
    assert len(caplog.records) == 2  # each fault once
    assert "line 4" in caplog.records[1].getMessage()
    write(file, OWN.replace("1.0", "3.0"), 10**18 + 9)
    assert cost() == pytest.approx(0.0032)
    file.unlink()
    assert cost() == pytest.approx(0.0032)
    store.close()


def test_a_file_that_comes_later_is_found_without_being_asked_for(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    price = ConfiguredPrices()
    columns = {name: pa.array([None]) for name in COLUMNS} | {
        "provider": pa.array(["vllm"]),
        "request_model": pa.array(["mine"]),
        "input_tokens": pa.array([1_000_000]),
        "output_tokens": pa.array([0]),
    }
    assert price(columns, 1).cost_usd.to_pylist() == [None]
    (tmp_path / "longpole.toml").write_text(OWN)
    monkeypatch.setattr(price, "_next_s", price._next_s - LOOK_S)
    assert price(columns, 1).cost_usd.to_pylist() == [1.0]


def test_a_collector_does_not_start_on_a_price_that_cannot_be(
    settings, collecting, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "longpole.toml").write_text('[prices."a/b"]\ninput = 1\noutptu = 2\n')
    with pytest.raises(UsageError, match=r"line 3.*outptu"), collecting(settings):
        pass
