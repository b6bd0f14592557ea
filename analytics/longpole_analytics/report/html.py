"""A report as one HTML file: no script, nothing fetched, light and dark, printable.

Made from the document alone. The page forbids itself everything but its own styles.
"""

from collections.abc import Mapping
from typing import Any, Final

from longpole_analytics.report import svg
from longpole_analytics.report.base import Bars, Cell, Listed, Piece, Rows, Text, Waterfall
from longpole_analytics.report.build import sections
from longpole_analytics.report.escaping import escaped
from longpole_analytics.report.style import STYLE

MAX_BYTES: Final = 500_000
MAX_ROWS: Final = 60
_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"


def page(document: Mapping[str, Any]) -> str:
    """The whole page of a report's document."""
    window = document["window"]
    parts = [f"<h1>{escaped(document['title'])}</h1>"]
    num = f"{window['num_traces']:,}".replace(",", " ")
    parts.append(f'<p class="quiet">{escaped(window["text"])}; {num} requests</p>')
    for section in document["sections"]:
        pieces = sections()[section["name"]].show(document[section["name"]])
        body = "".join(_piece(piece) for piece in pieces)
        told = f"<pre>{escaped(section['command'])}</pre>" if section["command"] else ""
        name = escaped(section["name"])
        parts.append(
            f'<section id="{name}"><h2>{escaped(section["title"])}</h2>{body}{told}</section>'
        )
    title = escaped(document["title"])
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="referrer" content="no-referrer">'
        f"<title>{title}</title><style>{STYLE}</style></head><body>{svg.PATTERN}<main>"
        + "\n".join(parts)
        + "</main></body></html>\n"
    )


def _piece(piece: Piece) -> str:
    match piece:
        case Text():
            return f"<p>{escaped(piece.text)}</p>"
        case Listed():
            return "<ol>" + "".join(f"<li>{escaped(line)}</li>" for line in piece.lines) + "</ol>"
        case Rows():
            return _table(piece)
        case Bars():
            stages = dict.fromkeys(stage for bar in piece.bars for stage, _ in bar.parts)
            return _figure(piece.caption, svg.bars(piece), list(stages))
        case Waterfall():
            stages = dict.fromkeys(part[0] for lane in piece.lanes for part in lane.critical)
            return _figure(piece.caption, svg.waterfall(piece), list(stages))


def _figure(caption: str, drawing: str, stages: list[str]) -> str:
    return (
        f"<figure><figcaption>{escaped(caption)}</figcaption>{drawing}"
        f'<div class="keys">{svg.legend(stages)}</div></figure>'
    )


def _table(table: Rows) -> str:
    caption = f"<caption>{escaped(table.caption)}</caption>" if table.caption else ""
    rows = "".join(_row(row, table.numbers, "td") for row in table.rows[:MAX_ROWS])
    more = len(table.rows) - MAX_ROWS
    left = f'<p class="quiet">and {more} more: see report.json</p>' if more > 0 else ""
    head = _row(table.heads, table.numbers, "th")
    return (
        f'<div class="wide"><table>{caption}<thead>{head}</thead><tbody>{rows}</tbody></table>'
        f"</div>{left}"
    )


def _row(cells: tuple[str | Cell, ...], numbers: frozenset[int], tag: str) -> str:
    made = [
        f"<{tag}{' class=n' if place in numbers else ''}>{_cell(cell)}</{tag}>"
        for place, cell in enumerate(cells)
    ]
    return f"<tr>{''.join(made)}</tr>"


def _cell(cell: str | Cell) -> str:
    if isinstance(cell, str):
        return escaped(cell)
    if cell.url is None or not cell.url.startswith(("http://", "https://")):
        return f"<code>{escaped(cell.text)}</code>"
    return f'<a href="{escaped(cell.url)}"><code>{escaped(cell.text)}</code></a>'
