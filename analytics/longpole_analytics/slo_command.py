"""``longpole slo``: whether the objectives are kept, what they are, and their other form."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import click

from longpole.errors import BadInput, NotEnoughData, UsageError
from longpole_analytics.loading import Source, load_requests, source_options, window

if TYPE_CHECKING:
    import polars as pl

    from longpole_analytics.slo.check import Standing
    from longpole_analytics.slo.objectives import Objective

BREACHED: Final = 3
"""Exit code: a promise is broken, or about to be."""
YAML: Final = (".yaml", ".yml")
_config = click.option(
    "--config",
    "configs",
    type=click.Path(path_type=Path),
    multiple=True,
    help="longpole.toml, or OpenSLO v1 as .yaml (default: the nearest longpole.toml upward).",
)
_json = click.option("--json", "as_json", is_flag=True, help="One document on stdout.")


@click.group()
def slo() -> None:
    """Objectives: check, list, validate, export."""


@slo.command()
@_config
@_json
@source_options
@click.option("--at", metavar="TIME", help="As of this moment (ISO 8601, UTC), not now.")
def check(
    configs: tuple[Path, ...],
    as_json: bool,
    db: Path | None,
    project: str | None,
    url: str | None,
    files: tuple[Path, ...],
    at: str | None,
) -> None:
    """How much of each error budget is left, and how fast it burns.

    Exit codes: 0 all promises are kept; 3 one is broken: a rule fires, a budget is used up, a
    floor is missed; 4 too little is known to say so.
    """
    from longpole_analytics.minutes import MINUTE_NS
    from longpole_analytics.outcome_facts import outcome_facts
    from longpole_analytics.slo.check import check as look
    from longpole_analytics.slo.check import document, num_minutes

    objectives = _objectives(configs)
    at_ns = window(None, at, time.time_ns())[1] or time.time_ns()
    first_minute = (at_ns - 1) // MINUTE_NS - num_minutes(objectives) + 1
    requests = load_requests(
        Source(db, url, project, files),
        since_ns=first_minute * MINUTE_NS,
        until_ns=at_ns,
        outcome_facts=outcome_facts(objectives),
    )
    with _Selected(requests) as selected:
        found = look(objectives, selected, at_ns)
    if as_json:
        click.echo(json.dumps(document(found, at_ns), allow_nan=False))
    else:
        _print(found)
    breached = [standing.objective.id for standing in found if standing.is_breached]
    if breached:
        click.echo(f"breached: {', '.join(breached)}", err=True)
        sys.exit(BREACHED)
    thin = [standing.objective.id for standing in found if standing.is_thin]
    if thin:
        raise NotEnoughData(f"too few events to judge {', '.join(thin)}")


@slo.command("list")
@_config
@_json
def list_objectives(configs: tuple[Path, ...], as_json: bool) -> None:
    """The objectives, their rules and who owns them."""
    from longpole_analytics.slo.burn import reachable
    from longpole_analytics.slo.objectives import span

    objectives = _objectives(configs)
    if as_json:
        click.echo(json.dumps({"schema": "longpole.slo_list/1", "slos": _listed(objectives)}))
        return
    from rich.console import Console

    console = Console(highlight=False)
    console.print(
        _table(
            ("id", "objective", "class", "owner", "where"),
            [(o.id, o.text, o.task_class, o.owner, o.where) for o in objectives],
        )
    )
    for objective in objectives:
        rules = ", ".join(
            f"{rule.severity} {reachable(rule.factor, objective.budget):.3g}x "
            f"({span(rule.long_min)} & {span(rule.short_min)})"
            for rule in objective.rules
        )
        console.print(f"{objective.id}: {rules}", markup=False, soft_wrap=True)


@slo.command()
@_config
@_json
def validate(configs: tuple[Path, ...], as_json: bool) -> None:
    """Whether every objective can be read, and what is likely not meant.

    Exit code 2 where one cannot.
    """
    from longpole_analytics.slo.objectives import warnings

    objectives = _objectives(configs)
    for objective in objectives:
        _parse(objective)
    told = {objective.id: warnings(objective) for objective in objectives}
    if as_json:
        slos = [{"id": name, "warnings": lines} for name, lines in told.items()]
        click.echo(json.dumps({"schema": "longpole.slo_validate/1", "slos": slos}))
        return
    for name, lines in told.items():
        for line in lines:
            click.echo(f"{name}: {line}")
    click.echo(f"{len(objectives)} objectives can be read")


@slo.command()
@_config
@click.option(
    "--format",
    "form",
    type=click.Choice(["openslo", "toml"]),
    default="openslo",
    show_default=True,
    help="OpenSLO v1 YAML, or tables for longpole.toml.",
)
def export(configs: tuple[Path, ...], form: str) -> None:
    """The objectives in the other form, on stdout."""
    from longpole_analytics.slo.writing import to_openslo, to_toml

    objectives = _objectives(configs)
    click.echo(to_openslo(objectives) if form == "openslo" else to_toml(objectives), nl=False)


# --- reading ------------------------------------------------------------------------------------
def _objectives(configs: tuple[Path, ...]) -> list[Objective]:
    """The objectives of all files."""
    from longpole.config import find_file
    from longpole_analytics.slo.objectives import apart

    paths = configs or tuple(path for path in [find_file()] if path is not None)
    if not paths:
        raise UsageError("no longpole.toml here or above: name one by --config")
    found = [(objective, str(path)) for path in paths for objective in _of_file(path)]
    if not found:
        names = ", ".join(str(path) for path in paths)
        raise UsageError(f"no objective in {names}: write [slo.NAME] with metric, target, period")
    apart(found)
    return [objective for objective, _ in found]


def _of_file(path: Path) -> list[Objective]:
    from longpole.config import read_file
    from longpole_analytics.slo.objectives import from_tables

    if path.suffix.lower() not in YAML:
        return from_tables(read_file(path).get("slo", {}), str(path))
    from longpole_analytics.slo.openslo import read

    try:
        return read(path.read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {path}: {error}") from error


class _Selected:
    """The requests that an objective is about: one table, asked many times."""

    def __init__(self, requests: pl.DataFrame) -> None:
        import duckdb

        self._requests = requests
        self._con = duckdb.connect(config={"enable_external_access": False})
        self._con.register("requests", requests.with_row_index("__row").to_arrow())
        self._con.execute("SET lock_configuration = true")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._con.close()

    def __call__(self, objective: Objective) -> pl.DataFrame:
        import duckdb

        if objective.where is None:
            return self._requests
        asked = f"SELECT __row FROM requests WHERE ({objective.where}\n)"  # noqa: S608 - a reader may ask anything
        try:
            rows = self._con.sql(asked).to_arrow_table()
        except duckdb.Error as error:
            first = str(error).splitlines()[0]
            raise BadInput(
                f"objective '{objective.id}' where \"{objective.where}\": {first}; columns: "
                f"{', '.join(self._requests.columns)}"
            ) from error
        found: pl.DataFrame = self._requests[rows.column("__row").to_numpy()]
        return found


def _parse(objective: Objective) -> None:
    """Refuse a condition that is no single condition of SQL."""
    import duckdb

    if objective.where is None:
        return
    try:
        found = duckdb.extract_statements(f"SELECT 1 FROM t WHERE ({objective.where}\n)")  # noqa: S608 - parsed, not run
    except duckdb.Error as error:
        first = str(error).splitlines()[0]
        raise UsageError(
            f"objective '{objective.id}' where \"{objective.where}\": {first}"
        ) from error
    if len(found) != 1:
        raise UsageError(f"objective '{objective.id}' where: expected one condition of SQL")


# --- text ---------------------------------------------------------------------------------------
def _listed(objectives: list[Objective]) -> list[dict[str, Any]]:
    from dataclasses import asdict

    return [{**asdict(objective), "objective": objective.text} for objective in objectives]


def _print(found: list[Standing]) -> None:
    from rich.console import Console

    from longpole_analytics.slo.check import time_text
    from longpole_analytics.slo.objectives import span

    console = Console(highlight=False)
    rows = []
    for each in found:
        left, objective = each.budget, each.objective
        good = f"{100 * (1 - each.bad / each.total):.4g} %" if each.total else None
        remaining = None if left.remaining is None else f"{100 * left.remaining:.0f} %"
        until = time_text(left.exhausted_at) or left.reason
        events = f"{each.bad:g} of {each.total:g}"
        rows.append((objective.id, objective.text, each.status, good, events, remaining, until))
    heads = ("id", "objective", "status", "good", "bad", "budget left", "used up at")
    console.print(_table(heads, rows))
    for each in found:
        for rule in each.rules:
            if rule.status not in ("firing", "pending"):
                continue
            adjusted = (
                ""
                if rule.rule.factor == rule.factor_used
                else f", lowered from {rule.rule.factor:g}"
            )
            console.print(
                f"{each.objective.id}: {rule.rule.severity} {rule.status}: burn "
                f"{_rate(rule.burn_long)} ({span(rule.rule.long_min)}), {_rate(rule.burn_short)} "
                f"({span(rule.rule.short_min)}), above {rule.factor_used:.3g}{adjusted}",
                markup=False,
                soft_wrap=True,
            )
        for floor in each.floors:
            console.print(
                f"{each.objective.id}: floor {floor.floor.metric} {floor.status}: "
                f"{floor.bad:g} bad of {floor.total:g}, {100 * floor.floor.target:g} % must hold",
                markup=False,
                soft_wrap=True,
            )
        if each.num_left_out:
            console.print(f"{each.objective.id}: {each.num_left_out} requests say nothing about it")


def _rate(burn: float | None) -> str:
    return "-" if burn is None else f"{burn:.3g}x"


def _table(heads: tuple[str, ...], rows: Sequence[tuple[str | None, ...]]) -> Any:
    from rich.table import Table
    from rich.text import Text

    from longpole_analytics.wording import printable

    table = Table(box=None, pad_edge=False)
    for head in heads:
        table.add_column(head, overflow="fold")
    for row in rows:
        table.add_row(*(Text(printable(cell or "-")) for cell in row))
    return table
