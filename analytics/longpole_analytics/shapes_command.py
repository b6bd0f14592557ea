"""``longpole shapes``: what kind of slowness each slice has, as text or as a document."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from longpole.errors import BadInput, NotEnoughData, UsageError
from longpole_analytics.loading import (
    Source,
    load_requests,
    select,
    source_options,
    window,
    window_options,
)

if TYPE_CHECKING:
    import polars as pl
    from rich.console import Console

    from longpole_analytics.prepare import Overhang
    from longpole_analytics.shapes import Evidence, Shape

SCHEMA: Final = "longpole.shapes/1"
DAY_NS: Final = 86_400 * 10**9
BASELINE_DAYS: Final = 7
MAX_SHOWN: Final = 20
"""Slices in the text; the document has all."""
MAX_EVIDENCE: Final = 3


@click.command()
@click.argument("paths", metavar="[FILE]...", nargs=-1, type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="One document on stdout.")
@source_options
@click.option("--baseline", metavar="SQL", help="Which requests are the usual ones.")
@click.option("--current", metavar="SQL", help="Which requests are judged.")
@click.option("--where", metavar="SQL", help="Only requests that meet this condition.")
@click.option("--by", metavar="COLUMN[,COLUMN]", help="Judge each slice of these columns apart.")
@window_options
@click.option(
    "--overhang",
    type=click.Choice(["detach", "clip"]),
    default="detach",
    show_default=True,
    help="A child that ends after its parent: not waited for, or cut.",
)
def shapes(
    paths: tuple[Path, ...],
    as_json: bool,
    db: Path | None,
    project: str | None,
    url: str | None,
    files: tuple[Path, ...],
    baseline: str | None,
    current: str | None,
    where: str | None,
    by: str | None,
    since: str | None,
    at: str | None,
    overhang: Overhang,
) -> None:
    """Which latency shape each slice has, by what evidence, and what to check next.

    Compares two populations of requests, from FILE (traces, or one flat table: Parquet, CSV) or
    a data folder. Without --baseline and --current the last 24 hours (or since --since) are
    compared with the 7 days before.
    """
    from longpole_analytics.shape_causes import judged
    from longpole_analytics.shapes import ShapeRules
    from longpole_analytics.thresholds import configured

    if (baseline is None) != (current is None):
        raise UsageError("give both --baseline and --current, or neither")
    source = Source(db, url, project, (*paths, *files))
    if baseline is None or current is None:
        sides = _by_time(source, where, since, at, overhang)
    else:
        since_ns, until_ns = window(since, at, time.time_ns())
        every = load_requests(
            source,
            where=where,
            since_ns=since_ns,
            until_ns=until_ns,
            overhang=overhang,
            has_facts=True,
        )
        sides = select(every, baseline), select(every, current)
    rules = configured(ShapeRules(), "shapes")
    found = judged(sides, source, _dimensions(sides[0], by), rules)
    if as_json:
        document = {"schema": SCHEMA, "slices": [shape.document() for shape in found]}
        click.echo(json.dumps(document, allow_nan=False))
    else:
        from rich.console import Console

        _print(Console(highlight=False), found)
    if not any(shape.name for shape in found):
        raise NotEnoughData("no slice has enough requests on both sides to compare")


def _by_time(
    source: Source, where: str | None, since: str | None, at: str | None, overhang: Overhang
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The requests before a moment, 7 days of them, and those from it on."""
    import polars as pl

    now_ns = time.time_ns()
    begin_ns, until_ns = window(since, at, now_ns)
    end_ns = now_ns if until_ns is None else until_ns
    begin_ns = end_ns - DAY_NS if begin_ns is None else begin_ns
    every = load_requests(
        source,
        where=where,
        since_ns=begin_ns - BASELINE_DAYS * DAY_NS,
        until_ns=end_ns,
        overhang=overhang,
        has_facts=True,
    )
    is_new = pl.col("start_ns") >= begin_ns
    return every.filter(~is_new), every.filter(is_new)


def _dimensions(requests: pl.DataFrame, by: str | None) -> list[str]:
    from longpole_analytics.requests import dimension_names

    names = [name.strip() for name in by.split(",") if name.strip()] if by else []
    known = dimension_names(requests)
    for name in names:
        if name not in known:
            raise BadInput(f"--by {name}: no such dimension here; there are {', '.join(known)}")
    return list(dict.fromkeys(names))


def _print(console: Console, found: list[Shape]) -> None:
    """Those that explain most first, shifts of the mix last; normal slices are only counted."""
    from rich.table import Table
    from rich.text import Text

    from longpole_analytics.shapes.base import NORMAL
    from longpole_analytics.wording import milliseconds, printable, where_text

    told = [shape for shape in found if shape.name and shape.name != NORMAL]
    told.sort(key=lambda shape: (str(shape.name).startswith("mix_"), -shape.excess_ms))
    few = sum(shape.name is None for shape in found)
    console.print(
        f"{len(found)} slices: {len(told)} with a shape, "
        f"{len(found) - len(told) - few} normal, {few} with too few samples"
    )
    for shape in told[:MAX_SHOWN]:
        known = {name: value or "(unknown)" for name, value in shape.where.items()}
        where = printable(where_text(known)) or "all requests"
        console.print(
            f"\n{where}   {shape.name}: {printable(shape.sub_cause or '')}, "
            f"{milliseconds(shape.excess_ms)} a request",
            markup=False,
        )
        table = Table(box=None, pad_edge=False)
        for name in ("", "evidence", "quantile"):
            table.add_column(name)
        for name in ("current", "baseline", "ratio (95 %)", "n"):
            table.add_column(name, justify="right")
        for row in shape.evidence[:MAX_EVIDENCE]:
            table.add_row("  ", Text(row.metric), *_cells(row))
        console.print(table)
        console.print(f"  next check  {shape.next_check}", markup=False)
        if shape.also:
            console.print(f"  also        {', '.join(f.name for f in shape.also)}", markup=False)
    if len(told) > MAX_SHOWN:
        console.print(f"\nand {len(told) - MAX_SHOWN} more: see --json")


def _cells(row: Evidence) -> tuple[str, ...]:
    from longpole_analytics.wording import milliseconds, quantile_name

    def value(number: float | None) -> str:
        if number is None:
            return ""
        is_time = row.metric.endswith("_ms") and not row.metric.startswith("rank_correlation_")
        return milliseconds(number) if is_time else f"{number:.3g}"

    ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
    if row.ci95 is not None:
        ratio += f" ({row.ci95[0]:.2f} to {row.ci95[1]:.2f})"
    name = "" if row.quantile is None else quantile_name(row.quantile)
    return name, value(row.current), value(row.baseline), ratio, str(row.n)
