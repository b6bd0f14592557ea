"""Where ``advise`` and ``audit`` get their traces from; what opens a store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from longpole.errors import BadInput
from longpole_analytics.loading import PAGE_ROWS, Source, flat_table, load_requests, opened
from longpole_analytics.span_loading import MAX_WALL_NS

if TYPE_CHECKING:
    import pyarrow as pa

    from longpole_analytics.advisor._population import Population
    from longpole_collector.stores.base import Reader, Value

_KEY = "start_ns, trace_id, span_id"
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
    from longpole_analytics.advisor._population import population
    from longpole_analytics.price_overrides import configured_prices

    if flat_table(source.files) is not None:
        raise BadInput(
            f"{source.files[0]}: a flat table of requests has no spans; give a file of traces"
        )
    return population(_spans(source, where, between), configured_prices())


def _spans(source: Source, where: str | None, between: tuple[int | None, int | None]) -> pa.Table:
    import pyarrow as pa
    import pyarrow.compute as pc

    wanted: list[str] | None = None
    window: list[Value] = []
    if where or between != (None, None):
        requests = load_requests(source, where=where, since_ns=between[0], until_ns=between[1])
        wanted = requests["trace_id"].to_list()
        starts = requests["start_ns"].drop_nulls()
        if len(starts):
            low: Any = starts.min()
            high: Any = starts.max()
            window = [low - MAX_WALL_NS, high + MAX_WALL_NS]
    reader = opened(source)
    try:
        spans = _rows(reader, window)
    finally:
        reader.close()
    if wanted is not None:
        spans = spans.filter(pc.is_in(spans["trace_id"], pa.array(wanted, pa.string())))
    return spans


def _rows(reader: Reader, window: list[Value]) -> pa.Table:
    """All spans that began in a window; from a collector page by page."""
    import pyarrow as pa

    from longpole.vocab import Span
    from longpole_collector.stores.remote import RemoteReader

    names = ", ".join(name for name in Span._fields if name not in _LEFT_OUT)
    inside = "start_ns BETWEEN ? AND ?" if window else "true"
    if not isinstance(reader, RemoteReader):
        return reader.sql(f"SELECT {names} FROM spans WHERE {inside}", window)  # noqa: S608 - ours
    pages: list[pa.Table] = []
    after: list[Value] = []
    while True:
        more = f"{inside} AND ({_KEY}) > (?, ?, ?)" if after else inside
        page = reader.sql(
            f"SELECT {names} FROM spans WHERE {more} ORDER BY {_KEY} LIMIT {PAGE_ROWS}",  # noqa: S608
            [*window, *after],
        )
        pages.append(page)
        if page.num_rows < PAGE_ROWS:
            return pa.concat_tables(pages)
        last = page.slice(page.num_rows - 1).to_pylist()[0]
        after = [last[name] for name in _KEY.split(", ")]
