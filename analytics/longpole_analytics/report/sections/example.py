"""One trace explained: the slow request in the middle of the first cause."""

from collections.abc import Mapping

from longpole_analytics.report.base import (
    Inputs,
    Lane,
    Part,
    Piece,
    Rows,
    Section,
    Text,
    Waterfall,
)
from longpole_analytics.report.sections._words import ms, share


def _build(inputs: Inputs, _: Mapping[str, Part]) -> Part | None:
    return inputs.example


def _show(part: Part) -> list[Piece]:
    lanes = tuple(
        Lane(
            span["name"],
            span["depth"],
            span["stage"],
            span["start_ms"],
            span["end_ms"],
            tuple((each["stage"], each["start_ms"], each["end_ms"]) for each in span["critical"]),
        )
        for span in part["spans"]
    )
    caption = f"trace {part['trace_id']}: {ms(part['wall_ms'])}, long pole {part['long_pole']}"
    pieces: list[Piece] = [Waterfall(caption, part["wall_ms"], lanes)]
    if part["num_spans_left_out"]:
        pieces.append(Text(f"{part['num_spans_left_out']} more spans are left out."))
    rows = tuple(
        (each["stage"], ms(each["critical_ms"]), share(each["share"]), ms(each["total_ms"]))
        for each in part["stages"]
        if each["critical_ms"]
    )
    heads = ("stage", "waited for", "share", "of all spans")
    pieces.append(Rows(heads, rows, frozenset((1, 2, 3))))
    shape = part["shape"]
    if shape is not None and shape["name"]:
        check = f": {shape['next_check']}" if shape["next_check"] else ""
        pieces.append(Text(f"Shape {shape['name']}{check}."))
    return pieces


def _command(inputs: Inputs) -> str:
    if inputs.example is None:
        return ""
    return f"longpole explain {inputs.example['trace_id']} {inputs.source}".strip()


SECTION = Section(5, "One trace explained", _build, _show, _command)
