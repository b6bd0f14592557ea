"""Where the commands get requests from: a store, a running collector, trace files, a flat table.

The one file beside ``commands`` that opens anything; what it returns is a table of
:mod:`longpole_analytics.requests`.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from longpole.errors import BadInput, UsageError

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa

    from longpole_analytics.prepare import Overhang
    from longpole_collector.stores.base import Reader, Value

PAGE_ROWS: Final = 50_000
"""Rows asked for at once: a store bounds its answers."""
_KEYS: Final = {
    "traces": ("start_ns", "trace_id"),
    "calls": ("start_ns", "span_id"),
    "trace_stages": ("trace_id", "stage"),
}
_SPANS_KEY: Final = ("start_ns", "span_id")
_OF_TRACES: Final = ("trace_stages", "spans")
"""Views that are asked for by when the trace begins."""
_AGO: Final = re.compile(r"(\d+(?:\.\d+)?)([smhdw])")
_UNIT_S: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class Source:
    """Where to read, as the options of a command say it."""

    db: Path | None = None
    url: str | None = None
    project: str | None = None
    files: tuple[Path, ...] = ()


def source_options(command: F) -> F:
    """The options ``--db --url --project --file`` of a command, as one argument each."""
    path = click.Path(path_type=Path)
    for option in (
        click.option("--file", "files", type=path, multiple=True, help="Read this file instead."),
        click.option("--project", help="Project in the data folder; with --url the key decides."),
        click.option("--url", help="A running collector."),
        click.option("--db", type=path, help="Data folder (default ./.longpole)."),
    ):
        command = option(command)
    return command


def window_options(command: F) -> F:
    """The options ``--since --at`` of a command, as text; :func:`window` reads them."""
    for option in (
        click.option("--at", metavar="TIME", help="As of this moment (ISO 8601, UTC), not now."),
        click.option("--since", metavar="TIME", help="From then on: a time, or 30m, 24h, 7d ago."),
    ):
        command = option(command)
    return command


def window(since: str | None, at: str | None, now_ns: int) -> tuple[int | None, int | None]:
    """The window [since, until) in Unix epoch nanoseconds; ``None`` where it is open.

    Args:
        since: a time in ISO 8601, UTC unless it says otherwise, or how long before the end.
        at: likewise a time: the end.
        now_ns: what counts as now.

    Raises:
        UsageError: what is no time.
    """
    until_ns = None if at is None else _moment(at, "--at")
    if since is None:
        return None, until_ns
    ago = _AGO.fullmatch(since)
    if ago is None:
        return _moment(since, "--since"), until_ns
    end_ns = now_ns if until_ns is None else until_ns
    return end_ns - int(float(ago[1]) * _UNIT_S[ago[2]] * 1e9), until_ns


def _moment(text: str, option: str) -> int:
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise UsageError(
            f"{option} '{text}' is no time: write 2026-09-14T13:30:00Z, or 24h for --since"
        ) from error
    whole = (found if found.tzinfo else found.replace(tzinfo=UTC)) - datetime(
        1970, 1, 1, tzinfo=UTC
    )
    return (whole.days * 86_400 + whole.seconds) * 10**9 + whole.microseconds * 1000


def load_requests(
    source: Source,
    *,
    where: str | None = None,
    since_ns: int | None = None,
    until_ns: int | None = None,
    overhang: Overhang = "detach",
    has_facts: bool = False,
    outcome_facts: Sequence[str] = (),
) -> pl.DataFrame:
    """The requests of a source that began in [since, until) and meet a condition.

    Args:
        source: a flat table of requests (one Parquet or CSV file that has no spans), trace
            files, a folder or an address.
        where: an SQL condition over the table's columns.
        since_ns: Unix epoch nanoseconds; ``None`` is from the beginning.
        until_ns: likewise, to the end.
        overhang: ``clip`` splits every trace anew, as stores keep what ``detach`` gives.
        has_facts: read what only attributes of spans tell, too (``trace_facts``).
        outcome_facts: what only outcomes tell and is wanted too, of ``outcome_facts.FACTS``.

    Raises:
        BadInput: a file or the condition cannot be read, or a window is asked of requests that
            do not know when they began.
        Unreachable: no data there.
        UsageError: options that contradict each other.
    """
    from longpole_analytics.requests import from_flat

    flat = flat_table(source.files)
    if flat is not None:
        found = from_flat(flat)
        if (since_ns, until_ns) != (None, None) and not found["start_ns"].count():
            raise BadInput(f"{source.files[0]}: no column start_ns, so no --since and no --at")
        return select(found, where, since_ns, until_ns)
    reader = opened(source)
    try:
        return requests_of(
            reader,
            where=where,
            since_ns=since_ns,
            until_ns=until_ns,
            overhang=overhang,
            has_facts=has_facts,
            outcome_facts=outcome_facts,
        )
    finally:
        reader.close()


def requests_of(
    reader: Reader,
    *,
    where: str | None = None,
    since_ns: int | None = None,
    until_ns: int | None = None,
    overhang: Overhang = "detach",
    has_facts: bool = False,
    outcome_facts: Sequence[str] = (),
) -> pl.DataFrame:
    """As :func:`load_requests`, of a store that is open and stays so."""
    from longpole_analytics.outcome_facts import with_outcome_facts
    from longpole_analytics.requests import from_views
    from longpole_analytics.trace_facts import load_facts, with_facts

    traces, calls, stages = (view_rows(reader, view, since_ns, until_ns) for view in _KEYS)
    if overhang == "clip":
        traces, stages = _clipped(reader, traces, since_ns, until_ns)
    found = from_views(traces, stages, calls)
    if has_facts:
        found = with_facts(found, load_facts(reader, (since_ns, until_ns)))
    if outcome_facts:
        found = with_outcome_facts(found, reader, outcome_facts)
    return select(found, where, since_ns, until_ns)


def select(
    requests: pl.DataFrame,
    where: str | None,
    since_ns: int | None = None,
    until_ns: int | None = None,
) -> pl.DataFrame:
    """The rows that meet an SQL condition over the columns, in their order.

    Raises:
        BadInput: the condition does not parse, or names what is not there.
    """
    import duckdb
    import polars as pl

    if since_ns is not None:
        requests = requests.filter(pl.col("start_ns") >= since_ns)
    if until_ns is not None:
        requests = requests.filter(pl.col("start_ns") < until_ns)
    if not where:
        return requests
    with duckdb.connect(config={"enable_external_access": False}) as con:
        con.register("requests", requests.with_row_index("__row").to_arrow())
        con.execute("SET lock_configuration = true")
        try:
            rows = con.sql(f"SELECT __row FROM requests WHERE ({where}\n)").to_arrow_table()  # noqa: S608
        except duckdb.Error as error:
            first = str(error).splitlines()[0]
            raise BadInput(
                f'condition "{where}": {first}; columns: {", ".join(requests.columns)}'
            ) from error
    kept = pl.Series(rows.column("__row").to_pylist(), dtype=pl.UInt32).sort()
    return requests[kept]


def flat_table(files: Sequence[Path]) -> pl.DataFrame | None:
    """The one file as a flat table; ``None`` if it is none."""
    import polars as pl

    if len(files) != 1 or files[0].suffix.lower() not in (".parquet", ".csv"):
        return None
    try:
        if files[0].suffix.lower() == ".csv":
            return pl.read_csv(files[0], infer_schema_length=10_000)
        table = pl.read_parquet(files[0])
    except (OSError, pl.exceptions.PolarsError) as error:
        raise BadInput(f"{files[0]}: {str(error).splitlines()[0]}") from error
    return None if "span_id" in table.columns else table


def opened(source: Source) -> Reader:
    """A reader over the source's folder, collector or trace files; the caller closes it."""
    from longpole_collector.settings import chosen_folder
    from longpole_collector.stores import open_reader

    folder = chosen_folder(source.db, source.project, source.url or source.files)
    return open_reader(db=folder, url=source.url, files=source.files)


