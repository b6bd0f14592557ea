"""A region of the map of time by metric: from a chart's event, from an address, and back."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any, Final

from longpole_dashboard.model.clock import UTC_CLOCK, iso

_LAST: Final = 1e300


@dataclass(frozen=True)
class Box:
    """Workflows that start in ``[start_ns, end_ns)`` with ``low < value <= high``.

    ``None`` is open on that side.
    """

    start_ns: int | None = None
    end_ns: int | None = None
    low: float | None = None
    high: float | None = None

    @property
    def is_whole_time(self) -> bool:
        """Whether it takes all of the window."""
        return self.start_ns is None and self.end_ns is None


def box_to_filter(event: Mapping[str, Any] | None) -> Box | None:
    """The box that was drawn on the map last; ``None`` when there is none.

    Args:
        event: what Streamlit says of a Plotly chart's selection. Times are text in UTC, each side
            in either order.
    """
    drawn = ((event or {}).get("selection") or {}).get("box") or ()
    for each in reversed(drawn):
        times = [_time(value) for value in each.get("x") or ()]
        values = [_value(value) for value in each.get("y") or ()]
        known_times = [ns for ns in times if ns is not None]
        known_values = [value for value in values if value is not None]
        if len(known_times) < 2 or len(known_values) < 2:
            continue
        found = Box(min(known_times), max(known_times), min(known_values), max(known_values))
        if found.start_ns != found.end_ns and found.low != found.high:
            return found
    return None


def read_box(said: str | None) -> tuple[Box | None, str | None]:
    """The box of an address, and a sentence where it is none.

    Args:
        said: four parts with commas between, from, to, above and up to, each may be empty:
            ``2026-09-14T13:30:00Z,2026-09-14T15:00:00Z,2000,``.
    """
    if not said:
        return None, None
    wrong = (
        "The address has no box of four parts (from, to, above, up to): the slow ones are boxed."
    )
    parts = said.split(",")
    if len(parts) != 4:
        return None, wrong
    times = [UTC_CLOCK.read(part) if part else None for part in parts[:2]]
    values = [_value(part) if part else None for part in parts[2:]]
    given = [part is not None for part in (*times, *values)]
    if given != [bool(part) for part in parts] or not any(given):
        return None, wrong
    if not (_is_ordered(*times) and _is_ordered(*values)):
        return None, wrong
    return Box(times[0], times[1], values[0], values[1]), None


def spelled(box: Box) -> str:
    """A box as an address has it; :func:`read_box` takes it back."""
    times = ("" if ns is None else iso(ns) for ns in (box.start_ns, box.end_ns))
    values = ("" if value is None else f"{value:.17g}" for value in (box.low, box.high))
    return ",".join((*times, *values))


def _is_ordered(first: float | None, second: float | None) -> bool:
    return first is None or second is None or first < second


def _time(said: object) -> int | None:
    # Plotly writes fractions of a millisecond with any number of digits
    whole, has_fraction, fraction = str(said).partition(".")
    digits = "".join(digit for digit in fraction if digit.isdigit())[:6]
    return UTC_CLOCK.read(f"{whole}.{digits.ljust(6, '0')}" if has_fraction else whole)


def _value(said: object) -> float | None:
    try:
        value = float(str(said))
    except ValueError:
        return None
    return value if isfinite(value) and 0 <= value < _LAST else None
