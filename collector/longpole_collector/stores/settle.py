"""Which spans of some traces are calls, and the rows of those calls that several spans tell of.

Most calls are told by one span and need no row of their own: the view ``calls`` shows the span.
Only where a model call's span lies above, below or beside another one are the traces put through
``sql/settle/calls.sql``, in a small database of its own.
"""

from collections.abc import Callable
from functools import cache
from importlib.resources import files
from typing import Final, NamedTuple

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from longpole.vocab import Span, columns
from longpole_collector.pricing import COLUMNS as PRICED_BY
from longpole_collector.pricing import Price
from longpole_collector.stores.attempts import Attempts, address_of, find_attempts
from longpole_collector.stores.connection import registered
from longpole_collector.stores.schema import (
    HEAVY,
    SPANS,
    TRACE_HI,
    TRACE_LO,
    TableOf,
    arrow_schema,
    ddl,
)

MAX_HOPS: Final = 8
"""Plain spans (an HTTP client's, a server's) between two accounts of one call."""
MARKS: Final = ("stream_head", "stream_summary", "failed_attempt")
"""Flags of spans that tell of a part of a call."""
_NOT_OF_CALLS: Final = frozenset(
    (
        *("name", "kind", "received_ns", "instance_id", "scope", "status", "status_message"),
        *("stage", "is_model_call", "is_engine", "is_detached", "consumer_hold_ns"),
        *("engine_admission_ns", "engine_stream_ns", "engine_ttft_ns", "ttft_attempt_ns"),
        *("slo_class", "time_to_useful_ns", "time_to_accepted_ns", "randomness"),
        *HEAVY,
    )
)
CALLS: Final = TableOf(
    "call_rows",
    tuple(column for column in columns(Span) if column.name not in _NOT_OF_CALLS),
    {"network_ns": "BIGINT"},
)
"""The calls that several spans tell of, in the columns of the span that stands for each."""
_READ: Final = ", ".join(name for name in ddl(SPANS) if name not in HEAVY)
_MODEL: Final = [
    *arrow_schema(CALLS).names,
    *("scope", "is_engine", "engine_ttft_ns", "ttft_attempt_ns"),
]
_TRACE: Final = (TRACE_HI, TRACE_LO)
_SPAN: Final = [*_TRACE, "span_id", "start_ns"]
_ATTEMPTS: Final = [*_SPAN, "num_attempts", "retry_ns"]
_SUMS: Final = ("input_tokens", "cached_input_tokens", "output_tokens")
_NONE: Final = -1

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


class Settled(NamedTuple):
    """What became of the spans of some traces.

    Attributes:
        scope: ``trace_hi, trace_lo`` of all traces covered; their earlier rows of ``call_rows``
            are void.
        spans: their spans as stored, without ``attributes``, ``events`` and ``links``.
        calls: the new rows of ``call_rows``.
        roles: ``trace_hi, trace_lo, span_id, start_ns, received_ns, call_role`` of the spans
            whose role is another than stored.
        attempts: ``trace_hi, trace_lo, span_id, start_ns, num_attempts, retry_ns`` of the calls of
            which requests below them tell more attempts than stored; ``spans`` has them already.
        sums: one row a trace with calls or with ``is_elsewhere`` (it tells of another trace's
            call): ``trace_hi, trace_lo, num_calls, num_retries, is_elsewhere``, the tokens, null
            where no call knows them, and ``cost_usd``, null where a call has no cost.
    """

    scope: pa.Table
    spans: pa.Table
    calls: pa.Table
    roles: pa.Table
    attempts: pa.Table
    sums: pa.Table


