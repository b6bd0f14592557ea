"""Where ``advise`` and ``audit`` get their traces from; what opens a store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from longpole.errors import BadInput
from longpole_analytics.loading import (
    Source,
    all_rows,
    flat_table,
    opened,
    requests_of,
    time_window,
)
from longpole_analytics.span_loading import MAX_WALL_NS

if TYPE_CHECKING:
    import pyarrow as pa

    from longpole_analytics.advisor._population import Population
    from longpole_collector.stores.base import Reader, Value

_KEY = ("start_ns", "trace_id", "span_id")
_LEFT_OUT = frozenset(("events", "status_message"))


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
    import pyarrow.compute as pc

    if not where and between == (None, None):
        return _rows(reader, ["true"], [])
    requests = requests_of(reader, where=where, since_ns=between[0], until_ns=between[1])
    starts = requests["start_ns"].drop_nulls()
    low: Any = starts.min() if len(starts) else 0
    high: Any = starts.max() if len(starts) else -1
    conditions, given = time_window("spans", low, high + 1)
    # the traces are within a day of these: only those days' files are opened
    conditions.append("start_ns BETWEEN ? AND ?")
    given += [low - MAX_WALL_NS, high + MAX_WALL_NS]
    spans = _rows(reader, conditions, given)
    wanted = pa.array(requests["trace_id"].to_list(), pa.string())
    return spans.filter(pc.is_in(spans["trace_id"], wanted))


def _rows(reader: Reader, conditions: list[str], given: list[Value]) -> pa.Table:
    """All spans that meet the conditions."""
    from longpole.vocab import Span

    names = ", ".join(name for name in Span._fields if name not in _LEFT_OUT)
    return all_rows(reader, f"SELECT {names} FROM spans", conditions, given, _KEY)  # noqa: S608
