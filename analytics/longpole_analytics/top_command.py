"""``longpole top``: the ranked causes of slow requests, as text or as a document."""

from __future__ import annotations

import json
import os
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from longpole.errors import NotEnoughData
from longpole_analytics.loading import (
    Source,
    load_requests,
    source_options,
    window,
    window_options,
)

if TYPE_CHECKING:
    from rich.console import Console

    from longpole_analytics.changes import Change
    from longpole_analytics.prepare import Overhang
    from longpole_analytics.top import Top

PIPED_WIDTH: Final = 160
MAX_SHOWN: Final = 10
"""Causes, changes and reasons in the text; the document has all."""


@click.command()
@click.argument("file", required=False, type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="One document on stdout.")
@source_options
@click.option("--where", metavar="SQL", help="Only requests that meet this condition.")
@click.option("--slow", default="p95", show_default=True, help="A quantile, or milliseconds.")
@click.option("--metric", default="e2e_ms", show_default=True, help="How slow a request is.")
@click.option("--by", metavar="COLUMN[,COLUMN]", help="Look at each group apart, as by route.")
@window_options
@click.option(
    "--overhang",
    type=click.Choice(["detach", "clip"]),
    default="detach",
    show_default=True,
    help="A child that ends after its parent: not waited for, or cut.",
)
def top(
    file: Path | None,
    as_json: bool,
    db: Path | None,
    project: str | None,
    url: str | None,
    files: tuple[Path, ...],
    where: str | None,
    slow: str,
    metric: str,
    by: str | None,
    since: str | None,
    at: str | None,
    overhang: Overhang,
) -> None:
    """Which slices the slow requests share, and in which stage they lose their time.

    FILE is a file of traces, or one flat table of requests (Parquet, CSV); without one the data
    folder is read. Slow is above a quantile of the request's own route (p95, p99), or above a
    number of milliseconds.
    """
    from longpole_analytics.attribution import CauseRules
    from longpole_analytics.changes import ChangeRules
    from longpole_analytics.requests import ALIASES
    from longpole_analytics.thresholds import configured
    from longpole_analytics.top import document, slow_of
    from longpole_analytics.top import top as find

    since_ns, until_ns = window(since, at, time.time_ns())
    found = find(
        load_requests(
            Source(db, url, project, (*([file] if file else []), *files)),
            where=where,
            since_ns=since_ns,
            until_ns=until_ns,
            overhang=overhang,
        ),
        ALIASES.get(metric, metric),
        slow=slow_of(slow),
        by=[name.strip() for name in by.split(",")] if by else [],
        cause_rules=configured(CauseRules(), "causes"),
        change_rules=configured(ChangeRules(), "changes"),
    )
    if as_json:
        click.echo(json.dumps(document(found), allow_nan=False))
    else:
        from rich.console import Console

        is_piped = not sys.stdout.isatty() and "COLUMNS" not in os.environ
        _print(Console(highlight=False, width=PIPED_WIDTH if is_piped else None), found)
    if not found.is_examined:
        raise NotEnoughData(f"nothing to rank: {found.reason}")


def _print(console: Console, found: Top) -> None:
    from longpole_analytics.top import slow_text
    from longpole_analytics.wording import percent, printable

    limit = slow_text(found.slow)
    limit = f"{limit} of the route" if found.slow.objective_ms is None else f"{limit} ms"
    console.print(
        f"{found.num_slow} of {found.num_traces} traces slow: {found.metric} over {limit}"
    )
    if found.causes:
        _print_causes(console, found)
    else:
        console.print(f"no cause: {found.reason}")
    for change in found.changes[:MAX_SHOWN]:
        console.print(f"change      {printable(change_text(change))}", markup=False)
    cover = found.coverage
    if cover.num_traces:
        placed = (
            ("stage", cover.num_stage),
            ("slice", cover.num_slice),
            ("versioned route", cover.num_route),
            ("all three", cover.num_all),
        )
        shares = [f"{name} {percent(num / cover.num_traces)}" for name, num in placed]
        console.print(f"coverage    of {cover.num_traces} slow or failed: {', '.join(shares)}")
        for reason, num in cover.reasons[:MAX_SHOWN]:
            console.print(f"      {num:>6}  {printable(reason)}", markup=False)


def _print_causes(console: Console, found: Top) -> None:
    from rich.table import Table
    from rich.text import Text

    from longpole.vocab import STAGE_COLOURS
    from longpole_analytics.advice import NEXT_CHECK
    from longpole_analytics.wording import milliseconds, percent, printable, where_text

    shown = list(enumerate(found.causes[:MAX_SHOWN], start=1))
    table = Table(box=None, pad_edge=False)
    for name in ("", "stage", "slice", "route"):
        table.add_column(name, overflow="fold")
    for name in ("of slow", "of rest", "risk ratio (95 %)", "crude", "p50 above usual", "in all"):
        table.add_column(name, justify="right")
    for rank, cause in shown:
        low, high = cause.ci95
        table.add_row(
            str(rank),
            Text(cause.stage.value, style=STAGE_COLOURS[cause.stage]),
            Text(printable(where_text(cause.where))),
            Text(printable(cause.route or "(several)")),
            f"{percent(cause.of_slow)} ({cause.num_slow})",
            percent(cause.of_rest),
            f"{cause.risk_ratio:.1f} ({low:.1f} to {high:.1f})",
            f"{cause.crude_risk_ratio:.1f}",
            milliseconds(cause.excess_ms_p50),
            milliseconds(cause.excess_ms_total),
        )
    console.print(table)
    for rank, cause in shown:
        if cause.is_confounded:
            console.print(f"{rank} is confounded: its lengths or routes differ from the others'")
    for stage in dict.fromkeys(cause.stage for _, cause in shown):
        console.print(f"{stage.value}: {NEXT_CHECK[stage]}", markup=False)
    console.print("An association, no proof: compare a few of these traces with others.")


def change_text(change: Change) -> str:
    """A change as one line."""
    from longpole_analytics.wording import milliseconds, percent

    what = ", ".join(
        f"{name} {change.previous[name] or '(none)'} -> {value}"
        for name, value in change.where.items()
    )
    moved = ", ".join(
        f"{stage.stage.value} p50 {'+' if stage.moved_ms > 0 else ''}{milliseconds(stage.moved_ms)}"
        for stage in change.stages
    )
    at = datetime.fromtimestamp(change.at_ns // 10**9, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    route = f"{change.route}: " if change.route else ""
    share = f"{percent(change.share_before)} -> {percent(change.share_after)} of requests"
    return f"{route}{what} at {at} ({share}): {moved}"