def view_rows(
    reader: Reader, view: str, since_ns: int | None, until_ns: int | None
) -> pl.DataFrame:
    """All rows of a view in a window of start times."""
    import pyarrow as pa

    from longpole_collector.stores.remote import RemoteReader

    select_from = f"SELECT * FROM {view}"  # noqa: S608 - ours
    key = _KEYS.get(view, _SPANS_KEY)
    conditions, given = time_window(view, since_ns, until_ns)
    if isinstance(reader, RemoteReader) or view not in _OF_TRACES:
        return _frame(all_rows(reader, select_from, conditions, given, key))
    with suppress(BadInput):  # as in all_rows
        return _frame(reader.sql(f"{select_from} WHERE {' AND '.join(conditions)}", given))
    asked = f"({select_from} WHERE {' AND '.join(conditions)})"
    num = reader.sql(f"SELECT count(*) AS num FROM {asked}", given)["num"][0].as_py()  # noqa: S608
    # pieces by when their traces begin, so that a store opens few files for each
    inside, values = time_window("traces", since_ns, until_ns)
    traces = f"(SELECT start_ns FROM traces WHERE {' AND '.join(inside)})"  # noqa: S608 - ours
    ends = [since_ns, *_cuts(reader, traces, values, "start_ns", num), until_ns]
    parts = [
        all_rows(reader, select_from, *time_window(view, low, high), key)
        for low, high in itertools.pairwise(ends)
    ]
    return _frame(pa.concat_tables(parts))


