"""The sentence on top of Stages & slices: true of its bars, with their numbers."""

import pytest
from hypothesis import given
from hypothesis import strategies as some

from longpole.vocab import Stage
from longpole_analytics.slice_labels import OTHER
from longpole_analytics.slices import Slice, Slices
from longpole_analytics.stage_slices import Part, StageMean, StageSlice, StageSlices
from longpole_dashboard.model import text
from longpole_dashboard.model.scope import Scope
from longpole_dashboard.model.stages import StagesView
from longpole_dashboard.model.verdict_lines.base import Line, name
from longpole_dashboard.model.verdict_lines.stages import of_stages
from longpole_dashboard.theme import look

from .sentences import HOSTILE, assert_of, few, names, sizes, times

SCOPE = Scope(0, 1)


def part(above: float | None, n: int, **means: float) -> Part:
    total = sum(means.values())
    stages = tuple(StageMean(Stage(s), ms, ms / total) for s, ms in means.items())
    return Part(above, n, None, total, stages) if stages else Part(above, 0, None, None, ())


def stages_view(*slices: StageSlice, metric: str = "e2e_ms", by: str = "route") -> StagesView:
    whole = tuple(Slice(s.where, s.parts[0].n, float(s.parts[0].n), 0, (), None) for s in slices)
    return StagesView(
        SCOPE,
        sum(s.parts[0].n for s in slices),
        by,
        metric,
        quantiles=Slices(metric, (by,), "exact", whole, (), 0),
        stages=StageSlices(metric, (by,), slices, 0),
    )


def shop(*parts: Part, route: str | None = "shop.question") -> StageSlice:
    return StageSlice({"route": route}, 0, parts)


QUESTION = part(None, 61, queue=74.0, prefill=450.0, later_decode=406.0)


def test_the_slice_that_takes_most_says_its_largest_stage() -> None:
    order = shop(part(None, 12, tool=571.0), route="shop.order")
    said = of_stages(stages_view(order, shop(QUESTION)))
    assert said.line == (
        "shop.question: prefill holds 48.4 % of the time (450 ms of 930 ms on average, n 61)."
    )
    assert said.more[0].startswith("Next, prefill: compare uncached input tokens")
    # twelve of a minute take more than 61 of a second
    longer = shop(part(None, 12, tool=60_000.0), route="shop.order")
    assert of_stages(stages_view(shop(QUESTION), longer)).line == (
        "shop.order: tool holds 100.0 % of the time (60.0 s of 60.0 s on average, n 12, too few to "
        "hold for others)."
    )


def test_what_the_slowest_tenth_waits_for_is_said_where_it_is_something_else() -> None:
    tail = part(0.9, 20, queue=2_000.0, prefill=150.0)
    other = of_stages(stages_view(shop(QUESTION._replace(n=200), tail)))
    assert other.line == (
        "shop.question: prefill holds 48.4 % of the time (450 ms of 930 ms on average, n 200); "
        "above its p90 it is queue, 93.0 % (2,000 ms of 2,150 ms on average, n 20)."
    )
    assert other.more[0].startswith("Next, queue:")
    same = part(0.9, 20, queue=10.0, prefill=1_500.0)
    assert "p90" not in of_stages(stages_view(shop(QUESTION, same))).line
    by_ttft = of_stages(stages_view(shop(QUESTION, tail), metric="ttft_ms")).line
    assert "(450 ms on average, n 61); above its p90 of TTFT it is queue" in by_ttft


def test_without_stages_it_says_why_there_is_no_verdict() -> None:
    nothing = of_stages(stages_view(shop(part(None, 0)), metric="ttft_ms"))
    assert nothing == Line("No verdict: no workflow here tells its TTFT and its stages.")


@pytest.mark.parametrize(
    ("by", "value", "begins"),
    [
        ("route", None, "route (unknown): "),
        ("prompt_version", "v2", "prompt_version=v2: "),
        ("prompt_version", OTHER, "prompt_version (all others): "),
    ],
)
def test_a_slice_is_named_by_what_it_is_split_by(by: str, value: str | None, begins: str) -> None:
    one = StageSlice({by: value}, 0, (QUESTION,))
    assert of_stages(stages_view(one, by=by)).line.startswith(begins)


means = some.dictionaries(
    some.sampled_from([stage.value for stage in Stage]), times, min_size=1, max_size=5
)


@few
@given(
    some.lists(
        some.tuples(names, sizes, means, means), min_size=1, max_size=4, unique_by=lambda x: x[0]
    ),
    some.sampled_from(["e2e_ms", "tpot_ms"]),
)
def test_numbers_of_the_stages_are_those_of_the_bars(
    found: list[tuple[str, int, dict[str, float], dict[str, float]]], metric: str
) -> None:
    slices = [
        shop(part(None, n, **all_), part(0.9, 10 + n // 10, **tail), route=route)
        for route, n, all_, tail in found
    ]
    said = of_stages(stages_view(*slices, metric=metric)).line
    own = next(each for each in slices if said.startswith(f"{each.where['route']}: "))
    total = {id(s): s.parts[0].n * sum(m.mean_ms for m in s.parts[0].stages) for s in slices}
    assert total[id(own)] == max(total.values())
    largest = max(own.parts[0].stages, key=lambda stage: stage.mean_ms)
    assert f": {look(largest.stage).label} holds {text.percent(largest.share)}" in said
    shown = [
        f"n {text.count(each.n)}, mean {text.duration(each.mean)}; "
        + ", ".join(f"{text.percent(s.share)} {text.duration(s.mean_ms)}" for s in each.stages)
        for each in own.parts
    ]
    assert_of(said, shown)


def test_names_from_spans_are_text_in_one_line_and_not_endless() -> None:
    assert name("shop.question") == "shop.question"
    said = name(HOSTILE)
    assert said.isprintable()
    assert len(said) == 60
    assert said.startswith("a b[31m<img src=x>c")
    line = of_stages(stages_view(shop(QUESTION, route=HOSTILE))).line
    assert line.startswith(f"{said}: prefill")
