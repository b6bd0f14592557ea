"""The commands of the analytics wing; the only file here that opens a store or prints."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from longpole.errors import BadInput, UsageError
from longpole.vocab import STAGE_COLOURS, Stage
from longpole_analytics.advice import NEXT_CHECK
from longpole_analytics.explain import WHAT_IF_FASTER_BY, best_savings, document
from longpole_analytics.frames import spans_from_table
from longpole_analytics.prepare import distinct
from longpole_analytics.rollup import workflow_span
from longpole_analytics.stages import TracePartition, partition
from longpole_analytics.wording import milliseconds, percent, printable

if TYPE_CHECKING:
    from longpole.vocab import Span
    from longpole_analytics.prepare import Overhang
    from longpole_collector.stores.base import Reader

DEFAULT_DB = Path(".longpole")
MIN_PREFIX_DIGITS = 6
FULL_ID_DIGITS = 32
MAX_CANDIDATES = 5
MAX_PATH_ROWS = 40
BAR_WIDTH = 24
_TRACE_ID = re.compile(rf"[0-9a-fA-F]{{{MIN_PREFIX_DIGITS},{FULL_ID_DIGITS}}}")


@click.command()
@click.argument("trace_or_file", metavar="TRACE_OR_FILE")
@click.option("--json", "as_json", is_flag=True, help="One document on stdout.")
@click.option("--db", type=click.Path(path_type=Path), help="Data folder (default ./.longpole).")
@click.option("--url", help="A running collector.")
@click.option(
    "--file",
    "files",
    type=click.Path(path_type=Path),
    multiple=True,
    help="Read this file instead of a store; may be repeated.",
)
@click.option(
    "--overhang",
    type=click.Choice(["detach", "clip"]),
    default="detach",
    show_default=True,
    help="A child that ends after its parent: not waited for, or cut.",
)
def explain(
    trace_or_file: str,
    as_json: bool,
    db: Path | None,
    url: str | None,
    files: tuple[Path, ...],
    overhang: Overhang,
) -> None:
    """Where one trace's time went.

    TRACE_OR_FILE is a trace id, or the first digits of one (at least 6), or a file of traces
    (OTLP, Jaeger JSON, Parquet). Of several traces in a file the slowest is explained.
    """
    from longpole_collector.stores import open_reader

    trace_id: str | None = None
    if Path(trace_or_file).is_file():
        files = (Path(trace_or_file), *files)
    elif _TRACE_ID.fullmatch(trace_or_file):
        trace_id = trace_or_file.lower()
    else:
        raise UsageError(
            f"'{printable(trace_or_file)}' is neither a file nor a trace id "
            f"(at least {MIN_PREFIX_DIGITS} hex digits)"
        )
    if db is None and url is None and not files:
        db = DEFAULT_DB
    reader = open_reader(db=db, url=url, files=files)
    try:
        if trace_id is None:
            trace_id = _slowest(reader)
        elif len(trace_id) < FULL_ID_DIGITS:
            trace_id = _unique_id(reader, trace_id)
        spans = _spans(reader, trace_id)
    finally:
        reader.close()
    split = partition(spans, overhang=overhang)
    stated = workflow_span(distinct(spans), split.root_id)
    outcome = stated.outcome if stated else None
    if as_json:
        click.echo(json.dumps(document(split, outcome)))
    else:
        _print(Console(highlight=False), split, outcome)


def _unique_id(reader: Reader, prefix: str) -> str:
    found = reader.sql(
        "SELECT DISTINCT trace_id FROM spans WHERE trace_id LIKE ? ORDER BY trace_id LIMIT ?",
        [f"{prefix}%", MAX_CANDIDATES + 1],
    )
    ids: list[str] = found.column("trace_id").to_pylist()
    if not ids:
        raise _unknown(prefix)
    if len(ids) > 1:
        more = ", ..." if len(ids) > MAX_CANDIDATES else ""
        known = ", ".join(ids[:MAX_CANDIDATES])
        raise UsageError(f"several traces begin with {prefix}: {known}{more}; give more digits")
    return ids[0]


def _unknown(trace_id: str) -> BadInput:
    return BadInput(f"no trace {trace_id} here: its id stands on the dashboard and in `traces`")


def _slowest(reader: Reader) -> str:
    """The id of the trace that took longest from its first start to its last end."""
    found = reader.sql(
        "SELECT trace_id, count(*) OVER () AS num_traces FROM spans GROUP BY trace_id "
        "ORDER BY max(end_ns) - min(start_ns) DESC NULLS LAST, trace_id LIMIT 1"
    ).to_pylist()
    if not found:
        raise BadInput("no spans in the file: nothing to explain")
    if found[0]["num_traces"] > 1:
        click.echo(f"{found[0]['num_traces']} traces; this is the slowest.", err=True)
    trace_id: str = found[0]["trace_id"]
    return trace_id


def _spans(reader: Reader, trace_id: str) -> list[Span]:
    found = reader.sql("SELECT * FROM spans WHERE trace_id = ?", [trace_id])
    if not found.num_rows:
        raise _unknown(trace_id)
    return spans_from_table(found)


def _print(console: Console, split: TracePartition, outcome: str | None) -> None:
    console.print(
        f"trace {printable(split.trace_id)}   wall {_ms(split.wall_ns)}   "
        f"outcome {printable(outcome or 'unknown')}",
        markup=False,
    )
    if split.extended_wall_ns > split.wall_ns:
        console.print(f"until the end of the stream {_ms(split.extended_wall_ns)}")
    if not split.stages:
        console.print("no finished span with a duration: nothing to split")
    else:
        console.print(_stage_table(split))
        console.print(_path_table(split))
        pole = split.long_pole
        console.print(
            f"long pole   {pole.value}: {_ms(split.critical_ns(pole))}, "
            f"{percent(split.critical_ns(pole) / split.wall_ns) if split.wall_ns else '0 %'}"
        )
        console.print(f"next check  {NEXT_CHECK[pole]}")
        for stage, saved in best_savings(split):
            console.print(
                f"what if     {stage.value} took {percent(WHAT_IF_FASTER_BY)} less: -{_ms(saved)}"
            )
    for clock, shift in split.shifts_ns.items():
        console.print(f"clock of {printable(clock)} moved by {_ms(shift)}", markup=False)
    if split.flags:
        console.print(f"doubts      {', '.join(split.flags)}")


def _stage_table(split: TracePartition) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("stage")
    table.add_column("")
    for name in ("on the path", "share", "in all"):
        table.add_column(name, justify="right")
    for stage, time in sorted(split.stages.items(), key=lambda item: -item[1].critical_ns):
        share = time.critical_ns / split.wall_ns if split.wall_ns else 0.0
        bar = Text("█" * round(share * BAR_WIDTH), style=STAGE_COLOURS[stage])
        table.add_row(stage.value, bar, _ms(time.critical_ns), percent(share), _ms(time.total_ns))
    return table


def _path_table(split: TracePartition) -> Table:
    """The path, earliest first; of a long one the longest segments only."""
    table = Table(box=None, pad_edge=False, title_justify="left")
    for name in ("from", "to"):
        table.add_column(name, justify="right")
    table.add_column("critical path")
    table.add_column("stage")
    longest = sorted(split.segments, key=lambda segment: segment.start_ns - segment.end_ns)
    for segment in sorted(longest[:MAX_PATH_ROWS], key=lambda segment: segment.start_ns):
        table.add_row(
            _ms(segment.start_ns - split.start_ns),
            _ms(segment.end_ns - split.start_ns),
            Text(printable(segment.name)),
            Text(segment.stage.value, style=STAGE_COLOURS[Stage(segment.stage)]),
        )
    if len(longest) > MAX_PATH_ROWS:
        table.add_row("", "", f"and {len(longest) - MAX_PATH_ROWS} shorter ones", "")
    return table


def _ms(nanoseconds: float) -> str:
    return milliseconds(nanoseconds / 1e6)
