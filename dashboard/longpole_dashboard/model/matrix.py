"""Matrices of runs that `longpole engine matrix` wrote: which there are, and one as a view."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from longpole.errors import BadInput
from longpole_engine.load.matrix import LATENCIES, Panel, middle, panels, read
from longpole_engine.load.matrix import label as label

FOLDER: Final = "matrix"
"""In a data folder; the command writes there."""
MAX_BYTES: Final = 16 * 2**20


@dataclass(frozen=True)
class Line:
    """One cell as a row: what it differs in, and its measures; ``None`` is unknown."""

    label: str
    ttft_ms: float | None
    tpot_ms: float | None
    e2e_ms: float | None
    tokens_per_s: float | None
    cached_share: float | None
    num_failed: int
    num_completed: int
    start_s: float | None
    is_best: bool


@dataclass(frozen=True)
class MatrixView:
    """One matrix.

    Attributes:
        model: that ran.
        num_cells: in it.
        requests: of each cell.
        machine: where.
        works: panels by latency: the same works in the same order for each.
    """

    model: str
    num_cells: int
    requests: int
    machine: str
    works: Mapping[str, tuple[Panel, ...]]

    def lines(self, latency: str, number: int) -> tuple[Line, ...]:
        """The cells of a work, the least latency first."""
        points = sorted(self.works[latency][number].points, key=lambda point: point.latency_ms)
        return tuple(_line(point.row, is_best=point.is_best) for point in points)


def names(folder: str | None) -> tuple[str, ...]:
    """Names of the matrices, the latest first; those that cannot be read are left out.

    Args:
        folder: a data folder; ``None`` for the one that the command writes to by default.
    """
    found = []
    for path in _folder(folder).glob("*.json"):
        try:
            if path.stat().st_size <= MAX_BYTES and read(path) is not None:
                found.append((-path.stat().st_mtime_ns, path.stem))
        except (OSError, BadInput):
            continue
    return tuple(name for _, name in sorted(found))


def matrix(name: str, folder: str | None) -> MatrixView | None:
    """One matrix; ``None`` if there is none of that name that can be read."""
    if name not in names(folder):
        return None
    try:
        found = read(_folder(folder) / f"{name}.json")
        return None if found is None else view(found)
    except (BadInput, KeyError, TypeError, ValueError, AttributeError):
        return None  # written by another version, or by hand


def view(document: Mapping[str, Any]) -> MatrixView:
    """The view of a document (schema ``longpole.matrix/1``)."""
    facts = document.get("machine") or {}
    return MatrixView(
        str(document["model"]),
        len(document["cells"]),
        int(document["requests"]),
        f"{facts.get('num_cores', '?')} cores, {facts.get('system', 'unknown system')}",
        {latency: tuple(panels(document, latency)) for latency in LATENCIES},
    )


def _folder(folder: str | None) -> Path:
    return Path(folder or ".longpole") / FOLDER


def _line(row: Mapping[str, Any], *, is_best: bool) -> Line:
    result = row["result"]
    return Line(
        label(row),
        middle(result.get("ttft_ms")),
        middle(result.get("tpot_ms")),
        middle(result.get("e2e_ms")),
        result.get("output_tokens_per_s"),
        result.get("cached_share"),
        sum(result.get("failures", {}).values()),
        result.get("num_completed", 0),
        row.get("start_s"),
        is_best,
    )
