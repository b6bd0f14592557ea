"""``longpole lab``: makes a latency shape happen here, and has it named from the traces alone."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from longpole.errors import UsageError
from longpole_engine.load.commands import NumberRange

if TYPE_CHECKING:
    from rich.console import Console

    from longpole_dashboard.lab.stage_set import StageSet

LIST_SCHEMA: Final = "longpole.lab_list/1"
BREACHED: Final = 3
"""Exit code: the diagnosis missed the truth, or a bar."""
_F = TypeVar("_F", bound=Callable[..., Any])


@click.group()
def lab() -> None:
    """Make a latency shape happen on this machine, and see whether it is named.

    Each recipe plays two sides in turn on the reference engine behind a real application: as
    usual, and with one cause. What the diagnosis says of it comes from the traces alone.
    """


def _options(command: _F) -> _F:
    for option in (
        click.option("--json", "as_json", is_flag=True, help="One document on stdout."),
        click.option(
            "--model",
            default="tiny",
            show_default=True,
            help="Of the engines: tiny, smollm2, or a path.",
        ),
        click.option(
            "--db",
            type=click.Path(file_okay=False, path_type=Path),
            help="Keep the traces in this folder (default: nothing is kept).",
        ),
        click.option(
            "--scale",
            type=NumberRange(0.01, 20),
            default=1.0,
            show_default=True,
            help="Requests, as a multiple of what the recipe has.",
        ),
    ):
        command = option(command)
    return command


_kept_option = click.option(
    "--runs",
    "kept",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Keep the runs in this file; what is in it is not played again.",
)


@lab.command("list")
@click.option("--json", "as_json", is_flag=True, help="One document on stdout.")
def list_recipes(as_json: bool) -> None:
    """All recipes: what happens, and what should be said of it."""
    from longpole_dashboard.lab import told
    from longpole_dashboard.lab.catalogue import all_recipes

    recipes = all_recipes().values()
    if as_json:
        found = [
            {
                "name": each.name,
                "text": each.text,
                "shape": each.truth.shape,
                "sub_cause": each.truth.sub_cause,
            }
            for each in recipes
        ]
        click.echo(json.dumps({"schema": LIST_SCHEMA, "recipes": found}))
        return
    told.print_recipes(_console(), list(recipes))


@lab.command("run")
@click.argument("name")
@click.option("--seed", type=int, default=1, show_default=True)
@_options
def run_one(name: str, seed: int, scale: float, db: Path | None, model: str, as_json: bool) -> None:
    """Play recipe NAME; print the truth, the verdict and its evidence.

    Ends with 3 if the verdict is not the truth.
    """
    from longpole_dashboard.lab import told
    from longpole_dashboard.lab.catalogue import find
    from longpole_dashboard.lab.run import run
    from longpole_dashboard.lab.shown import keep

    recipe = find(name)
    _say(f"{recipe.name}: {recipe.text}")
    with _stage(db, model) as stage:
        stage.say = _say
        found = run(stage, recipe, seed, scale)
    document = found.document()
    if db is not None:
        keep(db, document)
    if as_json:
        click.echo(json.dumps(document, allow_nan=False))
    else:
        told.print_run(_console(), found, db)
    if not (found.is_named and found.is_explained):
        sys.exit(BREACHED)


@lab.command("score")
@click.argument("names", metavar="[NAME]...", nargs=-1)
@click.option("--seeds", type=click.IntRange(1), default=3, show_default=True, help="Runs of each.")
@click.option("--first-seed", type=int, default=1, show_default=True)
@_kept_option
@_options
def score_all(
    names: tuple[str, ...],
    seeds: int,
    first_seed: int,
    kept: Path | None,
    scale: float,
    db: Path | None,
    model: str,
    as_json: bool,
) -> None:
    """Play all recipes, or those of NAMES, with several seeds; print how well they are named.

    Ends with 3 if a bar is missed.
    """
    from longpole_dashboard.lab import score, told
    from longpole_dashboard.lab.catalogue import all_recipes, find
    from longpole_dashboard.lab.keeping import Work, kept_runs, played_all
    from longpole_dashboard.lab.run import run

    wanted = [find(name).name for name in names] or list(all_recipes())
    plan = [(name, seed) for seed in range(first_seed, first_seed + seeds) for name in wanted]
    known = kept_runs(kept, "recipe")
    begun = time.monotonic()

    def play(stage: StageSet, name: str, number: int) -> dict[str, Any]:
        return run(stage, find(name), number, scale).document()

    played_all(Work(plan, known, kept), lambda: _stage(db, model), play, _say)
    took_s = time.monotonic() - begun
    runs = [score.named(known[each]) for each in plan]
    document = score.document(runs, took_s)
    if as_json:
        click.echo(json.dumps(document, allow_nan=False))
    else:
        told.print_score(_console(), document, runs)
    if not document["is_enough"]:
        sys.exit(BREACHED)


@lab.command("whatif")
@click.argument("names", metavar="[NAME]...", nargs=-1)
@click.option("--seed", type=int, default=1, show_default=True)
@_kept_option
@_options
def whatif(
    names: tuple[str, ...],
    seed: int,
    kept: Path | None,
    scale: float,
    db: Path | None,
    model: str,
    as_json: bool,
) -> None:
    """Predict from one side's traces what a turned knob will show; play it; print the errors.

    Of all knobs, or those of NAMES. Ends with 3 if a prediction misses by more than 15 % at p50 or
    25 % at p95.
    """
    from longpole_dashboard.lab import told
    from longpole_dashboard.lab.keeping import Work, kept_runs, played_all
    from longpole_dashboard.lab.knobs import KNOBS, find
    from longpole_dashboard.lab.whatif import SCHEMA, check

    plan = [(find(name).name, seed) for name in names or KNOBS]
    known = kept_runs(kept, "knob")

    def play(stage: StageSet, name: str, number: int) -> dict[str, Any]:
        return check(stage, find(name), number, scale).document()

    played_all(Work(plan, known, kept), lambda: _stage(db, model), play, _say)
    found = [known[each] for each in plan]
    if as_json:
        click.echo(json.dumps({"schema": SCHEMA, "knobs": found}, allow_nan=False))
    else:
        told.print_checked(_console(), found)
    if not all(each["is_near"] for one in found for each in one["quantiles"]):
        sys.exit(BREACHED)


# --- how --------------------------------------------------------------------------------------


@contextmanager
def _stage(db: Path | None, model: str) -> Iterator[StageSet]:
    from longpole_dashboard.lab.stage_set import StageSet

    if db is not None:
        try:
            db.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise UsageError(f"--db {db}: {error.strerror}") from error
        with StageSet(db, model) as stage:
            yield stage
        return
    with (
        tempfile.TemporaryDirectory(prefix="longpole-lab-") as folder,
        StageSet(Path(folder), model) as stage,
    ):
        yield stage


def _console() -> Console:
    from rich.console import Console

    return Console(highlight=False)


def _say(line: str) -> None:
    click.echo(line, err=True)
