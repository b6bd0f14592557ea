"""The settings in force, and how the collector does: what it tells, or the data folder.

What cannot be known of a source is ``None`` and told why. No secret is in any of it.
"""

import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from longpole.config import find_file
from longpole_analytics.alerts.settings import load_alerts
from longpole_analytics.alerts.telling import sink_state
from longpole_collector.doctor_check import OK
from longpole_collector.doctor_data import NUM_SPANS, lack_checks
from longpole_collector.keys import DEFAULT_PROJECT
from longpole_collector.settings import PROJECTS_FOLDER, load_settings
from longpole_collector.stores.base import Reader
from longpole_collector.stores.remote import RemoteReader
from longpole_dashboard.model.collector import Document, Told, told

_SAMPLE: Final = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)")
_LABEL: Final = re.compile(r'([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"')
MAX_SERVICES: Final = 100


@dataclass(frozen=True)
class KeyLine:
    """A key: what it is for and when it was last used; never what opens."""

    id: str
    name: str | None
    scope: str
    created: str
    last_used: str | None


@dataclass(frozen=True)
class SettingsView:
    """The settings in force for the project; ``missing`` says why they are not known."""

    missing: str
    project: str = ""
    folder: str = ""
    http: str = ""
    grpc: str = ""
    retention_days: int = 0
    retention_bytes: int = 0
    num_bytes: int = 0
    free_bytes: int | None = None
    policy: str = ""
    keep_days: int = 0
    kinds: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()
    hook: str | None = None
    keys: tuple[KeyLine, ...] = ()
    versions: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class HealthView:
    """How the collector does since it was started; ``missing`` says why that is not known.

    Attributes:
        missing: empty if it is known.
        counts: what was received, stored and so on, by name.
        lost: what was dropped, refused or rejected: what, why, how many; only what is above 0.
        queue_bytes: bytes taken and not yet stored.
        freshness_s: within how long half and 99 % of the spans could be seen, upper bounds of
            the buckets; ``None`` of none.
        broken: files of the store that cannot be read, and why.
        problem: why the store cannot be used; empty where it can, or no collector tells.
        log_bytes: bytes of requests that are in the collector's log alone; ``None`` where no
            collector tells.
    """

    missing: str
    counts: tuple[tuple[str, int], ...] = ()
    lost: tuple[tuple[str, str, int], ...] = ()
    queue_bytes: int | None = None
    freshness_s: tuple[float, float] | None = None
    broken: tuple[tuple[str, str], ...] = ()
    problem: str = ""
    log_bytes: int | None = None


@dataclass(frozen=True)
class Sink:
    """A sink of this process's own configuration."""

    name: str
    kind: str
    severities: tuple[str, ...]


@dataclass(frozen=True)
class Lack:
    """A fact that some of the last spans lack: how many, what it would unlock, how to send it."""

    fact: str
    told: str
    fix: str
    is_common: bool


@dataclass(frozen=True)
class Quality:
    """A service's row of the data-quality ledger; ratios are ``None`` where nothing counts."""

    service: str | None
    dialect: str
    num_calls: int
    ratios: tuple[float | None, ...]
    reasons: tuple[str, ...]


RATIOS: Final = (
    ("no_ttft_ratio", "no TTFT"),
    ("weak_ttft_ratio", "weak TTFT"),
    ("no_usage_ratio", "no tokens"),
    ("weak_usage_ratio", "estimated tokens"),
    ("no_price_ratio", "no price"),
    ("no_parent_ratio", "no parent"),
    ("no_finish_ratio", "no finish reason"),
)
"""Columns of the view ``quality``, and what the page calls them."""


# --- settings -----------------------------------------------------------------------------------
def settings(folder: str | None, reader: Reader) -> SettingsView:
    """The settings in force for the reader's project.

    Args:
        folder: its data folder, where this process reads that itself.
        reader: the store; a collector tells its own settings.
    """
    from longpole_collector.admin_state import SETTINGS_PATH  # brings the API's framework

    found = told(reader, SETTINGS_PATH, lambda: _here(folder))
    if found.document is None:
        return SettingsView(_why(found))
    return _settings(found.document, folder)


def sinks() -> tuple[Sink, ...]:
    """The sinks that ``longpole alerts test`` knows, started from here; none without objectives.

    Raises:
        UsageError: the configuration cannot be read.
    """
    found = load_alerts(find_file())
    states = [sink_state(each, {}) for each in found.sinks] if found else []
    return tuple(Sink(s["name"], s["kind"], tuple(s["severities"])) for s in states)


def _here(folder: str | None) -> Document | None:
    if folder is None:
        return None
    from longpole_collector.admin_state import settings_state

    path = Path(folder)
    is_below = path.parent.name == PROJECTS_FOLDER
    root = path.parent.parent if is_below else path
    project = path.name if is_below else DEFAULT_PROJECT
    return settings_state(load_settings(db=root), project, path).model_dump()


def _why(found: Told) -> str:
    if found.is_absent and not found.reason:
        return "A file has no keys, retention or content policy."
    if found.is_absent:
        return "The collector is of an older version and does not tell its settings."
    return found.reason


