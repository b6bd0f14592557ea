"""The recorded populations: one for each shape, and each is named from the file alone."""

from pathlib import Path

import polars as pl
import pytest

from longpole_analytics.loading import Source, load_requests, select
from longpole_analytics.shapes import shapes_of
from longpole_analytics.shapes.base import NAMES
from longpole_dashboard.lab.catalogue import all_recipes
from longpole_dashboard.lab.labels import label
from longpole_dashboard.lab.play import VERSIONS, route

FOLDER = Path(__file__).parents[3] / "sample_data"
LAB = FOLDER / "lab.parquet"
BEFORE, AFTER = (f"route_version = '{version}'" for version in VERSIONS.values())


@pytest.fixture(scope="module")
def found():
    every = load_requests(Source(files=(LAB,)), has_facts=True)
    shapes = shapes_of(select(every, BEFORE), select(every, AFTER), by=("route",))
    return {shape.where["route"]: shape for shape in shapes}


def test_each_population_is_named_as_its_recipe_says(found) -> None:
    recipes = {route(name): recipe for name, recipe in all_recipes().items()}
    said = {place: (shape.name, label(shape.sub_cause)) for place, shape in found.items()}
    truth = {place: recipes[place].truth for place in found}
    causes = {"tool_order": "cache_lost"}  # why it is lost the prompts' hashes tell, not read here
    assert said == {
        place: (each.shape, causes.get(each.sub_cause, each.sub_cause))
        for place, each in truth.items()
    }
    assert {each.shape for each in truth.values()} == set(NAMES)


def test_it_lies_before_the_demo_and_names_no_machine() -> None:
    lab, demo = pl.read_parquet(LAB), pl.read_parquet(FOLDER / "demo.parquet")
    assert lab["end_ns"].max() < demo["start_ns"].min()
    assert lab["trace_id"].n_unique() > 1000
    assert set(lab["service"].drop_nulls().unique()) <= {"lab", "longpole-engine"}
    assert LAB.stat().st_size < 4_000_000
