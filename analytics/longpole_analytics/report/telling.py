"""The reports that stand in a folder: which there are, and one of them."""

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

LISTED: Final = "longpole.watched_reports/1"
MAX_REPORTS: Final = 60
MAX_BYTES: Final = 8_000_000
"""A larger file is no report of ours."""
FILE: Final = "report.json"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def listed(folder: Path) -> list[dict[str, Any]]:
    """The reports in the folders below a folder, the latest week first; empty without any.

    Each has ``name`` (of its folder), ``project``, ``title``, ``since``, ``until``,
    ``num_traces``, ``made_at`` and its first ``lines``. What cannot be read is left out.
    """
    from longpole_analytics.report.build import first_lines

    found = []
    for path in _folders(folder):
        document = read(folder, path.name)
        if document is None:
            continue
        window = document.get("window") or {}
        made = datetime.fromtimestamp((path / FILE).stat().st_mtime, UTC)
        found.append(
            {
                "name": path.name,
                "project": document.get("project"),
                "title": str(document.get("title", path.name)),
                "since": window.get("since"),
                "until": window.get("until"),
                "num_traces": window.get("num_traces"),
                "made_at": made.isoformat(timespec="seconds"),
                "lines": first_lines(document),
            }
        )
    return sorted(found, key=lambda each: (str(each["until"]), each["name"]), reverse=True)


def read(folder: Path, name: str) -> dict[str, Any] | None:
    """The document of the report of that name; ``None`` where there is none that can be read."""
    from longpole_analytics.report.build import SCHEMA  # not at import: the collector starts lean

    path = folder / name / FILE
    try:
        if not _NAME.fullmatch(name) or not path.resolve().is_relative_to(folder.resolve()):
            return None
        if path.stat().st_size > MAX_BYTES:
            return None
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    is_ours = isinstance(document, dict) and document.get("schema") == SCHEMA
    return document if is_ours else None


def _folders(folder: Path) -> list[Path]:
    """Those that may hold a report, the latest written first."""
    try:
        inside = [(path.stat().st_mtime, path) for path in folder.glob(f"*/{FILE}")]
    except OSError:
        return []
    return [path.parent for _, path in sorted(inside, reverse=True)[:MAX_REPORTS]]
