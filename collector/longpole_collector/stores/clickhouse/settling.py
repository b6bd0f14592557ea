"""Calls, traces and stages of what is stored, kept up to date.

Stateless: a trace is due while its row knows another number of spans than are stored
(:mod:`~longpole_collector.stores.clickhouse.due`), so whoever asks finds the same traces, several
may work side by side, and what one leaves half done is due again. The work itself is the local
store's: the spans of some traces are put into a store in memory and settled there, and what its
views say is what is written.
"""

from collections.abc import Iterable, Sequence
from contextlib import closing
from threading import Event
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from longpole.vocab import Rollup
from longpole_collector.health import Health
from longpole_collector.kin import Kin
from longpole_collector.pricing import Price, configured
from longpole_collector.rollup import Settler
from longpole_collector.stores.clickhouse.client import Client
from longpole_collector.stores.clickhouse.derived import Derived
from longpole_collector.stores.clickhouse.due import (
    LONG,
    WHOLE,
    Finding,
    Shard,
    Window,
    batches,
    between,
    of_traces,
    server_ns,
)
from longpole_collector.stores.clickhouse.rows import LIGHT, from_clickhouse
from longpole_collector.stores.clickhouse.schema import stored_columns
from longpole_collector.stores.connection import Limits
from longpole_collector.stores.duckdb import DuckStore
from longpole_collector.stores.schema import hex_ids
from longpole_collector.stores.settle import MARKS, marked

_KIN_WINDOW_NS: Final = 600_000_000_000
_MAX_KIN: Final = 200_000
_ATTEMPTS: Final = ("num_attempts", "retry_ns")
_LIMITS: Final = Limits(max_rows=1 << 40, timeout_s=3600.0, memory="1GB", threads=1)
_KEY: Final = ("trace_hi", "trace_lo", "span_id", "start_ns")
_KIN_COLUMNS: Final = (
    "trace_id, span_id, parent_id, start_ns, end_ns, service, scope, is_model_call, is_engine, "
    "request_model, response_id, flags"
)
_REQUESTS: Final = """
SELECT trace_id, span_id, start_ns, toJSONString(attributes) AS told FROM span_rows
WHERE {where} AND kind = 'client' AND operation IS NULL
    AND (attributes['http.request.method'] = 'POST' OR attributes['http.method'] = 'POST')
LIMIT 1 BY trace_id, span_id, start_ns
"""
_PUT: Final = """
INSERT INTO span_rows
({named}, trace_id, span_id, start_ns, num_attempts, retry_ns, version)
WITH concat(trace_id, span_id, toString(start_ns)) AS key
SELECT
    {named}, trace_id, span_id, start_ns,
    transform(key, {keys}, {num}, toInt64(0)), transform(key, {keys}, {retry}, toInt64(0)),
    version + 1
FROM span_rows FINAL WHERE {where} AND has({keys}, key)
"""


