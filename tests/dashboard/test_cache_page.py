"""The page of caches: its figures are those of ``longpole cache``."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.analytics.test_cache_command import traces

from longpole_dashboard.model.cache import CacheView, cache, usd
from longpole_dashboard.model.window import Filters, Match

from .drawn import Held, drawn, holding, plain, texts
from .sample import T0, workflow

MINUTE_NS = 60 * 10**9


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Held]:
    """Forty workflows with a call that tells its prompt: every second one has a time in front."""
    with holding(tmp_path_factory.mktemp("cache"), traces()) as found:
        yield found


def filters(held: Held, *where: Match, minutes: tuple[int, int] = (0, 100)) -> Filters:
    """A stretch of the workflows, one a minute."""
    (row,) = held.reader.sql("SELECT min(start_ns) AS first_ns FROM traces").to_pylist()
    start, end = (row["first_ns"] + at * MINUTE_NS for at in minutes)
    return Filters(start, end, where)


@pytest.mark.parametrize(
    ("where", "minutes"),
    [
        ((), (0, 100)),
        ((Match("route", "stamped"),), (0, 100)),
        ((Match("route", "plain", is_not=True), Match("long_pole", "tool")), (5, 30)),
    ],
)
def test_the_page_and_its_command_say_the_same(
    held: Held, where: tuple[Match, ...], minutes: tuple[int, int]
) -> None:
    shown = cache(filters(held, *where, minutes=minutes), held.reader)
    assert shown.num_calls > 20
    assert held.run(shown.command) == plain(shown.document)
    assert shown.scope.unfit == tuple(m.column for m in where if m.column == "long_pole")


def test_a_reason_leads_to_the_workflows_that_lost_most_by_it(held: Held) -> None:
    shown = cache(filters(held), held.reader)
    causes = {row["cause"]: row for row in shown.document["misses"]}
    own = causes["volatile_prefix"]["trace_ids"]
    assert len(own) == len(set(own)) == 10
    routes = held.reader.sql(
        "SELECT DISTINCT route FROM traces WHERE trace_id IN (SELECT unnest($ids))",
        {"ids": own},  # type: ignore[dict-item]  # a list is one value to the store
    )
    assert routes.to_pylist() == [{"route": "stamped"}]


def test_saved_tokens_and_money_are_told_and_no_time_without_proof(held: Held) -> None:
    heads = {head.label: head for head in cache(filters(held), held.reader).heads()}
    assert heads["tokens read from it"].value == f"{38 * 1800:,}"
    assert heads["calls with a hit"].value == "47.5 %"
    assert heads["money saved"].value == usd(38 * 1800 * 1.25e-6)
    assert heads["time saved, a hit"].value == "—"
    assert heads["time saved, a hit"].basis


def test_time_is_told_where_both_measures_agree(held: Held) -> None:
    estimate = {"ms": 120.0, "low_ms": 90.0, "high_ms": 150.0, "n": 50}
    sure = {"model": "openai/a", "num_hits": 50, "by_model": estimate, "verdict": "saves"}
    unsure = {**sure, "model": "x/b", "verdict": "no measurable speedup", "reason": "slope"}
    document = {
        "hits": {"all": {"num_calls": 9, "num_known": 9}},
        "prices": {"version": "p"},
        "speed": [unsure, sure],
    }
    base = cache(Filters(0, 1), held.reader)
    (time,) = [h for h in CacheView(base.scope, document, "").heads() if "time" in h.label]
    assert (time.value, time.basis) == ("120 ms", "openai/a, 50 hits, 95 %: 90.0 to 150 ms")


def test_a_provider_that_sends_no_counts_is_told_so(tmp_path: Path) -> None:
    spans = [span for i in range(30) for span in workflow(i + 1, at_s=i)]
    with holding(tmp_path / "db", spans) as own:
        shown = cache(Filters(T0, T0 + 60 * MINUTE_NS), own.reader)
        assert (shown.num_calls, shown.num_known) == (30, 0)
        nothing = cache(Filters(0, 1), own.reader)
        assert (nothing.num_calls, nothing.num_known) == (0, 0)
    with drawn("cache", tmp_path / "db") as app:
        said = texts(app)
    assert "No call here says how much of its input came from a cache" in said
    assert not app.metric


def test_the_page_shows_the_cause_that_the_address_names(held: Held) -> None:
    with drawn("cache", held.folder, cause="volatile_prefix") as app:
        said = texts(app)
        assert [metric.value for metric in app.metric][1] == "47.5 %"
    assert "move what changes from call to call out of segment &#x27;system&#x27;" in said
    assert "longpole cache --since" in said
    assert "of the input came from a cache (n 80)" in said


def test_money_keeps_its_sign_and_its_cents() -> None:
    assert [usd(each) for each in (None, 0.0, -3.2, 1234.5, 0.00123456)] == [
        *("—", "$0.00", "-$3.20", "$1,234.50", "$0.00123"),
    ]
