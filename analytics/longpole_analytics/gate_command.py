"""``longpole gate``: what must hold before a change goes out, with an exit code for CI."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from longpole.errors import BadInput, UsageError
from longpole_analytics.loading import Source, source_options, window, window_options

if TYPE_CHECKING:
    from longpole_analytics.gates.base import Check, Finding
    from longpole_analytics.gates.config import Gates, Rollback
    from longpole_analytics.gates.data import Loaded
    from longpole_analytics.gates.rollback import Decision

SCHEMA: Final = "longpole.gate/1"
STATE: Final = ".longpole-gate.json"
NUM_TRIES: Final = 3
STYLES: Final = {"pass": "green", "fail": "red", "undecided": "yellow"}
Found = list[tuple["Check", "Finding"]]


@click.command()
@click.option("--config", type=click.Path(path_type=Path, dir_okay=False), required=True,
              help="The file of the checks, as gate.toml.")  # fmt: skip
@source_options
@click.option("--where", metavar="SQL", help="Only requests that meet this condition too.")
@window_options
@click.option("--json", "as_json", is_flag=True, help="One document on stdout.")
@click.option("--junit", type=click.Path(path_type=Path, dir_okay=False),
              help="Write JUnit XML there.")  # fmt: skip
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False),
              help="Write the document there.")  # fmt: skip
@click.option("--save-baseline", type=click.Path(path_type=Path, dir_okay=False),
              help="Store the quantiles of these requests there, and check nothing.")  # fmt: skip
@click.option("--rollback", "is_armed", is_flag=True,
              help="Ask [gate.rollback] to undo the change once a failure is sure.")  # fmt: skip
@click.option("--state", type=click.Path(path_type=Path, dir_okay=False),
              help=f"Where confirmations are kept (default: {STATE} beside the file).")  # fmt: skip
def gate(
    *,
    config: Path,
    where: str | None,
    since: str | None,
    at: str | None,
    as_json: bool,
    junit: Path | None,
    out: Path | None,
    save_baseline: Path | None,
    is_armed: bool,
    state: Path | None,
    db: Path | None,
    url: str | None,
    project: str | None,
    files: tuple[Path, ...],
) -> None:
    """Check budgets, regressions, a scorecard and coverage, as written in a file.

    Exit codes: 0 all checks pass; 3 one fails; 4 not enough evidence for one, and none fails.
    """
    from longpole_analytics.gates.base import EXIT_CODES, verdict
    from longpole_analytics.gates.config import load_gates
    from longpole_analytics.gates.junit import xml

    gates = load_gates(config)
    if is_armed and gates.rollback is None:
        raise UsageError(f"{config}: --rollback needs [gate.rollback] with url and secret")
    source = Source(db, url, project, files)
    conditions = [f"({each}\n)" for each in (gates.where, where) if each]
    data = _data(config, gates, source, " AND ".join(conditions) or None, (since, at))
    if save_baseline is not None:
        _save_baseline(gates, data, save_baseline)
        return
    found, seconds = _looked(gates.checks, data)
    decision = None
    if is_armed and gates.rollback is not None:
        decision = _rolled_back(gates, gates.rollback, data, found, state or config.parent / STATE)
    told = verdict([finding for _, finding in found])
    document = _document(told, found, decision, data)
    if junit is not None:
        _write(junit, xml(found, seconds))
    if out is not None:
        _write(out, json.dumps(document, allow_nan=False) + "\n")
    if as_json:
        click.echo(json.dumps(document, allow_nan=False))
    else:
        _print(told, found, decision)
    sys.exit(EXIT_CODES[told])


# --- looking ------------------------------------------------------------------------------------
def _data(
    config: Path,
    gates: Gates,
    source: Source,
    where: str | None,
    asked: tuple[str | None, str | None],
) -> Loaded:
    from longpole.config import find_file, read_file
    from longpole_analytics.alerts.settings import objectives_of
    from longpole_analytics.gates.data import Loaded
    from longpole_analytics.price_overrides import configured_prices

    now_ns = time.time_ns()
    since, at = asked
    usual = None if source.files else gates.since
    since_ns, until_ns = window(since or usual, at, now_ns)
    if until_ns is None and not source.files:
        until_ns = now_ns
    has_own = bool(read_file(config).get("slo"))
    objectives = objectives_of(config if has_own else find_file())
    return Loaded(
        source,
        where,
        (since_ns, until_ns),
        now_ns,
        objectives=objectives,
        prices=configured_prices(),
        folder=config.parent,
    )


def _looked(checks: Sequence[Check], data: Loaded) -> tuple[Found, list[float]]:
    found: Found = []
    seconds: list[float] = []
    for check in checks:
        begun = time.perf_counter()
        found.append((check, check.run(data)))
        seconds.append(time.perf_counter() - begun)
    return found, seconds


def _save_baseline(gates: Gates, data: Loaded, path: Path) -> None:
    from longpole.errors import NotEnoughData
    from longpole_analytics.gates.kinds.regression import wanted
    from longpole_analytics.gates.quantiles import document
    from longpole_analytics.report.weeks import iso

    found = [wanted(check.options, data) for check in gates.checks if check.kind == "regression"]
    if not found:
        raise UsageError("no check of kind regression: there is nothing to store")
    thin = [each for each in found if each.low is None or each.high is None]
    if thin:
        told = ", ".join(f"p{100 * each.q:g} of {each.metric} (n = {each.n})" for each in thin)
        raise NotEnoughData(f"too few requests for a baseline: {told}")
    since_ns, until_ns = data.window_ns
    stored = document(found, None if since_ns is None else iso(since_ns), iso(until_ns))
    _write(path, json.dumps(stored, allow_nan=False) + "\n")
    click.echo(f"wrote {path}", err=True)


# --- rolling back -------------------------------------------------------------------------------
def _rolled_back(gates: Gates, rule: Rollback, data: Loaded, found: Found, path: Path) -> Decision:
    """Look whether the change is to be undone, write that down, and ask for it."""
    from longpole_analytics.gates.rollback import decide, key_of, loads, message

    state = loads(_read(path), key_of(gates.checks, rule))
    chosen = [(check, finding) for check, finding in found if check.name in rule.checks]
    whole = {check.name: finding for check, finding in chosen}
    fresh = whole
    if state.until_ns is not None and not state.is_sent and not state.is_due:
        newer = data.fresh(state.until_ns)
        failing = [check for check, finding in chosen if finding.status == "fail"]
        fresh = {check.name: check.run(newer) for check in failing}
    decision = decide(state, whole, fresh, data.until_ns, rule)
    _write(path, decision.state.dumps())  # before it is sent: a crash must not forget it
    if decision.is_to_send:
        return _sent(decision, message(decision.state, whole, rule), rule, path)
    return decision


def _sent(decision: Decision, document: dict[str, Any], rule: Rollback, path: Path) -> Decision:
    """Ask for the rollback; if it does not arrive the next look asks again."""
    from dataclasses import replace

    from longpole_analytics.alerts.net import Gate, Later, Never
    from longpole_analytics.alerts.sinks.base import Post
    from longpole_analytics.alerts.sinks.webhook import SINK

    options = {"url": rule.url, "secret": rule.secret}
    why = ""
    for place in range(NUM_TRIES):
        if place:
            time.sleep(2.0 ** (place - 1))
        try:
            SINK.send(Post(document, False, time.time()), options, Gate(rule.allow_hosts))
        except Later as error:
            why = str(error)
        except Never as error:
            why = str(error)
            break
        else:
            state = replace(decision.state, is_due=False, is_sent=True)
            _write(path, state.dumps())
            said = f"{decision.text}; a rollback was asked for"
            return replace(decision, state=state, status="sent", text=said)
    click.echo(f"the rollback could not be asked for: {why}", err=True)
    return replace(decision, status="not_delivered", text=f"{decision.text}; {why}")


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path}: cannot be read: {error}") from error


def _write(path: Path, text: str) -> None:
    """Write a file, whole or not at all."""
    draft = path.with_name(f".{path.name}.part")
    try:
        draft.write_text(text, encoding="utf-8")
        draft.replace(path)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from error


# --- telling ------------------------------------------------------------------------------------
def _document(told: str, found: Found, decision: Decision | None, data: Loaded) -> dict[str, Any]:
    from longpole_analytics.report.weeks import iso

    since_ns, until_ns = data.window_ns
    return {
        "schema": SCHEMA,
        "verdict": told,
        "window": {"since": None if since_ns is None else iso(since_ns), "until": iso(until_ns)},
        "checks": [
            {
                "name": check.name,
                "kind": check.kind,
                "status": finding.status,
                "text": finding.text,
                "n": finding.n,
                "n_needed": finding.n_needed,
                "details": finding.details,
            }
            for check, finding in found
        ],
        "rollback": None
        if decision is None
        else {
            "status": decision.status,
            "text": decision.text,
            "confirmations": decision.state.num,
        },
    }


def _print(told: str, found: Found, decision: Decision | None) -> None:
    from rich.console import Console
    from rich.text import Text

    from longpole_analytics.wording import printable

    console = Console(highlight=False)
    for check, finding in found:
        line = Text(f"{finding.status:<10}", style=STYLES[finding.status])
        console.print(line + Text(f"{check.name}: {printable(finding.text)}"), soft_wrap=True)
        if finding.n_needed is not None:
            console.print(f"          {finding.n_needed} requests would decide", soft_wrap=True)
    if decision is not None:
        console.print(f"rollback  {printable(decision.text)}", markup=False, soft_wrap=True)
    console.print(Text(f"verdict: {told}", style=STYLES[told]))
