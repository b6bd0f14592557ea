"""``longpole cache``: arrivals replayed, files, a store, and honest ends."""

import json
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from longpole.errors import BadInput, UsageError
from longpole.vocab import keys
from longpole_analytics.cache_command import cache
from longpole_analytics.rollup import ROLLUP
from longpole_collector.stores.duckdb import DuckStore
from longpole_collector.writer import Writer

from .tables import spans_table
from .test_cache_misses import prompt_facts, words
from .traces import call, span

DATA = Path(__file__).parent / "data"
MINUTE_MS = 60_000


def run(*arguments, exit_code=0):
    result = CliRunner().invoke(cache, [str(a) for a in arguments], env={"COLUMNS": "200"})
    if result.exit_code != exit_code and result.exception:
        raise result.exception
    return result


def traces():
    """Workflows with a call each; every second one has the time in its system text."""
    spans = []
    for number in range(40):
        ids = {"trace_id": f"{number + 1:032x}"}
        root, model, inner, look, branch, lost = (
            f"{number + 1:012x}{part:04x}" for part in range(6)
        )
        start = MINUTE_MS * number
        route = "stamped" if number % 2 else "plain"
        system = words("system", 5000)
        if number % 2:
            system = f"now {number} {system}"
        facts = prompt_facts({"system": system, "messages": words(number, 400)})
        cached = 1800 if number % 2 == 0 and number > 0 else 0
        counts = {"input_tokens": 2000, "output_tokens": 100, "cached_input_tokens": cached}
        named = {"provider": "openai", "request_model": "gpt-4o", "route": route, **ids}
        kept = {keys.APP_CACHE_KIND: "exact", keys.APP_CACHE_HIT: "false"}
        outcome = "accepted" if number % 4 else "rejected"
        spans += [
            span(root, None, start, start + 900, outcome=outcome, route=route, **ids),
            span(look, root, start, start + 1, attributes=kept, name="faq", **ids),
            span(
                branch,
                root,
                start,
                start + 500,
                attributes={keys.BRANCH_NAME: "b", keys.BRANCH_STATE: "cancelled"},
                **ids,
            ),
            call(model, root, start + 2, start + 800, **counts, **named),
            call(inner, model, start + 3, start + 799, attributes=facts, **named),
            call(lost, branch, start + 3, start + 400, **counts, **named),
        ]
    return spans


@pytest.fixture(params=["file", "store"])
def source(request, tmp_path):
    if request.param == "file":
        pq.write_table(spans_table(traces()), tmp_path / "spans.parquet")
        return ("--file", tmp_path / "spans.parquet")
    store = DuckStore(tmp_path / "db")
    writer = Writer(store, ROLLUP)
    writer.write_spans(traces())
    writer.settle(everything=True)
    store.close()
    return ("--db", tmp_path / "db")


def test_a_replay_has_the_shape_of_the_contract():
    file = DATA / "mooncake_conversation.parquet"
    document = json.loads(run("--replay", file, "--ttl", "60,300,3600", "--json").stdout)
    assert document == {
        "replay": [
            {
                "ttl_s": ttl_s,
                "hit_token_share": pytest.approx(share, abs=1e-6),
                "requests_with_hit": 6014,
            }
            for ttl_s, share in ((60, 0.103234), (300, 0.284382), (3600, 0.35199))
        ]
    }
    assert "28.4 %" in run("--replay", file).stdout


def test_the_document_tells_hits_money_misses_and_waste(source):
    document = json.loads(run("--json", *source).stdout)
    assert document["schema"] == "longpole.cache/1"
    hits = document["hits"]["all"]
    assert hits["num_calls"] == hits["num_known"] == 80
    assert hits["hit_rate_requests"] == pytest.approx(38 / 80)
    assert hits["saved_usd"] == pytest.approx(38 * 1800 * 1.25e-6)
    causes = {each["cause"]: each for each in document["misses"]}
    assert causes["volatile_prefix"]["num_misses"] == 19
    assert causes["volatile_prefix"]["segment"] == "system"
    wasted = {each["waste"]: each["num_calls"] for each in document["cost"]["wasted"]}
    assert wasted == {"cancelled_branch": 40, "not_accepted": 10}
    (answers,) = document["answer_caches"]
    assert (answers["num_requests"], answers["hits"]["value"]) == (40, 0.0)
    assert document["prices"]["version"].startswith("genai-prices")
    assert document["cost"]["all"]["cost_per_accepted_usd"] > 0


