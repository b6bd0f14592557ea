# numba types these functions itself: its numbers are neither int nor numpy's to mypy
# mypy: disable-error-code="return-value, arg-type, assignment, no-any-return, index"
"""The converters of ``dialects.base``, compiled."""

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from longpole_collector.bulk.wire import (
    BOOL,
    DOUBLE,
    INT,
    LENGTH_MASK,
    OFFSET_BITS,
    STRING,
    Bytes,
    inline,
    is_utf8,
)
from longpole_collector.dialects.base import (
    attempts,
    count,
    flag,
    number,
    paid,
    seconds_ms,
    seconds_ns,
    seconds_or_ns,
    word,
)

NONE: Final = 0
WORD: Final = 1
FLAG: Final = 2
COUNT: Final = 3
ATTEMPTS: Final = 4
NUMBER: Final = 5
SECONDS_NS: Final = 6
SECONDS_MS: Final = 7
"""Leaves the rounding, which numba does not do as Python does, to the caller."""
SECONDS_OR_NS: Final = 8
PYTHON: Final = 9
"""Any other: Python converts each distinct value once."""
WORDS: Final = 11
"""The flags a span states, by Python."""
PAID: Final = 12
REFUSE: Final = 10
"""A span with such a key is odd."""

NATIVE: Final[dict[Callable[[Any], Any], int]] = {
    word: WORD,
    flag: FLAG,
    count: COUNT,
    attempts: ATTEMPTS,
    number: NUMBER,
    paid: PAID,
    seconds_ns: SECONDS_NS,
    seconds_ms: SECONDS_MS,
    seconds_or_ns: SECONDS_OR_NS,
}
"""Converters that are compiled."""

TAKEN: Final = 0
LEFT: Final = 1
ODD: Final = 2
MAX_INT: Final = 2**63 - 1
MAX_SECONDS: Final = 9.2e9
_MAX_EXACT: Final = 9.2e18


@inline
def as_double(bits: int) -> float:
    """The floating-point real of these bits."""
    return np.int64(bits).view(np.float64)


@inline
def as_bits(real: float) -> int:
    """The bits of a floating-point real."""
    return np.float64(real).view(np.int64)


@inline
def _digits(buf: Bytes, value: int) -> int:
    """A count that is text: -1 if it is none."""
    start, size = value >> OFFSET_BITS, value & LENGTH_MASK
    if size == 0 or size >= 19:
        return -1
    total = 0
    for i in range(size):
        digit = np.int64(buf[start + i]) - 48
        if digit < 0 or digit > 9:
            return -1
        total = total * 10 + digit
    return total


@inline
def _flag(buf: Bytes, value: int) -> int:
    """1 for ``true``, 0 for ``false`` in any case, else -1."""
    start, size = value >> OFFSET_BITS, value & LENGTH_MASK
    if size == 4:
        is_true = (
            (buf[start] | 32) == 0x74
            and (buf[start + 1] | 32) == 0x72
            and (buf[start + 2] | 32) == 0x75
            and (buf[start + 3] | 32) == 0x65
        )
        return 1 if is_true else -1
    if size == 5:
        is_false = (
            (buf[start] | 32) == 0x66
            and (buf[start + 1] | 32) == 0x61
            and (buf[start + 2] | 32) == 0x6C
            and (buf[start + 3] | 32) == 0x73
            and (buf[start + 4] | 32) == 0x65
        )
        return 0 if is_false else -1
    return -1


@inline
def convert(buf: Bytes, converter: int, kind: int, value: int) -> tuple[int, int]:
    """Whether a converter takes the value, and the cell's content; see ``dialects.base``."""
    if converter == WORD:
        if kind == STRING:
            if value & LENGTH_MASK == 0:
                return LEFT, 0
            if not is_utf8(buf, value >> OFFSET_BITS, value & LENGTH_MASK):
                return ODD, 0
            return TAKEN, value
        return (LEFT, 0) if kind == BOOL else (ODD, 0)
    if converter == FLAG:
        if kind == BOOL:
            return TAKEN, value
        if kind == STRING:
            flag = _flag(buf, value)
            return (LEFT, 0) if flag < 0 else (TAKEN, flag)
        return (LEFT, 0) if kind == INT else (ODD, 0)
    if kind == BOOL:
        return LEFT, 0
    if converter in (COUNT, ATTEMPTS):
        if kind == STRING:
            value = _digits(buf, value)
            if value < 0:
                return LEFT, 0
        elif kind == DOUBLE:
            real = as_double(value)
            if not 0 <= real < _MAX_EXACT or real != np.floor(real):
                return ODD, 0
            value = np.int64(real)
        if value < 0:
            return LEFT, 0
        if converter == ATTEMPTS:
            return (LEFT, 0) if value == MAX_INT else (TAKEN, value + 1)
        return TAKEN, value
    # a real; not as text
    if kind == STRING:
        return LEFT, 0
    if converter == SECONDS_OR_NS and kind == INT and value > 10_000:
        return TAKEN, value
    if kind == DOUBLE:
        real = as_double(value)
        if not (real >= 0 and np.isfinite(real)):
            return ODD, 0
    else:
        real = np.float64(value)
        if value < 0:
            return LEFT, 0
    if converter == NUMBER:
        return TAKEN, as_bits(real)
    if converter == PAID:
        return (LEFT, 0) if real == 0 else (TAKEN, as_bits(real))
    if real > MAX_SECONDS:
        return ODD, 0
    if converter == SECONDS_MS:
        return TAKEN, as_bits(real * 1e3)
    return TAKEN, np.int64(np.rint(real * 1e9))
