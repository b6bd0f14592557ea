"""The weekly reports that were made, and one of them as a page of HTML."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from longpole.config import find_file, settings
from longpole_analytics.report import telling
from longpole_analytics.report.html import page
from longpole_analytics.report.settings import DEFAULTS, zone_of
from longpole_analytics.report.weeks import last_week, week
from longpole_collector.keys import DEFAULT_PROJECT
from longpole_collector.stores.base import Reader
from longpole_collector.stores.remote import RemoteReader
from longpole_dashboard.model.collector import told

FOLDER: Final = "reports"
"""Where they are in a project's data folder, unless ``[report] folder`` says otherwise."""
_WATCHED: Final = "/api/v1/watched/reports"
_NEW_TAB: Final = '<head><base target="_blank">'


@dataclass(frozen=True)
class Report:
    """One report in the list.

    Attributes:
        name: of its folder; mostly the week.
        title: of the report.
        since: its begin, ISO 8601.
        until: its end.
        num_traces: requests in it; ``None`` if it does not say.
        made_at: when, ISO 8601.
        lines: its first lines.
    """

    name: str
    title: str
    since: str
    until: str
    num_traces: int | None
    made_at: str
    lines: tuple[str, ...]


@dataclass(frozen=True)
class Reports:
    """The reports there are, the latest first; ``missing`` says why there are none to see."""

    reports: tuple[Report, ...]
    missing: str = ""


@dataclass(frozen=True)
class Weeks:
    """What to type: the command for the last whole week, and for the week that runs."""

    last: str
    current: str
    tz: str


def reports(folder: str | None, project: str | None, reader: Reader) -> Reports:
    """The reports of the reader's project.

    Args:
        folder: its data folder, where this process reads that itself.
        project: its name there; ``None`` is the default one.
        reader: the store; a collector is asked for what it has made, and only if it makes none
            the folder that ``[report]`` names is looked into.

    Raises:
        UsageError: the configuration cannot be read.
    """
    found = told(reader, _WATCHED, lambda: None)
    if found.document is not None:
        return _listed(found.document["reports"], "No report was made yet.")
    if not found.is_absent:
        return Reports((), found.reason)
    own = _folder(folder)
    if own is None:
        return Reports((), "No schedule is set and no folder named: [report] in longpole.toml.")
    name = _project(project, reader)
    of_project = [each for each in telling.listed(own) if each["project"] == name]
    return _listed(of_project, f"No report of project '{name}' in {own} yet.")


def report(name: str, folder: str | None, project: str | None, reader: Reader) -> str | None:
    """A report as HTML that was made from its document just now; ``None`` if it cannot be.

    The document is data: whatever it holds, the page has no script.

    Raises:
        UsageError: the configuration cannot be read.
    """
    document = told(reader, f"{_WATCHED}/{quote(name, safe='')}", lambda: None).document
    own = _folder(folder)
    if document is None and own is not None:
        document = telling.read(own, name)
        if document is not None and document.get("project") != _project(project, reader):
            return None
    if document is None:
        return None
    try:
        return page(document).replace("<head>", _NEW_TAB, 1)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError):
        return None  # written by another version, or by hand


def weeks(now: datetime) -> Weeks:
    """The weeks that a report may be wanted of, in the schedule's zone.

    Raises:
        UsageError: the schedule cannot be read.
    """
    tz = zone_of(find_file())
    now_ns = int(now.timestamp()) * 10**9
    last = last_week(now_ns, tz)
    following = (last.local(last.until_ns) + timedelta(days=3)).isocalendar()
    current = week(f"{following.year:04}-W{following.week:02}", tz)
    return Weeks(last.name, current.name, tz)


def now() -> datetime:
    """The clock."""
    return datetime.now(UTC)


def _folder(folder: str | None) -> Path | None:
    """The folder of reports that this process may read; ``None`` where there is none."""
    path = find_file()
    named = str(settings("report", DEFAULTS, path)["folder"].value or "")
    if named:
        return (path.parent if path else Path()) / named
    return None if folder is None else Path(folder) / FOLDER


def _project(project: str | None, reader: Reader) -> str:
    """Whose reports may be seen: that of the key, if a collector is read."""
    if not isinstance(reader, RemoteReader):
        return project or DEFAULT_PROJECT
    status = told(reader, "/api/v1/status", lambda: None).document
    return str(status["project"]) if status else ""


def _listed(found: list[dict[str, Any]], none: str) -> Reports:
    made = tuple(_report(each) for each in found)
    return Reports(made, "" if made else none)


def _report(each: Mapping[str, Any]) -> Report:
    return Report(
        str(each["name"]),
        str(each["title"]),
        str(each["since"] or ""),
        str(each["until"] or ""),
        each["num_traces"],
        str(each["made_at"]),
        tuple(str(line) for line in each["lines"]),
    )
