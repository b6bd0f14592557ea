"""What is sent is drawn from the seed, and shares are exact."""

from dataclasses import replace

import pytest

from longpole_dashboard.lab.catalogue import all_recipes
from longpole_dashboard.lab.plan import EDIT_EVERY, visits
from longpole_dashboard.lab.recipe import App, Load, Prefix, Side

RECIPES = list(all_recipes().values())


def asks(side, seed="1 0", num=40):
    return [ask for visit in visits(side, seed, num) for ask in visit.asks]


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.name)
def test_the_same_seed_draws_the_same_requests_another_one_others(recipe) -> None:
    for side in (recipe.baseline, recipe.shape):
        first = visits(side, "1 0", 24)
        assert first == visits(side, "1 0", 24)
        assert first != visits(side, "2 0", 24)
        due = [visit.due for visit in first]
        assert due == sorted(due)
        assert sum(len(visit.asks) for visit in first) <= 24


def test_both_sides_draw_alike_where_the_recipe_does_not_part_them() -> None:
    side = Side(App(retrieval_s=0.1))
    slow = side.but(retrieval_s=0.4)
    pairs = list(zip(asks(side), asks(slow), strict=True))
    assert all(b.retrieval_s == pytest.approx(4 * a.retrieval_s) for a, b in pairs)
    assert all(replace_time(a) == replace_time(b) for a, b in pairs)


def replace_time(ask):
    return ask._replace(retrieval_s=0.0)


def test_a_share_is_met_exactly() -> None:
    slow = asks(Side(App(tools_s=(0.1, 0.1), slow_tools=0.1, slow_factor=10.0)))
    assert sum(ask.tools_s[0] > 0.5 for ask in slow) == 4
    long = asks(Side(App(answer=10, long_answers=0.25, long_factor=10.0)))
    assert sum(ask.answer > 50 for ask in long) == 10


def test_sessions_have_their_own_beginning_and_edits_their_own_version() -> None:
    own = visits(Side(App(prefix=Prefix.OWN), Load(turns=4)), "1 0", 20)
    assert [len(visit.asks) for visit in own] == [4] * 5
    assert all(len({ask.prefix for ask in visit.asks}) == 1 for visit in own)
    assert len({visit.asks[0].prefix for visit in own}) == 5
    edited = asks(Side(App(prefix=Prefix.EDITED)), num=3 * EDIT_EVERY)
    assert len({ask.version for ask in edited}) == 3


def test_groups_come_at_once_and_at_the_same_rate() -> None:
    load = Load(group=8)
    due = [visit.due for visit in visits(Side(load=load), "1 0", 32)]
    assert sorted(set(due)) == [0.0, 8.0, 16.0, 24.0]
    assert all(due.count(at) == 8 for at in set(due))
    ramp = replace(load, group=3, is_ramp=True)
    due = [visit.due for visit in visits(Side(load=ramp), "1 0", 9)]
    assert due == [0.0, 1.0, 1.0, 3.0, 3.0, 3.0, 6.0, 7.0, 7.0]
