"""What a page loads, and its command would: a stretch of time and a condition, never too much.

A page that reads single workflows reads the newest ones only: where a window holds more, it is
narrowed, and the command of the page is told the narrower window. So both say the same, and the
page says what it left out.
"""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from longpole_collector.stores.base import Reader, Value
from longpole_dashboard.model import text
from longpole_dashboard.model.clock import iso
from longpole_dashboard.model.window import Filters, Match

MAX_TRACES: Final = 20_000
MAX_SPANS: Final = 400_000
"""Workflows, and spans in them, that a page reads at most."""
_US: Final = 1_000
_NAMES: Final = {"is_cold_start": "is_cold"}
"""What requests call a column of calls."""

_INSIDE: Final = "FROM traces WHERE start_ns >= $since AND start_ns < $until"
_CUT: Final = f"""
WITH newest AS (
    SELECT start_ns, num_spans {_INSIDE} ORDER BY start_ns DESC LIMIT CAST($most AS BIGINT) + 1),
counted AS (
    SELECT start_ns, row_number() OVER latest AS place,
           sum(coalesce(num_spans, 0)) OVER latest AS num_spans
    FROM newest
    WINDOW latest AS (ORDER BY start_ns DESC ROWS UNBOUNDED PRECEDING))
SELECT max(start_ns) AS cut_ns FROM counted
WHERE place > 1 AND (place > $most OR num_spans > $spans)
"""  # noqa: S608 - ours
"""The newest workflow that is one too many; null if none is."""

Table = Literal["requests", "calls"]


@dataclass(frozen=True)
class Scope:
    """What is loaded: what began in [since, until), whole microseconds, and meets a condition.

    Attributes:
        since_ns: Unix epoch nanoseconds.
        until_ns: likewise.
        where: SQL, as ``--where`` of a command takes it; ``None`` is everything.
        num_left_out: workflows of the window before ``since_ns``, left out as too many.
        unfit: conditions that the table cannot tell, which do not hold here.
    """

    since_ns: int
    until_ns: int
    where: str | None = None
    num_left_out: int = 0
    unfit: tuple[str, ...] = ()

    @property
    def between(self) -> tuple[int, int]:
        """The two times."""
        return self.since_ns, self.until_ns

    @property
    def range(self) -> str:
        """The two times as ``longpole compare`` takes a side."""
        return f"{iso(self.since_ns)}..{iso(self.until_ns)}"

    def command(self, name: str, *options: str) -> str:
        """``longpole NAME`` over the same, but for the source, as a shell reads it."""
        words = ["longpole", *name.split(), "--since", iso(self.since_ns)]
        words += ["--at", iso(self.until_ns)]
        words += ["--where", self.where] if self.where else []
        return shlex.join([*words, *options, "--json"])

    def limits(self) -> tuple[str, ...]:
        """A sentence for each thing that the page must admit; none where it shows everything."""
        said = []
        if self.num_left_out:
            said.append(
                f"Only the newest workflows are read, those since {iso(self.since_ns)}: "
                f"{text.counted(self.num_left_out, 'older one')} of the range "
                f"{'is' if self.num_left_out == 1 else 'are'} left out. Narrow the range."
            )
        if self.unfit:
            said.append(f"Calls do not tell {', '.join(self.unfit)}: all are shown.")
        return tuple(said)


def scope(
    filters: Filters,
    reader: Reader,
    *,
    table: Table = "requests",
    most: int = MAX_TRACES,
    most_spans: int = MAX_SPANS,
) -> Scope:
    """What to load for these filters.

    Args:
        filters: of the bar.
        reader: the store.
        table: what the condition is about.
        most: workflows, of all routes.
        most_spans: spans in them.
    """
    where, unfit = condition(filters.where, table, reader)
    since_ns = filters.start_ns // _US * _US
    until_ns = -(-filters.end_ns // _US) * _US
    given: dict[str, Value] = {"since": since_ns, "until": until_ns}
    (row,) = reader.sql(_CUT, {**given, "most": most, "spans": most_spans}).to_pylist()
    if row["cut_ns"] is None:
        return Scope(since_ns, until_ns, where, 0, unfit)
    given["until"] = since_ns = (row["cut_ns"] // _US + 1) * _US
    (older,) = reader.sql(f"SELECT count(*) AS n {_INSIDE}", given).to_pylist()
    return Scope(since_ns, until_ns, where, older["n"], unfit)


def condition(
    matches: Sequence[Match], table: Table, reader: Reader
) -> tuple[str | None, tuple[str, ...]]:
    """The matches as one condition in SQL, and the columns of those that the table has not."""
    unfit: list[str] = []
    if matches and table == "calls":
        known = reader.sql("SELECT * FROM calls LIMIT 0").column_names
        unfit = [match.column for match in matches if match.column not in known]
    parts = [_condition(match, table) for match in matches if match.column not in unfit]
    return " AND ".join(parts) or None, tuple(dict.fromkeys(unfit))


def _condition(match: Match, table: Table) -> str:
    name = match.column if table == "calls" else _NAMES.get(match.column, match.column)
    value = "'" + (match.value or "").replace("'", "''") + "'"
    if match.value is not None and not match.is_not and not name.startswith("is_"):
        return f"{name} = {value}"
    return f"coalesce(CAST({name} AS VARCHAR), '') {'<>' if match.is_not else '='} {value}"