def test_costs_are_told_by_any_column_of_the_calls(source):
    found = json.loads(run("--json", "--by", "service,request_model", *source).stdout)
    rows = found["cost_by"]
    assert {frozenset(row) >= {"service", "request_model"} for row in rows} == {True}
    every = found["cost"]["all"]["cost_usd"]
    assert sum(row["cost_usd"] for row in rows) == pytest.approx(every)
    by_route = json.loads(run("--json", *source).stdout)
    assert by_route["cost_by"] == by_route["cost"]["routes"]
    workflows = json.loads(run("--json", "--by", "trace_id", *source).stdout)["cost_by"]
    assert {row["num_workflows"] for row in workflows} == {1}
    assert "cost_per_accepted_usd" in run("--by", "service", *source).stdout


def test_the_text_names_the_edit(source):
    text = run(*source, "--where", "route = 'stamped'").stdout
    assert "volatile_prefix" in text
    assert "move what changes" in text
    assert "saved" in text


def test_the_same_calls_give_the_same_bytes(source):
    assert run("--json", *source).stdout == run("--json", *source).stdout


def test_a_flat_table_of_calls_is_read_too(tmp_path):
    rows = {"start_ns": [1, 2], "provider": ["openai"] * 2, "request_model": ["gpt-4o"] * 2}
    counts = {"input_tokens": [2000] * 2, "cached_input_tokens": [0, 1024], "output_tokens": [1, 1]}
    pl.DataFrame({**rows, **counts}).write_csv(tmp_path / "calls.csv")
    document = json.loads(run("--json", tmp_path / "calls.csv").stdout)
    assert document["hits"]["all"]["saved_usd"] == pytest.approx(1024 * 1.25e-6)


def test_nothing_to_tell_is_said(tmp_path):
    pl.DataFrame({"input_tokens": [1]}).write_csv(tmp_path / "calls.csv")
    result = CliRunner().invoke(cache, [str(tmp_path / "calls.csv"), "--json"])
    assert result.exit_code != 0
    assert "no call says" in str(result.exception)


def test_bad_options_and_files_are_refused(tmp_path):
    for ttl in ("", "x", "0", "-1", "nan", "inf"):
        with pytest.raises(UsageError, match="--ttl"):
            run("--ttl", ttl, "--replay", "x.parquet")
    pl.DataFrame({"start_ns": [1]}).write_csv(tmp_path / "calls.csv")
    with pytest.raises(UsageError, match="--by: no column 'nope'; there are start_ns"):
        run("--by", "nope", tmp_path / "calls.csv")
    broken = tmp_path / "x.parquet"
    broken.write_text("no parquet")
    with pytest.raises(BadInput, match=r"x\.parquet"):
        run("--replay", broken)
    pl.DataFrame({"t_ms": [1]}).write_parquet(broken)
    with pytest.raises(BadInput, match=r"x\.parquet: no column input_tokens"):
        run("--replay", broken)


def test_own_prices_of_the_folder_count(tmp_path, monkeypatch):
    rows = {"start_ns": [1], "provider": ["vllm"], "request_model": ["q"], "input_tokens": [1000]}
    pl.DataFrame({**rows, "cached_input_tokens": [0], "output_tokens": [0]}).write_csv(
        tmp_path / "calls.csv"
    )
    file = tmp_path / "longpole.toml"
    file.write_text('[prices."vllm/q"]\ninput = 1\noutput = 2\n[analytics.cache]\nttl_s = 60\n')
    monkeypatch.chdir(tmp_path)
    document = json.loads(run("--json", "calls.csv").stdout)
    assert document["cost"]["all"]["cost_usd"] == pytest.approx(0.001)
    file.write_text('[prices."vllm/q"]\ninput = 1\noutptu = 2\n')
    with pytest.raises(UsageError, match=r"longpole\.toml, line 3.*outptu"):
        run("--json", "calls.csv")
