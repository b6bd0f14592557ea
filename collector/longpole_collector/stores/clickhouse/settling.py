"""Calls, traces and stages of what is stored, kept up to date.

Stateless: a trace is due while its row knows another number of spans than are stored, so whoever
asks finds the same traces, several may work side by side, and what one leaves half done is due
again. The work itself is the local store's: the spans of some traces are put into a store in
memory and settled there, and what its views say is what is written.
"""

from collections.abc import Sequence
from contextlib import closing
from typing import Final

import pyarrow as pa

from longpole.vocab import Rollup, Span, columns
from longpole_collector.health import Health
from longpole_collector.kin import Kin
from longpole_collector.pricing import Price, configured
from longpole_collector.rollup import Settler
from longpole_collector.stores.clickhouse.client import Client
from longpole_collector.stores.clickhouse.derived import Derived
from longpole_collector.stores.clickhouse.rows import READ, from_clickhouse
from longpole_collector.stores.clickhouse.schema import note, noted
from longpole_collector.stores.connection import Limits
from longpole_collector.stores.duckdb import DuckStore

BATCH_TRACES: Final = 2_000
_MARGIN_NS: Final = 60_000_000_000
"""A block is dated when its insert begins, and seen when it ends."""
_SLACK_NS: Final = 86_400_000_000_000
"""A trace is looked for from a day before its latest spans on."""
_KIN_WINDOW_NS: Final = 600_000_000_000
_MAX_KIN: Final = 200_000
_SETTLED: Final = "settled_ns"
_VERSION: Final = "rollup_version"
_ATTEMPTS: Final = "num_attempts, retry_ns"
_LIMITS: Final = Limits(max_rows=1 << 40, timeout_s=3600.0, memory="1GB")
_DUE: Final = """
WITH
    (SELECT min(start_ns) FROM span_rows WHERE stored_ns >= {since:Int64}) AS first,
    recent AS (
        SELECT trace_id FROM span_rows
        WHERE stored_ns >= {since:Int64} AND start_ns >= first
    )
SELECT s.trace_id AS trace_id, s.since_ns AS since_ns, s.until_ns AS until_ns
FROM (
    SELECT
        trace_id, uniqExact(span_id, start_ns) AS num,
        min(start_ns) AS since_ns, max(start_ns) AS until_ns
    FROM span_rows
    WHERE trace_id IN (recent) AND start_ns >= first - {slack:Int64}
    GROUP BY trace_id
) AS s
LEFT JOIN (
    SELECT trace_id, num_rows, rollup_version FROM trace_rows FINAL
    WHERE trace_id IN (recent) AND start_ns >= first - {slack:Int64}
) AS t ON s.trace_id = t.trace_id
WHERE coalesce(t.num_rows, 0) <> s.num OR coalesce(t.rollup_version, 0) <> {version:UInt32}
ORDER BY since_ns, trace_id
LIMIT {most:UInt64}
"""
_COPIED: Final = (*(column.name for column in columns(Span)), "stored_ns")
_EVER: Final = (-(1 << 63), (1 << 63) - 1)


