"""``longpole routes``: rules of routing, and what the options of a route are worth."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from longpole.errors import NotEnoughData, UsageError
from longpole_analytics.loading import Source, source_options, window, window_options

if TYPE_CHECKING:
    import polars as pl

    from longpole_analytics.routing.policy import Policy

BREACHED: Final = 3
"""Exit code: a tier was downgraded more often than allowed, or rules changed in place."""
_MAX_SHOWN: Final = 30
_json = click.option("--json", "as_json", is_flag=True, help="One document on stdout.")
_where = click.option("--where", metavar="SQL", help="Only requests that meet this condition.")
_file = click.argument("file", type=click.Path(path_type=Path))


@click.group()
def routes() -> None:
    """Rules of routing: check, choose; their options: envelope, tiers, whatif."""


@routes.command()
@_file
@click.option("--against", type=click.Path(path_type=Path), help="The rules that are in force.")
@_json
def check(file: Path, against: Path | None, as_json: bool) -> None:
    """Whether the rules of FILE (routes.toml) can be read, and what is likely not meant.

    Exit code 2 where they cannot; 3 where rules differ from --against under the same version.
    """
    from longpole_analytics.routing.policy import changed_in_place, warnings

    policy = _policy(file)
    told = warnings(policy)
    changed = [] if against is None else changed_in_place(_policy(against), policy)
    if as_json:
        rows = [
            {"route": r.name, "version": r.version, "digest": r.digest, "choices": len(r.choices)}
            for r in policy.routes.values()
        ]
        document = {"version": policy.version, "routes": rows, "warnings": told, "changed": changed}
        _say("routes_check", document)
    else:
        for line in (*changed, *told):
            click.echo(_clean(line))
        click.echo(f"{len(policy.routes)} routes can be read, version {_clean(policy.version)}")
    if changed:
        sys.exit(BREACHED)


@routes.command()
@_file
@click.argument("route")
@click.argument("inputs", metavar="[NAME=VALUE]...", nargs=-1)
@_json
def choose(file: Path, route: str, inputs: tuple[str, ...], as_json: bool) -> None:
    """Which choice FILE makes for ROUTE and these inputs, and what is tried after it."""
    policy = _policy(file)
    found = _route(policy, route, file)
    given = {}
    for word in inputs:
        name, is_given, value = word.partition("=")
        if not is_given or name not in found.inputs:
            known = ", ".join(found.inputs) or "none"
            raise UsageError(f"'{word}': write NAME=VALUE; the inputs of {route} are: {known}")
        given[name] = value
    choice = found.choose(given)
    chain = [
        {"choice": c.name, "provider": c.provider, "model": c.model, "tier": c.tier,
         "timeout_ms": c.timeout_ms}
        for c in found.chain(choice)
    ]  # fmt: skip
    if as_json:
        longest = found.longest_ms(choice)
        _say(
            "routes_choose",
            {"route": route, "version": found.version, "chain": chain, "longest_ms": longest},
        )
        return
    _table(("choice", "provider", "model", "tier", "timeout"), [
        (c["choice"], c["provider"], c["model"], c["tier"], f"{c['timeout_ms']} ms") for c in chain
    ])  # fmt: skip


@routes.command()
@click.argument("paths", metavar="[FILE]...", nargs=-1, type=click.Path(path_type=Path))
@source_options
@_where
@window_options
@click.option("--by", metavar="COLUMN[,COLUMN]", default="request_model,service_tier",
              show_default=True, help="What an option is.")  # fmt: skip
@click.option("--metric", default="e2e_ms", show_default=True)
@click.option("--quantile", type=click.FloatRange(0, 1, min_open=True, max_open=True), default=0.95,
              show_default=True)  # fmt: skip
@_json
def envelope(
    paths: tuple[Path, ...],
    db: Path | None,
    url: str | None,
    project: str | None,
    files: tuple[Path, ...],
    where: str | None,
    since: str | None,
    at: str | None,
    by: str,
    metric: str,
    quantile: float,
    as_json: bool,
) -> None:
    """Which options of each route no other beats in latency, quality and cost."""
    from longpole_analytics.routing.envelope import envelope as place
    from longpole_analytics.wording import quantile_name

    requests = _requests(Source(db, url, project, (*paths, *files)), where, since, at)
    names = [name.strip() for name in by.split(",") if name.strip()]
    usable = [name for name in names if name in requests.columns]
    if by == "request_model,service_tier":
        names = usable or names
    found = place(requests, names, metric, quantile)
    if as_json:
        document = {"metric": metric, "quantile": quantile, "by": names,
                    "options": [option.document() for option in found]}  # fmt: skip
        _say("routes_envelope", document)
    else:
        rows = [
            (o.route, _where_text(o.where), o.n, _time(o.latency.value), _number(o.quality.value),
             _number(o.cost.value), _place(o))
            for o in found
        ]  # fmt: skip
        heads = (
            "route",
            "option",
            "n",
            f"{quantile_name(quantile)} {metric}",
            "quality",
            "usd",
            "",
        )
        _table(heads, rows)
    if not any(option.is_on_envelope for option in found):
        raise NotEnoughData("no option has enough requests, times and outcomes to be placed")


@routes.command()
@click.argument("paths", metavar="[FILE]...", nargs=-1, type=click.Path(path_type=Path))
@source_options
@_where
@window_options
@click.option("--max-downgraded", type=click.FloatRange(0, 1), help="Exit with 3 above this share.")
@_json
def tiers(
    paths: tuple[Path, ...],
    db: Path | None,
    url: str | None,
    project: str | None,
    files: tuple[Path, ...],
    where: str | None,
    since: str | None,
    at: str | None,
    max_downgraded: float | None,
    as_json: bool,
) -> None:
    """The service tier asked for against the one received, and what a tier is worth."""
    from longpole_analytics.routing.tiers import downgrades, worths

    calls = _calls(Source(db, url, project, (*paths, *files)), where, since, at)
    asked, worth = downgrades(calls), worths(calls)
    if as_json:
        document = {"asked": [a._asdict() for a in asked], "worth": [w._asdict() for w in worth]}
        _say("routes_tiers", document)
    else:
        _table(("route", "model", "asked", "n", "received", "downgraded", "unknown"), [
            (a.route, a.request_model, a.asked, a.n,
             ", ".join(f"{name} {num}" for name, num in a.received.items()),
             _share(a.share), a.num_unknown)
            for a in asked
        ])  # fmt: skip
        _table(("route", "model", "tier", "n", "p50 ttft / standard", "interval", "cost"), [
            (w.route, w.request_model, w.tier, w.n[1], _number(w.ratio), _ends(w.ci95),
             _number(w.cost_ratio))
            for w in worth
        ])  # fmt: skip
    if not asked:
        raise NotEnoughData("no call says which service tier it asked for")
    over = [a for a in asked if max_downgraded is not None and (a.share or 0.0) > max_downgraded]
    if over:
        names = ", ".join(f"{_clean(a.request_model or '?')} ({a.asked})" for a in over)
        click.echo(f"downgraded too often: {names}", err=True)
        sys.exit(BREACHED)


@routes.command()
@_file
@click.argument("paths", metavar="[FILE]...", nargs=-1, type=click.Path(path_type=Path))
@click.option("--route", "name", help="This route only.")
@source_options
@_where
@window_options
@_json
def whatif(
    file: Path,
    paths: tuple[Path, ...],
    name: str | None,
    db: Path | None,
    url: str | None,
    project: str | None,
    files: tuple[Path, ...],
    where: str | None,
    since: str | None,
    at: str | None,
    as_json: bool,
) -> None:
    """What the rules of FILE would do to recorded requests: times, costs, outcomes.

    Requests that already went where the rules would send them stand for the others.
    """
    from longpole_analytics.routing.whatif import ASSUMPTIONS, projected

    policy = _policy(file)
    if name is not None:
        _route(policy, name, file)
    requests = _requests(Source(db, url, project, (*paths, *files)), where, since, at)
    found, lacking = [], []
    for each in [name] if name is not None else list(policy.routes):
        try:
            found.append(projected(requests, policy, each))
        except NotEnoughData as error:
            lacking.append(str(error))
    if as_json:
        documents = [each.document() for each in found]
        _say("routes_whatif", {"version": policy.version, "routes": documents, "lacking": lacking})
    else:
        for projection in found:
            _print_projection(projection.document())
        for line in (*lacking, "Holds if:", *(f"- {text}" for text in ASSUMPTIONS)):
            click.echo(_clean(line))
    if not any(each.card for each in found):
        raise NotEnoughData("nothing like what the rules would do is recorded")


# --- reading ------------------------------------------------------------------------------------
def _policy(file: Path) -> Policy:
    from longpole_analytics.routing.reading import read_policy

    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {file}: {error}") from error
    return read_policy(text, file.name)


def _route(policy: Policy, name: str, file: Path) -> Any:
    if name not in policy.routes:
        known = ", ".join(policy.routes)
        raise UsageError(f"{file.name} has no route '{name}'; there are: {known}")
    return policy.routes[name]


def _requests(source: Source, where: str | None, since: str | None, at: str | None) -> pl.DataFrame:
    from longpole_analytics.compare_loading import load_compared
    from longpole_analytics.price_overrides import configured_prices

    since_ns, until_ns = window(since, at, time.time_ns())
    return load_compared(
        source, configured_prices(), where=where, since_ns=since_ns, until_ns=until_ns
    )


def _calls(source: Source, where: str | None, since: str | None, at: str | None) -> pl.DataFrame:
    """The calls, with what each cost."""
    from longpole_analytics.compare_loading import load_call_costs
    from longpole_analytics.price_overrides import configured_prices

    since_ns, until_ns = window(since, at, time.time_ns())
    return load_call_costs(
        source, configured_prices(), where=where, since_ns=since_ns, until_ns=until_ns
    )


# --- text ---------------------------------------------------------------------------------------
def _say(name: str, document: dict[str, Any]) -> None:
    click.echo(json.dumps({"schema": f"longpole.{name}/1", **document}, allow_nan=False))


def _print_projection(document: dict[str, Any]) -> None:
    click.echo(
        f"{_clean(document['route'])}, version {_clean(document['version'])}: {document['n']} "
        f"requests, {100 * document['moved_share']:.0f} % would go elsewhere, "
        f"{100 * document['supported_share']:.0f} % can be told"
    )
    _table(("choice", "model", "n", "already there", "can be told"), [
        (c["name"], c["model"], c["n"], _share(c["already_there"]), _share(c["supported_share"]))
        for c in document["choices"]
    ])  # fmt: skip
    if document["projected"] is None:
        return
    rows = [
        (m["name"], f"p{100 * m['quantile']:g}", _time(m["base"]), _time(m["cand"]),
         _number(m["ratio"]), _ends(m["ci95"]))
        for m in document["projected"]["metrics"]
    ]  # fmt: skip
    rows += [
        (r["name"], "", _share(r["base"]), _share(r["cand"]), "", "")
        for r in document["projected"]["rates"]
    ]
    rows += [
        (
            m["name"],
            "",
            _number(m["base"]),
            _number(m["cand"]),
            _number(m["value"]),
            _ends(m["ci95"]),
        )
        for m in document["projected"]["means"]
    ]
    _table(("", "", "recorded", "projected", "ratio", "interval"), rows)


def _table(heads: tuple[str, ...], rows: Sequence[tuple[Any, ...]]) -> None:
    if not rows:
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    for head in heads:
        table.add_column(head, overflow="fold")
    for row in rows[:_MAX_SHOWN]:
        table.add_row(*(Text("-" if cell in (None, "") else _clean(str(cell))) for cell in row))
    Console(highlight=False).print(table)
    if len(rows) > _MAX_SHOWN:
        click.echo(f"and {len(rows) - _MAX_SHOWN} more: see --json")


def _place(option: Any) -> str:
    if option.is_on_envelope is None:
        return str(option.reason)
    if option.is_on_envelope:
        return "on the envelope"
    sure = "" if option.is_sure else ", perhaps"
    return f"beaten by {_where_text(option.beaten_by)}{sure}"


def _where_text(where: dict[str, str | None]) -> str:
    return ", ".join(value or "?" for value in where.values())


def _time(value: float | None) -> str | None:
    from longpole_analytics.wording import milliseconds

    return None if value is None else milliseconds(value)


def _number(value: float | None) -> str | None:
    return None if value is None else f"{value:.4g}"


def _share(value: float | None) -> str | None:
    return None if value is None else f"{100 * value:.1f} %"


def _ends(ends: Sequence[float | None] | None) -> str | None:
    if ends is None:
        return None
    low, high = ("?" if end is None else f"{end:.3g}" for end in ends)
    return f"({low} to {high})"


def _clean(text: str) -> str:
    from longpole_analytics.wording import printable

    return printable(text)
