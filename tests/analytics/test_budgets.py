"""Budgets: read from a file, checked on the critical path, composed from real requests."""

import json
import random

import polars as pl
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from longpole.errors import NotEnoughData, UsageError
from longpole_analytics import stats
from longpole_analytics.budgets import Budget, check, parse
from longpole_analytics.budgets_command import budgets as command
from longpole_analytics.requests import from_flat

TOML = """
[budget."rag.search"]
retrieval = {p95_ms = 300, owner = "search"}
prefill = {p95_ms = 400, owner = "platform"}
prefill-cold = {p95_ms = 2500}
e2e = {p95_ms = 3000, owner = "app"}
"""


def requests(n=2000, seed=1):
    """One in five is cold and slow in prefill; half are cached; a third use a tool."""
    source = random.Random(seed)
    rows = []
    for k in range(n):
        is_cold = k % 10 < 2
        prefill = source.uniform(1500, 2000) if is_cold else source.uniform(100, 200)
        retrieval = source.uniform(100, 400)
        rows.append(
            {
                "route": "rag.search" if k % 2 else "chat",
                "is_cold": is_cold,
                "cache_state": "hit" if k % 4 < 2 else "miss",
                "num_tools": int(k % 3 == 0),
                "prefill_ms": prefill,
                "retrieval_ms": retrieval,
                "e2e_ms": prefill + retrieval + 200,
            }
        )
    return from_flat(pl.DataFrame(rows))


def budget(stage="retrieval", limit=300.0, q=0.95, state=None, route="rag.search"):
    return Budget(route, stage, state, q, limit, "team")


def test_budgets_are_read():
    import tomllib

    found = parse(tomllib.loads(TOML)["budget"])
    assert found == [
        Budget("rag.search", "retrieval", None, 0.95, 300.0, "search"),
        Budget("rag.search", "prefill", None, 0.95, 400.0, "platform"),
        Budget("rag.search", "prefill", "cold", 0.95, 2500.0, None),
        Budget("rag.search", "e2e", None, 0.95, 3000.0, "app"),
    ]
    assert parse({}) == []


@pytest.mark.parametrize(
    ("stages", "words"),
    [
        (5, "expected stages"),
        ({"prefil": {"p95_ms": 1}}, "did you mean prefill"),
        ({"prefill-hot": {"p95_ms": 1}}, "no such stage"),
        ({"prefill": 400}, "write prefill ="),
        ({"prefill": {"p95_ms": 1, "p99_ms": 2}}, "one of p50_ms"),
        ({"prefill": {"owner": "x"}}, "one of p50_ms"),
        ({"prefill": {"p95_ms": 1, "colour": "x"}}, "unknown 'colour'"),
        ({"prefill": {"p95_ms": "fast"}}, "expected milliseconds"),
        ({"prefill": {"p95_ms": True}}, "expected milliseconds"),
        ({"prefill": {"p95_ms": float("nan")}}, "expected milliseconds"),
        ({"prefill": {"p95_ms": -1}}, "expected milliseconds"),
        ({"prefill": {"p95_ms": 1, "owner": 7}}, "expected a name"),
    ],
)
def test_what_is_no_budget_is_a_sentence(stages, words):
    with pytest.raises(UsageError, match=words):
        parse({"r": stages})


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.floats(0, 1000), min_size=1, max_size=300),
    st.floats(0, 1000),
    st.sampled_from([0.5, 0.95]),
)
def test_burn_is_the_share_over_of_the_share_allowed(values, limit, q):
    table = from_flat(pl.DataFrame({"route": ["r"] * len(values), "tool_ms": values}))
    (found,) = check(table, [budget("tool", limit, q, route="r")]).checked
    num_over = sum(value > limit for value in values)
    assert found.whole.over[:2] == (num_over, len(values))
    assert found.whole.burn == pytest.approx(num_over / len(values) / (1 - q))
    # the quantile is within the budget exactly when no more than allowed are over
    if stats.is_shown(len(values), q):
        allowed = len(values) - stats.rank(len(values), q)
        assert (found.whole.at.value <= limit) == (num_over <= allowed)
    else:
        assert found.verdict == "too few"


