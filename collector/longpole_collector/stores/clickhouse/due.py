"""What is due: the traces whose row knows another number of spans than are stored.

Workers share the traces by ranges of their ids. The tables are sorted by stretches of ten minutes
and then by id, so each reads its own part of every stretch, and no worker need know of another.
A range is only a division of work: two that overlap do some of it twice, and nothing wrong.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from time import monotonic
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from longpole.errors import UsageError
from longpole_collector.stores.clickhouse.client import SETTINGS, Client
from longpole_collector.stores.clickhouse.schema import STRETCH_NS, note, noted

BATCH_SPANS: Final = 65_536
"""Settled at once: the more, the less a question costs a span."""
BATCH_TRACES: Final = 10_000
SLACK_NS: Final = 86_400_000_000_000
"""A trace is looked for from a day before its latest spans on."""
QUIET_NS: Final = 1_000_000_000
"""A trace waits so long after its last span, while others still come."""
PATIENCE_NS: Final = 5_000_000_000
"""One that never gets quiet is settled from then on."""
LATE_NS: Final = 1_800_000_000_000
"""Spans that began longer ago are looked for in thorough looks only,"""
_SHORT_NS: Final = 600_000_000_000
"""and the other looks go back so far from the others: a root begins before all below it."""
_CHEAP_S: Final = 0.5
_REST: Final = 20
"""Where a thorough look takes longer than that, a twentieth of the time goes into such looks."""
_MARGIN_NS: Final = 60_000_000_000
"""A block is dated when its insert begins, and seen when it ends."""
_NOTED_EVERY_NS: Final = 10_000_000_000
_STRETCH: Final = f"intDiv(start_ns, {STRETCH_NS})"
_WORDS: Final = re.compile(r"(\d{1,6})/(\d{1,6})")
_IDS: Final = re.compile(r"[0-9a-f,']+")
LONG: Final[dict[str, Any]] = {
    **SETTINGS,
    "max_query_size": 16 << 20,
    "ignore_data_skipping_indices": "by_trace",
}
"""For statements that ask for thousands of traces: an index for one of them would cost more."""
_DUE: Final = """
WITH
    (SELECT min(start_ns) FROM span_rows WHERE {new}) AS first,
    recent AS (SELECT trace_id FROM span_rows WHERE {new} AND {from_first})
