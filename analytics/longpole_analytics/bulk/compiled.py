"""How the loops of this folder are compiled, and the sort they share."""
# numba types these functions itself: its numbers are neither int nor numpy's to mypy
# mypy: disable-error-code="no-any-return"

import hashlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeVar

import numba
import numpy as np
import numpy.typing as npt
from numba.core.compiler_lock import global_compiler_lock

from longpole.vocab import span, stages

F = TypeVar("F", bound=Callable[..., Any])
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Records = Any
"""An array of records; what its fields are is said where it is made (``rooms``)."""

_RULES: Final = ("calls", "critical_path", "phases", "prepare", "skew", "stages", "twins")
"""Files beside this folder whose numbers are compiled in."""
ZERO: Final[Any] = np.int64(0)
"""Not a literal, for which numba would compile a function called with it once more."""
_RUN: Final = 12
"""So few are sorted by insertion."""


def jit(function: F) -> F:
    """Compiled without Python objects and without the lock; kept on disk where there is a place.

    It allocates nothing (``_nrt=False``), so arrays are passed on without counting references.
    """
    how = {"nogil": True, "error_model": "numpy", "_nrt": False}
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
    sources = [*here.glob("*.py"), *(here.parent / f"{name}.py" for name in _RULES)]
    sources += [Path(span.__file__), Path(stages.__file__)]
    digest = hashlib.sha256(f"{numba.__version__} {numba.config.BOUNDSCHECK}".encode())
    for source in sorted(sources):
        digest.update(source.read_bytes())
    folder = numba.config.CACHE_DIR or here / "__pycache__"
    return str(Path(folder) / digest.hexdigest()[:16])


@jit
def _is_before(a: int, b: int, first: Ints, second: Ints, third: Ints) -> bool:
    if first[a] != first[b]:
        return first[a] < first[b]
    if second[a] != second[b]:
        return second[a] < second[b]
    if third[a] != third[b]:
        return third[a] < third[b]
    return a < b


@jit
def sort(
    items: Ints, low: int, high: int, first: Ints, second: Ints, third: Ints, spare: Ints
) -> None:
    """Sort ``items[low:high]`` by what three arrays hold for each, then by the item itself.

    Takes O(n log n) steps; fast on few items and on what is nearly in order.

    Args:
        items: places in the three arrays.
        low: first to sort.
        high: end of those to sort.
        first: what decides.
        second: what decides next.
        third: what decides last.
        spare: room for ``high - low`` items.
    """
    for begin in range(low, high, _RUN):
        for i in range(begin + 1, min(begin + _RUN, high)):
            item = items[i]
            j = i
            while j > begin and _is_before(item, items[j - 1], first, second, third):
                items[j] = items[j - 1]
                j -= 1
            items[j] = item
    width = _RUN
    while width < high - low:
        for begin in range(low, high - width, 2 * width):
            middle, end = begin + width, min(begin + 2 * width, high)
            if _is_before(items[middle - 1], items[middle], first, second, third):
                continue
            for i in range(begin, middle):
                spare[i - begin] = items[i]
            left, right, at = 0, middle, begin
            while left < width:
                if right < end and _is_before(items[right], spare[left], first, second, third):
                    items[at] = items[right]
                    right += 1
                else:
                    items[at] = spare[left]
                    left += 1
                at += 1
        width *= 2
