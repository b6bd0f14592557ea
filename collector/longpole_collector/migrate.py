"""All spans of a data folder into a ClickHouse store, or the other way.

Day by day of receipt. Nothing is written down about how far it is: what the target lacks is found
by comparing, so it may be stopped or killed at any moment and goes on when it is started again. A
day is done when both sides have as many spans with the same checksum: the sum over all of them of
a hash of everything that is stored of a span, whatever the order.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from longpole.errors import BadInput, UsageError
from longpole_collector.migrate_sides import (
    DAY_NS,
    MINUTE_NS,
    Chunk,
    Hasher,
    Hashes,
    Side,
    date_of,
    open_side,
)
from longpole_collector.stores import clickhouse

CHUNK_SPANS: Final = 65_536
_WORD: Final = 1 << 64


class Digest(NamedTuple):
    """How many spans, and the sum of their hashes."""

    num: int
    checksum: int

    def __add__(self, other: object) -> "Digest":
        if not isinstance(other, Digest):
            return NotImplemented
        return Digest(self.num + other.num, (self.checksum + other.checksum) % _WORD)


class Day(NamedTuple):
    """What became of one day.

    Attributes:
        day: the date, as in 2026-09-14.
        num_spans: spans that the source has of it.
        num_copied: those that were copied now; the others were there.
        num_elsewhere: those that the target has of another day: a sender sent them twice.
        num_more: spans of that day that only the target has; above 0 only when merging.
        checksum: of the source's spans; where nothing is elsewhere or more, the target's too.
    """

    day: str
    num_spans: int
    num_copied: int
    num_elsewhere: int
    num_more: int
    checksum: str


def migrate(
    source: str,
    target: str,
    *,
    is_merging: bool = False,
    told: Callable[[str], None] = lambda text: None,
) -> list[Day]:
    """Copy what the target lacks, compare, settle.

    Args:
        source: a data folder, or the address of a ClickHouse store.
        target: the other one of the two.
        is_merging: days may have spans at the target that the source has not.
        told: is told how far it is.

    Raises:
        UsageError: not one is a folder and the other an address, or the target has other spans
            of a day and is not to be merged with; of that day nothing was copied.
        Unreachable, StoreBusy: one of them cannot be opened.
        BadInput: a day differs when all is copied.
    """
    if clickhouse.is_address(source) == clickhouse.is_address(target):
        raise UsageError("one of --from and --to is a data folder, the other clickhouse://...")
    taken = open_side(source, is_written=False)
    try:
        given = open_side(target, is_written=True)
        try:
            return Migration(taken, given, told, is_merging=is_merging).run()
        finally:
            given.close()
    finally:
        taken.close()


class Migration:
    """One run from one side to the other."""

    def __init__(
        self, source: Side, target: Side, told: Callable[[str], None], *, is_merging: bool
    ) -> None:
        """Nothing is read yet; the arguments are those of :func:`migrate`, opened."""
        self._source = source
        self._target = target
        self._told = told
        self._is_merging = is_merging
        self._hasher = Hasher()

    def run(self) -> list[Day]:
        """Every day, the oldest first."""
        days = self._source.days()
        there = self._target.days()
        done: list[Day] = []
        for number, day in enumerate(days, start=1):
            self._told(f"{date_of(day)} (day {number} of {len(days)}): {days[day]:,} spans")
            done.append(self._day(day, there.get(day, 0)))
        self._told("settling")
        self._told(f"{self._target.settle():,} traces settled")
        self._hasher.close()
        return done

    # --- inside ---------------------------------------------------------------------------------
    def _day(self, day: int, num_there: int) -> Day:
        chunks = list(_chunks(day, self._source.minutes(day)))
        num_more = 0
        todo = chunks
        if num_there:
            todo, num_more = self._compared(day, chunks)
        num_copied = sum(
            self._copied(chunk, f"{number} of {len(todo)}", is_empty=not num_there)
            for number, chunk in enumerate(todo, start=1)
        )
        self._target.end_day()
        digest, num_elsewhere = self._checked(day, chunks)
        self._told(f"  {num_copied:,} copied, {digest.num:,} compared")
        checksum = f"{digest.checksum:016x}"
        return Day(date_of(day), digest.num, num_copied, num_elsewhere, num_more, checksum)

    def _compared(self, day: int, chunks: Sequence[Chunk]) -> tuple[list[Chunk], int]:
        """The chunks of which the target lacks spans, and how many spans only the target has."""
        todo: list[Chunk] = []
        num_more = 0
        for chunk in chunks:
            here, there = self._hashes(self._source, chunk), self._hashes(self._target, chunk)
            num_more += len(there) - int(np.isin(there, here).sum())
            if not np.isin(here, there).all():
                todo.append(chunk)
        if num_more and not self._is_merging:
            raise UsageError(
                f"{self._target.name} has {num_more:,} spans of {date_of(day)} that "
                f"{self._source.name} has not, or has otherwise: give another target, or --merge"
            )
        return todo, num_more

    def _copied(self, chunk: Chunk, number: str, *, is_empty: bool) -> int:
        """Copy what the target lacks of a chunk; returns how many spans."""
        rows = self._source.rows(chunk)
        if not is_empty:
            rows = rows.filter(pa.array(~self._is_there(rows, chunk)))
        self._target.add(rows)
        self._told(f"  part {number}: {rows.num_rows:,} spans")
        return int(rows.num_rows)

    def _checked(self, day: int, chunks: Sequence[Chunk]) -> tuple[Digest, int]:
        """What the source has of a day, when the target has it too."""
        digest, num_elsewhere = Digest(0, 0), 0
        for chunk in chunks:
            rows = self._source.rows(chunk)
            here = digest_of(self._hasher.hashes(rows))
            digest += here
            if digest_of(self._hashes(self._target, chunk)) == here:
                continue
            missing = rows.filter(pa.array(~self._is_there(rows, chunk)))
            num_known = self._target.num_known(missing)
            if num_known < missing.num_rows:
                raise BadInput(
                    f"{self._target.name} lacks {missing.num_rows - num_known:,} spans of "
                    f"{date_of(day)} after they were copied: the same again goes on"
                )
            num_elsewhere += num_known
        return digest, num_elsewhere

    def _is_there(
        self, rows: pa.Table, chunk: Chunk
    ) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
        """Which rows of the source the target has word for word."""
        found = np.isin(self._hasher.hashes(rows), self._hashes(self._target, chunk))
        return found.reshape(-1)

    def _hashes(self, side: Side, chunk: Chunk) -> Hashes:
        return self._hasher.hashes(side.rows(chunk))


def digest_of(hashes: Hashes) -> Digest:
    """The digest of spans by their hashes; no span is ``Digest(0, 0)``."""
    return Digest(len(hashes), int(hashes.sum(dtype=np.uint64)))


def _chunks(day: int, minutes: Sequence[tuple[int, int]]) -> Iterator[Chunk]:
    """Stretches of a day of about :data:`CHUNK_SPANS` spans each, from its first to its last ns.

    A minute that has more is split by trace.
    """
    since_ns, end_ns, num = day * DAY_NS, (day + 1) * DAY_NS, 0
    for place, (minute, count) in enumerate(minutes):
        is_last = place == len(minutes) - 1
        if num and num + count > CHUNK_SPANS:
            yield Chunk(since_ns, minute * MINUTE_NS)
            since_ns, num = minute * MINUTE_NS, 0
        num += count
        if num > CHUNK_SPANS or is_last:
            until_ns = end_ns if is_last else (minute + 1) * MINUTE_NS
            of = -(-num // CHUNK_SPANS)
            yield from (Chunk(since_ns, until_ns, part, of) for part in range(of))
            since_ns, num = until_ns, 0
