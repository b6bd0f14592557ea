"""``longpole slices``: a metric's quantiles by slice, as text or as a document."""

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
    source_options,
    window,
    window_options,
)

if TYPE_CHECKING:
    from rich.console import Console

    from longpole_analytics.slices import SliceQuantile, Slices
    from longpole_analytics.stage_slices import StageSlices

MAX_SHOWN: Final = 40
"""Slices in the text; the document has all."""
MANY: Final = 1000
"""So many requests tell enough: the interval is left out of the text."""
ROLLED: Final = ("service", "route", "prompt_version", "request_model")
"""Dimensions that rolled up values keep."""


@click.command()
@click.argument("file", required=False, type=click.Path(path_type=Path))
@click.option("--by", metavar="COLUMN[,COLUMN]", default="route", show_default=True,
              help="Dimensions, numbers (in buckets), or minute, hour, day, week, month, weekday, "
              "hour_of_day.")  # fmt: skip
@click.option("--metric", default="e2e_ms", show_default=True, help="A column in milliseconds.")
@click.option("--where", metavar="SQL", help="Only requests that meet this condition.")
@click.option("--tz", metavar="ZONE", default="UTC", show_default=True,
              help="Whose days and hours, as Europe/Berlin.")  # fmt: skip
@click.option("--rolled", is_flag=True,
              help="From the store's counts by minute: fast, within 1 %.")  # fmt: skip
