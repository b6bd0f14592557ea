"""``longpole compare``: is a candidate better than its baseline, as a gate for scripts."""

from __future__ import annotations

import json
import re
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from longpole.errors import UsageError
from longpole_analytics.loading import Source, source_options, window, window_options

if TYPE_CHECKING:
    import polars as pl

    from longpole_analytics.compare_loading import Part
    from longpole_analytics.prices import Prices
    from longpole_analytics.scorecard.card import Card

EXIT_CODES: Final = {"better": 0, "equivalent": 0, "worse": 3, "inconclusive": 4}
_TARGET: Final = re.compile(r"(?:p(?P<q>\d+(?:\.\d+)?)[: ])?(?P<name>\w+)")


@click.command()
@click.argument("asked", metavar="[BASE CAND | FILE]...", nargs=-1)
@click.option("--baseline", metavar="SQL", help="Which requests are the baseline's.")
@click.option("--current", metavar="SQL", help="Which requests are the candidate's.")
@source_options
@click.option("--where", metavar="SQL", help="Only requests that meet this condition.")
@window_options
@click.option(
    "--target",
    metavar="[pQ:]METRIC",
    default="e2e_ms",
    show_default=True,
    help="What decides, as p50:ttft_ms; p95 if enough requests carry it.",
)
@click.option("--margin", type=click.FloatRange(0, 0.5, min_open=True), help="Default 0.05.")
@click.option("--pair-by", metavar="COLUMN", help="Equal values are the same prompt.")
@click.option("--cluster", metavar="COLUMN", help="What is drawn as one: session, user.")
@click.option("--randomised", is_flag=True, help="Chance chose the side: no correction of the mix.")
@click.option("--closed-loop", is_flag=True, help="The load waited for answers: no tails.")
@click.option(
    "--look",
    type=click.IntRange(1, 1000),
    metavar="K",
    help="K-th look at data still coming in: each look is stricter, all together are sound.",
)
@click.option("--json", "as_json", is_flag=True, help="One document on stdout.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "markdown", "html", "json"]),
    default="text",
    show_default=True,
)
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="Write it there.")
def compare(
    *,
    asked: tuple[str, ...],
    baseline: str | None,
    current: str | None,
    db: Path | None,
    url: str | None,
    project: str | None,
    files: tuple[Path, ...],
    where: str | None,
    since: str | None,
    at: str | None,
    target: str,
    margin: float | None,
    pair_by: str | None,
    cluster: str | None,
    randomised: bool,
    closed_loop: bool,
    look: int | None,
    as_json: bool,
    form: str,
    out: Path | None,
) -> None:
    """Compare a candidate with a baseline: times, quality, errors, cost, and a verdict.

    BASE and CAND are each a file, a data folder, the address of a collector, a time range
    (2026-11-01..2026-11-08, 14d..7d), or an SQL condition on requests of --db, --url or --file.
    Or give FILE once with --baseline and --current.

    Exit codes: 0 better or equivalent; 3 worse, or a guardrail is broken; 4 not enough evidence.
    """
    from longpole_analytics.price_overrides import configured_prices
    from longpole_analytics.scorecard.card import scorecard
    from longpole_analytics.scorecard.rules import CardRules, Plan
    from longpole_analytics.thresholds import configured

    rules = configured(CardRules(), "compare")
    if margin is not None:
        rules = replace(rules, margin=margin)
    name, quantile = _target(target)
    plan = Plan(name, quantile, cluster, pair_by, randomised, closed_loop, look)
    now_ns = time.time_ns()
    between = window(since, at, now_ns)
    source = Source(db, url, project, files)
    names, parts = _sides(asked, baseline, current, source, now_ns)
    prices = configured_prices()
    base, cand = (_load(*part, prices, where, between) for part in parts)
    card = scorecard(base, cand, plan, rules)
    _tell(card, names, "json" if as_json else form, out)
    sys.exit(EXIT_CODES[card.verdict])


# --- sides --------------------------------------------------------------------------------------
def _sides(
    asked: tuple[str, ...], baseline: str | None, current: str | None, source: Source, now_ns: int
) -> tuple[tuple[str, str], tuple[Part, Part]]:
    """How the two sides are called, and what to read for each."""
    if (baseline is None) != (current is None):
        raise UsageError("give both --baseline and --current, or neither")
    if baseline is not None and current is not None:
        files = (*source.files, *(Path(word) for word in asked))
        whole = replace(source, files=files)
        return (baseline, current), ((whole, baseline, None), (whole, current, None))
    if len(asked) != 2:
        raise UsageError(
            "name two populations, as: longpole compare base.parquet cand.parquet, or "
            "longpole compare \"prompt_version='v1'\" \"prompt_version='v2'\" --db FOLDER"
        )
    from longpole_analytics.compare_loading import part_of

    base, cand = (part_of(word, source, now_ns) for word in asked)
    return (asked[0], asked[1]), (base, cand)


def _load(
    source: Source,
    condition: str | None,
    own: tuple[int | None, int | None] | None,
    prices: Prices,
    where: str | None,
    between: tuple[int | None, int | None],
) -> pl.DataFrame:
    from longpole_analytics.compare_loading import load_compared

    conditions = [f"({each}\n)" for each in (where, condition) if each]
    since_ns, until_ns = own or between
    return load_compared(
        source,
        prices,
        where=" AND ".join(conditions) or None,
        since_ns=since_ns,
        until_ns=until_ns,
    )


def _target(text: str) -> tuple[str, float | None]:
    found = _TARGET.fullmatch(text.strip())
    if found is None:
        raise UsageError(f"--target '{text}': write a metric, as ttft_ms or p50:ttft_ms")
    quantile = None if found["q"] is None else float(found["q"]) / 100
    if quantile is not None and not 0 < quantile < 1:
        raise UsageError(f"--target '{text}': a quantile lies between p0 and p100, as p95")
    return found["name"], quantile


# --- writing ------------------------------------------------------------------------------------
def _tell(card: Card, names: tuple[str, str], form: str, out: Path | None) -> None:
    """Write the card where it is wanted, and why a script stops to stderr."""
    written = _written(card, names, form)
    if out is not None:
        _save(out, written or _plain(card, names))
    elif written is not None:
        click.echo(written, nl=False)
    else:
        _print(card, names)
    if EXIT_CODES[card.verdict]:
        click.echo(f"{card.verdict}: {'; '.join(card.reasons)}", err=True)


def _written(card: Card, names: tuple[str, str], form: str) -> str | None:
    """The card in a form of its own; ``None`` for text."""
    from longpole_analytics.scorecard.render import blocks, markdown, page

    document = card.document()
    title = f"{names[1]} against {names[0]}"
    match form:
        case "json":
            return json.dumps(document, allow_nan=False) + "\n"
        case "markdown":
            return markdown(title, blocks(document, names))
        case "html":
            return page(title, blocks(document, names))
    return None


def _print(card: Card, names: tuple[str, str]) -> None:
    from rich.console import Console

    from longpole_analytics.scorecard.render import blocks, text

    console = Console(highlight=False)

    def write(part: Any) -> None:
        console.print(part, soft_wrap=not hasattr(part, "columns"))

    text(blocks(card.document(), names), write)


def _plain(card: Card, names: tuple[str, str]) -> str:
    from io import StringIO

    from rich.console import Console

    from longpole_analytics.scorecard.render import blocks, text

    file = StringIO()
    console = Console(file=file, highlight=False, width=160, color_system=None)
    text(blocks(card.document(), names), console.print)
    return file.getvalue()


def _save(out: Path, written: str) -> None:
    try:
        out.write_text(written, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {out}: {error.strerror}") from error