def test_verdicts_wait_for_the_interval():
    table = requests()
    p95 = stats.quantile(table.filter(route="rag.search")["retrieval_ms"].to_list(), 0.95)
    for limit, verdict in ((p95 / 2, "over"), (p95, "undecided"), (p95 * 1.2, "within")):
        (found,) = check(table, [budget(limit=limit)]).checked
        assert found.verdict == verdict


def test_kinds_of_requests_are_looked_at_apart():
    (found,) = check(requests(), [budget("prefill", 400.0)]).checked
    by = {part.state: part for part in found.by_state}
    assert set(by) == {"warm", "cold", "cached", "uncached", "tool", "no_tool"}  # no slo_class
    for one, other in (("warm", "cold"), ("cached", "uncached"), ("tool", "no_tool")):
        assert by[one].over.n + by[other].over.n == found.whole.over.n == 1000
        assert by[one].over.k + by[other].over.k == found.whole.over.k
    assert by["warm"].over.k == 0
    assert by["cold"].over.value == 1.0
    (cold,) = check(requests(), [budget("prefill", 2500.0, state="cold")]).checked
    assert cold.verdict == "within"
    assert cold.whole.over.n == by["cold"].over.n
    assert cold.by_state == ()


def test_a_kind_that_nobody_tells_is_in_neither():
    table = from_flat(pl.DataFrame({"route": ["r"] * 30, "prefill_ms": [1.0] * 30}))
    (found,) = check(table, [budget("prefill", 5.0, route="r")]).checked
    assert found.by_state == ()


def test_the_composed_quantile_is_not_the_sum():
    """Two stages that are never slow together: their p95s add up to more than they ever take."""
    n = 1000
    slow_first = [k % 10 == 0 for k in range(n)]
    slow_second = [k % 10 == 5 for k in range(n)]
    both_slow = list(zip(slow_first, slow_second, strict=True))
    table = from_flat(
        pl.DataFrame(
            {
                "route": ["r"] * n,
                "prefill_ms": [1000.0 if slow else 10.0 for slow in slow_first],
                "tool_ms": [1000.0 if slow else 10.0 for slow in slow_second],
                "e2e_ms": [1020.0 if any(slow) else 20.0 for slow in both_slow],
            }
        )
    )
    both = [budget("prefill", 50.0, route="r"), budget("tool", 50.0, route="r")]
    (composed,) = check(table, both).composed
    assert composed.stages == ("prefill", "tool")
    assert composed.n == n
    assert composed.sum_ms == 2000.0
    assert composed.at.value == 1010.0
    assert composed.whole.value == 1020.0
    assert [part.state for part in composed.by_state] == ["tool"]  # all have a tool's time
    assert check(table, both[:1]).composed == ()