class Calls:
    """Settles calls; used by one thread."""

    def __init__(self, price: Price | None) -> None:
        """Make the small database.

        Args:
            price: prices calls.
        """
        self._price = price
        self._database = duckdb.connect(":memory:", config={"threads": "1"})

    def settle(
        self, cursor: duckdb.DuckDBPyConnection, scope: pa.Table, since_ns: int, until_ns: int
    ) -> Settled:
        """Settle all calls of some traces.

        Args:
            cursor: reads ``span_rows``.
            scope: ``trace_hi, trace_lo`` of the traces, with all that may tell of one call.
            since_ns: the start of their earliest span, or earlier.
            until_ns: the start of their latest span, or later.
        """
        spans = _read(cursor, scope, since_ns, until_ns)
        tree = _Tree(spans)
        attempts = tree.attempts(lambda rows: _addresses(cursor, spans, rows))
        spans = tree.put(attempts)
        roles = tree.is_call.astype(np.int8)
        elsewhere = np.zeros(spans.num_rows, np.bool_)
        related = tree.related()
        calls = arrow_schema(CALLS).empty_table()
        if len(related):
            found, calls = self._merge(tree.models(related), has_twins=tree.has_twins)
            roles[related] = found["call_role"].to_numpy()
            elsewhere[related] = found["is_elsewhere"].to_numpy()
        return Settled(
            scope,
            spans,
            calls,
            _changed(spans, roles),
            spans.select(_ATTEMPTS).take(pa.array(attempts.rows)),
            _sums(spans, roles, calls, elsewhere, self._price),
        )

    def _merge(self, models: pa.Table, *, has_twins: bool) -> tuple[pa.Table, pa.Table]:
        """The role of each of these spans, and the merged rows."""
        database = self._database
        database.register("incoming", models)
        try:
            database.execute("CREATE OR REPLACE TABLE model AS FROM incoming")
            beside = _sql("beside") if has_twins else "SELECT key, above FROM model LIMIT 0"
            database.execute(f"CREATE OR REPLACE TABLE beside AS {beside}")
            database.execute(_sql("calls"))
            return (
                database.table("role").to_arrow_table(),
                database.table("merged").to_arrow_table(),
            )
        finally:
            database.unregister("incoming")


