"""In which traces of a route two steps overlap, or come the other way round; many at once.

The definition is that of :func:`longpole_analytics.serial.seen_apart`; here a pair of names is
looked for once in all traces, as many patterns ask for the same pairs.
"""

from typing import Final

import numpy as np
import polars as pl

from longpole_analytics.advisor._replay import Bools, Ints

_FAMILY: Final = ["trace", "parent"]


class Families:
    """The steps of some traces by their parents, in order of time.

    Args:
        rows: ``trace``, ``parent`` (a row), ``name``, ``start_ns``, ``end_ns`` of each step.
    """

    def __init__(self, rows: pl.DataFrame) -> None:
        names = rows["name"].drop_nulls().unique().sort()
        self._codes: dict[str, int] = {name: code for code, name in enumerate(names)}
        coded = rows.select(
            "trace",
            pl.col("parent").fill_null(-1),
            "start_ns",
            "end_ns",
            code=pl.col("name").replace_strict(names, range(len(names)), default=-1),
        ).sort(*_FAMILY, "start_ns", "end_ns", "code")
        self._all_traces, self._all_codes = coded["trace"].to_numpy(), coded["code"].to_numpy()
        ended = coded.drop_nulls("end_ns").with_columns(family=pl.struct(_FAMILY).rle_id())
        self._trace, self._code, self._start, self._end, self._family = (
            ended[name].cast(pl.Int64).to_numpy()
            for name in ("trace", "code", "start_ns", "end_ns", "family")
        )
        self._found: dict[tuple[str, str], Ints] = {}

    def with_any(self, names: list[str]) -> Ints:
        """The traces that have a step of one of these names, in order."""
        codes = [self._codes[name] for name in names if name in self._codes]
        found: Ints = np.unique(self._all_traces[np.isin(self._all_codes, codes)])
        return found

    def apart(self, first: str, second: str) -> Ints:
        """The traces in which siblings of these names overlap or come in the other order.

        Of names that come several times under one parent the first of each give the order.
        """
        if (first, second) not in self._found:
            self._found[first, second] = self._apart(first, second)
        return self._found[first, second]

    def _apart(self, first: str, second: str) -> Ints:
        ours, theirs = self._codes.get(first), self._codes.get(second)
        if ours is None or theirs is None:
            return np.empty(0, np.int64)
        rows = np.flatnonzero((self._code == ours) | (self._code == theirs))
        if ours == theirs:
            return self._traces(rows[1:][self._begins_early(rows)])
        family, code = self._family[rows], self._code[rows]
        (one, at_one), (two, at_two) = (
            np.unique(family[code == wanted], return_index=True) for wanted in (ours, theirs)
        )
        _, in_one, in_two = np.intersect1d(one, two, assume_unique=True, return_indices=True)
        a, b = rows[code == ours][at_one[in_one]], rows[code == theirs][at_two[in_two]]
        is_same = self._start[b] == self._start[a]
        is_before = (self._start[b] < self._start[a]) | (is_same & (self._end[b] < self._end[a]))
        rows = rows[np.isin(family, self._family[a])]
        return self._traces(np.concatenate([b[is_before], self._overlapping(rows)]))

    def _traces(self, rows: Ints) -> Ints:
        found: Ints = np.unique(self._trace[rows])
        return found

    def _begins_early(self, rows: Ints) -> Bools:
        """Of each row but the first, whether it begins before the end of the sibling before it."""
        is_sibling = self._family[rows[1:]] == self._family[rows[:-1]]
        found: Bools = is_sibling & (self._start[rows[1:]] < self._end[rows[:-1]])
        return found

    def _overlapping(self, rows: Ints) -> Ints:
        """The rows that begin before the sibling that ends last has ended, if names differ."""
        if not len(rows):
            return rows
        _, rank = np.unique(self._end[rows], return_inverse=True)
        family = self._family[rows]
        # one running maximum does for all families, as later ones have larger numbers
        latest = np.maximum.accumulate(family * (int(rank.max()) + 1) + rank)
        is_new = np.concatenate([[True], latest[1:] > latest[:-1]])
        last = rows[np.maximum.accumulate(np.where(is_new, np.arange(len(rows)), 0))][:-1]
        after = rows[1:]
        is_over = (family[1:] == family[:-1]) & (self._start[after] < self._end[last])
        found: Ints = after[is_over & (self._code[after] != self._code[last])]
        return found
