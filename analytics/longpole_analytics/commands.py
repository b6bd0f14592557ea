"""The commands of the analytics wing; the only file here that opens a store or prints."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console

from longpole.errors import BadInput, UsageError
from longpole_analytics import explain_text, related
from longpole_analytics.explain import document
from longpole_analytics.frames import spans_from_table
from longpole_analytics.loading import source_options
from longpole_analytics.prepare import distinct
from longpole_analytics.rollup import workflow_span
from longpole_analytics.serial import SerialRules, opportunities
from longpole_analytics.stages import partition
from longpole_analytics.thresholds import configured
from longpole_analytics.wording import printable

if TYPE_CHECKING:
    from longpole.vocab import Span
    from longpole_analytics.prepare import Overhang
    from longpole_collector.stores.base import Reader

MIN_PREFIX_DIGITS = 6
FULL_ID_DIGITS = 32
MAX_CANDIDATES = 5
_TRACE_ID = re.compile(rf"[0-9a-fA-F]{{{MIN_PREFIX_DIGITS},{FULL_ID_DIGITS}}}")


@click.command()
@click.argument("trace_or_file", metavar="TRACE_OR_FILE")
@click.option("--json", "as_json", is_flag=True, help="One document on stdout.")
@source_options
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
    project: str | None,
    url: str | None,
    files: tuple[Path, ...],
    overhang: Overhang,
) -> None:
    """Where one trace's time went.

    TRACE_OR_FILE is a trace id, or the first digits of one (at least 6), or a file of traces
    (OTLP, Jaeger JSON, Parquet). Of several traces in a file the slowest is explained.
    """
    from longpole_collector.settings import chosen_folder
    from longpole_collector.stores import open_reader

    rules = configured(SerialRules(), "serial")
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
    folder = chosen_folder(db, project, url or files)
    reader = open_reader(db=folder, url=url, files=files)
    try:
        if trace_id is None:
            trace_id = _slowest(reader)
        elif len(trace_id) < FULL_ID_DIGITS:
            trace_id = _unique_id(reader, trace_id)
        spans = distinct(found := _spans(reader, trace_id))
        split = partition(found, overhang=overhang)
        place = related.place_of(reader, trace_id)
        apart = related.apart(reader, place, split, spans, rules) if place else {}
        shape = related.shape(reader, place, split, spans) if place else None
    finally:
        reader.close()
    stated = workflow_span(spans, split.root_id)
    outcome = stated.outcome if stated else None
    serial = opportunities(split, spans, apart, rules)
    if as_json:
        click.echo(json.dumps(document(split, outcome, shape=shape, serial=serial)))
    else:
        explain_text.show(Console(highlight=False), split, outcome, shape=shape, serial=serial)


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
