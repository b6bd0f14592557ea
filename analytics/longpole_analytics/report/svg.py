"""The drawings of a report as inline SVG: stacked bars and a waterfall, by the stages' colours.

Text is escaped here and nowhere left to the caller; nothing is fetched, nothing runs.
"""

from typing import Final

from longpole.vocab import STAGE_COLOURS, Stage
from longpole_analytics.report.base import Bars, Lane, Waterfall
from longpole_analytics.report.escaping import escaped
from longpole_analytics.wording import milliseconds

WIDTH: Final = 960
LABEL: Final = 220
ROW: Final = 22
MAX_LABEL: Final = 34
_HATCH: Final = Stage.TTFT_OPAQUE.value
_LEAST: Final = 0.3
"""Narrower parts cannot be seen, and are left out of the drawing, not of the numbers."""


def bars(found: Bars) -> str:
    """Stacked bars on one scale, a bar a line."""
    most = max((sum(ms for _, ms in bar.parts) for bar in found.bars), default=0.0)
    room = WIDTH - LABEL - 90
    lines = []
    for number, bar in enumerate(found.bars):
        y, x = number * (ROW + 4), float(LABEL)
        whole = sum(ms for _, ms in bar.parts)
        lines.append(_text(bar.label, LABEL - 8, y + 15, "end"))
        for stage, ms in bar.parts:
            width = room * ms / most if most else 0.0
            if width >= _LEAST:
                title = f"{stage} {milliseconds(ms)}"
                lines.append(_box(x, y, width, ROW, stage, title))
            x += width
        lines.append(_text(milliseconds(whole), x + 6, y + 15))
    return _svg(len(found.bars) * (ROW + 4), lines, found.caption)


def waterfall(found: Waterfall) -> str:
    """The spans of a trace; what was waited for is outlined, the rest is pale."""
    room = WIDTH - LABEL - 90
    scale = room / found.wall_ms if found.wall_ms > 0 else 0.0
    lines = []
    for number, lane in enumerate(found.lanes):
        y = number * ROW
        lines.append(_text(_indented(lane), 0, y + 15))
        start, end = (min(max(at, 0.0), found.wall_ms) for at in (lane.start_ms, lane.end_ms))
        title = f"{lane.label} {milliseconds(lane.end_ms - lane.start_ms)}"
        width = max((end - start) * scale, 1.0)
        left = LABEL + start * scale
        lines.append(_box(left, y + 3, width, ROW - 6, lane.stage or "other", title, "pale"))
        for stage, begin, stop in lane.critical:
            width = max((stop - begin) * scale, 1.0)
            left = LABEL + begin * scale
            named = f"{stage} {milliseconds(stop - begin)}"
            lines.append(_box(left, y + 3, width, ROW - 6, stage, named, "path"))
        length = milliseconds(lane.end_ms - lane.start_ms)
        lines.append(_text(length, LABEL + end * scale + 6, y + 15))
    return _svg(len(found.lanes) * ROW, lines, found.caption)


def legend(stages: list[str]) -> str:
    """The colours of some stages, in HTML."""
    return "".join(
        f'<span class="key"><svg width="12" height="12" aria-hidden="true">'
        f"{_box(0, 0, 12, 12, stage, stage)}</svg>{escaped(stage)}</span>"
        for stage in stages
    )


PATTERN: Final = (
    '<svg width="0" height="0" aria-hidden="true"><defs><pattern id="opaque" width="6" height="6" '
    'patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect width="6" height="6" '
    f'fill="{STAGE_COLOURS[Stage.TTFT_OPAQUE]}"/><path d="M0 0V6" stroke="#fff" stroke-width="2"/>'
    "</pattern></defs></svg>"
)
"""What hatched parts are filled with; once a page."""


def _box(
    x: float, y: float, width: float, height: float, stage: str, title: str, kind: str = ""
) -> str:
    colours = {each.value: colour for each, colour in STAGE_COLOURS.items()}
    fill = "url(#opaque)" if stage == _HATCH else colours.get(stage, colours["other"])
    named = f' class="{kind}"' if kind else ""
    return (
        f'<rect{named} x="{x:.1f}" y="{y:g}" width="{width:.1f}" height="{height:g}" '
        f'fill="{fill}"><title>{escaped(title)}</title></rect>'
    )


def _text(text: str, x: float, y: float, anchor: str = "start") -> str:
    short = text if len(text) <= MAX_LABEL else text[: MAX_LABEL - 1] + "…"
    more = f' text-anchor="{anchor}"' if anchor != "start" else ""
    return f'<text x="{x:.1f}" y="{y:g}"{more}>{escaped(short)}</text>'


def _indented(lane: Lane) -> str:
    return " " * (2 * min(lane.depth, 8)) + lane.label


def _svg(height: float, lines: list[str], caption: str) -> str:
    return (
        f'<svg class="chart" viewBox="0 0 {WIDTH} {height:g}" role="img" '
        f'aria-label="{escaped(caption)}">{"".join(lines)}</svg>'
    )
