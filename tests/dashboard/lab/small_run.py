"""Plays every recipe once with few requests, side by side, then turns a knob of `lab whatif`.

Prints a document a line. In a process of its own: it loads torch, and sets up the SDK for good.
"""

import asyncio
import json
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from longpole_dashboard.lab.catalogue import all_recipes
from longpole_dashboard.lab.knobs import KNOBS
from longpole_dashboard.lab.play import play
from longpole_dashboard.lab.recipe import Recipe, Side
from longpole_dashboard.lab.run import Run
from longpole_dashboard.lab.stage_set import StageSet
from longpole_dashboard.lab.verdict import judge
from longpole_dashboard.lab.whatif import check

SEED = 1
MAX_ENGINES = 3
ENOUGH = 100.0
"""Of what was measured: where all play at once that is little, and a rate of it would be slow."""


def small(side: Side) -> Side:
    """The side on few engines, at its highest rate."""
    return side.but(num_engines=min(side.replicas.num_engines, MAX_ENGINES), of_capacity=ENOUGH)


async def played(stage: StageSet, recipe: Recipe, scale: float) -> Run:
    """One recipe, played and judged while others are."""
    sides = small(recipe.baseline), small(recipe.shape)
    found = await play(stage, recipe.name, sides, SEED, scale)
    verdict = await asyncio.to_thread(judge, stage.url, found)
    return Run(replace(recipe, baseline=sides[0], shape=sides[1]), SEED, found, *verdict)


async def every(stage: StageSet, scale: float) -> list[Run]:
    """All of them: what one waits for, another works in."""
    plays = (played(stage, recipe, scale) for recipe in all_recipes().values())
    return await asyncio.gather(*plays)


def main(scale: float) -> None:
    """Play all of them, and the knob."""
    with (
        tempfile.TemporaryDirectory() as folder,
        StageSet(Path(folder), "tiny") as stage,
    ):
        for run in asyncio.run(every(stage, scale)):
            print(json.dumps(run.document(), allow_nan=False))
        knob = check(stage, KNOBS["no-approval"], SEED, 0.1)
        print(json.dumps(knob.document(), allow_nan=False))


if __name__ == "__main__":
    main(float(sys.argv[1]))
