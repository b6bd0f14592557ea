"""One display zone for a whole page; what is computed, stored and put in an address stays UTC.

Axes are positions in UTC with labels in the display zone, so that a day of 23 or 25 hours is drawn
as long as it is.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from functools import cached_property
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from longpole_dashboard.model import text

SECOND_NS: Final = 1_000_000_000
LAST_NS: Final = 2**63 - 1
"""The latest moment that the store can hold (in the year 2262)."""
_DAY_S: Final = 86_400
_GRID_S: Final = 900
"""Offsets of zones are multiples of a quarter of an hour."""
_STEPS_S: Final = (
    *(1, 2, 5, 10, 15, 30),
    *(60 * n for n in (1, 2, 5, 10, 15, 30)),
    *(3_600 * n for n in (1, 2, 3, 6, 12)),
    *(_DAY_S * n for n in (1, 2, 7, 14, 28, 56, 112, 365)),
)


@dataclass(frozen=True)
class Clock:
    """Shows moments in a zone; an unknown zone is shown in UTC.

    Attributes:
        name: of the zone, as ``UTC`` or ``Europe/Berlin``.
    """

    name: str = "UTC"

    @cached_property
    def _zone(self) -> tzinfo:
        if self.name == "UTC":
            return UTC
        try:
            return ZoneInfo(self.name)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            return UTC

    @property
    def label(self) -> str:
        """What stands behind a time on the page: the zone's name."""
        return "UTC" if self._zone is UTC else self.name

    def text(self, ns: int | None, *, has_date: bool = True) -> str:
        """A moment to the second: ``2026-09-14 13:30:05``; a dash if unknown."""
        if ns is None:
            return text.UNKNOWN
        form = "%Y-%m-%d %H:%M:%S" if has_date else "%H:%M:%S"
        return self._at(ns).strftime(form)

    def stretch(self, start_ns: int, end_ns: int) -> str:
        """A stretch of time with its zone; the date once if it is the same."""
        first, last = self.text(start_ns), self.text(end_ns)
        if first[:10] == last[:10]:
            last = last[11:]
        return f"{first} to {last} {self.label}"

    def read(self, said: str) -> int | None:
        """Epoch ns of a time in ISO 8601, in this zone unless it names another; else ``None``."""
        try:
            moment = datetime.fromisoformat(said.strip())
            if moment.tzinfo is None:
                moment = moment.replace(tzinfo=self._zone)
            whole = moment - datetime(1970, 1, 1, tzinfo=UTC)
        except (ValueError, OverflowError):
            return None
        ns = (whole.days * _DAY_S + whole.seconds) * SECOND_NS + whole.microseconds * 1_000
        return ns if 0 <= ns <= LAST_NS else None

    def ticks(self, start_ns: int, end_ns: int, most: int = 10) -> tuple[list[str], list[str]]:
        """Positions (UTC, for the axis) and labels (this zone) of 1 to ``most`` round times."""
        length_s = max(1, (end_ns - start_ns) // SECOND_NS)
        step = next((s for s in _STEPS_S if length_s // s < most), length_s // most + 1)
        grid = min(step, _GRID_S)
        at: list[str] = []
        labels: list[str] = []
        day = ""
        for second in range(-(-start_ns // SECOND_NS // grid) * grid, end_ns // SECOND_NS, grid):
            local = self._at(second * SECOND_NS)
            offset = local.utcoffset()
            if (second + (int(offset.total_seconds()) if offset else 0)) % step:
                continue
            at.append(axis(second * SECOND_NS))
            time_of_day = local.strftime("%H:%M" if step >= 60 else "%H:%M:%S")
            told = f"{time_of_day}<br>{local:%b %d, %Y}"
            if step >= _DAY_S:
                told = local.strftime("%b %d<br>%Y")
            labels.append(time_of_day if day == f"{local:%F}" and step < _DAY_S else told)
            day = f"{local:%F}"
        if not at:  # too short for a round second: an axis without a label cannot be drawn
            middle_ns = (start_ns + end_ns) // 2
            return [axis(middle_ns)], [f"{self._at(middle_ns):%H:%M:%S<br>%b %d, %Y}"]
        return at, labels

    def _at(self, ns: int) -> datetime:
        return datetime.fromtimestamp(ns // SECOND_NS, tz=self._zone)


UTC_CLOCK: Final = Clock()
"""What everything is shown in unless the reader wants it otherwise."""


def axis(ns: int) -> str:
    """A moment as a position on a time axis, always in UTC: Plotly reads the text as it stands."""
    whole, rest = divmod(ns, SECOND_NS)
    moment = datetime.fromtimestamp(whole, tz=UTC).strftime("%Y-%m-%d %H:%M:%S")
    return f"{moment}.{rest // 1_000:06d}" if rest else moment


def iso(ns: int) -> str:
    """A moment as an address has it: ``2026-09-14T13:30:00Z``; with a fraction where it has one."""
    said = axis(ns).replace(" ", "T")
    return f"{said.rstrip('0') if '.' in said else said}Z"


def stretch_words(start_ns: int, end_ns: int) -> list[str]:
    """A stretch of time as options of commands, which read whole microseconds."""
    return ["--since", iso(start_ns // 1_000 * 1_000), "--at", iso(-(-end_ns // 1_000) * 1_000)]
