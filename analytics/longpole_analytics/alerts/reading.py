"""What the watch reads of a store: which minutes changed, and the requests that began in them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import duckdb
import numpy as np
import polars as pl

from longpole.vocab import Stage
from longpole_analytics.alerts.rings import Held
from longpole_analytics.minutes import MINUTE_NS
from longpole_analytics.outcome_facts import with_outcome_facts
from longpole_analytics.requests import from_views
from longpole_analytics.slo.counting import Bools
from longpole_analytics.slo.objectives import Objective

if TYPE_CHECKING:
    from longpole_collector.stores.base import Reader, Value

PAGE_ROWS: Final = 50_000
CHUNK_TRACES: Final = 20_000
"""Traces read at once."""
CHUNK_MIN: Final = 240
MAX_GAP_MIN: Final = 5
"""Minutes that need not be read, and yet are, between two that do."""
_SKEW_NS: Final = 60 * 10**9
"""A call's clock may be so much before its root's."""
_CALLS: Final = (
    "SELECT * FROM calls WHERE start_ns >= ? AND start_ns <= ? AND trace_id IN "
    "(SELECT trace_id FROM traces WHERE start_ns >= ? AND start_ns < ?)"
)
_STAGES: Final = (  # joined, so that the store reads the files of these traces alone
    "SELECT s.* FROM trace_stages AS s JOIN traces AS t ON s.trace_id = t.trace_id "
    "WHERE t.start_ns >= ? AND t.start_ns < ?"
)
_STAGE_COLUMNS: Final = (*(f"{stage.value}_ms" for stage in Stage), "client_ms", "model_ms")


class Requests(NamedTuple):
    """Requests, and the calls that they made."""

    requests: pl.DataFrame
    calls: pl.DataFrame


def held(reader: Reader, since_ns: int) -> Held:
    """What the store has of each minute from a moment on.

    A trace that gets another span, and so may be judged otherwise, changes its minute's numbers.

    Raises:
        LongpoleError: the store cannot be asked.
    """
    found = reader.sql(
        f"SELECT start_ns // {MINUTE_NS} AS minute, count(*) AS traces, "  # noqa: S608 - a number of ours
        "sum(num_spans)::BIGINT AS spans FROM traces WHERE start_ns >= ? GROUP BY ALL ORDER BY ALL",
        [since_ns],
    )
    return Held(*(_column(found, name) for name in ("minute", "traces", "spans")))


def chunks(unread: Held) -> Iterator[Held]:
    """The minutes in stretches that can be read at once, the latest first."""
    end = len(unread.minutes)
    while end > 0:
        begin = end - 1
        size = int(unread.traces[begin])
        while begin > 0:
            size += int(unread.traces[begin - 1])
            is_far = unread.minutes[end - 1] - unread.minutes[begin - 1] >= CHUNK_MIN
            has_gap = unread.minutes[begin] - unread.minutes[begin - 1] > MAX_GAP_MIN
            if size > CHUNK_TRACES or is_far or has_gap:
                break
            begin -= 1
        yield Held(*(column[begin:end] for column in unread))
        end = begin


def requests_of(
    reader: Reader,
    since_ns: int,
    until_ns: int,
    *,
    stages: bool,
    facts: Sequence[str] = (),
    max_traces: int | None = None,
) -> Requests:
    """The requests that began in [since, until), the latest where there are too many.

    Args:
        reader: the store.
        since_ns: Unix epoch nanoseconds.
        until_ns: likewise.
        stages: whether the time of each stage is wanted.
        facts: what only outcomes tell and is wanted too (:mod:`longpole_analytics.outcome_facts`).
        max_traces: how many at most; ``None`` is all.

    Raises:
        LongpoleError: the store cannot be asked.
    """
    limit = "" if max_traces is None else f" ORDER BY start_ns DESC LIMIT {max_traces}"
    traces = _frame(
        reader.sql(
            f"SELECT * FROM traces WHERE start_ns >= ? AND start_ns < ?{limit}",  # noqa: S608
            [since_ns, until_ns],
        )
    )
    first, last = traces["start_ns"].min(), traces["end_ns"].max()
    since = first - _SKEW_NS if isinstance(first, int) else since_ns
    until = last if isinstance(last, int) else since_ns
    window: list[Value] = [first if isinstance(first, int) else since_ns, until_ns]
    calls = _pages(reader, _CALLS, ("start_ns", "span_id"), [since, until, *window])
    if stages:
        shares = _pages(reader, _STAGES, ("s.trace_id", "s.stage"), window)
    else:
        shares = _frame(reader.sql("SELECT * FROM trace_stages LIMIT 0"))
    requests = from_views(traces, shares, calls)
    return Requests(with_outcome_facts(requests, reader, facts), calls)


def needs_stages(objectives: Sequence[Objective]) -> bool:
    """Whether an objective can be told only with the times of the stages."""
    return any(
        objective.metric == "tpot_ms"
        or any(name in (objective.where or "") for name in _STAGE_COLUMNS)
        for objective in objectives
    )


class Conditions:
    """Asks which requests objectives are about; used by one thread."""

    def __init__(self) -> None:
        self._con = duckdb.connect(config={"enable_external_access": False, "threads": 1})
        self._con.execute("SET lock_configuration = true")

    def close(self) -> None:
        """Let go of it."""
        self._con.close()

    def selected(
        self, requests: pl.DataFrame, objectives: Sequence[Objective]
    ) -> tuple[list[Bools | None], dict[str, str]]:
        """Which requests each objective is about, and why that could not be told, by id.

        All conditions are asked in one statement; only if it fails, each by itself.
        """
        asked = {row: each.where for row, each in enumerate(objectives) if each.where is not None}
        found: list[Bools | None] = [None] * len(objectives)
        wrong: dict[str, str] = {}
        if not asked:
            return found, wrong
        self._con.register("requests", requests.to_arrow())
        try:
            found = _answered(self._con, asked, found)
        except duckdb.Error:
            for row, where in asked.items():
                try:
                    found = _answered(self._con, {row: where}, found)
                except duckdb.Error as error:
                    wrong[objectives[row].id] = str(error).splitlines()[0]
                    found[row] = np.zeros(requests.height, np.bool_)
        finally:
            self._con.unregister("requests")
        return found, wrong


def _answered(
    con: duckdb.DuckDBPyConnection, asked: dict[int, str], before: list[Bools | None]
) -> list[Bools | None]:
    columns = ", ".join(f"coalesce(({where}\n), false) AS c{row}" for row, where in asked.items())
    table: Any = con.sql(f"SELECT {columns} FROM requests").to_arrow_table()  # noqa: S608
    found = list(before)
    for row in asked:
        found[row] = table[f"c{row}"].to_numpy().astype(np.bool_)
    return found


def _pages(
    reader: Reader, query: str, names: Sequence[str], given: Sequence[Value]
) -> pl.DataFrame:
    """All rows of a query, however few the store gives at once; ``names`` tell rows apart."""
    key = ", ".join(names)
    pages: list[pl.DataFrame] = []
    after: list[Value] = []
    while True:
        more = f" AND ({key}) > (?, ?)" if after else ""
        page = _frame(
            reader.sql(
                f"{query}{more} ORDER BY {key} LIMIT {PAGE_ROWS}",
                [*given, *after],
            )
        )
        pages.append(page)
        if page.height < PAGE_ROWS:
            return pl.concat(pages)
        after = [page[name.rpartition(".")[2]][-1] for name in names]


def _column(table: Any, name: str) -> Any:
    return table[name].to_numpy().astype(np.int64)


def _frame(table: Any) -> pl.DataFrame:
    found = pl.from_arrow(table)
    assert isinstance(found, pl.DataFrame)  # noqa: S101 - a table is a frame
    return found
