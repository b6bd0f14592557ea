"""The data-quality ledger against what the view ``calls`` holds, on the whole corpus."""

from collections import Counter
from pathlib import Path

import pytest

from longpole_collector.stores import open_reader
from longpole_collector.stores.duckdb import DuckStore

CORPUS = Path(__file__).parent / "corpus"
RATIOS = (
    "no_ttft_ratio",
    "weak_ttft_ratio",
    "no_usage_ratio",
    "weak_usage_ratio",
    "no_price_ratio",
    "no_parent_ratio",
    "no_finish_ratio",
)


@pytest.fixture(scope="module")
def reader():
    reader = open_reader(files=sorted(CORPUS.glob("*.otlp.pb")))
    yield reader
    reader.close()


@pytest.fixture(scope="module")
def ledger(reader):
    rows = reader.sql("SELECT * FROM quality").to_pylist()
    return {(row["service"], row["dialect"]): row for row in rows}


@pytest.fixture(scope="module")
def calls(reader):
    found = {}
    for call in reader.sql("SELECT * FROM calls").to_pylist():
        found.setdefault((call["service"], call["dialect"]), []).append(call)
    return found


def share(calls, lacks):
    return pytest.approx(sum(map(lacks, calls)) / len(calls)) if calls else None


def test_every_service_and_dialect_has_one_row(reader, ledger, calls):
    assert reader.sql("SELECT * FROM quality").num_rows == len(ledger)
    assert {key: row["num_calls"] for key, row in ledger.items()} == {
        key: len(group) for key, group in calls.items()
    }


def test_the_shares_are_those_of_the_calls(ledger, calls):
    for key, row in ledger.items():
        group = calls[key]
        answered = [call for call in group if call["operation"] != "embeddings"]
        streamed = [call for call in answered if call["is_streamed"]]
        assert row["num_streamed"] == len(streamed)
        assert row["no_ttft_ratio"] == share(streamed, lambda call: call["ttft_ms"] is None)
        assert row["no_finish_ratio"] == share(answered, lambda call: call["finish_reason"] is None)
        assert row["no_parent_ratio"] == share(group, lambda call: call["parent_id"] is None)
        assert row["no_price_ratio"] == share(group, lambda call: call["cost_usd"] is None)
        assert row["no_usage_ratio"] == share(
            group,
            lambda call: (
                call["input_tokens"] is None
                or (call["output_tokens"] is None and call["operation"] != "embeddings")
            ),
        )
        assert row["weak_usage_ratio"] == share(
            group, lambda call: "tokens_estimated" in call["flags"]
        )
        assert all(row[name] is None or 0 <= row[name] <= 1 for name in RATIOS)


def test_the_reasons_explain_every_lack_and_nothing_else(ledger):
    of = {
        "ttft": ("no_ttft_ratio", "num_streamed"),
        "ttft_content": ("weak_ttft_ratio", "num_streamed"),
        "usage": ("no_usage_ratio", "num_calls"),
        "usage_counted": ("weak_usage_ratio", "num_calls"),
        "price": ("no_price_ratio", "num_calls"),
        "parent": ("no_parent_ratio", "num_calls"),
    }
    for row in ledger.values():
        nums = Counter()
        for reason in row["reasons"]:
            nums[reason["lack"]] += reason["num_calls"]
        for lack, (ratio, among) in of.items():
            assert nums[lack] == round((row[ratio] or 0) * row[among])
        counts = [reason["num_calls"] for reason in row["reasons"]]
        assert counts == sorted(counts, reverse=True)
        assert min(counts) > 0


def test_the_ledger_tells_what_is_known_of_the_libraries(ledger):
    def why(dialect, lack):
        (row,) = (row for (_, name), row in ledger.items() if name == dialect)
        return {
            reason["reason"]: reason["num_calls"]
            for reason in row["reasons"]
            if reason["lack"] == lack
        }

    assert max(why("openlit", "ttft"), key=why("openlit", "ttft").get) == "ttft_after_headers"
    assert max(why("logfire", "ttft"), key=why("logfire", "ttft").get) == "not_sent"
    assert why("mlflow", "ttft")["incomplete"] > 0  # spans that end with the headers
    assert why("openlit", "usage_counted") == {"tokens_estimated": 1}
    assert set(why("langfuse", "ttft_content")) == {"ttft_first_event"}
    assert why("litellm", "price") == {}  # its models have a price
    assert why("openllmetry", "price")["not_priced"] == 1  # the one model of one's own


def test_where_nothing_counts_the_share_is_null(otlp):
    call = {"gen_ai.operation.name": "embeddings", "gen_ai.request.model": "m"}
    store = DuckStore()
    store.append(otlp.canonical(otlp.span(kind=3, attributes=call)))
    (row,) = store.sql("SELECT * FROM quality").to_pylist()
    store.close()
    assert (row["no_ttft_ratio"], row["weak_ttft_ratio"], row["no_finish_ratio"]) == (None,) * 3
    assert (row["no_usage_ratio"], row["num_streamed"]) == (1.0, 0)
    assert {reason["lack"] for reason in row["reasons"]} == {"usage", "price", "parent"}


def test_without_calls_there_are_no_rows():
    store = DuckStore()
    assert store.sql("SELECT * FROM quality").num_rows == 0
    store.close()
