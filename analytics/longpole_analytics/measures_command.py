"""``longpole measures``: retries, cold starts, reasoning, branches, guesses and drafts."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from longpole.errors import NotEnoughData
from longpole_analytics.loading import Source, source_options, window, window_options

if TYPE_CHECKING:
    from longpole_analytics.measures import Share, Typical
    from longpole_analytics.measuring import Measured

SCHEMA: Final = "longpole.measures/1"
OF_KEPT: Final = ("cold_starts.ttft_after_quiet", "cold_starts.ttft_other")
"""What depends on the calls before: where traces were sampled, on those that were kept."""


@click.command()
@click.argument("file", required=False, type=click.Path(path_type=Path))
@click.option("--where", metavar="SQL", help="Only calls that meet this condition.")
@click.option("--draft-cost", type=click.FloatRange(0), default=0.1, show_default=True,
              metavar="RATIO",
              help="Time of one drafted token over that of one step of the model.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="One document on stdout.")
@source_options
@window_options
def measures(
    file: Path | None,
    where: str | None,
    draft_cost: float,
    as_json: bool,
    db: Path | None,
    project: str | None,
    url: str | None,
    files: tuple[Path, ...],
    since: str | None,
    at: str | None,
) -> None:
    """What retries, cold starts, hidden reasoning, branches, guesses and drafts cost or bring.

    FILE is a file of traces, or one flat table of calls (Parquet, CSV); without one the data
    folder is read. Branches, guesses and drafts need spans that tell of them; what nobody told is
    shown as unknown.
    """
    from longpole_analytics.measures import MeasureRules
    from longpole_analytics.measuring import load, measure
    from longpole_analytics.thresholds import configured
    from longpole_analytics.weighted import sampling
    from longpole_analytics.wording import sampled_text

    since_ns, until_ns = window(since, at, time.time_ns())
    source = Source(db, url, project, (*([file] if file else []), *files))
    told = load(source, where=where, since_ns=since_ns, until_ns=until_ns)
    found = measure(told, draft_cost, configured(MeasureRules(), "measures"))
    sampled = sampling(told.calls, OF_KEPT)
    if as_json:
        own = {} if sampled is None else {"sampling": sampled}
        click.echo(json.dumps({"schema": SCHEMA, **_plain(found), **own}, allow_nan=False))
    else:
        from rich.console import Console

        said = [] if sampled is None else [("sampled", sampled_text(sampled, "calls"))]
        for name, text in (*lines(found), *said):
            Console(highlight=False).print(f"{name:14}{text}", markup=False, soft_wrap=True)
    if not found.num_calls:
        raise NotEnoughData("no calls there: widen --since, or look at --where")


def _plain(value: Any) -> Any:
    """Measures as the document has them: shares and medians with their intervals."""
    from longpole_analytics.measures import Share, Typical

    if isinstance(value, Share):
        ends = None if value.low is None else [value.low, value.high]
        return {"k": value.k, "n": value.n, "value": value.value, "ci95": ends}
    if isinstance(value, Typical):
        ends = None if value.low is None else [value.low, value.high]
        return {"n": value.n, "p50_ms": value.p50, "ci95_ms": ends}
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, tuple):
        named = getattr(value, "_asdict", None)
        return named() if named is not None else [_plain(each) for each in value]
    return value


def lines(found: Measured) -> Iterator[tuple[str, str]]:
    """The measures as text, a name and a sentence each; the unknown is said to be."""
    from longpole_analytics.wording import milliseconds, percent

    yield "calls", f"{found.num_calls:.0f}"
    tried = found.retries
    if not tried.num_calls:
        yield "retries", "unknown: no call tells its attempts"
    else:
        lost = "" if not tried.failed_share else f", {percent(tried.failed_share)} of the time"
        yield (
            "retries",
            f"{_share(tried.retried)} of calls tried again, {tried.amplification:.2f} attempts a "
            f"call; failed attempts and waits took {milliseconds(tried.failed_ms)}{lost}",
        )
    for storm in tried.storms:
        yield (
            "retry storm",
            f"{_utc(storm.start_ns)}: {percent(storm.retried_share)} of {storm.num_calls:.0f} "
            f"calls tried again, failures {percent(storm.failed_share_before)} -> "
            f"{percent(storm.failed_share)}",
        )
    cold = found.cold_starts
    if cold.cold.value is None:
        yield "cold starts", "unknown: no call tells"
    else:
        yield (
            "cold starts",
            f"{_share(cold.cold)} of calls; time to first token {_typical(cold.ttft_cold)} cold, "
            f"{_typical(cold.ttft_warm)} warm",
        )
    yield (
        "after quiet",
        f"first call after a quiet period {_typical(cold.ttft_after_quiet)}, others "
        f"{_typical(cold.ttft_other)}",
    )
    thought = found.reasoning
    if thought.of_output is None:
        yield "reasoning", "unknown: no call tells its reasoning tokens"
    else:
        spent = "" if thought.of_time is None else f" and {percent(thought.of_time)} of the time"
        yield "reasoning", f"{percent(thought.of_output)} of the output tokens{spent}"
    yield from _steps(found)


def _steps(found: Measured) -> Iterator[tuple[str, str]]:
    from longpole_analytics.wording import milliseconds

    fan, guessed, drafted = found.fan_out, found.guesses, found.drafts
    if fan is None or fan.used.value is None:
        yield "branches", "unknown: no workflow tells which branches its outcome used"
    else:
        yield (
            "branches",
            f"{_share(fan.used)} used; the others took {milliseconds(fan.unused_ms)}; "
            f"{fan.num_not_cancelled:.0f} losers ran on for {milliseconds(fan.late_ms)}",
        )
    if guessed is None or guessed.hits.value is None:
        yield "guesses", "unknown: no span tells what became of work done ahead"
    else:
        tokens = "" if guessed.wasted_tokens is None else f" and {guessed.wasted_tokens:.0f} tokens"
        yield (
            "guesses",
            f"{_share(guessed.hits)} used: {guessed.verdict}; "
            f"{milliseconds(guessed.wasted_ms)}{tokens} for nothing",
        )
    if drafted is None:
        yield "drafts", "unknown: no engine tells its drafted tokens"
    else:
        worth = "worth it" if drafted.is_worth_it else "not worth it"
        yield (
            "drafts",
            f"{drafted.acceptance:.0%} accepted, {drafted.tokens_per_step:.2f} tokens a step, "
            f"about {drafted.speedup:.2f}x: {worth}",
        )


def _share(share: Share) -> str:
    from longpole_analytics.wording import percent

    if share.value is None or share.low is None or share.high is None:
        return "unknown"
    return f"{percent(share.value)} ({percent(share.low)} to {percent(share.high)}, n {share.n})"


def _typical(of: Typical) -> str:
    from longpole_analytics.wording import milliseconds

    return f"p50 {milliseconds(of.p50)} (n {of.n})" if of.p50 is not None else "unknown"


def _utc(at_ns: int) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(at_ns // 10**9, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
