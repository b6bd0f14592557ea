"""The waterfall of one trace: stage strip, minimap, and the tree of spans on a time axis.

Durations are made into text here, so that the rules of ``model.text`` hold in the script too. The
rows travel as columns of small numbers: a trace of 10,000 spans is about a megabyte, sent once.
The script keeps only the rows that are seen in the page.
"""

import json
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import streamlit as st

from longpole_dashboard.model import text
from longpole_dashboard.model.trace import TraceView
from longpole_dashboard.model.trace_rows import APART, SpanRow, Stretch
from longpole_dashboard.theme import look

MAX_OVERHANG: Final = 1.25
"""The axis ends here at the latest, in wall times: a detached span must not squeeze the rest."""
AXIS_TICKS: Final = 10**8
"""Places on the axis: fine enough for any window of it, and whole numbers."""
MAX_OPEN_APART: Final = 20
"""So many spans without parent stand open at first; more are folded."""
ON_PATH, CALL, PHASE, ERROR, CLOSED = (1 << bit for bit in range(5))
"""What a row is, one bit each; ``CLOSED``: what is below it is hidden at first."""

_HERE = Path(__file__).parent


def joined(*names: str) -> str:
    """Files of this folder as one; the first ones are what the last one uses."""
    return "\n".join((_HERE / name).read_text(encoding="utf-8") for name in names)


_MOUNT = st.components.v2.component(
    "longpole_waterfall",
    html=joined("waterfall.html"),
    css=joined("common.css", "waterfall.css"),
    js=joined("common.js", "minimap.js", "rows.js", "waterfall.js"),
)


def chosen(name: str) -> str | None:
    """The key of the row that was chosen in the component called ``name``; ``None``: none yet."""
    state: Any = st.session_state.get(name) or {}
    key = state.get("selected")
    return key if isinstance(key, str) else None


def waterfall(name: str, drawn: str, selected: str | None) -> None:
    """Draw a trace.

    Args:
        name: unique on the page.
        drawn: from :func:`payload`.
        selected: key of the row that is chosen when the trace is first drawn.
    """
    _MOUNT(key=name, data={"drawn": drawn, "selected": selected}, on_selected_change=lambda: None)


def payload(view: TraceView) -> str:
    """What the script draws, as JSON: texts, places on the axis, places in lists."""
    wall = max(view.wall_ns, 1)
    ends = (row.end_ns for row in view.rows)
    extent = min(max([wall, view.extended_ns, *ends]), int(wall * MAX_OVERHANG))
    stages = list(dict.fromkeys([*(s.stage for s in view.stages), *(r.stage for r in view.rows)]))
    data = {
        "trace_id": view.trace_id,
        "extent_s": extent / 1e9,
        "stages": [look(stage)._asdict() for stage in stages],
        "strip": [
            {
                "stage": stages.index(share.stage),
                "ratio": share.critical_ns / wall,
                "text": text.duration(share.critical_ns / 1e6),
                "share": text.percent(share.critical_ns / wall),
            }
            for share in view.stages
        ],
        "sum": _sum_line(view),
        "opaque": view.opaque,
        "rows": _columns(view.rows, stages, extent),
    }
    drawn = json.dumps(data, separators=(",", ":"), ensure_ascii=False)
    # The script draws anew only when this changes.
    return f"{zlib.crc32(drawn.encode()):08x}{drawn}"


def _sum_line(view: TraceView) -> str:
    total = sum(share.critical_ns for share in view.stages) / 1e6
    return f"stages sum to {total:,.3f} ms = wall time {view.wall_ns / 1e6:,.3f} ms"


def _columns(rows: Sequence[SpanRow], stages: list[str], extent: int) -> dict[str, list[Any]]:
    """The rows by column; names are places in ``names``, bars triples of start, width, stage."""
    places = {stage: place for place, stage in enumerate(stages)}
    names: dict[str, int] = {}
    return {
        "key": [row.key for row in rows],
        "name": [names.setdefault(_name(row), len(names)) for row in rows],
        "names": list(names),
        "depth": [row.depth for row in rows],
        "below": [row.num_below for row in rows],
        "stage": [places[row.stage] for row in rows],
        "is": [_bits(row) for row in rows],
        "folded": [row.num_folded for row in rows],
        "time": [_time(row) for row in rows],
        "critical": [
            text.duration(row.critical_ns / 1e6) if row.critical_ns else "" for row in rows
        ],
        "parts": [_placed(row.stretches, places, extent) for row in rows],
        # Mostly a row is wholly on the path, or not at all.
        "path": [
            1 if row.path and row.path == row.stretches else _placed(row.path, places, extent)
            for row in rows
        ],
    }


def _name(row: SpanRow) -> str:
    if row.is_phase:
        return look(row.stage).label
    is_kind = row.num_folded and row.key != APART
    return f"{row.name} \u00d7 {row.num_folded:,}" if is_kind else row.name


def _time(row: SpanRow) -> str:
    time = text.duration(row.total_ns / 1e6)
    return f"Σ {time}" if row.num_folded else time


def _bits(row: SpanRow) -> int:
    is_closed = row.num_folded > (MAX_OPEN_APART if row.key == APART else 0)
    known = (row.is_on_path, row.is_call, row.is_phase, row.is_error, is_closed)
    return sum(bit for bit, has in zip((ON_PATH, CALL, PHASE, ERROR, CLOSED), known, strict=True)
               if has)  # fmt: skip


def _placed(stretches: Iterable[Stretch], places: dict[str, int], extent: int) -> list[int]:
    """Stretches as start, width, stage one after the other, cut to the axis."""
    found: list[int] = []
    for start, end, stage in stretches:
        left = min(max(start, 0), extent) * AXIS_TICKS // extent
        right = min(max(end, 0), extent) * AXIS_TICKS // extent
        found += (left, right - left, places[stage])
    return found
