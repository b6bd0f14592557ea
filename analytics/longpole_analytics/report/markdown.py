"""A report as GitHub Markdown, made from the document alone; no name can leave its cell."""

from collections.abc import Mapping
from typing import Any, Final

from longpole_analytics.report.base import Bars, Cell, Listed, Piece, Rows, Text, Waterfall
from longpole_analytics.report.build import sections
from longpole_analytics.report.escaping import marked
from longpole_analytics.wording import milliseconds, printable

MAX_ROWS: Final = 40


def text(document: Mapping[str, Any]) -> str:
    """The whole report of a document."""
    window = document["window"]
    parts = [
        f"# {marked(document['title'])}",
        f"{marked(window['text'])}; {window['num_traces']} requests",
    ]
    for section in document["sections"]:
        parts.append(f"## {marked(section['title'])}")
        for piece in sections()[section["name"]].show(document[section["name"]]):
            parts += _piece(piece)
        if section["command"]:
            parts.append(_fenced(section["command"]))
    return "\n\n".join(parts) + "\n"


def _piece(piece: Piece) -> list[str]:
    match piece:
        case Text():
            return [marked(piece.text)]
        case Listed():
            return ["\n".join(f"{n}. {marked(line)}" for n, line in enumerate(piece.lines, 1))]
        case Rows():
            caption = [f"*{marked(piece.caption)}*"] if piece.caption else []
            return [*caption, _table(piece)]
        case Bars():
            stages = list(dict.fromkeys(stage for bar in piece.bars for stage, _ in bar.parts))
            rows = tuple(
                (bar.label, *(_ms(dict(bar.parts).get(stage)) for stage in stages))
                for bar in piece.bars
            )
            numbers = frozenset(range(1, len(stages) + 1))
            return [f"*{marked(piece.caption)}*", _table(Rows(("", *stages), rows, numbers))]
        case Waterfall():
            lanes = tuple(
                (
                    "· " * min(lane.depth, 8) + lane.label,
                    lane.stage or "",
                    _ms(lane.start_ms),
                    _ms(lane.end_ms - lane.start_ms),
                    _ms(sum(end - start for _, start, end in lane.critical)),
                )
                for lane in piece.lanes
            )
            heads = ("span", "stage", "starts", "takes", "waited for")
            return [f"*{marked(piece.caption)}*", _table(Rows(heads, lanes, frozenset((2, 3, 4))))]


def _ms(value: float | None) -> str:
    return "-" if value is None else milliseconds(value)


def _table(table: Rows) -> str:
    rule = ["---:" if place in table.numbers else "---" for place in range(len(table.heads))]
    lines = [_line(table.heads), f"| {' | '.join(rule)} |"]
    lines += [_line(row) for row in table.rows[:MAX_ROWS]]
    more = len(table.rows) - MAX_ROWS
    return "\n".join(lines) + (f"\n\nand {more} more: see report.json" if more > 0 else "")


def _line(cells: tuple[str | Cell, ...]) -> str:
    return f"| {' | '.join(_cell(cell) for cell in cells)} |"


def _cell(cell: str | Cell) -> str:
    if isinstance(cell, str):
        return marked(cell)
    if cell.url is None or not cell.url.startswith(("http://", "https://")):
        return f"`{cell.text}`" if cell.text.isalnum() else marked(cell.text)
    safe = cell.url.replace("(", "%28").replace(")", "%29").replace("|", "%7C").replace(" ", "%20")
    return f"[{marked(cell.text)}]({safe})"


def _fenced(command: str) -> str:
    """A command as code; its fence is longer than any run of ticks in it."""
    plain = printable(command)
    ticks = max((len(run) for run in plain.split() if set(run) == {"`"}), default=0)
    longest = max((plain.count("`" * n) and n for n in range(1, 9)), default=0)
    fence = "`" * (max(3, ticks, longest) + 1)
    return f"{fence}sh\n{plain}\n{fence}"
