"""The store on ClickHouse: the same contract as the local one.

What is appended is there when the call returns, and once however often it comes. Which spans are
calls, and what their traces' stages are, is settled by
:mod:`~longpole_collector.stores.clickhouse.settling` with the very code of the local store, so
both say the same.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from threading import Lock
from typing import Final

import duckdb
import pyarrow as pa

from longpole.errors import Unreachable
from longpole.vocab import Span
from longpole_collector.stores.base import Params, Stream
from longpole_collector.stores.clickhouse import schema
from longpole_collector.stores.clickhouse.client import SETTINGS, Client
from longpole_collector.stores.clickhouse.rewrite import rewrite
from longpole_collector.stores.clickhouse.rows import to_clickhouse
from longpole_collector.stores.guard import check
from longpole_collector.stores.schema import SPANS, to_arrow
from longpole_collector.stores.views import views

MAX_ROWS: Final = 100_000
BLOCK: Final = 131_072
"""Rows of one insert: the larger, the fewer parts must be merged over there."""
_BATCH_ROWS: Final = 10_000
_BOUNDS: Final = {
    "max_result_rows": MAX_ROWS,
    "max_result_bytes": 512 << 20,
    "result_overflow_mode": "throw",
}
_READ_ONLY: Final = {"readonly": 2}
"""Beside the check of the statement; in process it would hold for the connection's inserts too."""


class ClickReader:
    """Reads the views of a ClickHouse store; safe for several threads."""

    def __init__(self, client: Client) -> None:
        """Look whether the store can be read.

        Args:
            client: a connection; it is closed with this.

        Raises:
            Unreachable: there is no data, or its schema is another one.
        """
        self.client = client
        self._parser = duckdb.connect(":memory:", config={"threads": "1"})
        self._lock = Lock()
        self._is_closed = False
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    def sql(self, query: str, params: Params = (), timeout_s: float | None = None) -> pa.Table:
        """As :meth:`Reader.sql <longpole_collector.stores.base.Reader.sql>`.

        ``timeout_s`` bounds it where that is less than the store's own limit.
        """
        with self._lock:
            if self._is_closed:
                raise Unreachable("the store is closed")
            check(self._parser, query, views())
        bounds = _BOUNDS if self.client.address.scheme == "chdb" else _BOUNDS | _READ_ONLY
        if timeout_s is not None and timeout_s < self.client.address.timeout_s:
            bounds = bounds | {"max_execution_time": timeout_s}
        return plain(self.client.ask(rewrite(query, params), {**SETTINGS, **bounds}))

    @contextmanager
    def stream(
        self, query: str, params: Params = (), timeout_s: float | None = None
    ) -> Iterator[Stream]:
        """The answer batch by batch, as the local store gives it."""
        table = self.sql(query, params, timeout_s)
        yield Stream(table.schema, iter(table.to_batches(_BATCH_ROWS)))

    def close(self) -> None:
        """Let go of the connection; later calls raise ``Unreachable``."""
        with self._lock:
            self._is_closed = True
            self.client.close()
            with suppress(duckdb.Error):
                self._parser.close()

    def _open(self) -> None:
        schema.check(self.client)


class ClickStore(ClickReader):
    """Takes spans too: makes the tables where there are none."""

    def append(self, spans: Sequence[Span]) -> int:
        """Store spans; returns how many were new."""
        kept: dict[tuple[str, str, int], Span] = {}
        for span in spans:
            kept.setdefault((span.trace_id, span.span_id, span.start_ns), span)
        known = self._known([span.trace_id for span in kept.values()])
        new = [span for key, span in kept.items() if key not in known]
        if new:
            self.insert(to_arrow(SPANS, new))
        return len(new)

    def insert(self, rows: pa.Table, token: str | None = None) -> None:
        """Store rows of the local span table in blocks; what is there already replaces itself.

        Args:
            rows: columns of the span table.
            token: tells these rows from all others: the same ones sent again are passed over.
        """
        for number, first in enumerate(range(0, rows.num_rows, BLOCK)):
            block = to_clickhouse(rows.slice(first, BLOCK))
            self.client.insert("span_rows", block, token and f"{token}:{number}")

    def num_spans(self) -> int:
        """Spans that are stored, each counted once."""
        found = self.client.ask("SELECT count() AS num FROM span_rows FINAL")
        return int(found["num"][0].as_py())

    def _open(self) -> None:
        schema.prepare(self.client)

    def _known(self, trace_ids: Sequence[str]) -> set[tuple[str, str, int]]:
        """The spans that are stored of some traces."""
        found = self.client.ask(
            "SELECT trace_id, span_id, start_ns FROM span_rows "
            "WHERE trace_id IN {ids:Array(String)}",
            ids=sorted(set(trace_ids)),
        )
        rows = found.select(["trace_id", "span_id", "start_ns"]).to_pydict()
        return set(zip(*rows.values(), strict=True))


def plain(table: pa.Table) -> pa.Table:
    """The types that the local store gives: whole numbers have 64 bits and a sign."""
    fields = [field.with_type(_plain(field.type)).with_nullable(True) for field in table.schema]
    return table.cast(pa.schema(fields))


def _plain(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_integer(kind):
        return kind if kind == pa.int32() else pa.int64()
    if pa.types.is_list(kind):
        return pa.list_(_plain(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_plain(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_plain(kind.key_type), _plain(kind.item_type))
    if pa.types.is_dictionary(kind):
        return _plain(kind.value_type)
    return kind
