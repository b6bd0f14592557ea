# numba types these functions itself: its numbers are neither int nor numpy's to mypy
# mypy: disable-error-code="return-value, arg-type, assignment, no-any-return, index"
"""Compiled primitives over protobuf's wire form, and a table of distinct byte strings.

No function reads outside ``[pos, end)``. A negative result means *odd*: broken, or not in the
plain form that every known sender writes; the reference then decides. Source: the protobuf
encoding specification.
"""

import hashlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import numba
import numpy as np
import numpy.typing as npt
from numba.core.compiler_lock import global_compiler_lock

from longpole.vocab import span
from longpole_collector.dialects import _steps, base

F = TypeVar("F", bound=Callable[..., Any])
Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]
Small = npt.NDArray[np.int32]

VARINT: Final = 0
FIXED64: Final = 1
LEN: Final = 2
FIXED32: Final = 5

STRING: Final = 0
BOOL: Final = 1
INT: Final = 2
DOUBLE: Final = 3
ARRAY: Final = 4
MAP: Final = 5
BYTES: Final = 6
"""Kinds of an attribute's value; from ``ARRAY`` on the compiled loops do not look inside."""

OFFSET_BITS: Final = 32
ONES: Final = 0x0101010101010101
HIGH_BITS: Final = np.int64(-0x7F7F7F7F7F7F7F80)
"""The highest bit of each of eight bytes."""
LENGTH_MASK: Final = (1 << OFFSET_BITS) - 1


def jit(function: F) -> F:
    """Compiled without Python objects and without the lock; kept on disk where there is a place.

    It allocates nothing (``_nrt=False``), so arrays are passed on without counting references.
    """
    return _compiled(function, is_small=False)


def inline(function: F) -> F:
    """As :func:`jit`, and copied into its callers."""
    return _compiled(function, is_small=True)


def _compiled(function: F, *, is_small: bool) -> F:
    how = {"nogil": True, "error_model": "numpy", "forceinline": is_small, "_nrt": False}
    with global_compiler_lock:  # another thread may set its own folder
        place, numba.config.CACHE_DIR = numba.config.CACHE_DIR, _cache_folder()
        try:
            compiled: F = numba.njit(cache=True, **how)(function)
        except RuntimeError:  # nowhere to keep it
            compiled = numba.njit(**how)(function)
        finally:
            numba.config.CACHE_DIR = place
    return compiled


@cache
def _cache_folder() -> str:
    """A folder for this very code: numba looks at a function's own file only.

    Functions copied into a function, and numbers from the vocabulary, come from other files.
    """
    here = Path(__file__).parent
    sources = [*here.glob("*.py"), Path(_steps.__file__), Path(base.__file__), Path(span.__file__)]
    digest = hashlib.sha256(f"{numba.__version__} {numba.config.BOUNDSCHECK}".encode())
    for source in sorted(sources):
        digest.update(source.read_bytes())
    folder = numba.config.CACHE_DIR or here / "__pycache__"
    return str(Path(folder) / digest.hexdigest()[:16])


@inline
def varint(buf: Bytes, pos: int, end: int) -> tuple[int, int]:
    """The number at ``pos`` as a signed 64-bit one, and the place after it, or -1."""
    if pos >= end:
        return 0, -1
    first = np.int64(buf[np.uint64(pos)])
    if first < 128:
        return first, pos + 1
    value = first & 127
    for i in range(1, 10):
        if pos + i >= end:
            return 0, -1
        byte = np.int64(buf[np.uint64(pos + i)])
        value |= (byte & 127) << (7 * i)
        if byte < 128:
            if i == 9 and byte > 1:
                return 0, -1
            return value, pos + i + 1
    return 0, -1


@inline
def piece(buf: Bytes, pos: int, end: int) -> tuple[int, int]:
    """Start and end of the bytes whose length stands at ``pos``; start -1 if odd."""
    size, start = varint(buf, pos, end)
    if start < 0 or size < 0 or size > end - start:
        return -1, -1
    return start, start + size


@inline
def word64(buf: Bytes, pos: int) -> int:
    """Eight bytes, little-endian, as a signed number; the caller knows that they are there.

    An index without a sign cannot count from the end, so this becomes one load.
    """
    at = np.uint64(pos)
    value = np.uint64(0)
    for i in range(8):
        value |= np.uint64(buf[at + np.uint64(i)]) << np.uint64(8 * i)
    return np.int64(value)


