"""``longpole queueing``: load, saturation and the capacity it takes, model by model."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from longpole.errors import BadInput, NotEnoughData
from longpole_analytics.loading import (
    Source,
    load_requests,
    source_options,
    window,
    window_options,
)

if TYPE_CHECKING:
    import polars as pl
    from rich.console import Console

    from longpole_analytics.queueing import Curve, Queueing

SCHEMA: Final = "longpole.queueing/1"
DEFAULT_BY: Final = "request_model"
SAMPLED: Final = (
    "How arrivals vary, the wait by theory and the capacity need every arrival: unknown."
)
MAX_GROUPS: Final = 50
"""Groups that are looked at, those with most requests."""
Where = dict[str, str | None]


@click.command()
@click.argument("file", required=False, type=click.Path(path_type=Path))
@click.option("--by", metavar="COLUMN[,COLUMN]", default=DEFAULT_BY, show_default=True,
              help="What has a queue of its own; empty for all together.")  # fmt: skip
@click.option("--servers", type=click.IntRange(1), metavar="K",
              help="Requests that are served at once.")  # fmt: skip
@click.option("--target-wait", type=click.FloatRange(0), metavar="MS",
              help="Find the servers that would have kept the mean wait.")  # fmt: skip
@click.option("--where", metavar="SQL", help="Only requests that meet this condition.")
@click.option("--json", "as_json", is_flag=True, help="One document on stdout.")
@source_options
@window_options
def queueing(
    file: Path | None,
    by: str,
    servers: int | None,
    target_wait: float | None,
    where: str | None,
    as_json: bool,
    db: Path | None,
    project: str | None,
    url: str | None,
    files: tuple[Path, ...],
    since: str | None,
    at: str | None,
) -> None:
    """How loaded each model is, where its queue turns up, and how many servers it takes.

    FILE is a file of traces, or one flat table of requests with start_ns (Parquet, CSV); without
    one the data folder is read. Capacity is found by playing the arrivals through more and more
    servers, as they came.
    """
    from longpole_analytics.queueing import QueueRules
    from longpole_analytics.queueing import queueing as measured
    from longpole_analytics.thresholds import configured
    from longpole_analytics.weighted import sampling
    from longpole_analytics.wording import sampled_text

    since_ns, until_ns = window(since, at, time.time_ns())
    source = Source(db, url, project, (*([file] if file else []), *files))
    requests = load_requests(source, where=where, since_ns=since_ns, until_ns=until_ns)
    rules = configured(QueueRules(), "queueing")
    target_s = None if target_wait is None else target_wait / 1e3
    found = [
        (group, measured(rows, servers=servers, target_wait_s=target_s, rules=rules))
        for group, rows in _groups(requests, by)
    ]
    sampled = sampling(requests)
    if as_json:
        groups = [{"where": group, **document(one)} for group, one in found]
        own = {} if sampled is None else {"sampling": sampled}
        click.echo(json.dumps({"schema": SCHEMA, "groups": groups, **own}, allow_nan=False))
    else:
        from rich.console import Console

        console = Console(highlight=False)
        _print(console, found)
        if sampled is not None:
            said = sampled_text(sampled, "requests")
            console.print(f"{said}. {SAMPLED}", markup=False, soft_wrap=True)
    if not any(one.rate_per_s for _, one in found):
        raise NotEnoughData("no two requests whose start is known: nothing can queue")


def _groups(requests: pl.DataFrame, by: str) -> list[tuple[Where, pl.DataFrame]]:
    """The requests of each queue, the most frequent first."""
    from longpole_analytics.requests import dimension_names

    known = dimension_names(requests)
    names = list(dict.fromkeys(name.strip() for name in by.split(",") if name.strip()))
    if by == DEFAULT_BY and by not in known:
        names = []
    for name in names:
        if name not in known:
            raise BadInput(f"--by {name}: no such dimension here; there are {', '.join(known)}")
    if not names:
        return [({}, requests)]
    parts = requests.partition_by(names, as_dict=True, maintain_order=True)
    ordered = sorted(parts.items(), key=lambda part: (-part[1].height, str(part[0])))
    return [(dict(zip(names, key, strict=True)), rows) for key, rows in ordered[:MAX_GROUPS]]


def document(found: Queueing) -> dict[str, Any]:
    """One queue as ``longpole.queueing/1`` has it; unknown is null."""
    busy, capacity = found.saturation, found.capacity
    return {
        "n": found.n,
        "rate_per_s": found.rate_per_s,
        "arrival_variation2": found.ca2,
        "service_variation2": found.cs2,
        "little": None if found.little is None else found.little._asdict(),
        "utilisation": busy.rho,
        "is_saturated": busy.is_saturated,
        "is_growing": busy.is_growing,
        "reasons": list(busy.reasons),
        "queue_p50_ms": _ms(busy.queue_p50),
        "service_p50_ms": _ms(busy.service_p50),
        "theory_wait_ms": _ms(found.wait_theory_s),
        "queue": _curve(found.queue_curve, 1e3),
        "tpot": _curve(found.tpot_curve, 1.0),
        "capacity": None
        if capacity is None
        else {
            "needed": capacity.needed,
            "advised": capacity.advised,
            "wait_ms": _ms(capacity.wait),
        },
    }


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1e3


def _curve(found: Curve, scale: float) -> dict[str, Any]:
    bins = [
        {
            "in_flight": [at.low, at.high],
            "n": at.n,
            "p50_ms": at.p50 * scale,
            "p95_ms": at.p95 * scale,
        }
        for at in found.bins
    ]
    return {"knee_in_flight": found.knee, "bins": bins}


def _print(console: Console, found: list[tuple[Where, Queueing]]) -> None:
    from longpole_analytics.wording import milliseconds, percent, printable, where_text

    for group, one in found:
        name = where_text({key: value or "(unknown)" for key, value in group.items()})
        if one.rate_per_s is None:
            console.print(f"{printable(name) or 'all'}   {one.n} requests: too few", markup=False)
            continue
        busy = one.saturation
        words = [f"{one.n} requests, {one.rate_per_s:.3g} a second"]
        if one.ca2 is not None:
            words.append(f"variation of arrivals {one.ca2:.2f} (1 is random, more is bursty)")
        if busy.rho is not None:
            words.append(f"busy {percent(busy.rho)}")
        console.print(f"{printable(name) or 'all'}   {', '.join(words)}", markup=False)
        verdict = "saturated" if busy.is_saturated else "not saturated"
        why = "; ".join(busy.reasons)
        console.print(f"  {verdict}{': ' if why else ''}{why}", markup=False)
        doubt = one.little is not None and one.little.gap > 2 / math.sqrt(one.n)
        if one.little is not None and not one.little.is_consistent and doubt:
            console.print(
                f"  in flight {one.little.observed:.3g}, by rate and time "
                f"{one.little.expected:.3g}: spans are missing, clocks are wrong, or the load "
                "did not stay even",
                markup=False,
            )
        for title, curve, scale in (
            ("queue", one.queue_curve, 1e3),
            ("time per token", one.tpot_curve, 1.0),
        ):
            _print_curve(console, title, curve, scale)
        if one.wait_theory_s is not None:
            console.print(f"  theory: a mean wait of {milliseconds(one.wait_theory_s * 1e3)}")
        if one.capacity is not None:
            console.print(
                f"  capacity: {one.capacity.needed} servers keep it "
                f"({milliseconds(one.capacity.wait * 1e3)}), {one.capacity.advised} with room "
                "for bursts"
            )


def _print_curve(console: Console, title: str, curve: Curve, scale: float) -> None:
    from rich.table import Table

    from longpole_analytics.wording import milliseconds

    if not curve.bins:
        return
    knee = "no knee" if curve.knee is None else f"turns up at {curve.knee:g} in flight"
    console.print(f"  {title} by requests in flight: {knee}")
    table = Table(box=None, pad_edge=False)
    for name in ("    in flight", "n", "p50", "p95"):
        table.add_column(name, justify="right")
    for at in curve.bins:
        ends = f"{at.low:g}" if at.low == at.high else f"{at.low:g} to {at.high:g}"
        p50, p95 = (milliseconds(value * scale) for value in (at.p50, at.p95))
        table.add_row(ends, str(at.n), p50, p95)
    console.print(table)
