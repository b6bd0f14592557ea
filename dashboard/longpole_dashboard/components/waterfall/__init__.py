"""The waterfall of one trace: stage strip, tree of spans on a time axis, side panel.

All numbers are made into text here, so that the rules of ``model.text`` hold in the script too.
"""

import zlib
from math import floor, log10
from pathlib import Path
from typing import Any, Final, NamedTuple

import streamlit as st

from longpole_dashboard.model import text
from longpole_dashboard.model.trace import Attributes, SpanRow, Stretch, TraceView
from longpole_dashboard.theme import look

PAGE_ROWS: Final = 2_000
"""Rows sent at first, and with each "show more"."""

MAX_OVERHANG: Final = 1.25
"""The axis ends here at the latest, in wall times: a detached span must not squeeze the rest."""

_HERE = Path(__file__).parent

_MOUNT = st.components.v2.component(
    "longpole_waterfall",
    html=(_HERE / "waterfall.html").read_text(encoding="utf-8"),
    css=(_HERE / "waterfall.css").read_text(encoding="utf-8"),
    js=(_HERE / "waterfall.js").read_text(encoding="utf-8"),
)


class Chosen(NamedTuple):
    """What the reader has chosen: a row's key (``None``: none yet) and how many rows to show."""

    key: str | None
    limit: int


def chosen(name: str) -> Chosen:
    """The choice in the component called ``name``, from before it is drawn again."""
    state: Any = st.session_state.get(name) or {}
    key, limit = state.get("selected"), state.get("limit")
    return Chosen(
        key if isinstance(key, str) else None,
        limit if isinstance(limit, int) and limit > 0 else PAGE_ROWS,
    )


def waterfall(name: str, view: TraceView, now: Chosen, detail: Attributes) -> None:
    """Draw a trace.

    Args:
        name: unique on the page.
        view: the trace.
        now: from :func:`chosen`.
        detail: the attributes of the chosen row.
    """
    data = payload(view, now, detail)
    _MOUNT(key=name, data=data, on_selected_change=lambda: None, on_limit_change=lambda: None)


def payload(view: TraceView, now: Chosen, detail: Attributes) -> dict[str, Any]:
    """What the script draws; every value is text, a ratio of the axis or a key of ``stages``."""
    rows = view.rows[: now.limit]
    wall = max(view.wall_ns, 1)
    extent = min(
        max([wall, view.extended_ns, *(row.end_ns for row in rows)]), int(wall * MAX_OVERHANG)
    )
    stages = {row.stage for row in view.rows} | {share.stage for share in view.stages}
    return {
        "trace_id": view.trace_id,
        # A cheap fingerprint: the script redraws the rows only when they changed.
        "version": zlib.crc32(repr((view.trace_id, rows, view.stages)).encode()),
        "stages": {stage: look(stage)._asdict() for stage in sorted(stages)},
        "strip": [
            {
                "stage": share.stage,
                "ratio": share.critical_ns / wall,
                "text": text.duration(share.critical_ns / 1e6),
                "share": text.percent(share.critical_ns / wall),
            }
            for share in view.stages
        ],
        "sum": _sum_line(view),
        "ticks": _ticks(extent),
        "rows": [_row(row, extent, wall) for row in rows],
        "num_more": len(view.rows) - len(rows),
        "page": PAGE_ROWS,
        "selected": now.key,
        "detail": {
            "key": now.key,
            "attributes": detail.pairs,
            "empty": "Nothing is stored about this row.",
        },
    }


def _sum_line(view: TraceView) -> str:
    total = sum(share.critical_ns for share in view.stages) / 1e6
    return f"stages sum to {total:,.3f} ms = wall time {view.wall_ns / 1e6:,.3f} ms"


def _row(row: SpanRow, extent: int, wall: int) -> dict[str, Any]:
    time = text.duration((row.end_ns - row.start_ns) / 1e6)
    critical = text.duration(row.critical_ns / 1e6) if row.critical_ns else ""
    share = f"{critical} ({text.percent(row.critical_ns / wall)})" if critical else "off the path"
    facts = [
        ("time", time),
        ("starts at", f"+{text.duration(row.start_ns / 1e6)}"),
        ("on the critical path", share),
    ]
    if row.service and not row.is_phase:
        facts.append(("service", row.service))
    return {
        "key": row.key,
        "name": look(row.stage).label if row.is_phase else row.name,
        "depth": row.depth,
        "num_below": row.num_below,
        "stage": row.stage,
        "duration": time,
        "critical": critical,
        "parts": _placed(row.stretches, extent),
        "path": _placed(row.path, extent),
        "is_on_path": row.is_on_path,
        "is_call": row.is_call,
        "is_error": row.is_error,
        "facts": facts,
    }


def _placed(stretches: tuple[Stretch, ...], extent: int) -> list[tuple[float, float, str]]:
    """Stretches as (left, width, stage), cut to the axis."""
    placed = []
    for start, end, stage in stretches:
        left = min(max(start / extent, 0.0), 1.0)
        width = min(max(end / extent, 0.0), 1.0) - left
        placed.append((round(left, 6), round(width, 6), stage))
    return placed


def _ticks(extent_ns: int) -> list[dict[str, Any]]:
    """About six round marks on the axis, in seconds."""
    extent_s = extent_ns / 1e9
    rough = extent_s / 6
    power = 10.0 ** floor(log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough)
    decimals = max(0, -floor(log10(step)))
    return [
        {
            "ratio": round(index * step / extent_s, 6),
            "step": round(step / extent_s, 6),
            "text": f"{index * step:.{decimals}f} s",
        }
        # The last mark would be cut off at the edge.
        for index in range(int(0.97 * extent_s / step) + 1)
    ]
