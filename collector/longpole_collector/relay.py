"""Where traces are sampled and a ClickHouse store gets those that are kept: the half before it.

What comes is stored, rolled up, decided about and counted in a local store below the data folder,
by the code of any local store (:mod:`longpole_collector.thinning`). Whole traces that are kept are
sent on with their weights, and with them the counts of what is not. Only what is saved here is
sent, so nothing that the other store knows is ever decided anew; what is sent again because its
answer never came replaces itself over there. Files of days that are over and sent are dropped.

A trace is decided by the spans that this collector has of it: all of them must come to one.
"""

import logging
import secrets
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event, Lock, Thread
from time import monotonic
from typing import Any, Final

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from longpole.errors import LongpoleError, UsageError
from longpole.vocab import Rollup
from longpole_collector.content import KEY_FILE, Policy, Scrubber, load_key
from longpole_collector.decode import Received
from longpole_collector.far import FarWriter, put_text
from longpole_collector.health import Health
from longpole_collector.ingest import UNDECIDED_FOLDER
from longpole_collector.sampling_rules import SamplingRules
from longpole_collector.stores.clickhouse.far import STORING, FarStore
from longpole_collector.stores.clickhouse.otel import shared_key
from longpole_collector.stores.clickhouse.schema import GONE_MINUTES
from longpole_collector.stores.connection import Limits
from longpole_collector.stores.days import Day
from longpole_collector.stores.duckdb import DuckStore
from longpole_collector.stores.schema import (
    MINUTES,
    SPANS,
    TRACE_HI,
    TRACE_LO,
    TRACES,
    arrow_schema,
)
from longpole_collector.wal import Position
from longpole_collector.writer import Writer

SENT: Final = "sent"
"""The file that says up to which decision all was sent."""
_SENDER: Final = "sender"
_TRACES_AT_ONCE: Final = 4000
_MOST_QUEUED: Final = 1_000_000
"""Ids in memory; of more, as after a restart, they are looked up in the store."""
_POLL_S: Final = 1.0
_RETRY_S: Final = 2.0
_FAREWELL_S: Final = 10.0
_TIDY_S: Final = 600.0
_KEYS: Final = f"{TRACE_HI}, {TRACE_LO}"
_NAMES: Final = ", ".join(arrow_schema(SPANS).names)
_SLICE: Final = "service, route, prompt_version, request_model, metric, bucket, is_stage"
_IDS: Final = f"{_KEYS}, first_start_ns, last_start_ns, decided_ns"
_log = logging.getLogger("longpole.collector.relay")


