"""A matrix as one page of HTML that needs nothing else: charts of each work, and all cells."""

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any, Final

from longpole_engine.load.matrix import LATENCIES, Panel, label, middle, panels

_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP, _RIGHT = 360, 240, 52, 36, 12, 14
_STYLE: Final = """
:root{color-scheme:light dark;--ink:#1b1f24;--soft:#667085;--line:#d0d5dd;--best:#0b6e4f;
--back:#fff}
@media(prefers-color-scheme:dark){:root{--ink:#e6e8eb;--soft:#98a2b3;--line:#3a4150;--best:#4fd1a5;
--back:#14171c}}
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--back);margin:2rem auto;
max-width:76rem;padding:0 1rem}
h1{font-size:1.5rem}h2{font-size:1.1rem;margin:1.6rem 0 .4rem}p,small,figcaption{color:var(--soft)}
.charts{display:flex;flex-wrap:wrap;gap:1rem}figure{margin:0}
svg text{fill:var(--soft);font-size:11px}
table{border-collapse:collapse;font-variant-numeric:tabular-nums;width:100%}
td,th{padding:.25rem .6rem;border-bottom:1px solid var(--line);text-align:right;white-space:nowrap}
td:first-child,th:first-child{text-align:left}
tr.best td:first-child{color:var(--best);font-weight:600}
.scroll{overflow-x:auto}
"""
_COLUMNS: Final = (
    "cell", "TTFT ms", "TPOT ms", "whole ms", "tokens/s", "requests/s", "cached", "failed",
    "start s",
)  # fmt: skip


def page(document: Mapping[str, Any]) -> str:
    """The page; whatever the document holds, it has no script."""
    found = {name: panels(document, name) for name in LATENCIES}
    model, num = escape(str(document["model"])), len(document["cells"])
    parts = [
        f"<!doctype html><html lang=en><head><meta charset=utf-8><title>Matrix of {model}</title>"
        f"<meta name=viewport content='width=device-width,initial-scale=1'><style>{_STYLE}</style>"
        f"</head><body><h1>Matrix of {model}</h1>"
        f"<p>{num} cells of {int(document['requests'])} requests each, closed loop. "
        f"{escape(_machine(document['machine']))}. "
        "Right and low is good: many tokens a second, little latency. Filled: no other cell of the "
        "same work has less latency and more tokens a second. Latency is the median, the mean "
        "where there are under 20 requests.</p>"
    ]
    for first in found["ttft_ms"]:
        work = first[:3]
        parts.append(
            f"<h2>{first.input_tokens:,} tokens in, {first.output_tokens:,} out, "
            f"{escape(first.language)}</h2><div class=charts>"
        )
        for name, title in LATENCIES.items():
            parts += [_chart(panel, title) for panel in found[name] if panel[:3] == work]
        parts.append(f"</div>{_table(first)}")
    return "".join([*parts, "</body></html>"])


def _machine(facts: Mapping[str, Any]) -> str:
    return f"{facts.get('num_cores', '?')} cores, {facts.get('system', 'unknown system')}"


def _chart(panel: Panel, title: str) -> str:
    most_x = max(point.tokens_per_s for point in panel.points) or 1.0
    most_y = max(point.latency_ms for point in panel.points) or 1.0

    def at(rate: float, took_ms: float) -> tuple[float, float]:
        x = _LEFT + rate / (most_x * 1.06) * (_WIDTH - _LEFT - _RIGHT)
        y = _HEIGHT - _BOTTOM - took_ms / (most_y * 1.1) * (_HEIGHT - _BOTTOM - _TOP)
        return round(x, 1), round(y, 1)

    best = sorted(
        at(point.tokens_per_s, point.latency_ms) for point in panel.points if point.is_best
    )
    line = " ".join(f"{x},{y}" for x, y in best)
    marks = "".join(_mark(at(p.tokens_per_s, p.latency_ms), p) for p in panel.points)
    return (
        f"<figure><svg role=img aria-label='{escape(title)} against tokens a second' "
        f"width={_WIDTH} height={_HEIGHT} viewBox='0 0 {_WIDTH} {_HEIGHT}'>"
        f"{''.join(_grid(most_x, most_y, at))}"
        f"<polyline points='{line}' fill=none stroke='var(--best)' stroke-width=1.4 />{marks}"
        f"</svg><figcaption>{escape(title)}, ms, against output tokens a second</figcaption>"
        "</figure>"
    )


def _mark(place: tuple[float, float], point: Any) -> str:
    words = f"{label(point.row)}: {point.latency_ms:,.1f} ms, {point.tokens_per_s:,.1f} tokens/s"
    fill = "var(--best)" if point.is_best else "var(--back)"
    return (
        f"<circle cx={place[0]} cy={place[1]} r=4.5 fill='{fill}' stroke='var(--best)'>"
        f"<title>{escape(words)}</title></circle>"
    )


def _grid(most_x: float, most_y: float, at: Any) -> Iterator[str]:
    left, bottom = at(0, 0)
    for share in (0, 0.5, 1):
        x, y = at(most_x * share, most_y * share)
        yield f"<line x1={left} x2={_WIDTH - _RIGHT} y1={y} y2={y} stroke='var(--line)' />"
        yield f"<text x={left - 6} y={y + 4} text-anchor=end>{_number(most_y * share)}</text>"
        yield f"<text x={x} y={bottom + 18} text-anchor=middle>{_number(most_x * share)}</text>"


def _table(panel: Panel) -> str:
    head = "".join(f"<th>{name}</th>" for name in _COLUMNS)
    rows = "".join(map(_row, sorted(panel.points, key=lambda point: point.latency_ms)))
    return f"<div class=scroll><table><tr>{head}</tr>{rows}</table></div>"


def _row(point: Any) -> str:
    result = point.row["result"]
    share = result.get("cached_share")
    values: Sequence[str] = (
        *(_number(middle(result.get(name))) for name in LATENCIES),
        _number(point.tokens_per_s),
        _number(result.get("requests_per_s")),
        "" if share is None else f"{share:.0%}",
        str(sum(result.get("failures", {}).values()) or ""),
        "" if point.row.get("start_s") is None else _number(point.row["start_s"]),
    )
    cells = "".join(f"<td>{escape(value)}</td>" for value in values)
    kind = " class=best" if point.is_best else ""
    return f"<tr{kind}><td>{escape(label(point.row))}</td>{cells}</tr>"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,.3g}" if abs(value) < 1_000 else f"{value:,.0f}"
