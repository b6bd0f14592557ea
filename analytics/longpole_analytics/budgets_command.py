"""``longpole budgets``: what each stage of a route may take, and how it does."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from longpole.errors import NotEnoughData, UsageError
from longpole_analytics.loading import (
    Source,
    load_requests,
    source_options,
    window,
    window_options,
)

if TYPE_CHECKING:
    from rich.console import Console

    from longpole_analytics.budgets import Budgets, Spent

STYLES: Final = {"over": "red", "within": "green"}


@click.command()
@click.argument("file", required=False, type=click.Path(path_type=Path))
@click.option("--config", type=click.Path(path_type=Path, dir_okay=False, exists=True),
              help="Where the budgets stand (default: the nearest longpole.toml).")  # fmt: skip
@click.option("--where", metavar="SQL", help="Only requests that meet this condition.")
@click.option("--owner", metavar="NAME", help="Only the budgets of this owner.")
@click.option("--json", "as_json", is_flag=True, help="One document on stdout.")
@source_options
@window_options
def budgets(
    file: Path | None,
    config: Path | None,
    where: str | None,
    owner: str | None,
    as_json: bool,
    db: Path | None,
    project: str | None,
    url: str | None,
    files: tuple[Path, ...],
    since: str | None,
    at: str | None,
) -> None:
    """How the stages of each route do against their budgets, and who owns them.

    FILE is a file of traces, or one flat table of requests (Parquet, CSV); without one the data
    folder is read. Budgets stand in longpole.toml, as [budget."ROUTE"] prefill = {p95_ms = 400,
    owner = "team"}.
    """
    from longpole.config import find_file, read_file
    from longpole_analytics.budgets import TABLE, check, parse

    path = config or find_file()
    wanted = parse(read_file(path).get(TABLE, {}))
    if not wanted:
        where_from = path or "longpole.toml"
        raise UsageError(
            f'no budgets in {where_from}: write [budget."ROUTE"] prefill = {{p95_ms = 400}}'
        )
    if owner is not None:
        owners = sorted({budget.owner for budget in wanted if budget.owner})
        wanted = [budget for budget in wanted if budget.owner == owner]
        if not wanted:
            raise UsageError(f"--owner '{owner}' has no budget: owners are {', '.join(owners)}")
    since_ns, until_ns = window(since, at, time.time_ns())
    source = Source(db, url, project, (*([file] if file else []), *files))
    requests = load_requests(source, where=where, since_ns=since_ns, until_ns=until_ns)
    found = check(requests, wanted)
    if as_json:
        click.echo(json.dumps(found.document(), allow_nan=False))
    else:
        from rich.console import Console

        _print(Console(highlight=False), found)
    if not any(each.whole.over.n for each in found.checked):
        routes = sorted({budget.route for budget in wanted})
        raise NotEnoughData(f"no requests on the routes {', '.join(routes)}")


def _print(console: Console, found: Budgets) -> None:
    from rich.table import Table
    from rich.text import Text

    from longpole_analytics.wording import milliseconds, printable, quantile_name

    for route in dict.fromkeys(each.budget.route for each in found.checked):
        table = Table(box=None, pad_edge=False)
        table.add_column(Text(printable(route)), overflow="fold")
        table.add_column("owner", overflow="fold")
        for name in ("n", "budget", "is at", "over", "burn"):
            table.add_column(name, justify="right", no_wrap=True)
        table.add_column("")
        for each in found.checked:
            budget = each.budget
            if budget.route != route:
                continue
            table.add_row(
                budget.stage if budget.state is None else f"{budget.stage}, {budget.state}",
                Text(printable(budget.owner or "-")),
                str(each.whole.over.n),
                f"{quantile_name(budget.q)} {milliseconds(budget.limit_ms)}",
                *_cells(each.whole),
                Text(each.verdict, style=STYLES.get(each.verdict, "")),
            )
            for part in each.by_state:
                table.add_row(f"  {part.state}", "", str(part.over.n), "", *_cells(part), "")
        console.print(table)
    for sum_of in [part for each in found.composed for part in (each, *each.by_state)]:
        if sum_of.at.value is None:
            continue
        name = quantile_name(sum_of.q)
        own = "" if sum_of.sum_ms is None else f"; the sum of their {name} is {_ms(sum_of.sum_ms)}"
        of = "" if sum_of.state is None else f", {sum_of.state}"
        console.print(
            f"{printable(sum_of.route)}{of}: {', '.join(sum_of.stages)} together {name} "
            f"{_ms(sum_of.at.value)}{own}; the whole request {_ms(sum_of.whole.value)}",
            markup=False,
        )
    _print_owners(console, found)


def _print_owners(console: Console, found: Budgets) -> None:
    """Who answers for what is over."""
    from longpole_analytics.wording import milliseconds, printable

    for each in found.owners:
        worst = ""
        if each.worst is not None and each.worst.whole.burn is not None:
            budget = each.worst.budget
            worst = f"; fastest {budget.stage} of {budget.route}, burn {each.worst.whole.burn:.1f}"
        console.print(
            printable(
                f"{each.owner or 'nobody'}: {each.num_over} of {each.num_budgets} budgets over, "
                f"{milliseconds(each.above_ms)} above them in all{worst}"
            ),
            markup=False,
            soft_wrap=True,
        )


def _cells(spent: Spent) -> tuple[str, str, str]:
    from longpole_analytics.wording import percent

    at = "too few" if spent.at.value is None else _ms(spent.at.value)
    over = "-" if spent.over.value is None else percent(spent.over.value)
    return at, over, "-" if spent.burn is None else f"{spent.burn:.1f}"


def _ms(value: float | None) -> str:
    from longpole_analytics.wording import milliseconds

    return "unknown" if value is None else milliseconds(value)