def all_rows(
    reader: Reader,
    select_from: str,
    conditions: Sequence[str],
    given: Sequence[Value],
    key: Sequence[str],
) -> pa.Table:
    """All rows that meet the conditions, in pieces where they are many: stores bound an answer.

    Args:
        reader: the store.
        select_from: the statement up to its conditions.
        conditions: in SQL, at least one.
        given: their values, in order.
        key: columns of the result that tell its rows apart, never null; pieces follow the first.
    """
    import pyarrow as pa

    from longpole_collector.stores.remote import RemoteReader

    inside = " AND ".join(conditions)
    if isinstance(reader, RemoteReader):
        return _paged(reader, select_from, inside, given, key)
    with suppress(BadInput):  # at once, unless it is more than the store gives
        return reader.sql(f"{select_from} WHERE {inside}", given)
    asked = f"({select_from} WHERE {inside})"
    num = reader.sql(f"SELECT count(*) AS num FROM {asked}", given)["num"][0].as_py()  # noqa: S608
    parts: list[pa.Table] = []
    for low, high in itertools.pairwise([None, *_cuts(reader, asked, given, key[0], num), None]):
        ends = [(f"{key[0]} > ?", low), (f"{key[0]} <= ?", high)]
        told = [(condition, value) for condition, value in ends if value is not None]
        own = " AND ".join([inside, *(condition for condition, _ in told)])
        values = [*given, *(value for _, value in told)]
        part = reader.sql(f"{select_from} WHERE {own} LIMIT {PAGE_ROWS + 1}", values)
        if part.num_rows > PAGE_ROWS:  # many are alike in the first of the key
            part = _paged(reader, select_from, own, values, key)
        parts.append(part)
    return pa.concat_tables(parts)


def _cuts(reader: Reader, asked: str, given: Sequence[Value], column: str, num: int) -> list[Any]:
    """Values of a column that part ``num`` rows into pieces of about half a page, in order."""
    num_parts = 2 * num // PAGE_ROWS + 1
    shares = ", ".join(f"{part / num_parts:.9f}" for part in range(1, num_parts))
    if not shares:
        return []
    found = reader.sql(f"SELECT quantile_disc({column}, [{shares}]) AS cuts FROM {asked}", given)  # noqa: S608
    return sorted(set(found["cuts"][0].as_py() or ()))


def _paged(
    reader: Reader, select_from: str, inside: str, given: Sequence[Value], key: Sequence[str]
) -> pa.Table:
    """The rows in the order of a key, page by page."""
    import pyarrow as pa

    names, marks = ", ".join(key), ", ".join("?" for _ in key)
    pages: list[pa.Table] = []
    after: list[Value] = []
    while True:
        more = f"{inside} AND ({names}) > ({marks})" if after else inside
        page = reader.sql(
            f"{select_from} WHERE {more} ORDER BY {names} LIMIT {PAGE_ROWS}", [*given, *after]
        )
        pages.append(page)
        if page.num_rows < PAGE_ROWS:
            return pa.concat_tables(pages)
        last = page.slice(page.num_rows - 1).to_pylist()[0]
        after = [last[name] for name in key]


def _clipped(
    reader: Reader, traces: pl.DataFrame, since_ns: int | None, until_ns: int | None
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Traces and their stages with overhanging children cut, not left out."""
    import polars as pl

    from longpole_analytics.frames import by_trace, spans_from_table
    from longpole_analytics.stages import partition

    walls: list[tuple[str, float]] = []
    stages: list[tuple[str, str, float]] = []
    spans = by_trace(spans_from_table(view_rows(reader, "spans", since_ns, until_ns)))
    for trace_id, own in spans.items():
        split = partition(own, overhang="clip")
        walls.append((trace_id, split.wall_ns / 1e6))
        stages += [(trace_id, s.value, t.critical_ns / 1e6) for s, t in split.stages.items()]
    schema = {"trace_id": pl.String, "stage": pl.String, "critical_ms": pl.Float64}
    wall = pl.DataFrame(walls, {"trace_id": pl.String, "wall_ms": pl.Float64}, orient="row")
    joined = traces.drop("wall_ms").join(wall, on="trace_id", maintain_order="left")
    return joined, pl.DataFrame(stages, schema, orient="row")


def _frame(table: Any) -> pl.DataFrame:
    import polars as pl

    found = pl.from_arrow(table)
    assert isinstance(found, pl.DataFrame)  # noqa: S101 - a table is a frame
    return found


def time_window(
    view: str, since_ns: int | None, until_ns: int | None
) -> tuple[list[str], list[Value]]:
    """The SQL conditions on a view for start times in [since, until), and their values."""
    conditions, given = ["true"], list["Value"]()
    for sign, at_ns in ((">=", since_ns), ("<", until_ns)):
        if at_ns is None:
            continue
        inside = f"start_ns {sign} ?"
        if view in _OF_TRACES:
            inside = f"trace_id IN (SELECT trace_id FROM traces WHERE {inside})"  # noqa: S608 - ours
        conditions.append(inside)
        given.append(at_ns)
    return conditions, given
