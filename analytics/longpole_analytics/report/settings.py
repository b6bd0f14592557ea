"""What a report is made by: ``[report]``, and what other tables of ``longpole.toml`` add to it.

Imports nothing heavy: the collector asks for it at every start.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from longpole.config import Scalar, find_file, read_file, settings, subtables
from longpole.errors import UsageError
from longpole_analytics.alerts.settings import DEFAULTS as ALERTS
from longpole_analytics.alerts.settings import objectives_of
from longpole_analytics.report.weeks import Schedule, schedule

if TYPE_CHECKING:
    from longpole_analytics.alerts.sinks.base import Sink
    from longpole_analytics.report.reading import Setup

DEFAULTS: Final[dict[str, Scalar | None]] = {
    "schedule": "",
    "folder": "",
    "sinks": "",
    "projects": "default",
}
"""Every key of ``[report]`` with its default."""
KINDS: Final = ("email", "slack", "webhook")
"""Sinks that a report can be sent to."""


@dataclass(frozen=True)
class ReportSettings:
    """The configuration of the report that comes by itself, checked.

    Attributes:
        schedule: when it is made.
        folder: where it is written; ``None`` is ``reports`` in the project's data folder.
        sinks: the configured sinks of alerts that it is sent to, with their kinds.
        projects: of which projects.
        allow_hosts: what may be sent to though it is private.
        path: the file of the configuration.
    """

    schedule: Schedule
    folder: Path | None
    sinks: tuple[tuple[str, Sink], ...]
    projects: frozenset[str]
    allow_hosts: tuple[str, ...]
    path: Path | None


def load_report(path: Path | None = None) -> ReportSettings | None:
    """The configuration; ``None`` where no schedule is written.

    Args:
        path: the file; default is the nearest ``longpole.toml`` upward.

    Raises:
        UsageError: a key or a value that cannot be.
    """
    path = path or find_file()
    values = {key: each.value for key, each in settings("report", DEFAULTS, path).items()}
    if not values["schedule"]:
        return None
    allowed = settings("alerts", ALERTS, path)["allow_hosts"].value
    folder = str(values["folder"] or "")
    base = path.parent if path else Path()
    return ReportSettings(
        schedule(str(values["schedule"]), "[report] schedule"),
        base / folder if folder else None,
        _sinks(_listed(values["sinks"]), path),
        frozenset(_listed(values["projects"])),
        tuple(_listed(allowed)),
        path,
    )


def zone_of(path: Path | None) -> str:
    """The zone that weeks are told in: that of the schedule, else UTC.

    Raises:
        UsageError: the schedule cannot be read.
    """
    text = settings("report", DEFAULTS, path)["schedule"].value
    return schedule(str(text), "[report] schedule").tz if text else "UTC"


def load_setup(path: Path | None, project: str, source: str) -> Setup:
    """What a report is asked for, with the promises, budgets, prices and rules of a file.

    Args:
        path: the file; ``None`` has nothing but defaults.
        project: the project's name.
        source: the options that name the data to a command.

    Raises:
        UsageError: something in it that cannot be.
    """
    from longpole_analytics.attribution import CauseRules
    from longpole_analytics.budgets import TABLE, parse
    from longpole_analytics.cache.rules import rules_from
    from longpole_analytics.changes import ChangeRules
    from longpole_analytics.price_overrides import configured_prices
    from longpole_analytics.report.reading import Setup
    from longpole_analytics.serial import SerialRules
    from longpole_analytics.thresholds import overridden

    tables = read_file(path)
    analytics = tables.get("analytics", {})

    def of(name: str) -> dict[str, object]:
        found = analytics.get(name, {})
        if not isinstance(found, dict):
            raise UsageError(f"[analytics] {name}: expected a table, as in [analytics.{name}]")
        return found

    dashboard = settings("alerts", ALERTS, path)["dashboard"].value
    return Setup(
        project=project,
        source=source,
        prices=configured_prices(path),
        objectives=objectives_of(path),
        budgets=parse(tables.get(TABLE, {})),
        dashboard=str(dashboard).rstrip("/") or None,
        cause_rules=overridden(CauseRules(), of("causes"), "analytics.causes"),
        change_rules=overridden(ChangeRules(), of("changes"), "analytics.changes"),
        cache_rules=rules_from(of("cache")),
        serial_rules=overridden(SerialRules(), of("serial"), "analytics.serial"),
    )


def _sinks(names: list[str], path: Path | None) -> tuple[tuple[str, Sink], ...]:
    if not names:
        return ()
    from longpole_analytics.alerts.sinks.base import make_sinks

    tables = subtables("alerts", "sinks", path)
    found = []
    for name in names:
        kind = str(tables.get(name, {}).get("kind"))
        if name not in tables:
            raise UsageError(f"[report] sinks '{name}': there is no [alerts.sinks.{name}]")
        if kind not in KINDS:
            raise UsageError(f"[report] sinks '{name}' is {kind}: one of {', '.join(KINDS)}")
        found.append((kind, make_sinks({name: tables[name]})[0]))
    return tuple(found)


def _listed(value: object) -> list[str]:
    return [part.strip() for part in str(value or "").split(",") if part.strip()]
