"""A table with real links, stage chips and aligned numbers; a click on a row opens it.

Streamlit's own grid draws on a canvas: no links, no chips, and its CSV export passes formulas on.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import streamlit as st

_HERE = Path(__file__).parent

_MOUNT = st.components.v2.component(
    "longpole_table",
    html='<div class="table"></div>',
    css=(_HERE / "table.css").read_text(encoding="utf-8"),
    js=(_HERE / "table.js").read_text(encoding="utf-8"),
)


class Cell(NamedTuple):
    """One cell: its text, a muted second text, a chip's colour, and how full a bar behind it is.

    ``bar_ratio`` is 0..1 of the column's width; ``None`` draws no bar. ``line`` are the points of
    a small line beside the text, from 0 up; ``None`` is a gap in it.
    """

    text: str
    muted: str = ""
    colour: str | None = None
    is_hatched: bool = False
    bar_ratio: float | None = None
    line: Sequence[float | None] = ()


_PLAIN: Final = Cell("")


class Row(NamedTuple):
    """One row; with ``key`` and ``href`` its first cell is a link and a click opens it."""

    cells: Sequence[Cell]
    key: str | None = None
    href: str | None = None


class Column(NamedTuple):
    """A column's title and whether it holds numbers (aligned right)."""

    title: str
    is_number: bool = False


def table(name: str, columns: Sequence[Column], rows: Sequence[Row]) -> str | None:
    """Draw a table; returns the key of the row that was just opened, else ``None``.

    Args:
        name: unique on the page; also the table's accessible name.
        columns: in order.
        rows: in order; shown as given.
    """
    data = {
        "label": name,
        "columns": [column._asdict() for column in columns],
        "rows": [{**row._asdict(), "cells": [_told(cell) for cell in row.cells]} for row in rows],
    }
    opened = _MOUNT(key=name, data=data, on_opened_change=lambda: None).opened
    return opened if isinstance(opened, str) else None


def _told(cell: Cell) -> dict[str, Any]:
    """A cell without what is as in any other; it is half of what a table sends."""
    return {
        name: value
        for name, value, usual in zip(Cell._fields, cell, _PLAIN, strict=True)
        if value != usual
    }
