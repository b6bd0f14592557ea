"""``longpole audit``: an application graded from its traces, line by line."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from longpole.errors import NotEnoughData
from longpole_analytics.loading import Source, source_options, window, window_options

if TYPE_CHECKING:
    from rich.console import Console

    from longpole_analytics.audit import Audit


@click.command()
@click.argument("paths", metavar="[FILE]...", nargs=-1, type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="One document on stdout.")
@source_options
@click.option("--where", metavar="SQL", help="Only requests that meet this condition.")
@window_options
def audit(
    paths: tuple[Path, ...],
    as_json: bool,
    db: Path | None,
    project: str | None,
    url: str | None,
    files: tuple[Path, ...],
    where: str | None,
    since: str | None,
    at: str | None,
) -> None:
    """Grade an application from its traces: pass, fail, or not observable, line by line.

    Reads FILE (traces) or a data folder. Each line names traces that show it.
    """
    from longpole_analytics.advise_loading import load_population
    from longpole_analytics.advisor import AdvisorRules
    from longpole_analytics.audit import AuditRules
    from longpole_analytics.audit_lines import audited
    from longpole_analytics.thresholds import configured

    rules = configured(AuditRules(), "audit")
    advisor = configured(AdvisorRules(), "advisor")
    between = window(since, at, time.time_ns())
    source = Source(db, url, project, (*paths, *files))
    found = audited(load_population(source, where, between), rules, advisor)
    if as_json:
        click.echo(json.dumps(found.document(), allow_nan=False))
    else:
        from rich.console import Console

        _print(Console(highlight=False), found)
    if not found.num_traces:
        raise NotEnoughData("no complete trace here: nothing to grade")


def _print(console: Console, found: Audit) -> None:
    from longpole_analytics.audit import FAIL, PASS, UNSEEN
    from longpole_analytics.wording import printable, sampled_text

    console.print(
        f"{found.num_traces} traces: {found.count(PASS)} pass, {found.count(FAIL)} fail, "
        f"{found.count(UNSEEN)} not observable",
        markup=False,
    )
    for line in found.lines:
        console.print(f"\n{line.grade:<15} {line.question}", markup=False)
        console.print(f"{'':15} {printable(line.reason)}", markup=False, soft_wrap=True)
        if line.grade != PASS:
            console.print(f"{'':15} -> {printable(line.next_step)}", markup=False, soft_wrap=True)
        if line.trace_ids:
            console.print(f"{'':15} {', '.join(line.trace_ids)}", markup=False, soft_wrap=True)
    if found.sampling is not None:
        console.print(f"\n{sampled_text(found.sampling, 'traces')}.", markup=False, soft_wrap=True)
