"""When sessions begin: rates, bursts, recordings. Pure but for reading a file."""

import csv
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple

from longpole.errors import UsageError

KINDS: Final = (
    "constant:RATE, poisson:RATE, gamma:RATE:CV2, onoff:RATE:ON_S:OFF_S, closed:CLIENTS, "
    "a CSV, JSON Lines or Parquet file, or a collector's address"
)
_LEAST: Final = 1e-6
_MOST: Final = 1e5
"""Of rates, times and clients: no process sends more, and nobody waits that long."""
_MAX_TOKENS: Final = 1_000_000
_MAX_SPAN_S: Final = 366 * 86_400.0


class Turn(NamedTuple):
    """One request of a session.

    ``wait_s`` passes after the answer before it (0 in the first one); ``blocks`` name equal
    pieces of equal prompts, so that prefixes are shared as they were; without them no other
    session has the same prompt. All but the last have ``block_tokens``; where that is ``None``, all
    are equally long. A length of ``None`` is chosen by the command line.
    """

    wait_s: float = 0.0
    input_tokens: int | None = None
    output_tokens: int | None = None
    blocks: tuple[int, ...] = ()
    block_tokens: int | None = None


class Session(NamedTuple):
    """What one user does: when it begins, seconds after the start of the run, and its turns."""

    due_s: float
    turns: tuple[Turn, ...] = (Turn(),)


class Closed(NamedTuple):
    """Closed loop: so many clients, each of which waits for its answer before it goes on.

    ``turn`` is what the request of a number asks, counted from 1.
    """

    num_clients: int
    turn: Callable[[int], Turn] = lambda number: Turn()


def parse(text: str, seed: int) -> Iterator[Session] | Closed:
    """What ``--arrivals`` says: endless sessions of one request, or a closed loop.

    Raises:
        UsageError: it is none of :data:`KINDS` (files are :func:`recorded`'s).
    """
    kind, *words = text.split(":")
    numbers = [_positive(text, word) for word in words]
    match kind, numbers:
        case "constant", [rate]:
            return _sessions(_every(1 / rate))
        case "poisson", [rate]:
            return _sessions(gamma_gaps(rate, 1.0, seed))
        case "gamma", [rate, cv2]:
            return _sessions(gamma_gaps(rate, cv2, seed))
        case "onoff", [rate, on_s, off_s]:
            return (Session(due_s) for due_s in bursts(rate, on_s, off_s, seed))
        case "closed", [clients] if clients == int(clients):
            return Closed(int(clients))
    raise UsageError(f"--arrivals '{text}' is none of: {KINDS}")


def _positive(text: str, word: str) -> float:
    try:
        number = float(word)
    except ValueError:
        number = 0.0
    if not _LEAST <= number <= _MOST:
        raise UsageError(
            f"--arrivals '{text}': '{word}' is no number from {_LEAST:f} to {_MOST:,.0f}"
        )
    return number


def _sessions(gaps_s: Iterator[float]) -> Iterator[Session]:
    return (Session(due_s) for due_s in accumulate(gaps_s))


def _every(gap_s: float) -> Iterator[float]:
    yield 0.0
    while True:
        yield gap_s


def gamma_gaps(rate: float, cv2: float, seed: int) -> Iterator[float]:
    """Seconds between arrivals whose squared coefficient of variation is ``cv2`` (1: Poisson)."""
    random = Random(seed)  # noqa: S311 - no secret
    while True:
        yield random.gammavariate(1 / cv2, cv2 / rate)


