"""``longpole whatif``: what a faster stage would do to the p50, p95 and p99 of many traces."""

from __future__ import annotations

import json
import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import click
from rich.console import Console
from rich.table import Table

from longpole.errors import NotEnoughData, UsageError
from longpole.vocab import Stage
from longpole_analytics.loading import Source, source_options, window, window_options
from longpole_analytics.wording import milliseconds, percent, printable, quantile_name

if TYPE_CHECKING:
    from pathlib import Path

    from longpole_analytics.bulk.each_replay import Savings
    from longpole_analytics.whatif_population import Change

SCHEMA: Final = "longpole.whatif/1"
ASSUMPTION: Final = "if everything else stays equal"


@dataclass(frozen=True)
class Question:
    """What is asked of which traces."""

    stage: Stage
    faster_by: float
    route: str | None
    where: str | None


@click.command()
@source_options
@click.option(
    "--stage",
    type=click.Choice([stage.value for stage in Stage]),
    required=True,
    help="The stage that gets faster.",
)
@click.option(
    "--faster-by",
    type=click.FloatRange(0, 1),
    required=True,
    help="By which part: 0.5 takes half its time away.",
)
@click.option("--route", help="Traces of this route only.")
@click.option("--where", help="An SQL condition over the columns of requests.")
@window_options
@click.option("--json", "as_json", is_flag=True, help="One document on stdout.")
def whatif(
    *,
    stage: str,
    faster_by: float,
    route: str | None,
    where: str | None,
    since: str | None,
    at: str | None,
    as_json: bool,
    db: Path | None,
    url: str | None,
    project: str | None,
    files: tuple[Path, ...],
) -> None:
    """What if a stage were faster: p50, p95 and p99 of the replayed traces.

    Every trace is played again with the stage's own time cut; what did not wait for it stays
    where it was. Incomplete traces are left out.
    """
    from longpole_analytics.bulk import savings_table
    from longpole_analytics.span_loading import load_spans, weights
    from longpole_analytics.whatif_population import changes

    if math.isnan(faster_by):
        raise UsageError("--faster-by nan is no part of a stage: give a number from 0 to 1")
    question = Question(Stage(stage), faster_by, route, where)
    between = window(since, at, time.time_ns())
    spans = load_spans(Source(db, url, project, files), _condition(route, where), between)
    found = savings_table(spans, [(question.stage, faster_by)])
    whole = ~found.is_incomplete
    wall_ms, saved_ms = found.wall_ns[whole] / 1e6, found.saved_ns[whole, 0] / 1e6
    if not len(wall_ms):
        raise NotEnoughData("no complete trace meets the condition: nothing to replay")
    weight = weights(spans, found.trace_hi, found.trace_lo)
    quantiles = changes(wall_ms, saved_ms, weight=None if weight is None else weight[whole])
    if as_json:
        click.echo(json.dumps(document(question, quantiles, found)))
    else:
        _print(Console(highlight=False), question, quantiles, found)


def document(question: Question, quantiles: list[Change], found: Savings) -> dict[str, Any]:
    """The answer as a document (``longpole.whatif/1``).

    Args:
        question: what was asked.
        quantiles: what would change.
        found: the replayed traces.
    """
    return {
        "schema": SCHEMA,
        "stage": question.stage.value,
        "faster_by": question.faster_by,
        "route": question.route,
        "where": question.where,
        "num_traces": int((~found.is_incomplete).sum()),
        "num_incomplete": int(found.is_incomplete.sum()),
        "num_faster": int((found.saved_ns[~found.is_incomplete, 0] > 0).sum()),
        "quantiles": [
            {
                "quantile": change.quantile,
                "current_ms": change.current_ms,
                "replayed_ms": change.replayed_ms,
                "change_ms": change.change_ms,
                "ci95": list(change.ci95) if change.ci95 else None,
                "n": change.n,
            }
            for change in quantiles
        ],
        "assumption": ASSUMPTION,
    }


def _condition(route: str | None, where: str | None) -> str | None:
    parts = [f"({where}\n)"] if where else []
    if route is not None:
        parts.append("route = '{}'".format(route.replace("'", "''")))
    return " AND ".join(parts) or None


def _print(console: Console, question: Question, quantiles: list[Change], found: Savings) -> None:
    num = int((~found.is_incomplete).sum())
    left_out = int(found.is_incomplete.sum())
    more = f", {left_out} incomplete left out" if left_out else ""
    where = question.route and f" of {question.route}"
    console.print(
        printable(
            f"what if {question.stage.value} took {percent(question.faster_by)} less: "
            f"{num} traces{where or ''}{more}"
        ),
        markup=False,
    )
    table = Table(box=None, pad_edge=False)
    for name in ("", "now", "replayed", "change", "95 % interval"):
        table.add_column(name, justify="left" if not name else "right")
    for change in quantiles:
        table.add_row(quantile_name(change.quantile), *_cells(change))
    console.print(table)
    console.print(f"Holds {ASSUMPTION}: no load feedback, and every order seen is kept.")


def _cells(change: Change) -> list[str]:
    numbers = (change.current_ms, change.replayed_ms, change.change_ms)
    if None in numbers or change.ci95 is None:
        return ["", "", "", "too few samples"]
    low, high = change.ci95
    shown = [milliseconds(number) for number in numbers if number is not None]
    return [*shown, f"{milliseconds(low)} to {milliseconds(high)}"]
