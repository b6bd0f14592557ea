"""The latest run of each recipe: one of this data folder, else the recorded sample."""

import json
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, NamedTuple

FOLDER: Final = "lab"
"""In the data folder: a document (``longpole.lab_run/1``) a recipe."""
SAMPLE: Final = "data/runs.jsonl"


class Shown(NamedTuple):
    """A run's document, and whether it is the recorded sample's."""

    run: dict[str, Any]
    is_sample: bool


def keep(db: Path, document: dict[str, Any]) -> None:
    """Keep a run in its data folder, in the place of the recipe's last one."""
    folder = db / FOLDER
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / f"{document['recipe']}.json"
    path.write_text(json.dumps(document, allow_nan=False), "utf-8")


def latest(name: str, db: Path | None) -> Shown | None:
    """The latest run of a recipe; ``None`` if there is neither a run nor a sample.

    A file that cannot be read counts as no run.

    Args:
        name: the recipe's.
        db: data folder; ``None`` where there is none.
    """
    if db is not None:
        try:
            found = json.loads((db / FOLDER / f"{name}.json").read_text("utf-8"))
        except (OSError, ValueError):
            found = None
        if isinstance(found, dict) and found.get("recipe") == name:
            return Shown(found, is_sample=False)
    own = _sample().get(name)
    return None if own is None else Shown(own, is_sample=True)


@cache
def _sample() -> dict[str, dict[str, Any]]:
    path = files("longpole_dashboard.lab").joinpath(SAMPLE)
    if not path.is_file():
        return {}
    runs = map(json.loads, path.read_text("utf-8").splitlines())
    return {run["recipe"]: run for run in runs}
