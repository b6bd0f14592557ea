"""Counts of calls and workflows by minute, slice and size, so that an overview reads no call.

Rows of a file count what lies in that file, so those of several files are merged by adding, and
go with their file. Whoever changes a call or a workflow marks its minute in the same transaction
(:mod:`~longpole_collector.stores.stale`); :func:`refresh` counts marked minutes anew once they
are over. A row covers a minute or the hour around it, which is kept as the sum of its minutes:
a day is read from 24 of those. What sampling takes out is counted into rows of their own, so a
minute tells of all that came.
"""

from collections.abc import Callable
from functools import cache
from importlib.resources import files
from typing import Any, Final

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from longpole_collector.stores import sealed
from longpole_collector.stores.connection import registered
from longpole_collector.stores.days import Day
from longpole_collector.stores.duckdb import DuckStore
from longpole_collector.stores.migrations import NO_STAGES, note
from longpole_collector.stores.schema import MINUTE_NS, MINUTES, SPANS, STALE, TRACES

HOUR: Final = 60
"""Minutes that a row of an hour covers; the other rows cover one."""
_WALL: Final = "wall_ms"
_COLUMNS: Final = pa.schema(
    {
        "minute_ns": pa.int64(),
        "width": pa.int8(),
        **dict.fromkeys(
            ("service", "route", "prompt_version", "request_model", "metric"), pa.string()
        ),
        "bucket": pa.int32(),
        "num": pa.int64(),
        "sum_ns": pa.int64(),
        "min_ms": pa.float64(),
        "max_ms": pa.float64(),
        "is_stage": pa.bool_(),
        "is_gone": pa.bool_(),
    }
)
_SLICE: Final = "service, route, prompt_version, request_model, metric, bucket"
_MOST_NS: Final = 2**63 - 1
_SUM: Final = f"greatest(-{_MOST_NS}, least({_MOST_NS}, sum(sum_ns)))::BIGINT"
"""Of values that no clock gives, as much as there is room for."""
_MERGED: Final = f"sum(num)::BIGINT, {_SUM}, min(min_ms), max(max_ms)"