@inline
def put64(buf: Bytes, pos: int, word: int) -> None:
    """Write eight bytes, little-endian."""
    at = np.uint64(pos)
    rest = np.uint64(word)
    for i in range(8):
        buf[at + np.uint64(i)] = np.uint8(rest >> np.uint64(8 * i))


@inline
def copy(source: Bytes, start: int, size: int, out: Bytes, at: int) -> int:
    """Copy bytes, eight at a time where there are so many; returns the place after them."""
    if size >= 8:
        for i in range(0, size - 8, 8):
            put64(out, at + i, word64(source, start + i))
        put64(out, at + size - 8, word64(source, start + size - 8))
    else:
        for i in range(size):
            out[np.uint64(at + i)] = source[np.uint64(start + i)]
    return at + size


@inline
def big64(buf: Bytes, pos: int) -> int:
    """Eight bytes, big-endian, as the bits of a signed number."""
    at = np.uint64(pos)
    value = np.uint64(0)
    for i in range(8):
        value |= np.uint64(buf[at + np.uint64(i)]) << np.uint64(56 - 8 * i)
    return np.int64(value)


@inline
def skip(buf: Bytes, wire_type: int, pos: int, end: int) -> int:
    """The place after a field's value; -1 if odd, as groups are."""
    if wire_type == VARINT:
        return varint(buf, pos, end)[1]
    if wire_type == LEN:
        return piece(buf, pos, end)[1]
    if wire_type == FIXED64:
        return pos + 8 if end - pos >= 8 else -1
    if wire_type == FIXED32:
        return pos + 4 if end - pos >= 4 else -1
    return -1


@inline
def any_value(buf: Bytes, pos: int, end: int) -> tuple[int, int]:
    """Kind and value of an ``AnyValue`` that fills ``[pos, end)``; kind -1 if odd.

    The value is a number's bits, or start and length of bytes, packed.
    """
    if pos >= end:
        return -1, 0
    tag = buf[pos]
    if tag == 0x0A or tag >= 0x2A:
        if tag == 0x0A:
            kind = STRING
        elif tag == 0x2A:
            kind = ARRAY
        elif tag == 0x32:
            kind = MAP
        elif tag == 0x3A:
            kind = BYTES
        else:
            return -1, 0
        start, stop = piece(buf, pos + 1, end)
        if stop != end:
            return -1, 0
        return kind, (start << OFFSET_BITS) | (stop - start)
    if tag == 0x18:
        value, after = varint(buf, pos + 1, end)
        return (INT, value) if after == end else (-1, 0)
    if tag == 0x10:
        return (BOOL, np.int64(buf[pos + 1])) if end == pos + 2 and buf[pos + 1] <= 1 else (-1, 0)
    if tag == 0x21:
        return (DOUBLE, word64(buf, pos + 1)) if end == pos + 9 else (-1, 0)
    return -1, 0


@inline
def pair(buf: Bytes, pos: int, end: int) -> tuple[int, int, int, int]:
    """Start and length of the key, kind and value of a ``KeyValue``; kind -1 if odd."""
    if pos >= end or buf[pos] != 0x0A:
        return 0, 0, -1, 0
    key, after = piece(buf, pos + 1, end)
    if key < 0 or after >= end or buf[after] != 0x12:
        return 0, 0, -1, 0
    start, stop = piece(buf, after + 1, end)
    if stop != end:
        return 0, 0, -1, 0
    kind, value = any_value(buf, start, stop)
    return key, after - key, kind, value


@inline
def is_ascii(buf: Bytes, pos: int, size: int) -> bool:
    """Whether all bytes are below 128; eight at a time, the last eight may overlap."""
    high = np.int64(0)
    if size >= 8:
        for i in range(0, size - 8, 8):
            high |= word64(buf, pos + i)
        high |= word64(buf, pos + size - 8)
        return high & HIGH_BITS == 0
    for i in range(size):
        high |= np.int64(buf[np.uint64(pos + i)])
    return high < 128


