"""The sentence on top of Explore: what stands below the map, in short."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as some

from longpole.vocab import Stage
from longpole_dashboard.model import text
from longpole_dashboard.model.explore import Brushed, Difference, Extra, Picked
from longpole_dashboard.model.verdict_lines.base import Line
from longpole_dashboard.model.verdict_lines.explore import of_selection

from .sentences import HOSTILE, assert_of, few, names, sizes

V2 = Difference((("prompt_version", "v2"),), 30, 0.83, 0.05, 7.7, 3.1, 19.2, is_cause=True)
UNSURE = Difference((("region", "eu"),), 30, 0.6, 0.5, 1.2, 0.8, 1.7)
BRUSHED = Brushed(36, 37, 73, (V2, UNSURE), (Extra("prefill", 545.0), Extra("tool", -20.0)), 715.0)


def test_a_selection_says_what_it_shares_and_where_it_loses_its_time() -> None:
    said = of_selection(Picked(36, ()), BRUSHED)
    assert said.line == (
        "prompt_version=v2 is 7.7x as likely (3.1 to 19) to be among the 36 selected, which take "
        "715 ms more on average, 545 ms of it in prefill."
    )
    assert said.more[0].startswith("An association, no proof.")
    sampled = of_selection(Picked(1_200, ()), BRUSHED).line
    assert "among the 36 read of 1,200 selected" in sampled


def test_a_selection_that_nothing_surely_tells_apart_is_said_so() -> None:
    unsure = replace(BRUSHED, differences=(UNSURE,))
    assert of_selection(Picked(36, ()), unsure).line == (
        "No slice surely tells the 36 selected, which take 715 ms more on average, 545 ms of it in "
        "prefill, from the 37 others."
    )
    assert of_selection(Picked(36, ()), unsure, "region").line.startswith("No value of region ")
    less = replace(unsure, extra_ms=-3.0)
    assert "which take no longer than like ones (-3.00 ms on average)" in (
        of_selection(Picked(36, ()), less).line
    )
    # what others take less is not a part of the whole
    other = replace(unsure, extra=(Extra("tool", 800.0), Extra("queue", -85.0)))
    assert (
        "715 ms more on average, 800 ms more in tool," in of_selection(Picked(36, ()), other).line
    )


def test_a_selection_that_cannot_be_compared_says_why() -> None:
    assert "5 workflows in the box: under 30" in of_selection(Picked(5, ()), None).line
    few_others = Brushed(36, 5, 41, reason="too few others of the same routes: 5 of 30")
    assert of_selection(Picked(36, ()), few_others) == Line(
        "No comparison: too few others of the same routes: 5 of 30.", ("They are listed below.",)
    )


factors = some.floats(0.02, 50, allow_subnormal=False)


def difference(value: str, n: int, ends: list[float]) -> Difference:
    low, middle, high = sorted(ends)
    return Difference((("version", value),), n, 0.5, 0.4, middle, low, high)


slices_ = some.builds(difference, names, sizes, some.lists(factors, min_size=3, max_size=3))
extras = some.builds(
    Extra,
    some.sampled_from([stage.value for stage in Stage]),
    some.floats(-900, 900, allow_subnormal=False),
)


@few
@given(some.lists(slices_, max_size=4), some.lists(extras, min_size=1, max_size=4), sizes, sizes)
def test_numbers_of_a_selection_are_those_below_the_map(
    differences: list[Difference], extra: list[Extra], num: int, rest: int
) -> None:
    whole = sum(each.mean_ms for each in extra)
    found = Brushed(num, rest, num + rest, tuple(differences), tuple(extra), whole)
    said = of_selection(Picked(num, ()), found).line
    shown = [text.count(num), text.count(rest), text.duration(abs(whole))]
    shown += [text.duration(abs(each.mean_ms)) for each in extra]
    for each in differences:
        shown += [text.significant(x or 0, 2) for x in (each.risk_ratio, each.low, each.high)]
    assert_of(said, shown)
    decided = [each for each in differences if each.is_decided]
    assert said.startswith(decided[0].text if decided else "No slice surely")


def test_a_hostile_slice_is_text_in_one_line() -> None:
    bad = replace(BRUSHED, differences=(replace(V2, where=((HOSTILE, HOSTILE),)),))
    said = of_selection(Picked(36, ()), bad).line
    assert said.startswith("a b[31m<img src=x>c")
    assert said.isprintable()