def refresh(store: DuckStore, now_ns: int, is_stopping: Callable[[], bool] = lambda: False) -> int:
    """Count the marked minutes that are over anew; returns how many.

    One hour at a time, so that nobody waits long. What is changed meanwhile is marked again and
    counted by the next call.
    """
    done = 0
    for day in list(store.days):
        _complete(store, day, is_stopping)
        for hour in _hours(store, day, now_ns):
            if is_stopping():
                return done
            done += _refresh_hour(store, day, hour, now_ns // MINUTE_NS)
    return done


def _hours(store: DuckStore, day: Day, now_ns: int) -> list[int]:
    with store.exclusive() as writer:
        rows = writer.execute(
            f"SELECT DISTINCT minute // {HOUR} FROM {day.catalog}.{STALE.name} "  # noqa: S608
            f"WHERE minute <> {now_ns // MINUTE_NS} ORDER BY ALL"
        ).fetchall()
    return [row[0] for row in rows]


def _refresh_hour(store: DuckStore, day: Day, hour: int, running: int) -> int:
    """Count the marked minutes of one hour anew, all but the one that is running."""
    stale = f"{day.catalog}.{STALE.name}"
    target = f"{day.catalog}.{MINUTES.name}"
    here = f"minute // {HOUR} = {hour}"
    with store.transaction(day) as writer:
        # what is marked from here on is not taken, and stays
        writer.execute(
            f"UPDATE {stale} SET is_taken = true WHERE {here} AND minute <> {running}"  # noqa: S608
        )
        taken = writer.sql(
            f"SELECT DISTINCT minute FROM {stale} WHERE {here} AND is_taken"  # noqa: S608
        ).to_arrow_table()
    rows = _counted(store, day, taken["minute"].to_pylist())
    with store.transaction(day) as writer, registered(writer, counted=rows, taken=taken):
        writer.execute(f"DELETE FROM {stale} WHERE {here} AND is_taken")  # noqa: S608
        writer.execute(
            f"DELETE FROM {target} AS old USING taken "  # noqa: S608
            f"WHERE old.start_ns = taken.minute * {MINUTE_NS} AND width = 1 AND NOT is_gone"
        )
        writer.execute(f"INSERT INTO {target} SELECT * FROM counted")  # noqa: S608
        _merge_hour(writer, day, hour)
    return int(taken.num_rows)


def _merge_hour(
    writer: duckdb.DuckDBPyConnection, day: Day, hour: int, which: str = "true"
) -> None:
    """Put the sum of an hour's minutes, of the rows asked for, in place of what is there."""
    target = f"{day.catalog}.{MINUTES.name}"
    columns = sealed.read(MINUTES) if day.is_sorted else "*"
    since_ns = hour * HOUR * MINUTE_NS
    writer.execute(
        f"DELETE FROM {target} WHERE start_ns = {since_ns} AND width = {HOUR} AND {which}"  # noqa: S608
    )
    writer.execute(
        f"INSERT INTO {target} SELECT {since_ns}, {HOUR}, {_SLICE}, {_MERGED}, is_stage, false "  # noqa: S608
        f"FROM (SELECT {columns} FROM {target}) WHERE width = 1 AND NOT is_gone AND {which} "
        f"AND start_ns >= {since_ns} AND start_ns < {since_ns + HOUR * MINUTE_NS} "
        f"GROUP BY is_stage, {_SLICE} ORDER BY is_stage, metric"
    )


def _complete(store: DuckStore, day: Day, is_stopping: Callable[[], bool]) -> None:
    """Count the stages of a file that an older version counted without them.

    Hour by hour, and noted how far; minutes that are marked are counted again with the rest.
    """
    begun = store.noted(day, NO_STAGES, "")
    if not begun:
        return
    target = f"{day.catalog}.{MINUTES.name}"
    with store.exclusive() as writer:
        hours = writer.execute(
            f"SELECT DISTINCT start_ns // {HOUR * MINUTE_NS} AS hour FROM {target} "  # noqa: S608
            f"WHERE width = {HOUR} AND NOT is_stage AND hour >= {int(begun)} ORDER BY hour"
        ).fetchall()
    for (hour,) in hours:
        if is_stopping():
            return
        first = hour * HOUR
        minutes = list(range(first, first + HOUR))
        rows = _filled(store.cursor(), day, minutes, _near(day, minutes), "stages.sql")
        with store.transaction(day) as writer, registered(writer, counted=rows):
            writer.execute(
                f"DELETE FROM {target} WHERE width = 1 AND is_stage AND NOT is_gone "  # noqa: S608
                f"AND start_ns BETWEEN {first * MINUTE_NS} AND {(first + HOUR) * MINUTE_NS - 1}"
            )
            writer.execute(f"INSERT INTO {target} SELECT * FROM counted")  # noqa: S608
            _merge_hour(writer, day, hour, "is_stage")
            note(writer, day.catalog, NO_STAGES, str(hour + 1))
    with store.transaction(day) as writer:
        note(writer, day.catalog, NO_STAGES, "")


def count_gone(writer: duckdb.DuckDBPyConnection, day: Day, between_ns: tuple[int, int]) -> None:
    """Count what is about to be taken out of a file, so that its minutes stay as they are.

    Within the transaction that takes it out. Rows of their own hold these counts, and are added
    whenever the minute is counted anew.

    Args:
        writer: has the transaction open, and the tables ``gone`` and ``late`` with ids of traces:
            of the former calls and workflows are counted, of the latter calls alone.
        day: the file.
        between_ns: starts of the first and the last of their spans.
    """
    low, high = between_ns
    near = f"day = '{day.catalog}' AND start_ns BETWEEN {low} AND {high}"
    of = {
        name: f"{near} AND (trace_hi, trace_lo) IN (SELECT (trace_hi, trace_lo) FROM {name})"  # noqa: S608
        for name in ("gone", "late")
    }
    starts = " UNION ALL ".join(
        f"SELECT start_ns FROM {table.name} WHERE {condition}"  # noqa: S608
        for table in (SPANS, TRACES)
        for condition in of.values()
    )
    found = writer.execute(f"SELECT DISTINCT start_ns // {MINUTE_NS} FROM ({starts})").fetchall()  # noqa: S608
    minutes = [minute for (minute,) in found]
    if not minutes:
        return
    parts = [
        _filled(writer, day, minutes, of["gone"], "fill.sql"),
        _filled(writer, day, minutes, of["gone"], "stages.sql"),
        _filled(writer, day, minutes, of["late"], "fill.sql").filter(pc.field("metric") != _WALL),
        _of_gone(writer, day, minutes),
    ]
    target = f"{day.catalog}.{MINUTES.name}"
    inside = ", ".join(str(minute * MINUTE_NS) for minute in minutes)
    with registered(writer, counted=pa.concat_tables(parts)):
        writer.execute(
            f"DELETE FROM {target} WHERE is_gone AND start_ns IN ({inside})"  # noqa: S608
        )
        writer.execute(
            f"INSERT INTO {target} SELECT minute_ns, 1, {_SLICE}, {_MERGED}, is_stage, true "  # noqa: S608
            f"FROM counted GROUP BY minute_ns, is_stage, {_SLICE}"
        )


def _counted(store: DuckStore, day: Day, minutes: list[int]) -> pa.Table:
    """The rows of these minutes: of the calls and workflows in the file, and of those gone."""
    cursor = store.cursor()
    try:
        cursor.execute("BEGIN TRANSACTION READ ONLY")  # what goes meanwhile is counted once
        near = _near(day, minutes)
        parts = [_filled(cursor, day, minutes, near, name) for name in ("fill.sql", "stages.sql")]
        gone = _of_gone(cursor, day, minutes)
        if not gone.num_rows:
            return pa.concat_tables(parts)
        with registered(cursor, counted=pa.concat_tables([*parts, gone])):
            found: Any = cursor.sql(
                f"SELECT minute_ns, 1, {_SLICE}, {_MERGED}, is_stage, false FROM counted "  # noqa: S608
                f"GROUP BY minute_ns, is_stage, {_SLICE} ORDER BY is_stage, metric, minute_ns"
            ).to_arrow_table()
        table: pa.Table = found
        return table
    finally:
        cursor.close()


def _near(day: Day, minutes: list[int]) -> str:
    """Constants, not parameters: they are what parts of the file are skipped by."""
    since_ns, until_ns = min(minutes) * MINUTE_NS, (max(minutes) + 1) * MINUTE_NS
    return f"day = '{day.catalog}' AND start_ns >= {since_ns} AND start_ns < {until_ns}"


def _filled(
    cursor: duckdb.DuckDBPyConnection, day: Day, minutes: list[int], near: str, name: str
) -> pa.Table:
    inside = ", ".join(str(minute * MINUTE_NS) for minute in minutes)
    query = _query(name).format(minutes=inside, near=near, day=day.catalog)
    found: Any = cursor.sql(query).to_arrow_table()
    table: pa.Table = found.cast(_COLUMNS)
    return table


def _of_gone(cursor: duckdb.DuckDBPyConnection, day: Day, minutes: list[int]) -> pa.Table:
    """The counts of what was taken out, as rows of minutes."""
    found: Any = cursor.sql(
        f"SELECT start_ns AS minute_ns, {', '.join(_COLUMNS.names[1:])} FROM {MINUTES.name} "  # noqa: S608
        f"WHERE {_near(day, minutes)} AND is_gone "
        f"AND start_ns IN ({', '.join(str(minute * MINUTE_NS) for minute in minutes)})"
    ).to_arrow_table()
    table: pa.Table = found.cast(_COLUMNS)
    return table


@cache
def _query(name: str) -> str:
    file = files("longpole_collector").joinpath("sql", "minutes", name)
    return file.read_text(encoding="utf-8")
