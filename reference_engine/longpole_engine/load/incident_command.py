"""``longpole engine incident``: what goes wrong, and what requests meet meanwhile."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator, Mapping
from typing import Any

import click

from longpole_engine.load.commands import NumberRange, SpanType


@click.command("incident")
@click.argument("name", required=False)
@click.option("--model", default="smollm2", show_default=True, help="Of the engines.")
@click.option("--rate", type=NumberRange(1e-6, 1e5), default=1.0, show_default=True,
              help="Requests a second, Poisson.")  # fmt: skip
@click.option("--duration", type=SpanType(), default="60s", show_default=True,
              help="Half of it before, half after the incident's work.")  # fmt: skip
@click.option("--replicas", type=click.IntRange(1, 16), default=2, show_default=True)
@click.option("--input-tokens", type=click.IntRange(1), default=192, show_default=True)
@click.option("--output-tokens", type=click.IntRange(1), default=16, show_default=True)
@click.option("--prefixes", type=click.IntRange(1), default=4, show_default=True,
              help="Beginnings that prompts share.")  # fmt: skip
@click.option("--timeout", type=SpanType(), default="60s", show_default=True, help="Of a request.")
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--json", "is_json", is_flag=True, help="One JSON document on standard output.")
def incident(name: str | None, is_json: bool, **given: Any) -> None:
    """Run load over engines behind a balancer and make this happen; without a name: list them.

    Engines are processes of their own. What requests met is told before, during and after.
    """
    from longpole_engine.load import incident as incidents

    if name is None:
        for each in incidents.INCIDENTS.values():
            click.echo(f"{each.name:<14}{each.text}")
        return
    # Threads of a kernel sleep while they wait: engines share the cores.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    chosen = incidents.find(name)
    duration_s, timeout_s = given.pop("duration"), given.pop("timeout")
    setup = incidents.Setup(**given, duration_s=duration_s, timeout_s=timeout_s)
    found = asyncio.run(incidents.run(chosen, setup, lambda text: click.echo(text, err=True)))
    click.echo(json.dumps(found, indent=1) if is_json else "\n".join(told(found)))


def told(found: Mapping[str, Any]) -> Iterator[str]:
    """The document as lines."""
    yield f"{found['name']}: {found['text']}"
    for each in found["events"]:
        yield f"  {each['at_s']:6.1f} s  {each['what']}"
    if found["is_partial"]:
        yield "stopped before its end: a part of the run"
    yield (
        f"{'':8}{'due':>5}{'failed':>8}{'cached':>8}{'TTFT p50':>10}{'mean':>8}{'max':>8}"
        f"{'TPOT mean':>11}{'whole max':>11}  ms"
    )
    for part in found["phases"]:
        ttft, share = part["ttft_ms"], part["cached_share"]
        cached = "-" if share is None else f"{share:.0%}"
        yield (
            f"{part['name']:8}{part['num_due']:>5}{sum(part['failures'].values()):>8}{cached:>8}"
            f"{_shown(ttft['p50']):>10}{_shown(ttft['mean']):>8}{_shown(ttft['max']):>8}"
            f"{_shown(part['tpot_ms']['mean']):>11}{_shown(part['e2e_ms']['max']):>11}"
        )
        for why, num in part["failures"].items():
            yield f"{'':8}failed: {why}  {num}"
    back = found["recover_s"]
    yield f"{found['num_failed']} of {found['num_due']} requests failed"
    well = "as it stays from then on" if found["is_relief"] else "back to what it was"
    yield f"not {well} by the end" if back is None else f"{well} after {back:.1f} s"


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:,.3g}" if value < 1_000 else f"{value:,.0f}"
