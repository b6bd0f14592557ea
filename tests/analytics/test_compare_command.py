"""``longpole compare`` through its real door: files, filters, forms, exit codes."""

import json
import re

import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from longpole.cli import main
from longpole.vocab import keys
from longpole_analytics.compare_loading import load_compared
from longpole_analytics.loading import Source
from longpole_analytics.prices import shipped

from .scorecard_populations import flat
from .tables import spans_table
from .traces import span, streamed


def run(*arguments, exit_code=0):
    words = ["compare", *(str(word) for word in arguments)]
    result = CliRunner().invoke(main, words, env={"COLUMNS": "200"})
    assert result.exit_code == exit_code, (result.output, result.exception)
    return result


@pytest.fixture(scope="module", autouse=True)
def fewer_resamples(tmp_path_factory):
    folder = tmp_path_factory.mktemp("config")
    (folder / "longpole.toml").write_text("[analytics.compare]\nnum_resamples = 200\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        yield folder


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Baseline, faster, slower, same; and all of them as one file."""
    folder = tmp_path_factory.mktemp("requests")
    sides = {
        "base": flat(1500, 1, accepted=1.0, failing=0.0),
        "fast": flat(1500, 2, speed=0.7, accepted=1.0, failing=0.0),
        "slow": flat(1500, 3, speed=1.5, accepted=1.0, failing=0.0),
        "failing": flat(1500, 4, speed=0.7, failing=0.1),
        "few": flat(20, 5, failing=0.0),
        "none": flat(20, 6).clear(),
    }
    found = {}
    for name, table in sides.items():
        found[name] = folder / f"{name}.parquet"
        table.write_parquet(found[name])
    found["all"] = folder / "all.csv"
    whole = [table.with_columns(arm=pl.lit(name)) for name, table in sides.items()]
    pl.concat(whole[:3]).write_csv(found["all"])
    return found


@pytest.mark.parametrize(
    ("name", "code", "verdict"),
    [
        ("fast", 0, "better"),
        ("slow", 3, "worse"),
        ("failing", 3, "worse"),
        ("few", 4, "inconclusive"),
        ("none", 4, "inconclusive"),
    ],
)
def test_the_exit_code_is_the_verdict(files, name, code, verdict):
    asked = ("--target", "p50:e2e_ms", "--json")
    result = run(files["base"], files[name], *asked, exit_code=code)
    assert json.loads(result.stdout)["verdict"] == verdict
    assert (verdict in result.stderr) == (code != 0)


def test_equivalent_is_no_reason_to_stop(files):
    result = run(files["base"], files["base"], "--pair-by", "trace_id", "--json")
    found = json.loads(result.stdout)
    assert found["verdict"] == "equivalent"
    assert found["target"]["ratio"] == 1
    assert found["paired"]["num_pairs"] == 1500


def test_the_document_is_the_one_that_scripts_rely_on(files):
    found = json.loads(run(files["base"], files["fast"], "--json").stdout)
    assert found["schema"] == "longpole.compare/1"
    assert found.keys() >= {"verdict", "metrics", "guardrails", "flags", "n_needed"}
    assert found["n_needed"] is None
    for row in found["metrics"]:
        assert row.keys() >= {"name", "quantile", "base", "cand", "ratio", "ci95"}
        if row["ratio"] is not None:
            assert row["ratio"] == pytest.approx(row["cand"] / row["base"])
            assert row["ci95"][0] <= row["ratio"] <= row["ci95"][1]
    names = {row["name"] for row in found["metrics"]}
    assert names >= {"ttft_ms", "tpot_ms", "e2e_ms", "time_to_accepted_ms"}
    assert {row["name"] for row in found["guardrails"]} == {
        "accepted_rate", "quality", "error_rate", "timeout_rate", "cost", "p99"
    }  # fmt: skip
    needed = json.loads(run(files["few"], files["few"], "--json", exit_code=4).stdout)
    assert needed["n_needed"] >= 20


def test_sides_are_files_filters_or_time_ranges(files):
    by_files = json.loads(run(files["base"], files["fast"], "--json").stdout)
    whole = ("--file", files["all"])
    conditions = ("arm='base'", "arm='fast'")
    ways = (
        (*conditions, *whole),
        (files["all"], "--baseline", conditions[0], "--current", conditions[1]),
        ("trace_id like '1-%'", "trace_id like '2-%'", "--where", "arm <> 'slow'", *whole),
    )
    for way in ways:
        found = json.loads(run(*way, "--json").stdout)
        assert found["metrics"] == by_files["metrics"]
    early, late = "1970-01-01T00:00:00..1970-01-01T00:20:00", "1970-01-01T00:20:00.."
    found = json.loads(
        run(
            early, late, "--file", files["base"], "--target", "p50:ttft_ms", "--json", exit_code=4
        ).stdout
    )
    assert found["n"] == {"base": 1200, "cand": 300}
    assert "mixed_models" not in found["flags"]


def test_a_mistake_is_one_sentence(files, tmp_path):
    euros = tmp_path / "euros.parquet"
    flat(50, 1).with_columns(currency=pl.lit("EUR")).write_parquet(euros)
    foreign = tmp_path / "foreign.parquet"
    flat(50, 1).rename({"cost_usd": "cost_eur"}).write_parquet(foreign)
    base = files["base"]
    for arguments, code, words in (
        ((base,), 2, "name two populations"),
        ((), 2, "name two populations"),
        ((base, tmp_path / "nothing.parquet"), 1, "no such file"),
        ((base, base, "--baseline", "true"), 2, "both --baseline and --current"),
        ((base, base, "--target", "p50:nope"), 1, "no metric 'nope'"),
        ((base, base, "--target", "p100:e2e_ms"), 2, "quantile"),
        ((base, base, "--target", "?"), 2, "--target"),
        ((base, base, "--cluster", "nope"), 1, "no column 'nope'"),
        (("arm=", "true", "--file", base), 1, "condition"),
        (("2026-02-01..2026-01-01", "true", "--file", base), 2, "ends before"),
        ((base, euros), 1, "EUR"),
        ((foreign, base), 1, "cost_eur"),
    ):
        result = run(*arguments, exit_code=code)
        assert words in result.stderr, arguments
        assert "Traceback" not in result.stderr
        assert len(result.stderr.splitlines()) <= 2


HOSTILE = "<script>alert(1)</script>|[x](http://evil.example)\x1b[31m`*"


def test_hostile_names_stay_names_in_every_form(files, tmp_path):
    odd = tmp_path / "odd.parquet"
    pl.read_parquet(files["fast"]).with_columns(
        service=pl.lit(HOSTILE), prompt_version=pl.lit('"><img src=x onerror=alert(1)>')
    ).write_parquet(odd)
    page = tmp_path / "card.html"
    run(files["base"], odd, "--format", "html", "--out", page)
    written = page.read_text("utf-8")
    assert "<script" not in written
    assert "<img" not in written
    assert "\x1b" not in written
    assert "&lt;script&gt;" in written
    assert not re.findall(r"(?:src|href)=[\"']?(?:https?:)?//", written)
    text = run(files["base"], odd).stdout
    assert "\x1b" not in text
    marked = run(files["base"], odd, "--format", "markdown").stdout
    assert "<script" not in marked
    assert not re.findall(r"(?<!\\)\]\(", marked)
    assert "http://evil" not in marked
    row = next(line for line in marked.splitlines() if "alert(1)" in line)
    assert len(re.findall(r"(?<!\\)\|", row)) == 4


def test_all_forms_tell_the_same(files):
    document = json.loads(run(files["base"], files["fast"], "--json").stdout)
    assert json.loads(run(files["base"], files["fast"], "--format", "json").stdout) == document
    ratio = f"{document['target']['ratio']:.3f}"
    for form in ("text", "markdown", "html"):
        written = run(files["base"], files["fast"], "--format", form).stdout
        assert ratio in written
        assert "verdict: better" in written
        for guardrail in document["guardrails"]:
            plain = guardrail["name"].replace("_", r"\_" if form == "markdown" else "_")
            assert plain in written
    assert run(files["base"], files["fast"], "--format", "html").stdout.startswith(
        "<!doctype html>"
    )


def test_a_card_is_written_where_it_is_asked_for(files, tmp_path):
    for form in ("text", "markdown", "html", "json"):
        out = tmp_path / form
        result = run(files["base"], files["fast"], "--format", form, "--out", out)
        assert result.stdout == ""
        assert "better" in out.read_text("utf-8")
    run(files["base"], files["fast"], "--out", tmp_path / "no" / "place", exit_code=2)


# --- traces -------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def traces(tmp_path_factory):
    """Workflows of two arms, named by an attribute of their root, with sessions and quality."""
    random = np.random.default_rng(4)
    spans = []
    for number in range(240):
        arm = "a" if number % 2 else "b"
        took = random.lognormal(7, 0.2) * (1 if arm == "a" else 0.5)
        at, trace_id = number * 1000.0, f"{number + 1:032x}"
        root, model = (f"{2 * number + part:016x}" for part in (1, 2))
        attributes = {
            "experiment.arm": arm,
            "session.id": f"s{arm}{number // 4}",
            f"{keys.OUTCOME_FACT_PREFIX}quality": "0.9",
        }
        facts = {"trace_id": trace_id, "outcome": "accepted", "route": "rag"}
        spans.append(span(root, None, at, at + took, attributes=attributes, **facts))
        usage = {"input_tokens": 1000, "cached_input_tokens": 0, "output_tokens": 100}
        spans.append(
            streamed(
                *(model, root, at, at + took, int(took / 2), int(took)),
                trace_id=trace_id,
                provider="openai",
                request_model="gpt-4o",
                conversation_id=f"c{number}",
                attributes={f"{keys.ROUTE_INPUT_PREFIX}language": "de"},
                **usage,
            )
        )
    file = tmp_path_factory.mktemp("traces") / "spans.parquet"
    pq.write_table(spans_table(spans), file)
    return file


def test_traces_are_compared_by_any_attribute_with_costs_from_the_price_table(traces):
    found = load_compared(Source(files=(traces,)), shipped())
    assert found.height == 240
    # 1,000 tokens at 2.50 and 100 at 10.00 dollars a million
    assert found["cost_usd"].to_list() == pytest.approx([0.0035] * 240)
    assert set(found["quality"]) == {0.9}
    assert set(found["language"]) == {"de"}
    assert found["session_id"].n_unique() == 120
    arms = ("\"experiment.arm\"='a'", "\"experiment.arm\"='b'")
    result = run(*arms, "--file", traces, "--target", "p50:e2e_ms", "--json", exit_code=4)
    card = json.loads(result.stdout)
    assert card["target"]["verdict"] == "better"
    assert card["n"] == {"base": 120, "cand": 120}
    means = {row["name"]: row for row in card["means"]}
    assert means["cost_per_accepted_usd"]["base"] == pytest.approx(0.0035)
    assert means["quality"]["value"] == pytest.approx(0)


def test_the_help_says_the_exit_codes():
    assert "Exit codes" in run("--help").stdout