class Relay:
    """Sends on what is decided and saved, in a thread of its own."""

    def __init__(
        self, far: FarStore, folder: Path, health: Health, policy: Policy, limits: Limits
    ) -> None:
        """Open the local half.

        Args:
            far: the ClickHouse store; it need not answer now.
            folder: the project's data folder.
            health: counts what cannot be stored.
            policy: what is kept of prompts and ids.
            limits: of the local half, its memory.

        Raises:
            StoreBusy, Unreachable: as :class:`~longpole_collector.stores.duckdb.DuckStore`.
        """
        self.folder = folder / UNDECIDED_FOLDER
        self.store = DuckStore(self.folder, limits=limits)
        self._far = far
        self._out = _Out(far, folder, self.folder, health, policy)
        self._sender = _once(self.folder / _SENDER)
        self._lock = Lock()
        self._queue: deque[tuple[pa.Table, int]] = deque()
        self._sent_ns = sent_ns(self.folder)
        self._in_store_ns, self._num_in_store = self._unsent()
        self._told: dict[tuple[str, int], int] = {}
        self._counts: tuple[pa.Table, dict[tuple[str, int], int]] | None = None
        self._look_at_counts()
        self._tidy_s = 0.0
        self._has_ended = Event()
        self._thread = Thread(target=self._run, name="longpole-relay", daemon=True)
        health.gauge("unsent_traces", self.num_waiting)

    def num_waiting(self) -> int:
        """Traces that were kept and saved here and are not sent yet."""
        with self._lock:
            return self._num_in_store + self._num_queued()

    def key(self) -> bytes:
        """The key of pseudonyms, which all who write to the other store share; kept here too.

        Raises:
            Unreachable: it is not known here yet, and the other store does not answer.
        """
        if not (self.folder / KEY_FILE).exists():
            with self._far.reached(STORING) as store:
                found = shared_key(store.client)
            draft = self.folder / f"{KEY_FILE}.new"
            draft.touch(mode=0o600)
            draft.write_bytes(found)
            draft.replace(self.folder / KEY_FILE)
        return load_key(self.folder)

    def start(self) -> None:
        """Begin to send."""
        self._thread.start()

    def release(self, kept: Sequence[tuple[pa.Table, int]]) -> None:
        """Send these from now on, and what was counted: all of it is saved.

        Of the thread that writes the store, which writes nothing meanwhile.

        Args:
            kept: as :data:`~longpole_collector.thinning.Kept` is told, in that order.
        """
        with self._lock:
            self._queue.extend(kept)
            if self._num_queued() > _MOST_QUEUED:
                self._num_in_store += self._num_queued()
                self._in_store_ns = self._queue[-1][1]
                self._queue.clear()
        self._look_at_counts()

    def stop(self) -> None:
        """Send what there is, if the other store takes it, and let go of the local half."""
        self._has_ended.set()
        if self._thread.is_alive():
            self._thread.join()
        self.store.close()

    # --- inside ---------------------------------------------------------------------------------
    def _num_queued(self) -> int:
        num: int = sum(ids.num_rows for ids, _ in self._queue)
        return num

    def _run(self) -> None:
        wait_s, said, end_s = 0.0, "", float("inf")
        while monotonic() < end_s:
            if self._has_ended.wait(wait_s) and end_s == float("inf"):
                end_s = monotonic() + _FAREWELL_S
            try:
                is_more = self._send()
                wait_s, said = 0.0 if is_more else _POLL_S, ""
                if self._has_ended.is_set() and not is_more:
                    return
            except (LongpoleError, duckdb.Error, OSError) as error:  # all is here, and sent later
                if str(error) != said:
                    _log.warning("what is kept waits here: %s", error)
                wait_s, said = _RETRY_S, str(error)
                if self._has_ended.is_set():
                    return

    def _send(self) -> bool:
        """Send some of what waits; whether there is more."""
        with self._lock:
            counts, self._counts = self._counts, None
        if counts is not None:
            self._send_counts(*counts)
        ids, upto_ns = self._next()
        if ids is None:
            if monotonic() >= self._tidy_s:
                self._tidy_s = monotonic() + _TIDY_S
                self._drop_days()
            return False
        self._out.write(self._spans(ids))
        put_text(self.folder / SENT, str(upto_ns))
        with self._lock:
            if self._sent_ns < self._in_store_ns:
                self._num_in_store -= ids.num_rows
            else:
                while self._queue and self._queue[0][1] <= upto_ns:
                    self._queue.popleft()
            self._sent_ns = upto_ns
        return True

    def _next(self) -> tuple[pa.Table | None, int]:
        """The traces to send next, and up to which decision that is all."""
        with self._lock:
            if self._sent_ns >= self._in_store_ns:
                parts: list[pa.Table] = []
                upto_ns = self._sent_ns
                for ids, at_ns in self._queue:
                    if sum(part.num_rows for part in parts) >= _TRACES_AT_ONCE:
                        break
                    parts.append(ids)
                    upto_ns = at_ns
                return (pa.concat_tables(parts) if parts else None), upto_ns
        with self.store.writing() as reader:
            found = reader.sql(
                f"SELECT {_IDS} FROM {TRACES.name} WHERE decided_ns > {self._sent_ns} "  # noqa: S608
                f"AND decided_ns <= {self._in_store_ns} ORDER BY decided_ns "
                f"LIMIT {2 * _TRACES_AT_ONCE}"
            ).to_arrow_table()
        if found.num_rows == 0:  # their files went
            with self._lock:
                self._sent_ns, self._num_in_store = self._in_store_ns, 0
            return self._next()
        last_ns = found["decided_ns"][-1].as_py()
        if found.num_rows == 2 * _TRACES_AT_ONCE:  # of the last decision perhaps not all
            whole = found.filter(pc.less(found["decided_ns"], last_ns))
            if whole.num_rows:
                found, last_ns = whole, whole["decided_ns"][-1].as_py()
        return found, last_ns

    def _spans(self, ids: pa.Table) -> pa.Table:
        low = ids["first_start_ns"].to_numpy().min()
        high = ids["last_start_ns"].to_numpy().max()
        with self.store.writing(wanted=ids.select([TRACE_HI, TRACE_LO])) as reader:
            found: Any = reader.sql(
                f"SELECT {_NAMES} FROM {SPANS.name} SEMI JOIN wanted USING ({_KEYS}) "  # noqa: S608
                f"WHERE start_ns BETWEEN {low} AND {high}"
            ).to_arrow_table()
        return found

    def _unsent(self) -> tuple[int, int]:
        """The last decision in the store, and how many traces were not sent."""
        with self.store.writing() as reader:
            ((last_ns, num),) = reader.execute(
                "SELECT coalesce(max(decided_ns), 0), count(*) FILTER (decided_ns > $1) "  # noqa: S608
                f"FROM {TRACES.name}",
                [self._sent_ns],
            ).fetchall()
        return int(last_ns), int(num)

    def _look_at_counts(self) -> None:
        """Take the counts of the minutes of which the other store knows others."""
        with self.store.writing() as reader:
            found = reader.execute(
                f"SELECT day, start_ns, sum(num)::BIGINT FROM {MINUTES.name} "  # noqa: S608
                "WHERE is_gone GROUP BY ALL"
            ).fetchall()
            nums = {(day, start_ns): num for day, start_ns, num in found}
            changed = {key: num for key, num in nums.items() if self._told.get(key) != num}
            if not changed:
                return
            days, starts = zip(*changed, strict=True)
        with self.store.writing(wanted=pa.table({"day": days, "start_ns": starts})) as reader:
            rows = reader.sql(
                f"SELECT day, start_ns, {_SLICE}, num, sum_ns, min_ms, max_ms "  # noqa: S608
                f"FROM {MINUTES.name} SEMI JOIN wanted USING (day, start_ns) WHERE is_gone"
            ).to_arrow_table()
        with self._lock:
            self._counts = rows, changed

    def _send_counts(self, rows: pa.Table, nums: dict[tuple[str, int], int]) -> None:
        senders = [f"{self._sender}/{day}" for day in rows["day"].to_pylist()]
        told = rows.drop_columns("day").append_column("sender", pa.array(senders, pa.string()))
        try:
            with self._far.reached(STORING) as store:
                store.client.insert(GONE_MINUTES, told)
        except BaseException:
            with self._lock:
                self._counts = self._counts or (rows, nums)
            raise
        self._told.update(nums)

    def _drop_days(self) -> None:
        """Drop the files of days before yesterday of which all is sent."""
        yesterday = (datetime.now(UTC) - timedelta(days=1)).strftime("%Y%m%d")
        latest = self.store.latest_day()
        for day in [each for each in self.store.days if each.date < yesterday]:
            if day is not latest and self._is_sent(day):
                self._out.write(self._unrolled(day))
                with self.store.exclusive():
                    self.store.days.detach(day, unlink=True)
                self._told = {key: num for key, num in self._told.items() if key[0] != day.catalog}

    def _is_sent(self, day: Day) -> bool:
        """Whether all traces that have a row or spans in a file are decided and sent."""
        here = f"SELECT ({_KEYS}) FROM {day.catalog}.{SPANS.name}"  # noqa: S608
        with self.store.writing() as reader:
            ((num,),) = reader.execute(
                f"SELECT count(*) FROM {TRACES.name} "  # noqa: S608
                f"WHERE (decided_ns IS NULL OR decided_ns > {self._sent_ns}) "
                f"AND (day = '{day.catalog}' OR ({_KEYS}) IN ({here}))"
            ).fetchall()
        return not num and self._counts is None

    def _unrolled(self, day: Day) -> pa.Table:
        """Spans of a file whose traces have no row as their roll-up failed: none is left out."""
        with self.store.writing() as reader:
            found: Any = reader.sql(
                f"SELECT {_NAMES} FROM {SPANS.name} ANTI JOIN {TRACES.name} USING ({_KEYS}) "  # noqa: S608
                f"WHERE day = '{day.catalog}'"
            ).to_arrow_table()
        return found