class _Tree:
    """Spans of several traces, and what lies above each."""

    def __init__(self, spans: pa.Table) -> None:
        self._spans = spans
        hi, lo, ids = (spans[name].to_numpy() for name in (TRACE_HI, TRACE_LO, "span_id"))
        order = np.lexsort((lo, hi))
        is_next = (np.diff(hi[order]) != 0) | (np.diff(lo[order]) != 0)
        self.trace: Ints = np.empty(len(order), np.int64)
        self.trace[order] = np.concatenate(([0], np.cumsum(is_next)))[: len(order)]
        is_root = ~_is_known(spans["parent_id"])
        parents = spans["parent_id"].fill_null(0).to_numpy()
        known, ranks = np.unique(np.concatenate((ids, parents)), return_inverse=True)
        # numbers of a span and of its parent in the order of their ids, traces apart
        numbers = np.tile(self.trace * len(known), 2) + ranks
        self._own, self._up = np.split(numbers, 2)
        self._up[is_root] = _NONE
        self.is_double = self._doubles()
        self.is_call = _bools(spans["is_model_call"]) & ~self.is_double
        single = np.flatnonzero(~self.is_double)
        self._in_order = single[np.argsort(self._own[single])]
        self._numbers = self._own[self._in_order]
        self.has_twins = True
        self._is_plain = ~(
            _bools(spans["is_model_call"])
            | _is_known(spans["operation"])
            | _is_known(spans["stage"])
        )

    def attempts(self, addresses: Callable[[Ints], list[str | None]]) -> Attempts:
        """The calls of which requests below them tell more attempts than is known."""
        return find_attempts(self._spans, self._parent, self._above, self.is_call, addresses)

    def put(self, attempts: Attempts) -> pa.Table:
        """Take attempts over into the spans; returns these."""
        if len(attempts.rows):
            for name, values in (("num_attempts", attempts.num), ("retry_ns", attempts.retry_ns)):
                mask = np.zeros(self._spans.num_rows, np.bool_)
                mask[attempts.rows] = True
                order = np.argsort(attempts.rows)
                column = self._spans[name].combine_chunks()
                new = pc.replace_with_mask(column, pa.array(mask), pa.array(values[order]))
                place = self._spans.schema.get_field_index(name)
                self._spans = self._spans.set_column(place, name, new)
        return self._spans

    def related(self) -> Ints:
        """The model calls that may tell of one call with another one, in order."""
        calls = np.flatnonzero(self.is_call)
        above = self._above(calls)
        twins = self._twins(calls[~_bools(self._spans["is_engine"])[calls]])
        self.has_twins = len(twins) > 0
        is_related = np.zeros(len(self._own), np.bool_)
        for rows in (calls[above != _NONE], above[above != _NONE], twins):
            is_related[rows] = True
        return self._in_order[is_related[self._in_order]]

    def _twins(self, clients: Ints) -> Ints:
        """Clients' spans that may have a twin beside them.

        Those are halves of streams, attempts with their siblings, and answers told twice.
        """
        place = self._up[clients]
        is_part = marked(self._spans["flags"])[clients]
        is_sibling = (place != _NONE) & np.isin(place, place[is_part])
        response_id = self._spans["response_id"].combine_chunks().take(pa.array(clients))
        answer = response_id.dictionary_encode().indices.fill_null(_NONE).to_numpy()
        told = answer.astype(np.int64) * (place.max(initial=0) + 2) + place + 1
        _, which, counts = np.unique(told, return_inverse=True, return_counts=True)
        is_again = (answer != _NONE) & (counts[which] > 1)
        found: Ints = clients[is_part | is_sibling | is_again]
        return found

    def models(self, rows: Ints) -> pa.Table:
        """These rows as ``calls.sql`` takes them, a row's number its key.

        Args:
            rows: what :meth:`related` found.
        """
        key = np.full(len(self.trace), _NONE)
        key[rows] = np.arange(len(rows))
        above = self._above(rows)
        table = self._spans.select(_MODEL).take(rows)
        starts = table["start_ns"].to_numpy()
        ends = pc.coalesce(table["end_ns"], table["start_ns"]).to_numpy()
        given = {
            "key": pa.array(key[rows]),
            "above": pa.array(key[above], mask=above == _NONE),
            "place": pa.array(self._up[rows], mask=self._up[rows] == _NONE),
            "wall_ns": pa.array(np.maximum(ends - starts, 0)),
        }
        for name, values in given.items():
            table = table.append_column(name, values)
        return table

    def _above(self, rows: Ints) -> Ints:
        """The nearest model call above each of these spans, past plain ones."""
        above = self._parent(rows)
        for _ in range(MAX_HOPS):
            climbing = np.flatnonzero((above != _NONE) & self._is_plain[above])
            if not len(climbing):
                break
            above[climbing] = self._parent(above[climbing])
        above[~self.is_call[above] | (above == rows)] = _NONE
        return above

    def _parent(self, rows: Ints) -> Ints:
        up = self._up[rows]
        places = np.searchsorted(self._numbers, up)
        places[places == len(self._numbers)] = 0
        found: Ints = np.where(self._numbers[places] == up, self._in_order[places], _NONE)
        return found

    def _doubles(self) -> Bools:
        """Rows of a span that another row tells better: one with an end, then the longer."""
        is_double = np.zeros(len(self._own), np.bool_)
        if len(np.unique(self._own)) < len(self._own):
            starts = self._spans["start_ns"].to_numpy()
            ends = self._spans["end_ns"]
            lengths = ends.fill_null(0).to_numpy() - starts
            order = np.lexsort((starts, -lengths, ~_is_known(ends), self._own))
            is_double[order[1:][np.diff(self._own[order]) == 0]] = True
        return is_double


def marked(flags: pa.ChunkedArray) -> Bools:
    """Whether a span's flags say that it tells of a part of a call."""
    found = np.zeros(len(flags), np.bool_)
    flags = flags.combine_chunks()
    flat = pc.list_flatten(flags)
    if len(flat):
        rows = pc.list_parent_indices(flags).to_numpy()
        found[rows[_bools(pc.is_in(flat, pa.array(MARKS)))]] = True
    return found


def _addresses(cursor: duckdb.DuckDBPyConnection, spans: pa.Table, rows: Ints) -> list[str | None]:
    """Where these spans sent requests to."""
    wanted = spans.select(_SPAN).take(pa.array(rows))
    wanted = wanted.append_column("place", pa.array(np.arange(len(rows))))
    starts = wanted["start_ns"].to_numpy()
    cursor.register("wanted", wanted)
    try:
        found = cursor.execute(
            "SELECT wanted.place, attributes FROM span_rows "  # noqa: S608
            f"JOIN wanted USING ({', '.join(_SPAN)}) "
            f"WHERE start_ns BETWEEN {starts.min()} AND {starts.max()}"
        ).fetchall()
    finally:
        cursor.unregister("wanted")
    addresses: list[str | None] = [None] * len(rows)
    for place, attributes in found:
        addresses[place] = address_of(attributes)
    return addresses