def bursts(rate: float, on_s: float, off_s: float, seed: int) -> Iterator[float]:
    """Times of Poisson arrivals at ``rate``, for ``on_s`` seconds; then none for ``off_s``."""
    for busy_s in accumulate(gamma_gaps(rate, 1.0, seed)):
        yield busy_s + off_s * (busy_s // on_s)


def squared_cv(times_s: Sequence[float]) -> float | None:
    """The squared coefficient of variation of the gaps between times; ``None`` below three."""
    gaps = [after - before for before, after in pairwise(times_s)]
    if len(gaps) < 2 or not (mean := sum(gaps) / len(gaps)):
        return None
    return sum((gap - mean) ** 2 for gap in gaps) / len(gaps) / mean**2


def recorded(path: Path, speed: float = 1.0) -> list[Session]:
    """The sessions of a file, its clock run ``speed`` times as fast.

    Columns: ``t_s`` or ``t_ms`` (required), ``input_tokens``, ``output_tokens``, ``block_ids`` (a
    list, or numbers with blanks between) and ``session`` (rows of one session are its turns; each
    comes so long after the one before as their times say). Where the lengths of all prompts fit
    blocks of one size, as those of a paged cache are, that is their size.

    Raises:
        UsageError: no such file, no rows, no time, a broken number, or times that go back.
    """
    rows = list(_rows(path))
    if not rows:
        raise UsageError(f"{path}: no arrivals in it")
    sessions: dict[object, tuple[float, float, list[Turn]]] = {}
    first_s = last_s = _time_s(path, 1, rows[0])
    for number, row in enumerate(rows, 1):
        at_s = _time_s(path, number, row)
        if at_s < last_s:
            raise UsageError(f"{path}, row {number}: {at_s:g} s after {last_s:g} s: time goes back")
        if (at_s - first_s) / speed > _MAX_SPAN_S:
            raise UsageError(f"{path}, row {number}: more than a year after the first")
        last_s = at_s
        named = row.get("session")
        key = ("row", number) if named in (None, "") else str(named)
        begun_s, before_s, turns = sessions.get(key, (at_s, at_s, []))
        turns.append(_turn(path, number, row, (at_s - before_s) / speed))
        sessions[key] = (begun_s, at_s, turns)
    size = _block_tokens([turn for _, _, turns in sessions.values() for turn in turns])
    return [
        Session(
            (begun_s - first_s) / speed,
            tuple(turn._replace(block_tokens=size) if turn.blocks else turn for turn in turns),
        )
        for begun_s, _, turns in sessions.values()
    ]


def _block_tokens(turns: Sequence[Turn]) -> int | None:
    """The size of blocks of which all but the last are full; ``None`` if they are not so."""
    known = [(turn.input_tokens, len(turn.blocks)) for turn in turns if turn.blocks]
    fits = [(tokens, num) for tokens, num in known if tokens is not None]
    size = max((-(-tokens // num) for tokens, num in fits), default=0)
    is_one = all((num - 1) * size < tokens for tokens, num in fits)
    return size if size and is_one else None


def _turn(path: Path, number: int, row: Mapping[str, Any], wait_s: float) -> Turn:
    blocks = row.get("block_ids") or ()
    if isinstance(blocks, str):
        blocks = blocks.strip("[]").replace(",", " ").split()
    try:
        names = tuple(int(block) for block in blocks)
    except (TypeError, ValueError) as error:
        raise UsageError(f"{path}, row {number}: block_ids '{blocks}' are no numbers") from error
    num_input, num_output = (
        _tokens(path, number, row, name) for name in ("input_tokens", "output_tokens")
    )
    return Turn(wait_s, num_input, num_output, names)


def _tokens(path: Path, number: int, row: Mapping[str, Any], column: str) -> int | None:
    value = row.get(column)
    if value is None or value == "":
        return None
    try:
        found = float(value)
    except (TypeError, ValueError):
        found = math.nan
    if not 0 <= found <= _MAX_TOKENS or found != int(found):
        raise UsageError(
            f"{path}, row {number}: {column} '{value}' is no whole number from 0 to {_MAX_TOKENS:,}"
        )
    return int(found)


def _time_s(path: Path, number: int, row: Mapping[str, Any]) -> float:
    for column, scale in (("t_s", 1.0), ("t_ms", 1e-3)):
        if row.get(column) not in (None, ""):
            try:
                found = float(row[column]) * scale
            except (TypeError, ValueError):
                found = math.nan
            if math.isfinite(found):
                return found
            raise UsageError(f"{path}, row {number}: {column} '{row[column]}' is not a time")
    raise UsageError(f"{path}, row {number}: needs a time in column t_s or t_ms")


def _rows(path: Path) -> Iterable[Mapping[str, Any]]:
    suffix = path.suffix.lower()
    if suffix == ".parquet":
        return _parquet(path)
    if suffix in (".jsonl", ".json"):
        return [row for _, row in objects(path)]
    try:
        return list(csv.DictReader(_text(path).splitlines()))
    except csv.Error as error:
        raise UsageError(f"{path}: {error}") from error


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: {error}") from error


def objects(path: Path) -> list[tuple[int, dict[str, Any]]]:
    """The objects of a JSON Lines file and their lines, from 1; empty lines are none.

    Raises:
        UsageError: no such file, or a line that is no object.
    """
    found = []
    for number, line in enumerate(_text(path).split("\n"), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise UsageError(f"{path}, line {number}: {error}") from error
        if not isinstance(row, dict):
            raise UsageError(f"{path}, line {number}: not a JSON object")
        found.append((number, row))
    return found


def _parquet(path: Path) -> Iterable[Mapping[str, Any]]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ModuleNotFoundError as error:
        raise UsageError(f"{path}: reading Parquet needs pyarrow: pip install pyarrow") from error
    try:
        rows: list[Mapping[str, Any]] = parquet.read_table(path).to_pylist()
    except (OSError, pyarrow.ArrowException) as error:
        raise UsageError(f"{path}: {error}") from error
    return rows
