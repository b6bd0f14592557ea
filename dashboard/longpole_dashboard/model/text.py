"""How numbers, times and names become text: one rule for every page.

Milliseconds under 10 s, seconds above; three significant digits; thousands separated; time is
UTC and says so; unknown is a dash, never 0.
"""

import html
import re
from datetime import UTC, datetime
from math import floor, log10
from typing import Final

UNKNOWN: Final = "—"
SECOND_MS: Final = 1_000.0


def significant(value: float, digits: int = 3) -> str:
    """``value`` to ``digits`` significant digits, thousands separated; 0 is ``0``."""
    if value == 0:
        return "0"
    decimals = digits - 1 - floor(log10(abs(value)))
    rounded = round(value, decimals)
    # Rounding may add a digit (9.996 -> 10.0): count again.
    decimals = digits - 1 - floor(log10(abs(rounded)))
    return f"{rounded:,.{max(0, decimals)}f}"


def duration(ms: float | None) -> str:
    """A duration with its unit: ``332 ms``, ``5,840 ms``, ``13.6 s``; a dash if unknown."""
    if ms is None:
        return UNKNOWN
    if abs(ms) < 10 * SECOND_MS:
        return f"{significant(ms)} ms"
    return f"{significant(ms / SECOND_MS)} s"


def span_of(low_ms: float, high_ms: float) -> str:
    """A range of durations in the unit of its upper end: ``320 to 345 ms``."""
    if abs(high_ms) < 10 * SECOND_MS:
        return f"{significant(low_ms)} to {significant(high_ms)} ms"
    return f"{significant(low_ms / SECOND_MS)} to {significant(high_ms / SECOND_MS)} s"


def count(n: float | None) -> str:
    """A count, thousands separated, an estimated one as a whole number; a dash if unknown."""
    return UNKNOWN if n is None else f"{round(n):,}"


def counted(n: float, noun: str) -> str:
    """A count with its noun: ``1 call``, ``1,234 calls``."""
    return f"{round(n):,} {noun}{'' if n == 1 else 's'}"


def percent(ratio: float | None, digits: int = 1) -> str:
    """A ratio 0..1 as per cent: ``97.9 %``; a dash if unknown."""
    return UNKNOWN if ratio is None else f"{100 * ratio:.{digits}f} %"


def utc(ns: int | None, *, has_date: bool = True) -> str:
    """A moment in UTC to the second: ``2026-09-14 13:30:05``; a dash if unknown."""
    if ns is None:
        return UNKNOWN
    moment = datetime.fromtimestamp(ns // 1_000_000_000, tz=UTC)
    return moment.strftime("%Y-%m-%d %H:%M:%S" if has_date else "%H:%M:%S")


def ago(ns: int, now_ns: int) -> str:
    """How long ago, in one unit: ``12 s``, ``5 min``, ``3 h``, ``2 d``; the future is ``0 s``."""
    seconds = max(0, now_ns - ns) // 1_000_000_000
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def escaped(said: str) -> str:
    """Text for HTML: what it says, and nothing that it does."""
    return html.escape(said)


def markdown(said: str) -> str:
    """Text for a label that reads Markdown: every sign stands for itself, in one line."""
    return re.sub(r"([!-/:-@\[-`{-~])", r"\\\1", " ".join(said.split()))
