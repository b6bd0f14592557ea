# numba types these functions itself: its numbers are neither int nor numpy's to mypy
# mypy: disable-error-code="return-value, arg-type, assignment, no-any-return, index"
"""HMAC-SHA256 of short texts, compiled: pseudonyms of users and sessions, one for each call.

Sources: FIPS 180-4 (SHA-256), RFC 2104 (HMAC). Python's own is as good but for the call: a
pseudonym costs microseconds there, most of them not spent hashing.
"""

import hashlib
from typing import Final

import numpy as np
import numpy.typing as npt

from longpole_collector.bulk.wire import Bytes, inline, jit

Words32 = npt.NDArray[np.uint32]

MAX_MESSAGE_BYTES: Final = 55
"""Longest message that fits one block."""
_BLOCK: Final = 64


def _roots(power: float, num: int) -> list[int]:
    """First 32 bits of the fractional parts of roots of the first primes (FIPS 180-4, 4.2.2)."""
    primes = [n for n in range(2, 312) if all(n % d for d in range(2, int(n**0.5) + 1))]
    found: list[int] = []
    for prime in primes[:num]:
        scaled = prime << (32 * round(1 / power))
        root = round(scaled**power)
        while root ** round(1 / power) > scaled:
            root -= 1
        while (root + 1) ** round(1 / power) <= scaled:
            root += 1
        found.append(root & 0xFFFFFFFF)
    return found


_K: Final = np.array(_roots(1 / 3, 64), np.uint32)
_START: Final = np.array(_roots(1 / 2, 8), np.uint32)


def states_of(key: bytes) -> Words32:
    """SHA-256's state after the inner and after the outer key block (RFC 2104, section 4)."""
    block = (key if len(key) <= _BLOCK else hashlib.sha256(key).digest()).ljust(_BLOCK, b"\0")
    states = np.stack([_START, _START]).astype(np.uint32)
    scratch = np.empty(16, np.uint32)
    for state, pad in zip(states, (0x36, 0x5C), strict=True):
        padded = np.frombuffer(bytes(byte ^ pad for byte in block), ">u4")
        scratch[:] = padded
        compress(state, scratch)
    return states


@inline
def _rotated(word: int, by: int) -> int:
    return np.uint32((word >> np.uint32(by)) | np.uint32(word << np.uint32(32 - by)))


@jit
def compress(state: Words32, words: Words32) -> None:
    """Take one block of 16 words into the state; the words are overwritten."""
    a, b, c, d = state[0], state[1], state[2], state[3]
    e, f, g, h = state[4], state[5], state[6], state[7]
    for i in range(64):
        if i >= 16:
            w15, w2 = words[(i + 1) & 15], words[(i + 14) & 15]
            s0 = _rotated(w15, 7) ^ _rotated(w15, 18) ^ np.uint32(w15 >> np.uint32(3))
            s1 = _rotated(w2, 17) ^ _rotated(w2, 19) ^ np.uint32(w2 >> np.uint32(10))
            words[i & 15] = np.uint32(words[i & 15] + s0 + words[(i + 9) & 15] + s1)
        big1 = _rotated(e, 6) ^ _rotated(e, 11) ^ _rotated(e, 25)
        choice = (e & f) ^ (np.uint32(~e) & g)
        t1 = np.uint32(h + big1 + choice + _K[i] + words[i & 15])
        big0 = _rotated(a, 2) ^ _rotated(a, 13) ^ _rotated(a, 22)
        majority = (a & b) ^ (a & c) ^ (b & c)
        h, g, f = g, f, e
        e = np.uint32(d + t1)
        d, c, b = c, b, a
        a = np.uint32(t1 + np.uint32(big0 + majority))
    state[0] += a
    state[1] += b
    state[2] += c
    state[3] += d
    state[4] += e
    state[5] += f
    state[6] += g
    state[7] += h


@jit
def digest_with(
    states: Words32, buf: Bytes, pos: int, size: int, state: Words32, words: Words32
) -> None:
    """HMAC-SHA256 of at most 55 bytes.

    Args:
        states: of the key, see :func:`states_of`.
        buf: holds the message.
        pos: where it begins.
        size: its bytes.
        state: gets the digest, eight big-endian words.
        words: 16 words of scratch.
    """
    for i in range(16):
        words[i] = 0
    for i in range(size):
        words[i >> 2] |= np.uint32(buf[pos + i]) << np.uint32(24 - 8 * (i & 3))
    words[size >> 2] |= np.uint32(0x80) << np.uint32(24 - 8 * (size & 3))
    words[15] = np.uint32((_BLOCK + size) * 8)
    for i in range(8):
        state[i] = states[0, i]
    compress(state, words)
    for i in range(8):
        words[i] = state[i]
        state[i] = states[1, i]
    for i in range(9, 15):
        words[i] = 0
    words[8] = np.uint32(0x80000000)
    words[15] = np.uint32((_BLOCK + 32) * 8)
    compress(state, words)
