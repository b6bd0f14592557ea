"""What a report is made of, and what a section of it is.

A section says what it has to say as a part of the document, and shows such a part as pieces: the
forms know pieces alone, so all of them show the same.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import polars as pl

from longpole_analytics.budgets import Budget
from longpole_analytics.report.blame import Blame
from longpole_analytics.report.weeks import Window
from longpole_analytics.slo.check import Standing
from longpole_analytics.top import Slow, Top

Part = dict[str, Any]


class Earlier(NamedTuple):
    """A window before that of the report; ``top`` is ``None`` where nothing is kept of it."""

    window: Window
    top: Top | None


@dataclass(frozen=True)
class Inputs:
    """All that a report is made from.

    Attributes:
        project: the project's name.
        window: the time of the report.
        source: the options that name the data to a command, as ``--db .longpole``.
        config: the file of promises, if one was named.
        where: the condition that requests meet; ``None`` is all.
        metric: how slow a request is.
        slow: what is slow.
        requests: those of the window, a table of :mod:`longpole_analytics.requests`.
        before: those of the window before; ``None`` where nothing is kept of it.
        top: the causes of the window.
        blame: the slow requests behind each cause.
        earlier: the windows before, the latest first.
        standings: where objectives stand at the end of the window.
        standings_before: likewise at its begin; empty where nothing is kept.
        about: by objective, the window's requests that it is about.
        broken: by objective that cannot be asked, why.
        budgets: what stages may take, for their owners.
        cache: the parts of the document ``longpole.cache/1`` that are told.
        calls: the window's rows of the view ``calls``.
        example: one slow trace: ``explain`` as a document, and its ``spans``.
        kept_since_ns: when the oldest request that is kept began; ``None`` of none.
        num_incomplete: traces of the window that are not complete, and left out.
        dashboard: the address that links begin with; ``None`` makes no links.
    """

    project: str
    window: Window
    source: str
    config: str | None
    where: str | None
    metric: str
    slow: Slow
    requests: pl.DataFrame
    before: pl.DataFrame | None
    top: Top
    blame: Blame
    earlier: tuple[Earlier, ...]
    standings: tuple[Standing, ...]
    standings_before: tuple[Standing, ...]
    about: dict[str, pl.DataFrame]
    broken: dict[str, str]
    budgets: tuple[Budget, ...]
    cache: Part | None
    calls: pl.DataFrame
    example: Part | None
    kept_since_ns: int | None
    num_incomplete: int
    dashboard: str | None


@dataclass(frozen=True)
class Section:
    """A member of the family of sections.

    Attributes:
        order: its place.
        title: its heading.
        build: its part of the document, from the inputs and the parts of the sections after it;
            ``None`` where there is nothing to say.
        show: the pieces that show such a part.
        command: the command that tells the same, from the inputs; empty if there is none.
    """

    order: int
    title: str
    build: Callable[[Inputs, Mapping[str, Part]], Part | None]
    show: Callable[[Part], "list[Piece]"]
    command: Callable[[Inputs], str]


# --- pieces -------------------------------------------------------------------------------------
class Text(NamedTuple):
    """A paragraph."""

    text: str


class Listed(NamedTuple):
    """A list of sentences, numbered."""

    lines: tuple[str, ...]


class Cell(NamedTuple):
    """A cell that is more than its text."""

    text: str
    url: str | None = None


class Rows(NamedTuple):
    """A table; the columns of numbers, by their place, stand to the right."""

    heads: tuple[str, ...]
    rows: tuple[tuple[str | Cell, ...], ...]
    numbers: frozenset[int] = frozenset()
    caption: str = ""


class Bar(NamedTuple):
    """One stacked bar: milliseconds by stage."""

    label: str
    parts: tuple[tuple[str, float], ...]


class Bars(NamedTuple):
    """Stacked bars on one scale."""

    caption: str
    bars: tuple[Bar, ...]


class Lane(NamedTuple):
    """One span of a waterfall; ``critical`` is what of it was waited for: stage, start, end."""

    label: str
    depth: int
    stage: str | None
    start_ms: float
    end_ms: float
    critical: tuple[tuple[str, float, float], ...]


class Waterfall(NamedTuple):
    """The spans of a trace over its time."""

    caption: str
    wall_ms: float
    lanes: tuple[Lane, ...]


Piece = Text | Listed | Rows | Bars | Waterfall
