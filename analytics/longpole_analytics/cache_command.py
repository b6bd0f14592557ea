"""``longpole cache``: what caches save in money and time, why they miss, and what to edit."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from longpole.errors import BadInput, NotEnoughData, UsageError
from longpole_analytics.loading import Source, source_options, window, window_options

if TYPE_CHECKING:
    from rich.console import Console


MAX_SHOWN: Final = 10
"""Rows of a table in the text; the document has all."""


@click.command()
@click.argument("paths", metavar="[FILE]...", nargs=-1, type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="One document on stdout.")
@source_options
@click.option("--where", metavar="SQL", help="Only calls that meet this condition.")
@click.option(
    "--by",
    metavar="COLUMN[,COLUMN]",
    default="route",
    show_default=True,
    help="Costs by these, as route, service or trace_id.",
)
@window_options
@click.option(
    "--replay", metavar="FILE", type=click.Path(path_type=Path), help="Replay arrivals only."
)
@click.option(
    "--ttl",
    "ttls",
    metavar="S[,S]",
    default="60,300,3600",
    show_default=True,
    help="Seconds a prefix lives in the ideal cache after its last use.",
)
@click.option(
    "--block",
    type=click.IntRange(min=1),
    default=512,
    show_default=True,
    help="Tokens of a block of the file to replay.",
)
def cache(
    paths: tuple[Path, ...],
    as_json: bool,
    db: Path | None,
    project: str | None,
    url: str | None,
    files: tuple[Path, ...],
    where: str | None,
    by: str,
    since: str | None,
    at: str | None,
    replay: Path | None,
    ttls: str,
    block: int,
) -> None:
    """What caches of prompts and answers are worth, why prompts miss, and the edit that helps.

    Reads FILE (traces, or one flat table of calls: Parquet, CSV) or a data folder. Prices are
    those that came with longpole, and the user's own in longpole.toml.
    """
    lives = _ttls(ttls)
    if replay is not None:
        _replay(replay, lives, block, as_json)
        return
    from longpole_analytics.cache.loading import load_calls
    from longpole_analytics.cache.report import report
    from longpole_analytics.cache.rules import configured_rules
    from longpole_analytics.cost import priced
    from longpole_analytics.price_overrides import configured_prices

    rules, prices = configured_rules(), configured_prices()
    since_ns, until_ns = window(since, at, time.time_ns())
    source = Source(db, url, project, (*paths, *files))
    found = load_calls(source, where=where, since_ns=since_ns, until_ns=until_ns)
    costs = priced(found.calls, prices)
    names = _columns(by, found.calls.columns)
    document = report(costs, found.lookups, prices, rules, lives, found.outcomes, names)
    if as_json:
        click.echo(json.dumps(document, allow_nan=False))
    else:
        from rich.console import Console

        _print(Console(highlight=False), document, names)
    if not (document["hits"]["all"] or {}).get("num_known") and not document["answer_caches"]:
        raise NotEnoughData("no call says how much of its input came from a cache")


def _columns(text: str, known: Sequence[str]) -> list[str]:
    names = list(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    for name in names:
        if name != "route" and name not in known:
            raise UsageError(f"--by: no column '{name}'; there are {', '.join(sorted(known))}")
    return names


def _ttls(text: str) -> list[float]:
    try:
        found = [float(part) for part in text.split(",") if part.strip()]
    except ValueError:
        found = []
    if not found or not all(0 < each < float("inf") for each in found):
        raise UsageError(f"--ttl '{text}': seconds are needed, as in 60,300,3600")
    return found


def _replay(file: Path, ttls_s: Sequence[float], block_tokens: int, as_json: bool) -> None:
    import polars as pl

    from longpole_analytics.cache.replay import replayed

    try:
        table = pl.read_parquet(file)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise BadInput(f"{file}: {str(error).splitlines()[0]}") from error
    try:
        found = replayed(table, ttls_s, block_tokens=block_tokens)
    except BadInput as error:
        raise BadInput(f"{file}: {error}") from error
    if as_json:
        rows = [
            {
                "ttl_s": int(each.ttl_s) if each.ttl_s == int(each.ttl_s) else each.ttl_s,
                "hit_token_share": each.hit_token_share,
                "requests_with_hit": each.requests_with_hit,
            }
            for each in found
        ]
        click.echo(json.dumps({"replay": rows}, allow_nan=False))
        return
    click.echo(f"{table.height} requests against an ideal cache, blocks of {block_tokens} tokens")
    for each in found:
        share = "-" if each.hit_token_share is None else f"{100 * each.hit_token_share:.1f} %"
        click.echo(
            f"  ttl {each.ttl_s:g} s: {share} of the input, {each.requests_with_hit} requests"
        )


# --- text ---------------------------------------------------------------------------------------
def _print(console: Console, document: dict[str, Any], by: Sequence[str]) -> None:
    hits = document["hits"]["all"]
    cost = document["cost"]["all"]
    if hits is not None:
        console.print(
            f"{hits['num_calls']:.0f} calls, {hits['num_known']:.0f} say what came from a cache: "
            f"{_share(hits['hit_rate_tokens'])} of the input, {_share(hits['hit_rate_requests'])} "
            f"of the calls"
        )
        console.print(
            f"saved {_usd(hits['saved_usd'])} of {_usd(cost and cost['cost_usd'])}"
            f"   prices: {document['prices']['version']}"
        )
    _speeds(console, document["speed"])
    _table(
        console,
        "why prompts missed",
        document["misses"],
        ("cause", "num_misses", "lost_tokens", "lost_usd", "segment", "block", "edit"),
    )
    _table(
        console,
        "writes",
        document["wasted_writes"],
        ("route", "prompt_version", "num_writes", "num_wasted", "wasted_share", "wasted_usd"),
    )
    _table(
        console,
        "an ideal cache",
        document["achievable"],
        ("ttl_s", "num_calls", "hit_token_share", "observed_token_share", "gap_tokens"),
    )
    _table(
        console,
        "keys too busy for one place",
        [key for key in document["hot_keys"] if key["is_hot"]],
        ("cache_key", "model_key", "per_minute_max", "hit_rate_busy", "hit_rate_calm"),
    )
    _answers(console, document["answer_caches"])
    _table(
        console,
        "costs",
        document["cost_by"],
        (*by, "num_calls", "num_workflows", "cost_usd", "num_accepted", "cost_per_accepted_usd"),
    )
    _table(
        console,
        "wasted",
        document["cost"]["wasted"],
        ("waste", "num_calls", "cost_usd", "share_of_cost"),
    )
    _table(
        console,
        "calls without a price",
        document["prices"]["unpriced"],
        ("provider", "request_model", "service_tier", "cost_problem", "num_calls"),
    )
    if "sampling" in document:
        from longpole_analytics.wording import sampled_text

        said = sampled_text(document["sampling"], "calls")
        console.print(f"\n{said}.", markup=False, soft_wrap=True)


def _answers(console: Console, caches: list[dict[str, Any]]) -> None:
    for each in caches:
        console.print(
            f"\nanswers {_text(each['name'])} ({each['kind'] or 'kind unknown'}): hits "
            f"{_share(each['hits']['value'])} of {each['hits']['n']}, stale "
            f"{_share(each['stale']['value'])} of {each['stale']['n']}",
            markup=False,
        )


def _speeds(console: Console, speeds: list[dict[str, Any]]) -> None:
    for each in speeds:
        parts = [
            f"{name} {found['ms']:.0f} ms ({found['low_ms']:.0f} to {found['high_ms']:.0f})"
            for name, key in (("by model", "by_model"), ("matched", "by_matching"))
            if (found := each[key]) is not None
        ]
        verdict = each["verdict"] or "too few to say"
        reason = f" ({each['reason']})" if each["reason"] else ""
        console.print(
            f"{_text(each['model'])} {each['metric'].removesuffix('_ms')}: {verdict}{reason}"
            f"   {', '.join(parts)}",
            markup=False,
        )


def _table(
    console: Console, title: str, rows: list[dict[str, Any]], names: tuple[str, ...]
) -> None:
    if not rows:
        return
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for name in names:
        table.add_column(name)
    for row in rows[:MAX_SHOWN]:
        table.add_row(*(Text(_cell(name, row.get(name))) for name in names))
    console.print()
    console.print(table)
    if len(rows) > MAX_SHOWN:
        console.print(f"and {len(rows) - MAX_SHOWN} more: see --json")


def _cell(name: str, value: Any) -> str:
    if value is None:
        return ""
    if name.startswith("num_") or name.endswith("_tokens"):
        return f"{value:.0f}"
    if name.endswith("_usd"):
        return _usd(value)
    if name.endswith("_share") or name.startswith(("share_", "hit_rate")):
        return _share(value)
    return f"{value:g}" if isinstance(value, float) else _text(str(value))


def _usd(value: float | None) -> str:
    if value is None:
        return "unknown"
    return f"${value:.2f}" if abs(value) >= 1 or value == 0 else f"${value:.4g}"


def _share(value: float | None) -> str:
    return "unknown" if value is None else f"{100 * value:.1f} %"


def _text(value: str) -> str:
    from longpole_analytics.wording import printable

    return printable(value)
