"""What is watched and who is told: ``[slo.*]``, ``[alerts]`` and ``[alerts.sinks.*]``.

Imports nothing heavy: the collector asks for it at every start.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from longpole.config import Scalar, find_file, read_file, settings, subtables
from longpole.errors import UsageError

if TYPE_CHECKING:
    from longpole_analytics.alerts.sinks.base import Sink
    from longpole_analytics.slo.objectives import Objective

DEFAULTS: Final[dict[str, Scalar | None]] = {
    "projects": "default",
    "openslo": "",
    "interval_s": 5.0,
    "repeat": "4h",
    "patience_s": 10.0,
    "dashboard": "http://127.0.0.1:8501",
    "allow_hosts": "",
}
"""Every key of ``[alerts]`` with its default."""
DEFAULT_PROJECT: Final = "default"
MIN_INTERVAL_S: Final = 1.0
MAX_INTERVAL_S: Final = 15.0
MAX_PATIENCE_S: Final = 10.0
"""Together less than half a minute, in which a page must leave after what it is about."""


@dataclass(frozen=True)
class AlertSettings:
    """The configuration, checked.

    Attributes:
        objectives: what is promised.
        projects: names of the projects that are watched.
        interval_s: seconds between two looks.
        repeat_s: seconds after which those who were told are told again while it goes on.
        patience_s: how long an alert may wait for its cause to be known: spans of the engine come
            some seconds after those of the application.
        dashboard: address that links begin with.
        sinks: who is told.
        allow_hosts: names, addresses and networks that may be sent to though they are private.
    """

    objectives: "tuple[Objective, ...]"
    projects: frozenset[str]
    interval_s: float
    repeat_s: float
    patience_s: float
    dashboard: str
    sinks: "tuple[Sink, ...]"
    allow_hosts: tuple[str, ...]


def load_alerts(path: Path | None = None) -> AlertSettings | None:
    """The configuration; ``None`` where no objective is written.

    Args:
        path: the file; default is the nearest ``longpole.toml`` upward.

    Raises:
        UsageError: a key or a value that cannot be.
    """
    path = path or find_file()
    found = settings("alerts", DEFAULTS, path)
    values = {key: setting.value for key, setting in found.items()}
    if not read_file(path).get("slo") and not values["openslo"]:
        return None
    from longpole_analytics.alerts.sinks.base import make_sinks
    from longpole_analytics.slo.objectives import minutes

    interval_s = float(values["interval_s"] or 0)
    if not MIN_INTERVAL_S <= interval_s <= MAX_INTERVAL_S:
        raise UsageError(
            f"[alerts] interval_s {interval_s:g}: must be {MIN_INTERVAL_S:g} to {MAX_INTERVAL_S:g}"
        )
    patience_s = float(values["patience_s"] or 0)
    if not 0 <= patience_s <= MAX_PATIENCE_S:
        raise UsageError(f"[alerts] patience_s {patience_s:g}: must be 0 to {MAX_PATIENCE_S:g}")
    dashboard = str(values["dashboard"]).rstrip("/")
    if urlsplit(dashboard).scheme not in ("http", "https"):
        raise UsageError(f"[alerts] dashboard '{dashboard}': expected http://HOST:PORT")
    return AlertSettings(
        objectives=objectives_of(path),
        projects=frozenset(_listed(values["projects"])),
        interval_s=interval_s,
        repeat_s=60.0 * max(minutes(values["repeat"], "[alerts] repeat"), 1),
        patience_s=patience_s,
        dashboard=dashboard,
        sinks=make_sinks(subtables("alerts", "sinks", path)),
        allow_hosts=tuple(_listed(values["allow_hosts"])),
    )


def objectives_of(path: Path | None) -> "tuple[Objective, ...]":
    """The promises of a file, and of the OpenSLO files that it names, relative to itself.

    Args:
        path: the file; ``None`` has no promises of its own.

    Raises:
        UsageError: one of them cannot be read.
    """
    from longpole_analytics.slo import openslo as yaml_form
    from longpole_analytics.slo.objectives import apart, from_tables

    tables, openslo = read_file(path).get("slo", {}), settings("alerts", DEFAULTS, path)["openslo"]
    found = [(each, str(path)) for each in from_tables(tables, str(path))]
    for name in _listed(openslo.value):
        file = (path.parent if path else Path()) / name
        try:
            text = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"[alerts] openslo: cannot read {file}: {error}") from error
        found += [(each, str(file)) for each in yaml_form.read(text, str(file))]
    apart(found)
    return tuple(objective for objective, _ in found)


def _listed(value: object) -> list[str]:
    return [part.strip() for part in str(value or "").split(",") if part.strip()]
