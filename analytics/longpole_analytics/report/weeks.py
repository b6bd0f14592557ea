"""Weeks and schedules in a time zone, true to its days of 23 and 25 hours.

A week is that of ISO 8601: it begins on Monday at midnight of the zone. A time of day that a
change of the clocks leaves out is taken as it would have been; one that comes twice is the first.
"""

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from longpole.errors import UsageError

DAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
EXAMPLE: Final = "mon 07:00 Europe/Berlin"
_WEEK: Final = re.compile(r"(\d{4})-?W(\d{2})", re.IGNORECASE)
_TIME: Final = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Window(NamedTuple):
    """The time of a report.

    Attributes:
        since_ns: its begin, Unix epoch nanoseconds.
        until_ns: its end, which is outside.
        week: the ISO week, as ``2026-W37``; ``None`` for any other stretch.
        tz: the zone that its days are told in.
    """

    since_ns: int
    until_ns: int
    week: str | None
    tz: str

    @property
    def name(self) -> str:
        """The week, or the first moment: what the report is called."""
        return self.week or self.local(self.since_ns).strftime("%Y-%m-%dT%H%M")

    def local(self, at_ns: int) -> datetime:
        """A moment in the zone."""
        return moment(at_ns).astimezone(ZoneInfo(self.tz))

    def text(self, at_ns: int) -> str:
        """A moment in the zone, for people."""
        return self.local(at_ns).strftime("%a %Y-%m-%d %H:%M %Z")

    def days(self) -> "list[Day]":
        """Its days in the zone, the first and last as far as they are inside."""
        zone = ZoneInfo(self.tz)
        found: list[Day] = []
        day = self.local(self.since_ns).date()
        while (begin := nanoseconds(datetime.combine(day, time(), zone))) < self.until_ns:
            day += timedelta(days=1)
            end = nanoseconds(datetime.combine(day, time(), zone))
            name = (day - timedelta(days=1)).isoformat()
            found.append(Day(name, max(begin, self.since_ns), min(end, self.until_ns)))
        return found


class Day(NamedTuple):
    """A day, [since, until) in Unix epoch nanoseconds."""

    name: str
    since_ns: int
    until_ns: int


@dataclass(frozen=True)
class Schedule:
    """When a report is made: a day of the week and a time of it, in a zone."""

    weekday: int
    at: time
    tz: str

    def after(self, at_ns: int) -> int:
        """The first moment after ``at_ns``, Unix epoch nanoseconds."""
        zone = ZoneInfo(self.tz)
        today = moment(at_ns).astimezone(zone).date()
        day = today + timedelta(days=(self.weekday - today.weekday()) % 7 - 7)
        while (found := nanoseconds(datetime.combine(day, self.at, zone))) <= at_ns:
            day += timedelta(days=7)
        return found


def zone(name: str, where: str) -> str:
    """The name of a time zone that there is.

    Raises:
        UsageError: there is none; ``where`` says who asked.
    """
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise UsageError(f"{where}: no time zone '{name}': write one as Europe/Berlin") from error
    return name


def schedule(text: str, where: str) -> Schedule:
    """A schedule as it is written: ``mon 07:00 Europe/Berlin``; without a zone it is UTC.

    Raises:
        UsageError: it cannot be read; ``where`` says who asked.
    """
    parts = text.split()
    found = _TIME.fullmatch(parts[1]) if len(parts) in (2, 3) else None
    day = parts[0].lower()[:3] if parts else ""
    names = [f"{name}day" for name in ("mon", "tues", "wednes", "thurs", "fri", "satur", "sun")]
    if found is None or day not in DAYS or parts[0].lower() not in (*DAYS, *names):
        raise UsageError(f"{where} '{text}': write a day, a time and a zone, as {EXAMPLE}")
    tz = zone(parts[2], where) if len(parts) == 3 else "UTC"
    return Schedule(DAYS.index(day), time(int(found[1]), int(found[2])), tz)


def week(text: str, tz: str) -> Window:
    """An ISO week, as ``2026-W37``, in a zone.

    Raises:
        UsageError: there is no such week.
    """
    found = _WEEK.fullmatch(text.strip())
    try:
        if found is None:
            raise ValueError(text)
        monday = date.fromisocalendar(int(found[1]), int(found[2]), 1)
        return _week_of(monday, tz)
    except (ValueError, OverflowError) as error:
        raise UsageError(f"--week '{text}': write an ISO week, as 2026-W37") from error


def last_week(at_ns: int, tz: str) -> Window:
    """The last whole week before a moment."""
    today = moment(at_ns).astimezone(ZoneInfo(tz)).date()
    return _week_of(today - timedelta(days=today.weekday() + 7), tz)


def earlier(window: Window, num: int) -> Window:
    """The window ``num`` before, of the same length; a week before a week, by the calendar."""
    if window.week is not None:
        monday = window.local(window.since_ns).date()
        return _week_of(monday - timedelta(days=7 * num), window.tz)
    length = window.until_ns - window.since_ns
    return Window(window.since_ns - num * length, window.until_ns - num * length, None, window.tz)


def moment(at_ns: int) -> datetime:
    """Unix epoch nanoseconds as a time, UTC; what is below a microsecond is dropped."""
    return _EPOCH + timedelta(microseconds=at_ns // 1000)


def nanoseconds(at: datetime) -> int:
    """A time as Unix epoch nanoseconds."""
    whole = at.astimezone(UTC) - _EPOCH
    return (whole.days * 86_400 + whole.seconds) * 10**9 + whole.microseconds * 1000


def iso(at_ns: int) -> str:
    """A moment in ISO 8601, UTC, as the options ``--since`` and ``--at`` read it."""
    found = moment(at_ns)
    text = found.strftime("%Y-%m-%dT%H:%M:%S")
    return f"{text}.{found.microsecond:06}Z" if found.microsecond else f"{text}Z"


def _week_of(monday: date, tz: str) -> Window:
    zone_of = ZoneInfo(tz)
    begin, end = (
        nanoseconds(datetime.combine(monday + timedelta(days=days), time(), zone_of))
        for days in (0, 7)
    )
    year, number, _ = monday.isocalendar()
    return Window(begin, end, f"{year:04}-W{number:02}", tz)