@click.option("--stages", "has_stages", is_flag=True,
              help="Where the time goes: of all, and above p90 and p99 of the slice.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="One document on stdout.")
@source_options
@window_options
def slices(
    file: Path | None,
    by: str,
    metric: str,
    where: str | None,
    tz: str,
    rolled: bool,
    has_stages: bool,
    as_json: bool,
    db: Path | None,
    project: str | None,
    url: str | None,
    files: tuple[Path, ...],
    since: str | None,
    at: str | None,
) -> None:
    """How fast each slice is: n, p50, p90, p95, p99 with their 95 % intervals.

    FILE is a file of traces, or one flat table of requests (Parquet, CSV); without one the data
    folder is read. A quantile that too few requests carry is left out.
    """
    from longpole_analytics.requests import ALIASES
    from longpole_analytics.slices import slices as find
    from longpole_analytics.stage_slices import stage_slices

    names = [name.strip() for name in by.split(",") if name.strip()]
    if not names:
        raise UsageError("--by names no column: write --by route, or --by route,day")
    since_ns, until_ns = window(since, at, time.time_ns())
    source = Source(db, url, project, (*([file] if file else []), *files))
    shares = None
    if rolled and has_stages:
        raise UsageError("--rolled knows no stages: leave it out, or --stages")
    if rolled:
        found = _rolled(source, names, metric, where, tz, since_ns, until_ns)
    else:
        requests = load_requests(source, where=where, since_ns=since_ns, until_ns=until_ns)
        names = [name if name in requests.columns else ALIASES.get(name, name) for name in names]
        metric = ALIASES.get(metric, metric)
        found = find(requests, names, metric, tz=tz)
        shares = stage_slices(requests, names, metric, tz=tz) if has_stages else None
    _tell(found, shares, as_json=as_json)
    if not found.slices:
        raise NotEnoughData("no requests there: widen --since, or look at --where")


def _tell(found: Slices, shares: StageSlices | None, *, as_json: bool) -> None:
    if as_json:
        told = found.document() | (shares.document() if shares else {})
        click.echo(json.dumps(told, allow_nan=False))
        return
    from rich.console import Console

    console = Console(highlight=False)
    _print(console, found)
    if shares is not None:
        _print_stages(console, shares)


def _rolled(
    source: Source,
    by: list[str],
    metric: str,
    where: str | None,
    tz: str,
    since_ns: int | None,
    until_ns: int | None,
) -> Slices:
    """From the views ``minutes`` and ``hours``."""
    import polars as pl

    from longpole_analytics import minutes
    from longpole_analytics.slice_labels import TIMES
    from longpole_analytics.slices import rolled_slices
    from longpole_collector.settings import chosen_folder
    from longpole_collector.stores import open_reader

    if source.files:
        raise UsageError("--rolled reads a store's counts by minute: leave it out for files")
    unknown = [name for name in by if name not in (*ROLLED, *TIMES)]
    if unknown:
        kept = ", ".join([*ROLLED, *TIMES])
        raise UsageError(f"--rolled keeps {kept}, not {', '.join(unknown)}: leave it out")
    times = [name for name in by if name in TIMES]
    given = f"metric = '{metric.replace(chr(39), '')}'"
    asked = minutes.query(
        [name for name in by if name in ROLLED],
        is_timed=bool(times),
        where=f"{given} AND ({where}\n)" if where else given,
        since_ns=since_ns,
        until_ns=until_ns,
        grain="minutes" if {"minute"} & set(times) else None,
    )
    reader = open_reader(db=chosen_folder(source.db, source.project, source.url), url=source.url)
    try:
        rows = pl.from_arrow(reader.sql(asked))
    except BadInput as error:
        raise BadInput(f"the store's counts by minute: {error}") from error
    finally:
        reader.close()
    assert isinstance(rows, pl.DataFrame)  # noqa: S101 - a table is a frame
    return rolled_slices(rows, by, metric, tz=tz)


def _print(console: Console, found: Slices) -> None:
    from rich.table import Table
    from rich.text import Text

    from longpole_analytics.wording import printable, quantile_name

    unit = "   in ms unless it says s" if found.metric.endswith("_ms") else ""
    console.print(
        f"{found.metric} by {', '.join(found.by)}   {found.precision}{unit}", markup=False
    )
    table = Table(box=None, pad_edge=False)
    for name in found.by:
        table.add_column(Text(printable(name)), overflow="fold")
    table.add_column("n", justify="right")
    quantiles = found.slices[0].quantiles if found.slices else ()
    for told in quantiles:
        table.add_column(quantile_name(told.q), justify="right", no_wrap=True)
    table.add_column("max", justify="right")
    for each in found.slices[:MAX_SHOWN]:
        names = [each.where[name] for name in found.by]
        table.add_row(
            *(Text("(unknown)" if name is None else printable(name)) for name in names),
            f"{each.n:,}".replace(",", " "),
            *(_cell(found.metric, told, each.n) for told in each.quantiles),
            _number(found.metric, each.greatest),
        )
    console.print(table)
    hidden = max(len(found.slices) - MAX_SHOWN, 0) + found.num_left_out
    if hidden:
        console.print(f"and {hidden} more slices: --json has up to 1000, --where narrows them")
    unknown = sum(each.num_unknown for each in found.slices)
    if unknown:
        console.print(f"{unknown} requests without {found.metric} are not in n", markup=False)
    if found.not_sent:
        console.print(f"not sent    {printable(', '.join(found.not_sent))}", markup=False)


def _print_stages(console: Console, found: StageSlices) -> None:
    from longpole_analytics.wording import milliseconds, percent, printable, quantile_name

    console.print("\nmean on the critical path, by stage")
    for each in found.slices[:MAX_SHOWN]:
        names = ", ".join(f"{name} {value or '(unknown)'}" for name, value in each.where.items())
        console.print(printable(names), markup=False)
        for part in each.parts:
            name = "all" if part.above is None else f"above {quantile_name(part.above)}"
            stages = sorted(part.stages, key=lambda stage: -stage.mean_ms)
            told = ", ".join(
                f"{stage.stage.value} {milliseconds(stage.mean_ms)} ({percent(stage.share)})"
                for stage in stages
            )
            console.print(f"  {name:<10} n {part.n:<7} {told or 'too few'}", markup=False)


def _cell(metric: str, told: SliceQuantile, n: int) -> str:
    if told.value is None:
        return "too few"
    if n >= MANY:
        return _number(metric, told.value)
    ends = (_number(metric, end) if end is not None else "?" for end in (told.low, told.high))
    return f"{_number(metric, told.value)} ({'..'.join(ends)})"


def _number(metric: str, value: float | None) -> str:
    from longpole_analytics.wording import milliseconds

    if value is None:
        return "-"
    return milliseconds(value).removesuffix(" ms") if metric.endswith("_ms") else f"{value:.4g}"