SELECT s.trace_id AS trace_id, s.num AS num, s.since_ns AS since_ns, s.until_ns AS until_ns
FROM (
    SELECT
        trace_id, uniqExact(span_id, start_ns) AS num,
        min(start_ns) AS since_ns, max(start_ns) AS until_ns,
        min(stored_ns) AS first_ns, max(stored_ns) AS last_ns, countIf(parent_id IS NULL) AS roots
    FROM span_rows
    WHERE trace_id IN (recent) AND {own} AND {from_slack}
    GROUP BY trace_id
    HAVING (last_ns <= {quiet:Int64} OR first_ns <= {patient:Int64}) AND roots >= {roots:UInt8}
) AS s
LEFT JOIN (
    SELECT trace_id, num_rows, rollup_version FROM trace_rows FINAL
    WHERE trace_id IN (recent) AND {own} AND {from_slack}
) AS t ON s.trace_id = t.trace_id
WHERE coalesce(t.num_rows, 0) <> s.num OR coalesce(t.rollup_version, 0) <> {version:UInt32}
ORDER BY intDiv(since_ns, {stretch}), trace_id
LIMIT 1 BY trace_id
LIMIT {most:UInt64}
"""


class Shard(NamedTuple):
    """One of several equal ranges of trace ids, counted from 1."""

    number: int = 1
    of: int = 1

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"

    @property
    def condition(self) -> str:
        """Which trace ids lie in it."""
        parts = ["1"]
        if self.number > 1:
            parts.append(f"trace_id >= '{self._edge(self.number - 1)}'")
        if self.number < self.of:
            parts.append(f"trace_id < '{self._edge(self.number)}'")
        return " AND ".join(parts)

    def _edge(self, number: int) -> str:
        return f"{(number << 64) // self.of:016x}"


WHOLE: Final = Shard()


class Window(NamedTuple):
    """Traces with a span that begins in [since, until), in Unix nanoseconds; ``None`` is open."""

    since_ns: int | None = None
    until_ns: int | None = None


class Due(NamedTuple):
    """Some traces that are due, and when their spans begin."""

    trace_ids: list[str]
    since_ns: int
    until_ns: int


class Finding:
    """Finds what is due in one shard, and notes how far it is settled."""

    def __init__(self, client: Client, version: int, shard: Shard) -> None:
        """Nothing is asked yet.

        Args:
            client: the connection.
            version: of the roll-up that rows must be from.
            shard: whose traces.
        """
        self._client = client
        self._version = version
        self._shard = shard
        self._key = f"settled {shard}"
        self._noted_ns = self._looked_ns = 0
        self._thorough_s = 0.0

    def find(
        self, most: int | None, window: Window | None, *, is_busy: bool
    ) -> tuple[pa.Table, int]:
        """The traces that are due, and up to when all that was stored is among them.

        While spans come, not every look is thorough where that takes long: the others see only
        traces whose root began lately, and say 0.

        Args:
            most: how many at most; ``None`` is all.
            window: only these, whenever they were stored; ``None`` is all since what was noted.
            is_busy: spans still come: traces wait until they are quiet.
        """
        now_ns, begun_s = server_ns(self._client), monotonic()
        is_thorough = not is_busy or window is not None or begun_s >= self._thorough_s
        new = [self._shard.condition]
        if window is not None:
            edges = ((">=", window.since_ns), ("<", window.until_ns))
            new += [f"start_ns {sign} {int(ns)}" for sign, ns in edges if ns is not None]
        elif is_thorough:
            new.append(f"stored_ns >= {self._since_ns()}")
        else:
            new.append(f"stored_ns >= {self._looked_ns - _MARGIN_NS}")
            new.append(since(str(now_ns - LATE_NS)))
        asked = _DUE.replace("{new}", " AND ".join(new)).replace("{own}", self._shard.condition)
        asked = asked.replace("{stretch}", str(STRETCH_NS)).replace("{from_first}", since("first"))
        asked = asked.replace("{from_slack}", since("first - {slack:Int64}"))
        found = self._client.ask(
            asked,
            LONG,
            version=self._version,
            slack=SLACK_NS if is_thorough else _SHORT_NS,
            roots=0 if is_thorough else 1,
            quiet=now_ns - QUIET_NS if is_busy else _LAST_NS,
            patient=now_ns - PATIENCE_NS if is_busy else _LAST_NS,
            most=1 << 62 if most is None else most,
        )
        is_first, self._looked_ns = not self._looked_ns, now_ns
        if not is_thorough:
            return found, 0
        took_s = monotonic() - begun_s
        is_cheap = is_first or took_s < _CHEAP_S  # the first one reads what later ones do not
        self._thorough_s = monotonic() + (0 if is_cheap else _REST * took_s)
        return found, now_ns

    def note(self, settled_ns: int) -> None:
        """Write down that what was stored until then is settled; often asked, seldom done."""
        if settled_ns > self._noted_ns + _NOTED_EVERY_NS:
            note(self._client, self._key, f"{self._version}:{settled_ns}")
            self._noted_ns = settled_ns

    def _since_ns(self) -> int:
        """From when on stored spans may be due."""
        if not self._noted_ns:
            version, _, settled_ns = (noted(self._client, self._key) or "").partition(":")
            self._noted_ns = int(settled_ns) if version == str(self._version) else 0
        return self._noted_ns - _MARGIN_NS if self._noted_ns else 0


_LAST_NS: Final = (1 << 63) - 1


def shard_of(text: str) -> Shard:
    """The shard that ``i/n`` names.

    Raises:
        UsageError: it names none.
    """
    found = _WORDS.fullmatch(text.strip())
    shard = Shard(int(found[1]), int(found[2])) if found else None
    if shard is None or not 1 <= shard.number <= shard.of:
        raise UsageError(f"--shards '{text}': write i/n, the first of two is 1/2, the second 2/2")
    return shard


def batches(due: pa.Table) -> Iterator[Due]:
    """Traces that are due in parts of about :data:`BATCH_SPANS` spans, in the tables' order."""
    if not due.num_rows:
        return
    spans_before = np.cumsum(due["num"].to_numpy()) - due["num"].to_numpy()
    number = spans_before // BATCH_SPANS + np.arange(due.num_rows) // BATCH_TRACES
    edges = [0, *(np.flatnonzero(np.diff(number)) + 1).tolist(), due.num_rows]
    for first, end in pairwise(edges):
        part = due.slice(first, end - first)
        since, until = (part[name].to_numpy() for name in ("since_ns", "until_ns"))
        yield Due(part["trace_id"].to_pylist(), int(since.min()), int(until.max()))


def of_traces(trace_ids: Sequence[str], since_ns: int, until_ns: int) -> str:
    """The condition for rows of these traces that begin in [since, until]."""
    ids = "'" + "','".join(trace_ids) + "'"
    assert _IDS.fullmatch(ids), "ids are hex"  # noqa: S101 - they come from our own rows
    return f"trace_id IN ({ids}) AND {between(since_ns, until_ns)}"


def since(start: str) -> str:
    """The condition for rows that begin then or later, as the tables are sorted."""
    return f"start_ns >= {start} AND {_STRETCH} >= intDiv({start}, {STRETCH_NS})"


def between(since_ns: int, until_ns: int) -> str:
    """The condition for rows that begin in [since, until], as the tables are sorted."""
    last = f"start_ns <= {until_ns} AND {_STRETCH} <= intDiv({until_ns}, {STRETCH_NS})"
    return f"{since(str(since_ns))} AND {last}"


def server_ns(client: Client) -> int:
    """The server's clock: those of several workers may differ."""
    found = client.ask("SELECT toUnixTimestamp64Nano(now64(9)) AS now_ns")
    return int(found["now_ns"][0].as_py())