class RelayWriter(Writer):
    """The way into the local half of a relay."""

    def __init__(
        self,
        relay: Relay,
        rollup: Rollup | None,
        health: Health,
        policy: Policy,
        sampling: SamplingRules,
    ) -> None:
        """Find what was not decided yet; the arguments are those of ``Writer`` and ``Relay``.

        Raises:
            UsageError: there is no roll-up, without which no trace is ever decided.
        """
        if rollup is None:
            raise UsageError(
                "[collector.sampling] needs roll-ups of traces: pip install 'longpole[analytics]'"
            )
        self._relay = relay
        self._kept: list[tuple[pa.Table, int]] = []
        self._has_key = False
        super().__init__(
            relay.store,
            rollup,
            health,
            scrubber=Scrubber(policy, health),
            sampling=sampling,
            kept=lambda ids, at_ns: self._kept.append((ids, at_ns)),
        )

    def read(self, received: Sequence[Received]) -> pa.Table:
        """The rows of request bodies.

        Raises:
            Unreachable: as :meth:`Relay.key`.
        """
        if not self._has_key:
            self.use_key(self._relay.key())
            self._has_key = True
        return super().read(received)

    def save(self, *, at_once: bool = True) -> None:
        """Bring the local half to disk; what was decided may then leave."""
        try:
            super().save(at_once=at_once)
        except duckdb.Error:
            self._kept.clear()  # lost with what was not saved: it is decided again
            raise
        kept, self._kept = self._kept, []
        self._relay.release(kept)


class _Out(FarWriter):
    """The way to the other store; what is sent was counted when it came in."""

    def note_stored(self, rows: pa.Table) -> None:
        """Nothing is counted."""

    def write(self, rows: pa.Table, stored: Position | None = None, full: Any = None) -> int:
        """Insert rows, if there are any."""
        return super().write(rows, stored, full) if rows.num_rows else 0


def sent_ns(folder: Path) -> int:
    """Up to which decision all was sent; 0 where nothing was."""
    with suppress(OSError, ValueError):
        return int((folder / SENT).read_text(encoding="ascii"))
    return 0


def _once(path: Path) -> str:
    """What tells this sender from all others; made when it is first asked for."""
    if not path.exists():
        put_text(path, secrets.token_hex(8))
    return path.read_text(encoding="ascii")
