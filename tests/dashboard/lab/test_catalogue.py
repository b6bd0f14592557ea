"""The catalogue says the truth about every shape there is."""

import pytest

from longpole.errors import UsageError
from longpole_analytics.shapes.base import NAMES, NORMAL
from longpole_dashboard.lab.catalogue import all_recipes, find
from longpole_dashboard.lab.knobs import KNOBS
from longpole_dashboard.lab.labels import LABELS, NONE, OTHER, label
from longpole_dashboard.lab.recipe import Side, Truth

RECIPES = list(all_recipes().values())
ASKED = {
    "queue",
    "slow_prefill",
    "cold_start",
    "retrieval",
    "contention",
    "draft_acceptance",
    "preemption",
    "mixed_lengths",
    "longer_inputs",
    "tool_tail",
    "one_replica",
    "retry_storm",
    "proxy_buffering",
    "slow_reader",
    "serial_tools",
    "approval",
    "queue_saturation",
    "hot_replica",
    "timestamp",
    "tool_order",
    "template_edit",
    "ttl",
    "routing_scatter",
}


def test_every_shape_of_the_closed_set_has_a_recipe() -> None:
    assert {recipe.truth.shape for recipe in RECIPES} == set(NAMES)
    assert len(RECIPES) >= 16


def test_every_cause_that_is_asked_for_has_a_recipe() -> None:
    assert {recipe.truth.sub_cause for recipe in RECIPES} >= ASKED


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.name)
def test_sides_differ_where_and_only_where_there_is_a_cause(recipe) -> None:
    is_clean = recipe.truth == Truth(NORMAL, NONE)
    assert (recipe.baseline == recipe.shape) == is_clean
    assert recipe.text
    assert not recipe.text.endswith(".")


@pytest.mark.parametrize("knob", KNOBS.values(), ids=lambda knob: knob.name)
def test_a_knob_turns_one_thing(knob) -> None:
    turned = [
        name
        for part in ("app", "load", "door", "replicas")
        for name, value in vars(getattr(knob.before, part)).items()
        if value != getattr(getattr(knob.after, part), name)
    ]
    assert len(turned) == 1 or set(turned) == {"faults", "is_even"}
    assert len(KNOBS) >= 8


def test_a_name_that_is_none_is_refused_with_those_there_are() -> None:
    with pytest.raises(UsageError, match="no recipe 'slow'"):
        find("slow")
    with pytest.raises(ValueError, match="no sub-cause"):
        Truth(NORMAL, "nothing")
    with pytest.raises(KeyError):
        Side().but(speed=2)


def test_but_changes_one_part_and_leaves_the_side_as_it_was() -> None:
    side = Side()
    other = side.but(answer=99, num=7)
    assert (other.app.answer, other.load.num) == (99, 7)
    assert other.door == side.door
    assert side == Side()


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (None, NONE),
        ("", NONE),
        ("prompt cache lost; the prompt was edited", "template_edit"),
        ("prompt cache lost", "cache_lost"),
        ("contention; poor draft acceptance", "draft_acceptance"),
        ("batch policy: decoding slows, the queue does not", "contention"),
        ("few requests are slow", OTHER),
        ("few requests wait for the first token; one replica: abc", "one_replica"),
    ],
)
def test_the_words_of_a_verdict_have_a_label(words, name) -> None:
    assert label(words) == name


def test_a_label_is_found_in_its_own_words() -> None:
    for name, words in LABELS.items():
        assert label(words.split("|")[0]) == name


def test_no_two_parts_of_a_side_have_a_field_of_one_name() -> None:
    side = Side()
    names = [name for part in vars(side).values() for name in vars(part)]
    assert len(names) == len(set(names))