class Settling:
    """Settles the traces of a store; used by one thread."""

    def __init__(self, client: Client, rollup: Rollup, price: Price | None = None) -> None:
        """Look what may still be kin of what comes.

        Args:
            client: the connection.
            rollup: what a trace's row and stages are.
            price: prices calls; ``None`` is what is configured now.
        """
        self._client = client
        self._rollup = rollup
        self._price = price or configured()
        self._health = Health()
        self._kin = Kin()
        self._kin.note(self._recent())

    def settle(self, max_traces: int | None = None) -> int:
        """Settle what is due; returns how many traces were.

        Args:
            max_traces: how many at most; ``None`` is all.
        """
        client, version = self._client, self._rollup.version
        is_same = noted(client, _VERSION) == str(version)
        since_ns = int(noted(client, _SETTLED) or 0) - _MARGIN_NS if is_same else 0
        begun_ns = self._now_ns()
        most = 1 << 62 if max_traces is None else max_traces
        due = client.ask(_DUE, since=since_ns, version=version, most=most, slack=_SLACK_NS)
        done: set[str] = set()
        for batch in due.to_batches(BATCH_TRACES):
            ids = [each for each in batch["trace_id"].to_pylist() if each not in done]
            if ids:
                since, until = batch["since_ns"].to_numpy(), batch["until_ns"].to_numpy()
                done |= self._settle(ids, int(since.min()), int(until.max()))
        if due.num_rows < most:
            note(client, _SETTLED, str(begun_ns))
            note(client, _VERSION, str(version))
        return len(done)

    # --- inside ---------------------------------------------------------------------------------
    def _settle(self, trace_ids: Sequence[str], since_ns: int, until_ns: int) -> set[str]:
        """Settle these and their kin; returns which those are."""
        version = self._now_ns()
        rows = self._spans(trace_ids, since_ns, until_ns)
        kin = self._kin.note(rows)
        kin = (kin | self._kin.of({*trace_ids, *kin})).difference(trace_ids)
        if kin:
            rows = pa.concat_tables([rows, self._spans(sorted(kin), *_EVER)])
            starts = rows["start_ns"].to_numpy()
            since_ns, until_ns = int(starts.min()), int(starts.max())
        ids = {*trace_ids, *kin}
        with closing(DuckStore(limits=_LIMITS, price=self._price)) as store:
            store.insert(rows)
            Settler(store, self._rollup, self._health).settle(everything=True)
            self._put_attempts(_changed(store, rows))
            derived = Derived(self._client, version, self._rollup.version)
            derived.replace(store, sorted(ids), since_ns, until_ns)
        return ids

    def _put_attempts(self, changed: pa.Table) -> None:
        """Write into the spans of calls how often they were tried."""
        for row in changed.to_pylist():
            named = ", ".join(n for n in _COPIED if n not in row)
            told = "{num:Nullable(Int64)} AS num_attempts, {retry:Nullable(Int64)} AS retry_ns"
            self._client.tell(
                "INSERT INTO span_rows "  # noqa: S608 - our own columns
                f"({named}, num_attempts, retry_ns, trace_id, span_id, start_ns, version) "
                f"SELECT {named}, {told}, trace_id, span_id, start_ns, version + 1 "
                "FROM span_rows FINAL WHERE trace_id = {trace:String} "
                "AND span_id = {span:String} AND start_ns = {start:Int64}",
                num=row["num_attempts"],
                retry=row["retry_ns"],
                trace=row["trace_id"],
                span=row["span_id"],
                start=row["start_ns"],
            )

    def _spans(self, trace_ids: Sequence[str], since_ns: int, until_ns: int) -> pa.Table:
        return from_clickhouse(
            self._client.ask(
                f"SELECT {READ} FROM span_rows FINAL "  # noqa: S608 - our own columns
                "WHERE trace_id IN {ids:Array(String)} "
                "AND start_ns >= {since:Int64} AND start_ns <= {until:Int64}",
                ids=trace_ids,
                since=since_ns,
                until=until_ns,
            )
        )

    def _recent(self) -> pa.Table:
        """The stored spans that may be kin of one still to come."""
        return from_clickhouse(
            self._client.ask(
                f"SELECT {READ} FROM span_rows WHERE is_model_call AND NOT is_engine "  # noqa: S608
                "AND parent_id IS NULL AND received_ns >= "
                f"(SELECT max(received_ns) FROM span_rows) - {_KIN_WINDOW_NS} "
                f"ORDER BY received_ns DESC LIMIT {_MAX_KIN}"
            )
        )

    def _now_ns(self) -> int:
        """The server's clock: those of several workers may differ."""
        found = self._client.ask("SELECT toUnixTimestamp64Nano(now64(9)) AS now_ns")
        return int(found["now_ns"][0].as_py())


def _changed(store: DuckStore, before: pa.Table) -> pa.Table:
    """The spans of which settling knows more attempts than were stored."""
    keys = "trace_hi, trace_lo, span_id, start_ns"
    with store.writing(before=before.select([*keys.split(", "), *_ATTEMPTS.split(", ")])) as reader:
        return reader.sql(
            "SELECT trace_hex(trace_hi, trace_lo) AS trace_id, span_hex(span_id) AS span_id, "  # noqa: S608
            f"start_ns, s.num_attempts, s.retry_ns FROM span_rows AS s JOIN before USING ({keys}) "
            "WHERE s.num_attempts IS DISTINCT FROM before.num_attempts"
        ).to_arrow_table()
