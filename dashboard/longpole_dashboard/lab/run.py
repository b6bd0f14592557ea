"""One run of a recipe: played, judged, told."""

import asyncio
from dataclasses import dataclass
from typing import Any, Final

from longpole_analytics.shapes import Shape
from longpole_dashboard.lab.labels import label
from longpole_dashboard.lab.play import BASELINE, SHAPE, Played, play
from longpole_dashboard.lab.recipe import Recipe
from longpole_dashboard.lab.stage_set import StageSet
from longpole_dashboard.lab.verdict import StageMeans, judge

SCHEMA: Final = "longpole.lab_run/1"


@dataclass(frozen=True)
class Run:
    """What was played, and what the diagnosis said of it."""

    recipe: Recipe
    seed: int
    played: Played
    verdict: Shape
    stages: tuple[StageMeans, ...]

    @property
    def is_named(self) -> bool:
        """The diagnosis names the shape."""
        return self.verdict.name == self.recipe.truth.shape

    @property
    def is_explained(self) -> bool:
        """And its sub-cause."""
        return label(self.verdict.sub_cause) == self.recipe.truth.sub_cause

    def document(self) -> dict[str, Any]:
        """The run as ``longpole.lab_run/1`` has it."""
        truth, found = self.recipe.truth, self.verdict
        return {
            "schema": SCHEMA,
            "recipe": self.recipe.name,
            "text": self.recipe.text,
            "seed": self.seed,
            "truth": {"shape": truth.shape, "sub_cause": truth.sub_cause},
            "verdict": {**found.document(), "label": label(found.sub_cause)},
            "stages": [each._asdict() for each in self.stages],
            "is_named": self.is_named,
            "is_explained": self.is_explained,
            "baseline": self.played.condition(BASELINE),
            "current": self.played.condition(SHAPE),
            "played": self.played.document(),
        }


def run(stage: StageSet, recipe: Recipe, seed: int, scale: float = 1.0) -> Run:
    """Play a recipe and have it judged.

    Args:
        stage: where.
        recipe: what.
        seed: of everything that is drawn.
        scale: of the number of requests.

    Raises:
        LongpoleError: it could not be played.
    """
    played = asyncio.run(play(stage, recipe.name, (recipe.baseline, recipe.shape), seed, scale))
    return Run(recipe, seed, played, *judge(stage.url, played))