def _settings(document: Mapping[str, Any], folder: str | None) -> SettingsView:
    content = document["content"]
    return SettingsView(
        "",
        project=document["project"],
        folder=document["folder"],
        http=document["http"],
        grpc=document["grpc"],
        retention_days=document["retention_days"],
        retention_bytes=document["retention_bytes"],
        num_bytes=document["num_bytes"],
        free_bytes=shutil.disk_usage(folder).free if folder else None,
        policy=content["policy"],
        keep_days=content["keep_days"],
        kinds=tuple(content["kinds"]),
        rules=tuple(content["rules"]),
        hook=content["hook"],
        keys=tuple(KeyLine(**key) for key in document["keys"]),
        versions=tuple(document["versions"].items()),
    )


# --- health -------------------------------------------------------------------------------------
_COUNTED: Final = (
    ("requests received", "longpole_requests_received_total"),
    ("spans received", "longpole_spans_received_total"),
    ("spans stored", "longpole_spans_stored_total"),
    ("duplicates", "longpole_spans_duplicate_total"),
    ("late spans", "longpole_spans_late_total"),
)
_LOST: Final = (
    ("requests refused", "longpole_requests_refused_total"),
    ("spans rejected", "longpole_spans_rejected_total"),
    ("spans dropped", "longpole_spans_dropped_total"),
    ("spans of an unknown dialect", "longpole_spans_unknown_dialect_total"),
    ("events dropped", "longpole_events_dropped_total"),
    ("log records and metric points dropped", "longpole_signals_dropped_total"),
    ("attribute values dropped or cut", "longpole_values_dropped_total"),
    ("spans that a dialect failed to read", "longpole_dialect_errors_total"),
    ("roll-ups that failed", "longpole_rollup_errors_total"),
    ("damaged frames of the log", "longpole_log_frames_damaged_total"),
)
_FRESHNESS: Final = "longpole_freshness_seconds_bucket"


def health(reader: Reader) -> HealthView:
    """How the collector that is read from does.

    Raises:
        Unreachable: it does not answer.
    """
    if not isinstance(reader, RemoteReader):
        return HealthView("No collector is read from: its counters are its own.")
    answer = reader.get("/metrics")
    if answer.status_code != 200:
        return HealthView(f"The collector's /metrics answered {answer.status_code}.")
    samples = parse(answer.text)
    status = told(reader, "/api/v1/status", lambda: None).document or {}
    total = {
        name: sum(value for found, _, value in samples if found == metric)
        for name, metric in _COUNTED
    }
    lost = [
        (what, ", ".join(labels.values()), int(value))
        for what, metric in _LOST
        for found, labels, value in samples
        if found == metric and value
    ]
    queued = [value for name, _, value in samples if name == "longpole_queue_bytes"]
    return HealthView(
        "",
        tuple((name, int(value)) for name, value in total.items()),
        tuple(lost),
        int(queued[0]) if queued else None,
        _freshness(samples),
        tuple(dict(status.get("broken", {})).items()),
        str(status.get("problem") or ""),
        status.get("log_bytes"),
    )


def parse(metrics: str) -> list[tuple[str, dict[str, str], float]]:
    """The samples of Prometheus text: name, labels, value; what is none is left out."""
    found = []
    for line in metrics.splitlines():
        match = _SAMPLE.fullmatch(line)
        if match is None:
            continue
        labels = dict(_LABEL.findall(match[2] or ""))
        try:
            found.append((match[1], labels, float(match[3])))
        except ValueError:
            continue
    return found


def _freshness(
    samples: Sequence[tuple[str, dict[str, str], float]],
) -> tuple[float, float] | None:
    buckets = sorted(
        (float(labels["le"]), value) for name, labels, value in samples if name == _FRESHNESS
    )
    if not buckets or not buckets[-1][1]:
        return None
    num = buckets[-1][1]
    half, most = (next(bound for bound, n in buckets if n >= q * num) for q in (0.5, 0.99))
    return half, most


# --- what the data lack -------------------------------------------------------------------------
def lacks(reader: Reader) -> tuple[Lack, ...]:
    """What the last spans lack and what each fact would unlock, as ``longpole doctor`` has it."""
    return tuple(
        Lack(check.name.removeprefix("attribute "), check.detail, check.fix, check.status != OK)
        for check in lack_checks(reader)
        if check.fix
    )


def quality(reader: Reader) -> tuple[Quality, ...]:
    """The view ``quality``: a row for each service and dialect, most calls first."""
    rows = reader.sql(f"SELECT * FROM quality LIMIT {MAX_SERVICES}").to_pylist()  # noqa: S608
    return tuple(
        Quality(
            row["service"],
            row["dialect"],
            row["num_calls"],
            tuple(row[column] for column, _ in RATIOS),
            tuple(
                f"{each['lack']}: {each['reason']} ({each['num_calls']:,})"
                for each in row["reasons"][:6]
            ),
        )
        for row in rows
    )


LAST_SPANS: Final = NUM_SPANS