def worked():
    """Eight hundred requests, all of them known by hand: half cold, a quarter offline."""
    rows = []
    for k in range(800):
        is_cold, place = k % 2 == 0, (k // 2) % 100  # each kind has its 100 values four times
        prefill = 1000.0 + place if is_cold else 100.0 + place
        retrieval = 300.0 - place
        rows.append(
            {
                "route": "r",
                "is_cold": is_cold,
                "slo_class": "offline" if k >= 600 else "interactive",
                "prefill_ms": prefill,
                "retrieval_ms": retrieval,
                "ttft_ms": prefill + retrieval,
                "e2e_ms": prefill + retrieval + 50.0,
            }
        )
    return from_flat(pl.DataFrame(rows))


def test_the_composed_quantile_of_each_kind_is_its_own():
    """Within a kind the two stages are opposed, so that together they never vary."""
    both = [budget("prefill", 500.0, route="r"), budget("retrieval", 500.0, route="r")]
    (composed,) = check(worked(), both).composed
    assert composed.at.value == 1300.0
    assert composed.sum_ms == 1089.0 + 295.0  # rank 760 of 800: the 90th cold value, the 95th
    by = {part.state: part for part in composed.by_state}
    assert set(by) == {"cold", "warm", "foreground", "background"}
    assert (by["cold"].at.value, by["cold"].n) == (1300.0, 400)
    assert (by["warm"].at.value, by["warm"].n) == (400.0, 400)
    assert by["warm"].sum_ms == 194.0 + 295.0
    assert (by["background"].n, by["foreground"].n) == (200, 600)


def test_a_kind_may_have_budgets_of_its_own_to_compose():
    ours = [
        budget("prefill", 2000.0, state="cold", route="r"),
        budget("retrieval", 500.0, route="r"),
        budget("ttft", 500.0, route="r"),
    ]
    found = check(worked(), ours)
    assert found.composed == ()  # only one stage has a budget for all requests
    (whole,) = [each for each in found.checked if each.budget.stage == "ttft"]
    assert whole.whole.over[:2] == (400, 800)
    assert whole.whole.burn == pytest.approx(0.5 / 0.05)
    assert whole.whole.above_ms == 400 * 800.0
    state = {part.state: part.over.value for part in whole.by_state}
    assert state == {"cold": 1.0, "warm": 0.0, "foreground": 0.5, "background": 0.5}


def test_owners_answer_for_what_is_theirs():
    ours = [
        budget("prefill", 500.0, route="r")._replace(owner="platform"),
        budget("retrieval", 500.0, route="r")._replace(owner="search"),
        budget("e2e", 5000.0, route="r")._replace(owner="platform"),
        budget("ttft", 1200.0, route="r")._replace(owner=None),
    ]
    owners = check(worked(), ours).owners
    assert [each.owner for each in owners] == ["platform", "search", None]
    platform, search, nobody = owners
    assert (platform.num_budgets, platform.num_over) == (2, 1)
    assert platform.worst.budget.stage == "prefill"
    assert platform.above_ms == sum(500.0 + place for place in range(100)) * 4
    assert (search.num_over, search.above_ms) == (0, 0.0)
    assert nobody.num_over == 1


def test_weights_count():
    columns = {"route": ["r", "r"], "tool_ms": [1.0, 9.0], "weight": [9.0, 1.0]}
    table = from_flat(pl.DataFrame(columns))
    (found,) = check(table, [budget("tool", 5.0, 0.5, route="r")]).checked
    assert found.whole.burn == pytest.approx(0.2)


def test_bad_tables_give_answers():
    for columns in (
        {"tool_ms": [1.0]},
        {"route": [], "tool_ms": []},
        {"route": ["r"] * 3, "tool_ms": [None, float("nan"), float("inf")]},
    ):
        found = check(from_flat(pl.DataFrame(columns)), [budget("tool", route="r")])
        assert found.checked[0].whole.over.n == 0
        assert found.checked[0].whole.burn is None
        assert found.checked[0].verdict == "too few"
        json.dumps(found.document(), allow_nan=False)


# --- the command -------------------------------------------------------------------------------
@pytest.fixture
def files(tmp_path):
    config = tmp_path / "longpole.toml"
    config.write_text(TOML)
    table = tmp_path / "requests.parquet"
    requests().drop("flags").write_parquet(table)
    return config, table


def run(*arguments):
    return CliRunner().invoke(command, [str(a) for a in arguments])


def test_the_command_prints_a_document(files):
    config, table = files
    document = json.loads(run(table, "--config", config, "--json").stdout)
    assert document["schema"] == "longpole.budgets/1"
    assert [b["stage"] for b in document["budgets"]][:2] == ["retrieval", "prefill"]
    first = document["budgets"][1]
    assert (first["owner"], first["verdict"], first["quantile"]) == ("platform", "over", 0.95)
    (route,) = document["routes"]
    assert route["composed_ms"] < route["sum_of_quantiles_ms"]


def test_the_command_prints_a_table(files):
    config, table = files
    answer = run(table, "--config", config).stdout
    assert "platform" in answer
    assert "together p95" in answer
    assert "cold" in answer


def test_the_command_shows_an_owner_and_what_is_hers(files):
    config, table = files
    document = json.loads(run(table, "--config", config, "--owner", "search", "--json").stdout)
    assert [b["owner"] for b in document["budgets"]] == ["search"]
    assert [o["owner"] for o in document["owners"]] == ["search"]
    assert "platform: 1 of 1 budgets over" in run(table, "--config", config).stdout
    assert "owners are app, platform, search" in str(
        run(table, "--config", config, "--owner", "x").exception
    )


def test_the_command_says_what_is_wrong(files, tmp_path, monkeypatch):
    config, table = files
    assert isinstance(
        run(table, "--config", config, "--where", "route = 'x'").exception, NotEnoughData
    )
    config.write_text("")
    assert isinstance(run(table, "--config", config).exception, UsageError)
    config.write_text('[budget."r"]\nprefil = {p95_ms = 1}\n')
    assert "did you mean" in str(run(table, "--config", config).exception)
