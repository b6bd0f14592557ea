"""Each stage of a trace against its route, with a slider that says what a faster one would save."""

from typing import Any

import streamlit as st

from longpole_dashboard.components.waterfall import joined
from longpole_dashboard.model import text
from longpole_dashboard.model.trace import FASTER_BY, StageShare, TraceView
from longpole_dashboard.model.trace_kin import Kin, StageUsual
from longpole_dashboard.theme import look

_MOUNT = st.components.v2.component(
    "longpole_stages",
    html='<div class="stages"></div>',
    css=joined("common.css", "stages.css"),
    js=joined("common.js", "stages.js"),
)


def stages(name: str, view: TraceView, kin: Kin | None) -> None:
    """Draw the table.

    Args:
        name: unique on the page.
        view: the trace.
        kin: what is usual; ``None`` while the trace has no row among the workflows.
    """
    _MOUNT(key=name, data=payload(view, kin))


def payload(view: TraceView, kin: Kin | None) -> dict[str, Any]:
    """What the script draws; every value is text."""
    usual = {each.stage: each for each in kin.usual} if kin else {}
    on_path = {share.stage for share in view.stages}
    absent = [StageShare(stage, 0, 0, ()) for stage in usual if stage not in on_path]
    return {
        "label": "stages of this workflow against its route",
        "percents": [round(100 * share) for share in FASTER_BY],
        "rows": [
            _row(share, usual.get(share.stage), view.wall_ns) for share in (*view.stages, *absent)
        ],
    }


def _row(share: StageShare, usual: StageUsual | None, wall_ns: int) -> dict[str, Any]:
    ms = share.critical_ns / 1e6
    p50_ms = usual.p50_ms if usual else None
    return {
        **look(share.stage)._asdict(),
        "time": text.duration(ms),
        "share": text.percent(share.critical_ns / wall_ns) if wall_ns else text.UNKNOWN,
        "total": text.duration(share.total_ns / 1e6) if share.total_ns else text.UNKNOWN,
        "usual": text.duration(p50_ms),
        "change": text.UNKNOWN if p50_ms is None else signed(ms - p50_ms),
        "saved": [
            f"{signed(-saved / 1e6)}, then {text.duration((wall_ns - saved) / 1e6)} in all"
            for saved in share.saved_ns
        ],
    }


def signed(ms: float) -> str:
    """A difference of durations with its sign: ``+310 ms``, a true minus below 0, ``0 ms``."""
    sign = "" if ms == 0 else "+" if ms > 0 else "\u2212"
    return f"{sign}{text.duration(abs(ms))}"
