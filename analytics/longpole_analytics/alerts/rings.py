"""The counts of the last minutes of each objective, in files that a restart finds again.

A file is a ring: the row of a minute is used again when the period is over. It is mapped only
while it is read or written, so a month of two hundred objectives takes no memory. Beside them one
ring says what of each minute was read when it was counted; a minute of which the store has
something else by now is read again.
"""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal, NamedTuple

import numpy as np

from longpole_analytics.slo.check import num_minutes
from longpole_analytics.slo.counting import COLUMNS, Bools
from longpole_analytics.slo.lifecycle import LATE_MIN
from longpole_analytics.slo.objectives import Objective
from longpole_analytics.slo.series import Ints, Series

_VERSION: Final = 1
_SEEN: Final = "seen"
_MAX_BACK: Final = 1440
"""Minutes that a clock may be set back by; beyond it the rings begin anew."""
_SEEN_COLUMNS: Final = 2


class Held(NamedTuple):
    """What a store has of some minutes: how many traces and spans; minutes in order."""

    minutes: Ints
    traces: Ints
    spans: Ints


class Rings:
    """The rings of some objectives in a folder."""

    def __init__(self, folder: Path, objectives: Sequence[Objective]) -> None:
        """Open or make them; those of other objectives are removed.

        Where one is new, every minute is to be read again.
        """
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lengths = [num_minutes([objective]) + LATE_MIN for objective in objectives]
        self._rings = [
            _Ring(folder / f"{_name(objective)}.ring", length, len(COLUMNS))
            for objective, length in zip(objectives, lengths, strict=True)
        ]
        self.length = max(lengths)
        seen = folder / f"{_SEEN}.ring"
        if any(ring.is_new for ring in self._rings):
            seen.unlink(missing_ok=True)
        self._seen = _Ring(seen, self.length, _SEEN_COLUMNS)
        kept = {ring.path for ring in (*self._rings, self._seen)}
        for path in folder.glob("*.ring"):
            if path not in kept:
                path.unlink()

    def advance(self, minute: int) -> None:
        """Make room up to a minute since the Unix epoch; going back is nothing."""
        for ring in (*self._rings, self._seen):
            ring.advance(minute)

    def unread(self, held: Held, minute: int) -> Held:
        """Those minutes up to ``minute`` of which something else was read, or nothing."""
        first = minute - self.length + 1
        chosen = (held.minutes >= first) & (held.minutes <= minute)
        minutes, traces, spans = (column[chosen] for column in held)
        known = self._seen.rows(minutes)
        differs = (known[:, 0] != traces) | (known[:, 1] != spans)
        return Held(minutes[differs], traces[differs], spans[differs])

    def put(self, first_minute: int, counts: Ints, held: Held) -> set[int]:
        """Note the counts of all objectives from a minute on, and what they were read from.

        Returns the places of those that are not what they were.
        """
        minutes = np.arange(first_minute, first_minute + counts.shape[1])
        pairs = enumerate(zip(self._rings, counts, strict=True))
        changed = {row for row, (ring, own) in pairs if ring.put(minutes, own)}
        self._seen.put(held.minutes, np.stack([held.traces, held.spans], axis=1))
        return changed

    def series(self, row: int, minute: int) -> Series:
        """The minutes of an objective up to ``minute``."""
        first, rows = self._rings[row].tail(minute)
        bad, total, num_bad, left_out = np.ascontiguousarray(rows.T)
        return Series(first, bad, total, num_bad, int(left_out.sum()))


class _Ring:
    """A file of rows of whole numbers, one a minute; before them the last minute there is."""

    def __init__(self, path: Path, length: int, num_columns: int) -> None:
        self.path = path
        self._shape = length + 1, num_columns
        size = self._shape[0] * num_columns * 8
        self.is_new = not path.is_file() or path.stat().st_size != size
        if self.is_new:
            with path.open("wb") as file:
                path.chmod(0o600)
                file.truncate(size)  # zeros that take no room on disk

    def advance(self, minute: int) -> None:
        table = self._open("r+")
        until = int(table[0, 0])
        if until - _MAX_BACK <= minute <= until:
            return
        if minute < until:  # the clock had been far ahead: nothing of it holds
            until = minute - self._length
        new = np.arange(max(until + 1, minute - self._length + 1), minute + 1)
        table[self._places(new)] = 0
        table[0, 0] = minute

    def put(self, minutes: Ints, rows: Ints) -> bool:
        table = self._open("r+")
        fits = self._fits(minutes, int(table[0, 0]))
        places = self._places(minutes[fits])
        if np.array_equal(table[places], rows[fits]):
            return False
        table[places] = rows[fits]
        return True

    def rows(self, minutes: Ints) -> Ints:
        table = self._open("r")
        found = np.array(table[self._places(minutes)])
        found[~self._fits(minutes, int(table[0, 0]))] = 0
        return found

    def tail(self, minute: int) -> tuple[int, Ints]:
        """The first minute and the rows up to ``minute``; zeros where there is none."""
        table = self._open("r")
        first, cut = minute - self._length + 1, minute % self._length + 2
        found = np.concatenate([table[cut:], table[1:cut]])
        is_gone = int(table[0, 0]) - minute  # minutes whose rows are those of later ones
        if is_gone > 0:
            found[:is_gone] = 0
        elif is_gone < 0:
            found[is_gone:] = 0
        return first, found

    @property
    def _length(self) -> int:
        return self._shape[0] - 1

    def _places(self, minutes: Ints) -> Ints:
        return minutes % self._length + 1

    def _fits(self, minutes: Ints, until: int) -> Bools:
        return (minutes <= until) & (minutes > until - self._length)

    def _open(self, mode: Literal["r", "r+"]) -> Ints:
        return np.memmap(self.path, np.int64, mode, shape=self._shape)


def _name(objective: Objective) -> str:
    """Names what is counted: another promise has another ring."""
    told = [
        *(_VERSION, objective.id, objective.metric, objective.threshold, objective.where),
        objective.cancelled,
    ]
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()[:24]