def _read(
    cursor: duckdb.DuckDBPyConnection, scope: pa.Table, since_ns: int, until_ns: int
) -> pa.Table:
    """The spans of these traces: first where they lie, then only those rows.

    Many other spans share their time, and all columns of one cost twelve times what its id does.
    """
    with registered(cursor, scope=scope):
        found = cursor.sql(
            f"SELECT day, place FROM span_rows SEMI JOIN scope USING ({TRACE_HI}, {TRACE_LO}) "  # noqa: S608
            f"WHERE start_ns BETWEEN {since_ns} AND {until_ns}"
        ).to_arrow_table()
    read = f"SELECT {_READ} FROM span_rows "  # noqa: S608
    parts = [cursor.sql(f"{read} LIMIT 0").to_arrow_table()]
    for day in pc.unique(found["day"]).to_pylist():
        places = found.filter(pc.equal(found["day"], day)).select(["place"])
        with registered(cursor, places=places):
            here = cursor.sql(f"{read} SEMI JOIN places USING (place) WHERE day = '{day}'")
            parts.append(here.to_arrow_table())
    return pa.concat_tables(parts)


def _changed(spans: pa.Table, roles: npt.NDArray[np.int8]) -> pa.Table:
    kept = spans.select([*_TRACE, "span_id", "start_ns", "received_ns"])
    is_changed = spans["call_role"].fill_null(_NONE).to_numpy() != roles
    return kept.append_column("call_role", pa.array(roles)).filter(pa.array(is_changed))


def _sums(
    spans: pa.Table,
    roles: npt.NDArray[np.int8],
    calls: pa.Table,
    is_elsewhere: Bools,
    price: Price | None,
) -> pa.Table:
    facts = list(dict.fromkeys((*_TRACE, *_SUMS, "num_attempts", *PRICED_BY)))
    alone = spans.select(facts).filter(pa.array(roles == 1))
    away = spans.select(_TRACE).filter(pa.array(is_elsewhere))
    counted = pa.concat_tables([alone, calls.select(facts)])
    retries = pc.max_element_wise(pc.subtract(counted["num_attempts"], 1), 0)
    counted = counted.append_column("num_retries", retries)
    counted = counted.append_column("cost_usd", _costs(counted, price))
    counted = counted.drop_columns([name for name in PRICED_BY if name not in _SUMS])
    counted = counted.append_column("num_calls", pa.repeat(1, counted.num_rows))
    counted = counted.append_column("is_elsewhere", pa.repeat(0, counted.num_rows))
    away = away.append_column("num_calls", pa.repeat(0, away.num_rows))
    away = away.append_column("cost_usd", pa.repeat(0.0, away.num_rows))
    away = away.append_column("is_elsewhere", pa.repeat(1, away.num_rows))
    table = pa.concat_tables([counted, away], promote_options="default")
    names = ("num_calls", "num_retries", *_SUMS)
    every = pc.ScalarAggregateOptions(skip_nulls=False)
    found = table.group_by(list(_TRACE), use_threads=False).aggregate(
        [*((name, "sum") for name in names), ("cost_usd", "sum", every), ("is_elsewhere", "max")]
    )
    return found.rename_columns([*_TRACE, *names, "cost_usd", "is_elsewhere"])


def _costs(calls: pa.Table, price: Price | None) -> pa.Array:
    """What each call costs."""
    if price is None or not calls.num_rows:
        return pa.nulls(calls.num_rows, pa.float64())
    return price({name: calls[name] for name in PRICED_BY}, calls.num_rows).cost_usd


def _is_known(column: pa.ChunkedArray) -> Bools:
    return _bools(column.is_valid())


def _bools(column: pa.ChunkedArray) -> Bools:
    found: Bools = column.to_numpy(zero_copy_only=False)
    return found


@cache
def _sql(name: str) -> str:
    file = files("longpole_collector").joinpath("sql", "settle", f"{name}.sql")
    return file.read_text(encoding="utf-8")
