"""Where ``advise`` and ``audit`` get their traces from; what opens a store."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from longpole.errors import BadInput
from longpole.vocab import Span
from longpole_analytics.loading import (
    PAGE_ROWS,
    Source,
    all_rows,
    flat_table,
    opened,
    requests_of,
    view_rows,
)
from longpole_analytics.span_loading import MAX_WALL_NS

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa

    from longpole_analytics.advisor._population import Population
    from longpole_collector.stores.base import Reader, Value

_KEY = ("start_ns", "trace_id", "span_id")
_LEFT_OUT = frozenset(("events", "status_message"))
_NAMES: Final = ", ".join(name for name in Span._fields if name not in _LEFT_OUT)
_AMONG: Final = (
    "trace_id IN (SELECT unnest(string_split($ids, ','))) AND start_ns BETWEEN $low AND $high"
)
_NEVER_NS: Final = 0


def load_population(
    source: Source,
    where: str | None = None,
    between: tuple[int | None, int | None] = (None, None),
) -> Population | None:
    """The traces of a source, ready for the rules; ``None`` where there are none.

    Args:
        source: trace files, a folder or an address.
        where: an SQL condition over the columns of requests.
        between: when requests began, [since, until) in Unix epoch nanoseconds.

    Raises:
        BadInput: a file or the condition cannot be read, or the file has no spans.
        Unreachable: no data there.
        UsageError: options that contradict each other.
    """
    if flat_table(source.files) is not None:
        raise BadInput(
            f"{source.files[0]}: a flat table of requests has no spans; give a file of traces"
        )
    reader = opened(source)
    try:
        return population_of(reader, where, between)
    finally:
        reader.close()


def population_of(
    reader: Reader,
    where: str | None = None,
    between: tuple[int | None, int | None] = (None, None),
) -> Population | None:
    """As :func:`load_population`, of a store that is open and stays so."""
    from longpole_analytics.advisor._population import population
    from longpole_analytics.price_overrides import configured_prices

    return population(_spans(reader, where, between), configured_prices())


def _spans(reader: Reader, where: str | None, between: tuple[int | None, int | None]) -> pa.Table:
    import pyarrow as pa

    from longpole_collector.stores.remote import RemoteReader

    if not where and between == (None, None):
        return _rows(reader, ["true"], [])
    wanted = _wanted(reader, where, between)
    if not isinstance(reader, RemoteReader):
        with suppress(BadInput):  # at once, unless it is more than the store gives
            return _of_traces(reader, wanted)
    num = wanted["num_spans"].fill_null(1).cum_sum() // (PAGE_ROWS // 2)
    parts = [
        _of_traces(reader, part) for part in wanted.with_columns(num).partition_by("num_spans")
    ]
    whole = pa.concat_tables(parts or [_of_traces(reader, wanted)])
    return whole.sort_by([(name, "ascending") for name in _KEY])


def _wanted(
    reader: Reader, where: str | None, between: tuple[int | None, int | None]
) -> pl.DataFrame:
    """``trace_id``, ``start_ns`` and ``num_spans`` of the requests, in order of time."""
    from longpole_analytics.requests import from_views

    traces = view_rows(reader, "traces", *between)
    if where:
        requests = requests_of(reader, where=where, since_ns=between[0], until_ns=between[1])
    else:  # calls and stages say nothing of which there are
        stages, calls = (
            view_rows(reader, view, _NEVER_NS, _NEVER_NS) for view in ("trace_stages", "calls")
        )
        requests = from_views(traces, stages, calls)
    found = traces.join(requests, on="trace_id", how="semi").drop_nulls("start_ns")
    return found.select("trace_id", "start_ns", "num_spans").sort("start_ns", "trace_id")


def _of_traces(reader: Reader, wanted: pl.DataFrame) -> pa.Table:
    """All spans of some traces.

    The ids are given, so that a store compares them before it reads what is long.
    """
    starts = wanted["start_ns"]
    low: Any = starts.min() if len(starts) else 0
    high: Any = starts.max() if len(starts) else -1
    # the traces are within a day of these: only those days' files are opened
    given: dict[str, Value] = {
        "ids": ",".join(wanted["trace_id"]),
        "low": low - MAX_WALL_NS,
        "high": high + MAX_WALL_NS,
    }
    return reader.sql(f"SELECT {_NAMES} FROM spans WHERE {_AMONG}", given)  # noqa: S608 - ours


def _rows(reader: Reader, conditions: list[str], given: list[Value]) -> pa.Table:
    """All spans that meet the conditions."""
    return all_rows(reader, f"SELECT {_NAMES} FROM spans", conditions, given, _KEY)  # noqa: S608
