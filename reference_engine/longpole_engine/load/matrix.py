"""A matrix of runs: its cells, its document, and which cells no other beats. Pure but for a file.

The document is written again after each cell, so a run that was ended goes on where it was.
"""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import product
from pathlib import Path
from typing import Any, Final, NamedTuple

from longpole.errors import BadInput, UsageError

SCHEMA: Final = "longpole.matrix/1"
CACHES: Final = ("off", "miss", "hit")
"""No prefix cache; one in which no prompt finds its like; one that holds most of every prompt."""
STARTS: Final = ("warm", "cold")
"""After requests of the same kind; or right after the engine's start."""
LATENCIES: Final = {"ttft_ms": "TTFT", "tpot_ms": "TPOT", "e2e_ms": "whole answer"}
THROUGHPUT: Final = "output_tokens_per_s"


@dataclass(frozen=True)
class Axes:
    """What is varied: cells are all combinations.

    ``settings`` are values of keys of ``[engine]``, the scheduler's ``policy`` among them.
    """

    input_tokens: tuple[int, ...] = (64, 256)
    output_tokens: tuple[int, ...] = (16, 64)
    concurrency: tuple[int, ...] = (1, 4)
    cache: tuple[str, ...] = CACHES
    start: tuple[str, ...] = ("warm",)
    language: tuple[str, ...] = ("en",)
    settings: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: {"policy": ("fcfs",)})

    def __post_init__(self) -> None:
        for name, known in (("cache", CACHES), ("start", STARTS)):
            if unknown := set(getattr(self, name)) - set(known):
                raise UsageError(f"{name} is one of {', '.join(known)}, not '{min(unknown)}'")
        if min(*self.input_tokens, *self.output_tokens, *self.concurrency, 1) < 1:
            raise UsageError("lengths and concurrency are 1 or more")


@dataclass(frozen=True)
class Cell:
    """One combination."""

    input_tokens: int
    output_tokens: int
    concurrency: int
    cache: str
    start: str
    language: str
    settings: Mapping[str, str]

    @property
    def key(self) -> str:
        """Its name in the document."""
        facts = {**asdict(self), **self.settings}
        del facts["settings"]
        return " ".join(f"{name}={value}" for name, value in facts.items())


@dataclass(frozen=True)
class Basis:
    """What all cells have in common; cells of different bases are not comparable.

    ``spread`` is how far lengths of prompts differ from the cell's, as a share of it.
    """

    model: str = "smollm2"
    requests: int = 24
    spread: float = 0.0
    seed: int = 0


def cells(axes: Axes) -> list[Cell]:
    """All combinations, those that one engine can serve next to each other."""
    found = [
        Cell(*sizes, cache, start, language, dict(zip(axes.settings, values, strict=True)))
        for values in product(*axes.settings.values())
        for cache in axes.cache
        for start in axes.start
        for language in axes.language
        for sizes in product(axes.input_tokens, axes.output_tokens, axes.concurrency)
    ]
    return sorted(found, key=lambda cell: (str(cell.settings), cell.cache == "off", cell.start))


def empty(basis: Basis, machine: Mapping[str, Any]) -> dict[str, Any]:
    """A document without cells."""
    return {"schema": SCHEMA, **asdict(basis), "machine": dict(machine), "cells": []}


def read(path: Path) -> dict[str, Any] | None:
    """A document from a file; ``None`` if there is no file.

    Raises:
        BadInput: it is no such document.
    """
    try:
        found = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise BadInput(f"{path}: {error}") from error
    is_ours = isinstance(found, dict) and found.get("schema") == SCHEMA
    rows = found.get("cells") if is_ours else None
    if not isinstance(rows, list) or not all(_is_row(row) for row in rows):
        raise BadInput(f"{path} is no matrix ({SCHEMA})")
    assert isinstance(found, dict)  # noqa: S101 - seen above
    return found


def _is_row(row: Any) -> bool:
    return (
        isinstance(row, dict)
        and isinstance(row.get("key"), str)
        and isinstance(row.get("cell"), dict)
        and isinstance(row.get("result"), dict)
    )


def write(path: Path, document: Mapping[str, Any]) -> None:
    """Put it in the file's place as a whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    part.write_text(json.dumps(document, indent=1), "utf-8")
    os.replace(part, path)


def resumed(
    path: Path, basis: Basis, machine: Mapping[str, Any], wanted: Sequence[Cell]
) -> tuple[dict[str, Any], list[Cell]]:
    """The document of a file, or an empty one, and the cells that it lacks.

    Raises:
        BadInput: the file is no matrix.
        UsageError: it is one of another basis.
    """
    found = read(path)
    if found is None:
        return empty(basis, machine), list(wanted)
    other = [name for name, value in asdict(basis).items() if found.get(name) != value]
    if other:
        has = ", ".join(f"{name} {found.get(name)}" for name in other)
        raise UsageError(f"{path} has other runs ({has}): name another --out, or delete it")
    known = {row["key"] for row in found["cells"]}
    return found, [cell for cell in wanted if cell.key not in known]


class Point(NamedTuple):
    """A cell as a point: less latency and more throughput are better."""

    row: Mapping[str, Any]
    latency_ms: float
    tokens_per_s: float
    is_best: bool
    """No other cell of its lengths and language has both."""


class Panel(NamedTuple):
    """The cells that do the same work: equal lengths and language."""

    input_tokens: int
    output_tokens: int
    language: str
    points: tuple[Point, ...]


def panels(document: Mapping[str, Any], latency: str = "ttft_ms") -> list[Panel]:
    """Cells with both measures by what they do; a cell without answers has no point.

    Args:
        document: of a matrix.
        latency: a key of :data:`LATENCIES`.
    """
    groups: dict[tuple[int, int, str], list[tuple[Mapping[str, Any], float, float]]] = {}
    for row in document["cells"]:
        cell, result = row["cell"], row["result"]
        took, rate = middle(result.get(latency)), result.get(THROUGHPUT)
        if took is None or rate is None:
            continue
        work = (cell["input_tokens"], cell["output_tokens"], cell.get("language", "en"))
        groups.setdefault(work, []).append((row, took, rate))
    return [Panel(*work, tuple(_points(rows))) for work, rows in sorted(groups.items())]


def _points(rows: Sequence[tuple[Mapping[str, Any], float, float]]) -> Iterator[Point]:
    for (row, took, rate), best in zip(
        rows, frontier([(took, rate) for _, took, rate in rows]), strict=True
    ):
        yield Point(row, took, rate, best)


def middle(values: Mapping[str, float | None] | None) -> float | None:
    """The median, or the mean where there are too few for one."""
    if not values:
        return None
    return values["mean"] if values["p50"] is None else values["p50"]


def frontier(points: Sequence[tuple[float, float]]) -> list[bool]:
    """Which points no other beats, by less latency or more throughput and no loss in the other.

    Args:
        points: latency and throughput; the flags come in their order.
    """
    order = sorted(range(len(points)), key=lambda at: (points[at][0], -points[at][1]))
    found = [False] * len(points)
    best: tuple[float, float] | None = None
    for at in order:
        if best is None or points[at][1] > best[1] or points[at] == best:
            found[at], best = True, points[at]
    return found


def label(row: Mapping[str, Any]) -> str:
    """What a cell differs in from others of its panel, in words."""
    cell = row["cell"]
    words = [f"{cell['concurrency']} at once", f"cache {cell['cache']}"]
    if cell.get("start") == "cold":
        words.append("cold")
    return ", ".join([*words, *(f"{key} {value}" for key, value in cell["settings"].items())])