@jit
def is_utf8(buf: Bytes, pos: int, size: int) -> bool:
    """Whether bytes are valid UTF-8 (RFC 3629), as Python's strict decoder sees it."""
    if is_ascii(buf, pos, size):
        return True
    i = 0
    while i < size:
        lead = buf[pos + i]
        if lead < 0x80:
            i += 1
            continue
        low, top = np.uint8(0x80), np.uint8(0xBF)
        if 0xC2 <= lead <= 0xDF:
            more = 1
        elif 0xE0 <= lead <= 0xEF:
            more = 2
            if lead == 0xE0:
                low = np.uint8(0xA0)
            elif lead == 0xED:
                top = np.uint8(0x9F)
        elif 0xF0 <= lead <= 0xF4:
            more = 3
            if lead == 0xF0:
                low = np.uint8(0x90)
            elif lead == 0xF4:
                top = np.uint8(0x8F)
        else:
            return False
        if i + more >= size or not low <= buf[pos + i + 1] <= top:
            return False
        for k in range(2, more + 1):
            if not 0x80 <= buf[pos + i + k] <= 0xBF:
                return False
        i += more + 1
    return True


class Names(NamedTuple):
    """Distinct byte strings, each with a small tag, numbered in order of appearance; bounded."""

    slots: Small
    """Open addressing: number of the entry, or -1."""
    entries: Ints
    """A row an entry: hash, tag, start in ``text``, length."""
    text: Bytes
    used: Ints
    """Entries, and bytes of text."""


def names(num_entries: int, num_bytes: int) -> Names:
    """An empty table for that many entries (a power of two) and bytes."""
    return Names(
        np.full(2 * num_entries, -1, np.int32),
        np.empty((num_entries, 4), np.int64),
        np.empty(num_bytes, np.uint8),
        np.zeros(2, np.int64),
    )


def is_half_full(table: Names) -> bool:
    """Whether half the entries or bytes are used."""
    count, size = table.used.tolist()
    return 2 * count > len(table.entries) or 2 * size > len(table.text)


def clear(table: Names) -> None:
    """Forget all entries."""
    table.slots.fill(-1)
    table.used.fill(0)


@inline
def same(a: Bytes, i: int, b: Bytes, j: int, size: int) -> bool:
    """Whether two stretches of bytes are equal."""
    difference = np.int64(0)
    if size >= 8:
        for k in range(0, size - 8, 8):
            difference |= word64(a, i + k) ^ word64(b, j + k)
        difference |= word64(a, i + size - 8) ^ word64(b, j + size - 8)
        return difference == 0
    for k in range(size):
        difference |= np.int64(a[np.uint64(i + k)] ^ b[np.uint64(j + k)])
    return difference == 0


@jit
def number_of(table: Names, buf: Bytes, pos: int, size: int, tag: int) -> int:
    """The number of these bytes with this tag, added if new; -1 if there is no room."""
    mixed = np.uint64(0xCBF29CE484222325) ^ np.uint64(tag)
    i = 0
    while i + 8 <= size:
        mixed = (mixed ^ np.uint64(word64(buf, pos + i))) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
        i += 8
    while i < size:
        mixed = (mixed ^ np.uint64(buf[np.uint64(pos + i)])) * np.uint64(0x100000001B3)
        i += 1
    mixed ^= mixed >> np.uint64(32)
    mixed *= np.uint64(0x9E3779B97F4A7C15)
    found = np.int64(mixed >> np.uint64(17))
    last = len(table.slots) - 1
    slot = found & last
    while True:
        entry = table.slots[slot]
        if entry < 0:
            break
        if (
            table.entries[entry, 0] == found
            and table.entries[entry, 1] == tag
            and table.entries[entry, 3] == size
            and same(table.text, table.entries[entry, 2], buf, pos, size)
        ):
            return np.int64(entry)
        slot = (slot + 1) & last
    count, used = table.used[0], table.used[1]
    if count >= len(table.entries) or used + size > len(table.text):
        return -1
    copy(buf, pos, size, table.text, used)
    table.entries[count, 0] = found
    table.entries[count, 1] = tag
    table.entries[count, 2] = used
    table.entries[count, 3] = size
    table.slots[slot] = count
    table.used[0] = count + 1
    table.used[1] = used + size
    return count
