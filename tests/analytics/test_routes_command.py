"""``longpole routes`` through its real door: text, documents, exit codes."""

import json

import polars as pl
import pytest
from click.testing import CliRunner

from longpole.cli import main

from .test_routes import RULES, SPLIT, recorded, routed, tiered


def run(*arguments, exit_code=0):
    words = ["routes", *(str(word) for word in arguments)]
    result = CliRunner().invoke(main, words, env={"COLUMNS": "200"})
    assert result.exit_code == exit_code, (result.output, result.exception)
    return result


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("routes")
    (path / "routes.toml").write_text(RULES, "utf-8")
    (path / "moved.toml").write_text(RULES.replace("min = 8000", "min = 9000"), "utf-8")
    (path / "split.toml").write_text(SPLIT, "utf-8")
    recorded().write_parquet(path / "recorded.parquet")
    routed().write_parquet(path / "routed.parquet")
    tiered(800).write_parquet(path / "tiered.parquet")
    return path


def test_rules_are_checked(folder):
    found = json.loads(run("check", folder / "routes.toml", "--json").stdout)
    assert found["schema"] == "longpole.routes_check/1"
    assert [route["route"] for route in found["routes"]] == ["rag.search"]
    assert "1 routes can be read" in run("check", folder / "routes.toml").stdout
    moved = (folder / "moved.toml", "--against", folder / "routes.toml")
    assert "still 7" in run("check", *moved, exit_code=3).stdout
    (folder / "bad.toml").write_text(RULES.replace("owner", "ownr"), "utf-8")
    refused = run("check", folder / "bad.toml", exit_code=2)
    assert "bad.toml, line 5" in refused.stderr
    assert "cannot read" in run("check", folder / "none.toml", exit_code=2).stderr


def test_a_choice_is_told_with_what_comes_after_it(folder):
    given = ("input_tokens=9000", "language=de")
    found = json.loads(run("choose", folder / "routes.toml", "rag.search", *given, "--json").stdout)
    assert [each["choice"] for each in found["chain"]] == ["long", "usual"]
    assert found["longest_ms"] == 11_000
    assert "usual" in run("choose", folder / "routes.toml", "rag.search").stdout
    for words in (("nope",), ("rag.search", "color=red"), ("rag.search", "language")):
        assert "there are" in run("choose", folder / "routes.toml", *words, exit_code=2).stderr or (
            "the inputs of" in run("choose", folder / "routes.toml", *words, exit_code=2).stderr
        )


def test_the_envelope_is_told(folder):
    found = json.loads(run("envelope", folder / "recorded.parquet", "--json").stdout)
    assert found["schema"] == "longpole.routes_envelope/1"
    best = {o["where"]["request_model"] for o in found["options"] if o["is_on_envelope"]}
    assert "fast" in best
    assert "useless" not in best
    assert "beaten by" in run("envelope", folder / "recorded.parquet").stdout
    few = folder / "few.parquet"
    recorded(8).write_parquet(few)
    run("envelope", few, exit_code=4)
    assert "no column" in run("envelope", few, "--by", "nope", exit_code=1).stderr


def test_downgrades_are_told_and_can_be_a_gate(folder):
    found = json.loads(run("tiers", folder / "tiered.parquet", "--json").stdout)
    asked = {row["asked"]: row for row in found["asked"]}
    assert 0.1 < asked["priority"]["share"] < 0.3
    assert {row["tier"] for row in found["worth"]} == {"priority", "flex"}
    gate = run("tiers", folder / "tiered.parquet", "--max-downgraded", "0.05", exit_code=3)
    assert "downgraded too often" in gate.stderr
    run("tiers", folder / "routed.parquet", exit_code=4)


def test_other_rules_are_told_with_what_they_rest_on(folder):
    words = ("whatif", folder / "split.toml", folder / "routed.parquet")
    found = json.loads(run(*words, "--json").stdout)
    assert found["schema"] == "longpole.routes_whatif/1"
    (route,) = found["routes"]
    assert route["projected"]["metrics"]
    assert len(route["assumptions"]) == 4
    text = run(*words, "--route", "rag").stdout
    assert "Holds if:" in text
    assert "would go elsewhere" in text
    assert "no route 'x'" in run(*words, "--route", "x", exit_code=2).stderr
    run("whatif", folder / "routes.toml", folder / "routed.parquet", exit_code=4)


def test_hostile_names_do_not_reach_the_terminal(folder):
    odd = recorded(400).with_columns(request_model=pl.lit("\x1b[31m[b]x"))
    odd.write_parquet(folder / "odd.parquet")
    text = run("envelope", folder / "odd.parquet").stdout
    assert "\x1b" not in text
    assert "[b]x" in text
