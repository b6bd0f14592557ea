"""``longpole alerts``: which alerts fire and who was told; test a sink, take one on, keep quiet."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from longpole.errors import BadInput, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from longpole_analytics.alerts.ledger import Ledger

MAX_SILENCE_MIN: Final = 92 * 1440
_path = click.Path(path_type=Path)
_db = click.option("--db", type=_path, help="Data folder (default ./.longpole).")
_project = click.option("--project", help="Project in the data folder.")
_json = click.option("--json", "as_json", is_flag=True, help="One document on stdout.")
_config = click.option(
    "--config", type=_path, help="longpole.toml (default: the nearest one upward)."
)


@click.group()
def alerts() -> None:
    """Alerts: list, test, ack, silence."""


@alerts.command("list")
@_db
@_project
@_json
def list_alerts(db: Path | None, project: str | None, as_json: bool) -> None:
    """The alerts that fire, those that ended last, silences, and what was sent."""
    from longpole_analytics.alerts.telling import document

    now_s = time.time()
    ledger = _ledger(db, project)
    try:
        found = document(ledger, now_s)
    finally:
        ledger.close()
    if as_json:
        click.echo(json.dumps(found, allow_nan=False))
    else:
        _print(found, now_s)


@alerts.command()
@click.argument("sink")
@_config
@_json
def test(sink: str, config: Path | None, as_json: bool) -> None:
    """Send a marked test alert to SINK, and its end.

    Exit code 1 where it does not arrive.
    """
    from longpole_analytics.alerts.trial import send_trial

    send_trial(_settings(config), sink, time.time())
    if as_json:
        click.echo(json.dumps({"schema": "longpole.alerts_test/1", "sink": sink, "sent": True}))
    else:
        click.echo(f"sink '{sink}' took a test alert and its end")


@alerts.command()
@click.argument("alert")
@click.option("--for", "length", default="4h", show_default=True, help="How long: 30m, 4h, 1d.")
@_db
@_project
def ack(alert: str, length: str, db: Path | None, project: str | None) -> None:
    """Take ALERT on: an objective's id or an alert's fingerprint; it is told of no more until then.

    The sinks hear of it: PagerDuty shows it as acknowledged.
    """
    from longpole_analytics.alerts.book import Ack
    from longpole_analytics.slo.objectives import minutes

    now_s = time.time()
    until_s = now_s + 60 * minutes(length, "--for")
    ledger = _ledger(db, project)
    try:
        names = [name for name, each in ledger.entries().items() if alert in (name, each.slo)]
        if not names:
            raise BadInput(f"no alert '{alert}' fires: see `longpole alerts list`")
        for name in names:
            ledger.ack(name, Ack(now_s, until_s))
    finally:
        ledger.close()
    click.echo(f"taken on until {_time(until_s)}: {', '.join(names)}")


@alerts.command()
@click.argument("slo", required=False)
@click.option("--severity", type=click.Choice(["page", "ticket"]), help="Only these.")
@click.option("--for", "length", default="2h", show_default=True, help="How long: 30m, 2h, 1d.")
@click.option("--comment", default="", help="Why.")
@click.option("--end", "number", type=int, help="End this silence instead.")
@_db
@_project
def silence(
    slo: str | None,
    severity: str | None,
    length: str,
    comment: str,
    number: int | None,
    db: Path | None,
    project: str | None,
) -> None:
    """Tell nobody of the objective SLO, or of any without one, for a while.

    The end of an alert that was told before is told all the same.
    """
    from longpole_analytics.alerts.book import Silence
    from longpole_analytics.slo.objectives import minutes

    now_s = time.time()
    num_minutes = minutes(length, "--for")
    if not 0 < num_minutes <= MAX_SILENCE_MIN:
        raise UsageError(f"--for {length}: must be 1m to 92d")
    ledger = _ledger(db, project)
    try:
        if number is not None:
            if not ledger.unsilence(number, now_s):
                raise BadInput(f"no silence {number} holds: see `longpole alerts list`")
            click.echo(f"silence {number} has ended")
            return
        until_s = now_s + 60 * num_minutes
        made = ledger.silence(Silence(slo or "", severity or "", until_s), comment)
    finally:
        ledger.close()
    click.echo(f"silence {made}: {slo or 'every objective'} until {_time(until_s)}")


# --- reading ------------------------------------------------------------------------------------
def _ledger(db: Path | None, project: str | None) -> Ledger:
    from longpole_analytics.alerts.ledger import Ledger
    from longpole_collector.settings import configured_folder

    folder = configured_folder(db, project)
    if not folder.is_dir():
        raise UsageError(f"no data folder {folder}: name one by --db")
    return Ledger(folder)


def _settings(path: Path | None) -> Any:
    from longpole_analytics.alerts.settings import load_alerts

    found = load_alerts(path)
    if found is None:
        raise UsageError("no objective and no sink: write [slo.NAME] and [alerts.sinks.NAME]")
    return found


# --- text ---------------------------------------------------------------------------------------
def _print(found: dict[str, Any], now_s: float) -> None:
    from longpole_analytics.wording import printable

    age = found["last_eval_age_s"]
    said = "never looked at" if age is None else f"looked at {age:.0f} s ago"
    click.echo(f"objectives {said}; {len(found['alerts'])} alerts fire")
    for each in found["alerts"]:
        event = each["event"] or {}
        line = event.get("summary") or f"{each['severity']} {each['slo']}: not told"
        marks = [word for word in ("is_quiet", "is_held") if each[word]]
        quiet = f"  ({', '.join(word.removeprefix('is_') for word in marks)})" if marks else ""
        click.echo(printable(f"{each['fingerprint']}  {line}{quiet}"))
    _section("ended", [f"{e['updated_at']}  {e['summary']}" for e in found["ended"]])
    _section(
        "silences",
        [
            f"{s['id']}  {s['slo'] or 'every objective'} {s['severity']} until "
            f"{_time(s['until_s'])}  {s['comment']}"
            for s in found["silences"]
        ],
    )
    _section(
        "sent",
        [
            f"{_time(d['created_s'])}  {d['sink']}  {d['status']}  {d['state']} "
            f"({d['tries']} tries) {d['error']}"
            for d in found["deliveries"]
        ],
    )


def _section(title: str, lines: Sequence[str]) -> None:
    from longpole_analytics.wording import printable

    if lines:
        click.echo(f"\n{title}")
        for line in lines:
            click.echo(printable(f"  {line}"))


def _time(at_s: float) -> str:
    from longpole_analytics.alerts.event import moment

    return moment(int(at_s * 1e9))
