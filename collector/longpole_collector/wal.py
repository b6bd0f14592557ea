"""The write-ahead log: request bodies as received, on disk before anybody says 200.

A folder of numbered segments. A frame is a 20-byte header (length, crc32, signal, format,
compression, arrival) and the body, still compressed as the sender sent it. One ``write`` takes
many frames and pays one ``fdatasync`` for all. After a crash the frames that the store does not
have yet are read back; a torn tail ends a segment at the first bad checksum.
"""

import logging
import os
import struct
import zlib
from collections.abc import Iterator, Sequence
from enum import IntEnum
from pathlib import Path
from typing import Final, NamedTuple

from longpole_collector.decode import Compression, Format

MAGIC: Final = b"LPWAL1\0\0"
SEGMENT_BYTES: Final = 64 << 20
_HEADER: Final = struct.Struct("<IIBBBxQ")
_CHECKED_FROM: Final = 8  # the checksum covers what follows it

_log = logging.getLogger("longpole.collector.wal")
_datasync = getattr(os, "fdatasync", os.fsync)  # macOS has no fdatasync


class Position(NamedTuple):
    """The end of a frame: everything up to here is meant. Orders as written."""

    segment: int
    offset: int


class Signal(IntEnum):
    """What a request holds; the number is part of the log's format."""

    TRACES = 1
    LOGS = 2


class Frame(NamedTuple):
    """One request: how its body is written, when it came (Unix epoch ns), and the body."""

    format: Format
    compression: Compression
    received_ns: int
    body: bytes
    signal: Signal = Signal.TRACES


class Wal:
    """A log in one folder; one writer at a time, not thread-safe."""

    def __init__(self, folder: Path, stored: Position, segment_bytes: int = SEGMENT_BYTES) -> None:
        """Open the log.

        Args:
            folder: made if missing, readable by its owner only.
            stored: everything up to here is in the store; new segments get higher numbers.
            segment_bytes: a segment is closed when it has reached this size.
        """
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._folder = folder
        self._segment_bytes = segment_bytes
        self._sizes = {number: self._path(number).stat().st_size for number in self._segments()}
        self._number = max([stored.segment, *self._sizes])
        self._file: int | None = None
        self._offset = 0

    def replay(
        self, stored: Position, until: Position | None = None
    ) -> Iterator[tuple[Position, Frame | None]]:
        """The frames after ``stored``, oldest first, each with its end, of the segments there are.

        ``None`` for a frame stands for the damaged rest of a segment, which is cut off.

        Args:
            stored: the end of the last frame that is not wanted.
            until: the end of the last frame that is; what follows may just be being written.
        """
        return self._replay(self._segments(), stored, until)

    def _replay(
        self, numbers: Sequence[int], stored: Position, until: Position | None
    ) -> Iterator[tuple[Position, Frame | None]]:
        for number in numbers:
            if number < stored.segment:
                continue
            path = self._path(number)
            data = path.read_bytes()
            offset = len(MAGIC)
            if number == stored.segment:
                offset = max(offset, stored.offset)
            while (end := _frame_end(data, offset)) is not None:
                if until is not None and Position(number, end) > until:
                    return
                yield Position(number, end), _frame(data, offset, end)
                offset = end
            if offset < len(data) and (until is None or number < until.segment):
                _log.warning("%s: %d damaged bytes cut off", path.name, len(data) - offset)
                with path.open("r+b") as file:
                    file.truncate(offset)
                yield Position(number, offset), None

    def write(self, frames: Sequence[Frame]) -> list[Position]:
        """Append frames; they are on disk when this returns. Gives the end of each.

        Raises:
            OSError: the disk refused; none of the frames counts as written.
        """
        file = self._file
        if file is None or self._offset >= self._segment_bytes:
            file = self._rotate()
        pieces: list[bytes] = []
        ends: list[Position] = []
        offset = self._offset
        for frame in frames:
            head = _HEADER.pack(
                len(frame.body), 0, frame.signal, frame.format, frame.compression,
                frame.received_ns,
            )  # fmt: skip
            crc = zlib.crc32(frame.body, zlib.crc32(head[_CHECKED_FROM:]))
            pieces += (head[:4], crc.to_bytes(4, "little"), head[_CHECKED_FROM:], frame.body)
            offset += _HEADER.size + len(frame.body)
            ends.append(Position(self._number, offset))
        try:
            _write_all(file, b"".join(pieces))
            _datasync(file)
        except OSError:
            self._abandon(file)
            raise
        self._offset = self._sizes[self._number] = offset
        return ends

    def end(self) -> Position:
        """The end of what is written; 0:0 if there is nothing."""
        found = [(number, size) for number, size in self._sizes.items() if size > len(MAGIC)]
        return Position(*max(found, default=(0, 0)))

    def num_bytes_after(self, stored: Position) -> int:
        """Bytes that lie after a place; any thread may ask."""
        sizes = list(self._sizes.items())
        after = sum(size for number, size in sizes if number >= stored.segment)
        return after - (stored.offset if stored.segment in self._sizes else 0)

    def forget(self, stored: Position) -> None:
        """Remove the segments that lie wholly before ``stored``."""
        for number in self._segments():
            if number < stored.segment:
                self._path(number).unlink(missing_ok=True)
                self._sizes.pop(number, None)

    def close(self, stored: Position | None = None) -> None:
        """Close the file; with ``stored`` at its end, nothing is left to replay and it goes."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
        if stored is not None and stored >= Position(self._number, self._offset):
            self.forget(Position(stored.segment + 1, 0))

    def _rotate(self) -> int:
        self.close()
        self._number += 1
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        self._file = file = os.open(self._path(self._number), flags, 0o600)
        _write_all(file, MAGIC)
        self._offset = self._sizes[self._number] = len(MAGIC)
        folder = os.open(self._folder, os.O_RDONLY)
        try:
            os.fsync(folder)  # so that the file's name survives too
        finally:
            os.close(folder)
        return file

    def _abandon(self, file: int) -> None:
        """After a failed write: cut what may stand half-written and start a new segment next."""
        try:
            os.ftruncate(file, self._offset)
        except OSError as error:
            _log.warning("cannot cut a failed write: %s", error)
        self.close()

    def _segments(self) -> list[int]:
        return sorted(int(path.stem) for path in self._folder.glob("*.wal"))

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:012d}.wal"


def _write_all(file: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]


def _frame_end(data: bytes, offset: int) -> int | None:
    """Where the frame at ``offset`` ends; ``None`` if no whole, sound frame starts there."""
    if data[: len(MAGIC)] != MAGIC or offset + _HEADER.size > len(data):
        return None
    length, crc = struct.unpack_from("<II", data, offset)
    end: int = offset + _HEADER.size + length
    if end > len(data):
        return None
    checked = memoryview(data)[offset + _CHECKED_FROM : end]
    return end if zlib.crc32(checked) == crc else None


def _frame(data: bytes, offset: int, end: int) -> Frame:
    _, _, signal, form, compression, received_ns = _HEADER.unpack_from(data, offset)
    body = data[offset + _HEADER.size : end]
    return Frame(Format(form), Compression(compression), received_ns, body, Signal(signal))
