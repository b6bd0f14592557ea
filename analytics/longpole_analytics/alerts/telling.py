"""What is told of a project's alerts: one document, for the command and for readers elsewhere."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from longpole.family import load
from longpole_analytics.alerts.ledger import FILE, FOLDER, Ledger
from longpole_analytics.alerts.sinks.base import Sink, SinkKind

SCHEMA: Final = "longpole.alerts/1"
WATCHED: Final = "longpole.watched_alerts/1"
MAX_SHOWN: Final = 20
MAX_TOLD: Final = 200
"""Alerts that have ended, and messages, that a page is told of."""
LOOKED: Final = "looked_s"
"""When the objectives were last looked at: a fact of the ledger."""


def document(ledger: Ledger, now_s: float, most: int = MAX_SHOWN) -> dict[str, Any]:
    """The alerts that fire, those that ended last, silences, and what was sent last."""
    looked = ledger.meta(LOOKED)
    told = ledger.events()
    return {
        "schema": SCHEMA,
        "last_eval_age_s": None if looked is None else max(now_s - float(looked), 0.0),
        "alerts": [
            asdict(entry) | {"event": told.get(name)} for name, entry in ledger.entries().items()
        ],
        "ended": ledger.history(most),
        "silences": [
            {"id": number, **each._asdict(), "comment": comment}
            for number, each, comment in ledger.silences(now_s)
        ],
        "deliveries": ledger.deliveries(most),
    }


def watched(folder: Path, sinks: Sequence[Sink], now_s: float) -> dict[str, Any] | None:
    """The same of a project's folder, with its sinks; ``None`` where nothing was ever watched.

    Raises:
        Unreachable: what is kept of alerts cannot be read.
    """
    if not (folder / FOLDER / FILE).is_file():
        return None
    ledger = Ledger(folder)
    try:
        found = document(ledger, now_s, MAX_TOLD)
        waiting = ledger.num_waiting()
    finally:
        ledger.close()
    return {
        "schema": WATCHED,
        "alerts": found,
        "sinks": [sink_state(each, waiting) for each in sinks],
    }


def sink_state(sink: Sink, waiting: Mapping[str, int]) -> dict[str, Any]:
    """A sink without its options: they hold secrets."""
    kinds = load("longpole_analytics.alerts.sinks", "SINK", SinkKind)
    kind = next((name for name, each in kinds.items() if each is sink.kind), "")
    return {
        "name": sink.name,
        "kind": kind,
        "severities": sorted(sink.severities),
        "num_waiting": waiting.get(sink.name, 0),
    }
