"""The alerts of a project, as the collector that watches it or its data folder tells them."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from longpole.config import find_file
from longpole.errors import LongpoleError
from longpole_analytics.alerts.settings import load_alerts
from longpole_analytics.alerts.telling import watched
from longpole_collector.stores.base import Reader
from longpole_dashboard.model import text
from longpole_dashboard.model.collector import Told, told


@dataclass(frozen=True)
class Alert:
    """One alert, firing or over.

    Attributes:
        slo: the objective's id.
        severity: ``page`` or ``ticket``.
        summary: its first line.
        started_ns: since when.
        ended_ns: until when; ``None`` while it fires.
        state: ``firing``, ``quiet`` (silenced or taken on), ``held`` (no requests come) or
            ``ended``.
        change: what changed before it, and when; ``None`` if nothing is known.
    """

    slo: str
    severity: str
    summary: str
    started_ns: int
    ended_ns: int | None
    state: str
    change: str | None


@dataclass(frozen=True)
class SinkState:
    """Who is told: the sink's name and kind, of which severities, and how many wait for it."""

    name: str
    kind: str
    severities: tuple[str, ...]
    num_waiting: int
    last: str


@dataclass(frozen=True)
class Alerts:
    """What is known of alerts.

    Attributes:
        missing: why nothing is known; empty if something is.
        age_s: since the objectives were last looked at; ``None`` if they never were.
        alerts: those that fire, then those that ended, the latest first.
        sinks: who is told.
        silences: what is kept quiet, as lines.
    """

    missing: str
    age_s: float | None = None
    alerts: tuple[Alert, ...] = ()
    sinks: tuple[SinkState, ...] = ()
    silences: tuple[str, ...] = ()


def alerts(folder: str | None, reader: Reader) -> Alerts:
    """The alerts of the reader's project.

    Args:
        folder: its data folder, where this process reads that itself.
        reader: the store; a collector is asked for what it watches.
    """
    found = told(reader, "/api/v1/watched/alerts", lambda: _of_folder(folder))
    if found.document is None:
        return Alerts(_why(found))
    return _read(found.document)


def _of_folder(folder: str | None) -> dict[str, Any] | None:
    if folder is None:
        return None
    try:
        settings = load_alerts(find_file())
        sinks = settings.sinks if settings else ()
    except LongpoleError:  # the page of settings says so
        sinks = ()
    return watched(Path(folder), sinks, time.time())


def _why(found: Told) -> str:
    if found.is_absent:
        return (
            "Nobody watches these objectives: longpole serve does, from the folder of "
            "longpole.toml."
        )
    return found.reason


def _read(document: Mapping[str, Any]) -> Alerts:
    inner = document["alerts"]
    deliveries = inner["deliveries"]
    return Alerts(
        "",
        inner["last_eval_age_s"],
        (
            *(_firing(each) for each in inner["alerts"]),
            *(_ended(each) for each in inner["ended"]),
        ),
        tuple(_sink(each, deliveries) for each in document["sinks"]),
        tuple(_silence(each) for each in inner["silences"]),
    )


def _firing(entry: Mapping[str, Any]) -> Alert:
    event = entry["event"] or {}
    state = "held" if entry["is_held"] else "quiet" if entry["is_quiet"] else "firing"
    return Alert(
        entry["slo"],
        entry["severity"],
        str(event.get("summary") or ("kept quiet" if entry["is_quiet"] else "nobody was told yet")),
        int(entry["started_s"] * 1e9),
        None,
        state,
        _change(event),
    )


def _ended(event: Mapping[str, Any]) -> Alert:
    return Alert(
        event["slo"]["id"],
        event["severity"],
        str(event["summary"]),
        _ns(event["started_at"]),
        _ns(event["updated_at"]),
        "ended",
        _change(event),
    )


def _change(event: Mapping[str, Any]) -> str | None:
    change = event.get("change")
    return f"{change['what']} at {change['at']}" if change else None


def _sink(sink: Mapping[str, Any], deliveries: list[Mapping[str, Any]]) -> SinkState:
    own = [each for each in deliveries if each["sink"] == sink["name"]]
    last = text.UNKNOWN
    if own:
        latest = max(own, key=lambda each: float(each["created_s"]))
        last = f"{latest['state']} {text.utc(int(latest['created_s'] * 1e9))} UTC"
        last += f": {latest['error']}" if latest["error"] else ""
    return SinkState(
        sink["name"], sink["kind"], tuple(sink["severities"]), sink["num_waiting"], last
    )


def _silence(silence: Mapping[str, Any]) -> str:
    of = " ".join(filter(None, (silence["slo"] or "every objective", silence["severity"])))
    until = text.utc(int(silence["until_s"] * 1e9))
    comment = f": {silence['comment']}" if silence["comment"] else ""
    return f"silence {silence['id']} of {of} until {until} UTC{comment}"


def _ns(moment: str) -> int:
    return int(datetime.fromisoformat(moment).timestamp()) * 10**9
