"""One display zone for a whole page; what is computed, stored and put in an address stays UTC.

Axes are positions in UTC with labels in the display zone, so that a day of 23 or 25 hours is drawn
as long as it is.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from functools import cached_property
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from longpole_dashboard.model import text

SECOND_NS: Final = 1_000_000_000
LAST_NS: Final = 2**63 - 1
"""The latest moment that the store can hold (in the year 2262)."""
_DAY_S: Final = 86_400
_YEAR_S: Final = 365 * _DAY_S
_EDGE: Final = 10
"""A label within this part of the axis' length from an end may be hidden."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
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
            whole = moment - _EPOCH
        except (ValueError, OverflowError):
            return None
        ns = (whole.days * _DAY_S + whole.seconds) * SECOND_NS + whole.microseconds * 1_000
        return ns if 0 <= ns <= LAST_NS else None

    def ticks(self, start_ns: int, end_ns: int, most: int = 10) -> tuple[list[str], list[str]]:
        """Positions (UTC, for the axis) and labels (this zone) of 1 to ``most`` round times.

        At least one stands away from both ends: Plotly hides a label that would reach beyond the
        figure, and where all are hidden it cannot place the title below them.
        """
        step = _step_s(max(1, (end_ns - start_ns) // SECOND_NS), most)
        margin_ns = (end_ns - start_ns) // _EDGE
        seconds = self._round_times(start_ns, end_ns, step)
        if not any(start_ns + margin_ns <= s * SECOND_NS <= end_ns - margin_ns for s in seconds):
            middle_ns = (start_ns + end_ns) // 2
            return [axis(middle_ns)], [f"{self._at(middle_ns):%H:%M:%S<br>%b %d, %Y}"]
        labels: list[str] = []
        day = ""
        for second in seconds:
            local = self._at(second * SECOND_NS)
            time_of_day = local.strftime("%H:%M" if step >= 60 else "%H:%M:%S")
            told = f"{time_of_day}<br>{local:%b %d, %Y}"
            if step >= _DAY_S:
                told = local.strftime("%b %d<br>%Y")
            labels.append(time_of_day if day == f"{local:%F}" and step < _DAY_S else told)
            day = f"{local:%F}"
        return [axis(second * SECOND_NS) for second in seconds], labels

    def _round_times(self, start_ns: int, end_ns: int, step_s: int) -> list[int]:
        """Epoch seconds at which this zone's clock shows a multiple of the step."""
        first, last = -(-start_ns // SECOND_NS), end_ns // SECOND_NS
        shown = [self._shown(first), self._shown(last)]
        ahead = [at - second for at, second in zip(shown, (first, last), strict=True)]
        found: set[int] = set()
        for said in range((first + min(ahead)) // step_s * step_s, last + max(ahead), step_s):
            wall = _EPOCH + timedelta(seconds=said)
            for fold in (0, 1):  # an hour that comes twice, as clocks go back
                second = int(wall.replace(tzinfo=self._zone, fold=fold).timestamp())
                if first <= second < last and self._shown(second) == said:
                    found.add(second)
        return sorted(found)

    def ahead_s(self, second: int) -> int:
        """How far this zone's clock is ahead of UTC at a moment (epoch seconds)."""
        return self._shown(second) - second

    def _shown(self, second: int) -> int:
        """What this zone's clock shows, in seconds as if it were UTC."""
        local = datetime.fromtimestamp(second, tz=self._zone)
        return int(local.replace(tzinfo=UTC).timestamp())

    def _at(self, ns: int) -> datetime:
        return datetime.fromtimestamp(ns // SECOND_NS, tz=self._zone)


UTC_CLOCK: Final = Clock()
"""What everything is shown in unless the reader wants it otherwise."""


def _step_s(length_s: int, most: int) -> int:
    """The shortest round step that gives no more than ``most`` ticks; of years beyond a few."""
    years = length_s // (most * _YEAR_S) + 1
    return next((s for s in _STEPS_S if length_s // s < most), years * _YEAR_S)


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
