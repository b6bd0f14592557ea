"""The page of advice: its figures are those of ``longpole advise`` and ``longpole audit``."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from tests.analytics.advisor_traffic import Traffic
from tests.analytics.advisor_workloads import chat, serial_tools, unstable_prefix

from longpole_dashboard.model.advisor import advisor, facts, matches, relation, saving
from longpole_dashboard.model.window import Filters, Match

from .conftest import MemoryStore
from .drawn import Held, drawn, holding, plain, texts
from .sample import T0, workflow


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Held]:
    """Three routes: one sound, one with tools in a row, one with a time in front of its prompt."""
    traffic = Traffic(5)
    chat(traffic, 30)
    serial_tools(traffic, 40)
    unstable_prefix(traffic, 60)
    with holding(tmp_path_factory.mktemp("advisor"), traffic.spans) as found:
        yield found


def whole(held: Held) -> Filters:
    """All that is held."""
    query = "SELECT min(start_ns) AS a, max(start_ns) + 1 AS b FROM traces"
    (row,) = held.reader.sql(query).to_pylist()
    return Filters(row["a"], row["b"])


def test_the_page_and_its_commands_say_the_same(held: Held) -> None:
    shown = advisor(whole(held), held.reader)
    rules = {each["rule"] for each in shown.advice["advice"]}
    assert {"serial_tools", "unstable_prefix"} <= rules
    assert held.run(shown.commands[0]) == plain(shown.advice)
    assert held.run(shown.commands[1]) == plain(shown.audit)


def test_a_part_of_the_workflows_has_its_own_advice(held: Held) -> None:
    route = next(
        advice["where"]["route"]
        for advice in advisor(whole(held), held.reader).advice["advice"]
        if advice["rule"] == "unstable_prefix"
    )
    every = whole(held)
    middle = (every.start_ns + every.end_ns) // 2
    part = Filters(middle, every.end_ns, (Match("route", route),))
    shown = advisor(part, held.reader)
    assert 0 < shown.advice["num_traces"] < 100
    assert {each["where"]["route"] for each in shown.advice["advice"]} == {route}
    assert held.run(shown.commands[0]) == plain(shown.advice)


def test_nothing_here_is_no_failure(store: MemoryStore, held: Held) -> None:
    store.add(workflow(1))
    assert advisor(Filters(0, 1), store).advice["num_traces"] == 0
    unmet = replace(whole(held), where=(Match("route", "no such"),))
    assert advisor(unmet, held.reader).advice["num_traces"] == 0
    assert advisor(Filters(T0, 2 * T0), store).advice["advice"] == []


def test_what_an_advice_would_save_is_told_with_its_interval_or_as_unknown() -> None:
    advice = {
        "saving": {
            "metric": "e2e_ms",
            "p50": {"saved_ms": 120.0, "ci95": [90.0, 150.0], "n": 60},
            "p95": {"saved_ms": None, "ci95": None, "n": 60},
        },
        "relation": {"kind": "overlaps", "with": [1, 3]},
        "where": {"route": "a", "steps": "x -> y", "prompt_version": None},
    }
    assert saving(advice) == (
        "p50 120 ms less (95 %: 90.0 to 150 ms), p95 unknown (n 60) of the workflow"
    )
    assert relation(advice) == "overlaps with 1, 3"
    assert matches(advice) == (Match("route", "a"),)
    evidence = [
        {"metric": "cached_share", "value": 0.05115, "n": 30},
        {"metric": "other", "value": None, "n": 2},
    ]
    assert facts(evidence) == ("cached share 0.0512 (n 30)",)


def test_the_page_shows_each_advice_with_its_change_and_its_check(held: Held) -> None:
    shown = advisor(whole(held), held.reader).advice["advice"]
    with drawn("advisor", held.folder) as app:
        said = texts(app)
        assert [code.value for code in app.code] == [each["verify"] for each in shown][:10]
        explore = [button for button in app.button if button.label == "Explore"]
    assert len(explore) == len(shown[:10])
    assert "All of it together saves" in said
    assert "longpole advise --since" in said
    assert "longpole audit --since" in said
    assert "Not observable: " in said
