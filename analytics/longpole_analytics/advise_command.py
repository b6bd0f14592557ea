"""``longpole advise``: what to change first, by the time it would save users."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from longpole.errors import NotEnoughData, UsageError
from longpole_analytics.loading import Source, source_options, window, window_options

if TYPE_CHECKING:
    from rich.console import Console

    from longpole_analytics.advisor import Advice, Report

MAX_SHOWN: Final = 10
"""Advice in the text; the document has all."""


@click.command()
@click.argument("paths", metavar="[FILE]...", nargs=-1, type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="One document on stdout.")
@source_options
@click.option("--where", metavar="SQL", help="Only requests that meet this condition.")
@click.option("--rule", "only", metavar="NAME", multiple=True, help="Only this rule.")
@window_options
def advise(
    paths: tuple[Path, ...],
    as_json: bool,
    db: Path | None,
    project: str | None,
    url: str | None,
    files: tuple[Path, ...],
    where: str | None,
    only: tuple[str, ...],
    since: str | None,
    at: str | None,
) -> None:
    """What to change first: advice with evidence, saving, confidence and how to check it.

    Reads FILE (traces) or a data folder. What each advice would save is replayed in every trace
    that it touches; what two of them would both save is counted once.
    """
    from longpole_analytics.advise_loading import load_population
    from longpole_analytics.advisor import AdvisorRules
    from longpole_analytics.advisor import advise as find
    from longpole_analytics.advisor._advise import members
    from longpole_analytics.thresholds import configured

    known = members()
    for name in only:
        if name not in known:
            raise UsageError(f"--rule {name}: no such rule; there are {', '.join(sorted(known))}")
    rules = configured(AdvisorRules(), "advisor")
    between = window(since, at, time.time_ns())
    source = Source(db, url, project, (*paths, *files))
    report = find(load_population(source, where, between), rules, only)
    if as_json:
        click.echo(json.dumps(report.document(), allow_nan=False))
    else:
        from rich.console import Console

        _print(Console(highlight=False), report)
    if not report.num_traces:
        raise NotEnoughData("no complete trace here: nothing to advise on")


def _print(console: Console, report: Report) -> None:
    from longpole_analytics.wording import milliseconds, sampled_text

    left_out = f", {report.num_left_out} incomplete or odd left out" if report.num_left_out else ""
    console.print(
        f"{report.num_traces} traces{left_out}: {len(report.advice)} advice", markup=False
    )
    for advice in report.advice[:MAX_SHOWN]:
        _print_one(console, advice)
    if len(report.advice) > MAX_SHOWN:
        console.print(f"\nand {len(report.advice) - MAX_SHOWN} more: see --json")
    if report.advice:
        each = report.together_ms / report.num_stood_for
        console.print(
            f"\nAll of it together: {milliseconds(each)} a trace in the mean, overlaps counted "
            "once.\nHolds if everything else stays equal: no load feedback, and every order seen "
            "is kept.",
            markup=False,
        )
    if report.sampling is not None:
        said = sampled_text(report.sampling, "traces")
        console.print(f"\n{said}. Times and money are those of all.", markup=False, soft_wrap=True)


def _print_one(console: Console, advice: Advice) -> None:
    from longpole_analytics.advisor.base import named
    from longpole_analytics.wording import milliseconds, quantile_name

    found = advice.found
    saved = [
        f"{quantile_name(each.quantile)} "
        + ("unknown" if each.saved_ms is None else f"-{milliseconds(each.saved_ms)}")
        for each in advice.savings
    ]
    money = "" if found.usd is None else f", ${found.usd:.4g}"
    console.print(f"\n{advice.rank}. {advice.rule}   {named(found.where)}", markup=False)
    facts = ", ".join(
        f"{fact.metric} {fact.value:.4g} (n {fact.n})"
        for fact in found.evidence
        if fact.value is not None
    )
    relation = advice.relation
    if advice.related:
        relation += f" with {', '.join(str(place) for place in advice.related)}"
    rows = (
        ("why", found.title),
        ("evidence", facts),
        ("saves", f"{', '.join(saved)} of {found.metric}{money} in {len(found.touched)} traces"),
        ("confidence", f"{found.confidence}; {relation}"),
        ("change", found.change),
        ("verify", found.verify),
        ("traces", ", ".join(advice.trace_ids)),
    )
    for name, text in rows:
        console.print(f"   {name:<11} {text}", markup=False, soft_wrap=True)