class Settling:
    """Settles the traces of a store, or a shard of them; used by one thread."""

    def __init__(
        self, client: Client, rollup: Rollup, price: Price | None = None, shard: Shard = WHOLE
    ) -> None:
        """Nothing is asked yet.

        Args:
            client: the connection.
            rollup: what a trace's row and stages are.
            price: prices calls; ``None`` is what is configured now.
            shard: whose traces.
        """
        self._client = client
        self._rollup = rollup
        self._price = price or configured()
        self._health = Health()
        self._finding = Finding(client, rollup.version, shard)

    def settle(
        self,
        max_traces: int | None = None,
        window: Window | None = None,
        *,
        is_busy: bool = False,
        stopping: Event | None = None,
    ) -> int:
        """Settle what is due; returns how many traces were.

        Args:
            max_traces: how many at most; ``None`` is all.
            window: only traces with spans that begin in it, whenever they came.
            is_busy: spans still come: a trace waits until it is quiet.
            stopping: ends it early when set.
        """
        due, begun_ns = self._finding.find(max_traces, window, is_busy=is_busy)
        done: set[str] = set()
        for part in batches(due):
            if stopping is not None and stopping.is_set():
                return len(done)
            ids = [each for each in part.trace_ids if each not in done]
            if ids:
                done |= self._settle(ids, part.since_ns, part.until_ns)
        if window is None and (max_traces is None or due.num_rows < max_traces):
            self._finding.note(begun_ns)
        return len(done)

    # --- inside ---------------------------------------------------------------------------------
    def _settle(self, trace_ids: Sequence[str], since_ns: int, until_ns: int) -> set[str]:
        """Settle these and their kin; returns which those are."""
        version = server_ns(self._client)
        rows = self._spans(trace_ids, since_ns, until_ns)
        known = set(trace_ids)
        while kin := self._kin(rows, known, since_ns, until_ns):  # and the kin of kin
            around = (since_ns - _KIN_WINDOW_NS, until_ns + _KIN_WINDOW_NS)
            rows = pa.concat_tables([rows, self._spans(sorted(kin), *around)])
            starts = rows["start_ns"].to_numpy()
            since_ns, until_ns = int(starts.min()), int(starts.max())
            known |= kin
        ids = sorted(known)
        rows = self._with_requests(rows)
        with closing(DuckStore(limits=_LIMITS, price=self._price)) as store:
            store.insert(rows)
            Settler(store, self._rollup, self._health).settle(everything=True)
            self._put_attempts(_changed(store, rows))
            derived = Derived(self._client, version, self._rollup.version)
            derived.replace(store, ids, since_ns, until_ns)
        return known

    def _spans(self, trace_ids: Sequence[str], since_ns: int, until_ns: int) -> pa.Table:
        """The spans of some traces, each once.

        Taking rows together costs as much as reading them, and few are stored twice: that is asked
        for only where an id is seen twice.
        """
        where = of_traces(trace_ids, since_ns, until_ns)
        for final in ("", "FINAL"):
            asked = f"SELECT {LIGHT} FROM span_rows {final} WHERE {where}"  # noqa: S608
            rows = from_clickhouse(self._client.ask(asked, LONG))
            if len(np.unique(rows["span_id"].to_numpy())) == rows.num_rows:
                break
        return rows

    def _kin(self, rows: pa.Table, trace_ids: set[str], since_ns: int, until_ns: int) -> set[str]:
        """The other traces that may tell of calls of these, whoever settles them."""
        is_call = pc.and_not(rows["is_model_call"], rows["is_engine"])
        roots = rows.filter(pc.and_(is_call, rows["parent_id"].is_null()))
        told = [f"hasAny(flags, {_texts(MARKS)})"] if marked(roots["flags"]).any() else []
        answers = pc.unique(roots["response_id"].drop_null()).to_pylist()
        if answers:
            told.append(f"response_id IN {_texts(answers)}")
        if not told:
            return set()
        found = self._client.ask(
            f"SELECT {_KIN_COLUMNS} FROM span_rows "  # noqa: S608 - our own words
            "WHERE is_model_call AND NOT is_engine AND parent_id IS NULL "
            f"AND {between(since_ns - _KIN_WINDOW_NS, until_ns + _KIN_WINDOW_NS)} "
            f"AND ({' OR '.join(told)}) "
            f"LIMIT 1 BY trace_id, span_id, start_ns LIMIT {_MAX_KIN}",
            LONG,
        )
        kin = Kin()
        kin.note(from_clickhouse(found))
        return kin.of(trace_ids)

    def _with_requests(self, rows: pa.Table) -> pa.Table:
        """With what tells where the POSTs went, in the traces where a request failed."""
        is_client = pc.equal(rows["kind"], "client")
        is_request = pc.and_(is_client, rows["operation"].is_null())
        failed = rows.filter(pc.and_(is_request, pc.equal(rows["status"], "error")))
        if not failed.num_rows:
            return rows
        starts = rows["start_ns"].to_numpy()
        where = of_traces(sorted({*hex_ids(failed)}), int(starts.min()), int(starts.max()))
        found = self._client.ask(_REQUESTS.replace("{where}", where), LONG)
        if not found.num_rows:
            return rows
        ids = from_clickhouse(found.select(["trace_id", "span_id", "start_ns"])).select(_KEY)
        told = rows.select(_KEY).append_column("row", pa.array(range(rows.num_rows)))
        told = told.join(ids.append_column("told", found["told"]), keys=list(_KEY)).sort_by("row")
        place = rows.schema.get_field_index("attributes")
        return rows.set_column(place, "attributes", pc.fill_null(told["told"], "{}"))

    def _put_attempts(self, changed: pa.Table) -> None:
        """Write into the spans of calls how often they were tried."""
        if not changed.num_rows:
            return
        rows = changed.to_pydict()
        ids = zip(rows["trace_id"], rows["span_id"], rows["start_ns"], strict=True)
        starts = rows["start_ns"]
        given = {
            "named": ", ".join(
                name for name in stored_columns("span_rows") if name not in {*rows, "version"}
            ),
            "keys": _texts(f"{trace}{span}{start}" for trace, span, start in ids),
            "num": str(rows["num_attempts"]),
            "retry": str(rows["retry_ns"]),
            "where": of_traces(sorted({*rows["trace_id"]}), min(starts), max(starts)),
        }
        self._client.tell(_PUT.format(**given))


def _changed(store: DuckStore, before: pa.Table) -> pa.Table:
    """The spans of which settling knows more attempts than were stored."""
    keys = ", ".join(_KEY)
    with store.writing(before=before.select([*_KEY, *_ATTEMPTS])) as reader:
        return reader.sql(
            "SELECT trace_hex(trace_hi, trace_lo) AS trace_id, span_hex(span_id) AS span_id, "  # noqa: S608
            f"start_ns, s.num_attempts, s.retry_ns FROM span_rows AS s JOIN before USING ({keys}) "
            "WHERE s.num_attempts IS DISTINCT FROM before.num_attempts"
        ).to_arrow_table()


def _texts(words: Iterable[str]) -> str:
    """Texts as a list of literals."""
    quoted = (word.replace("\\", "\\\\").replace("'", "\\'") for word in words)
    return "['" + "','".join(quoted) + "']"
