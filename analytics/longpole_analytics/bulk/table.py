"""The roll-ups of many traces at once, from table to tables.

Plain traces go through the compiled loops; whatever is odd about a trace sends it to the
reference (:func:`longpole_analytics.rollup.roll_up`), so both ways give equal rows.
"""

import secrets
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from longpole.vocab import Span, Trace, TraceStage
from longpole_analytics.bulk.columns import NONE, STAGES, Flat, flatten, one
from longpole_analytics.bulk.compiled import Ints
from longpole_analytics.bulk.each import TRACE, roll_up_each, schema
from longpole_analytics.bulk.grouping import number_traces, place_rows
from longpole_analytics.bulk.rolling import roll
from longpole_analytics.bulk.rooms import Rooms, Rows, rooms, rows
from longpole_analytics.prepare import SYNTHETIC_ROOT_NAME

SEED: Final = np.uint64(secrets.randbits(64))
"""Decides where an id lies in a table of hashes, never what is found."""


def roll_up_many(spans: pa.Table) -> tuple[pa.Table, pa.Table]:
    """The rows of the traces and of their stages, by the compiled loops where they can.

    Args:
        spans: as :func:`longpole_analytics.rollup.roll_up_table` takes them.
    """
    if not spans.num_rows:
        return schema(Trace).empty_table(), schema(TraceStage).empty_table()
    flat = flatten(spans)
    trace, first, found = _rolled(spans, flat)
    plain = np.flatnonzero(found.is_plain)
    tables = (
        _plain_traces(spans, flat, first, found, plain),
        _plain_stages(spans, first, found, plain),
    )
    if len(plain) == len(first):
        return tables
    odd = spans.filter(pa.array(~found.is_plain[trace]))
    others = roll_up_each(odd)
    traces, stages = (pa.concat_tables(pair) for pair in zip(tables, others, strict=True))
    return traces, stages


def plain_share(spans: pa.Table) -> float:
    """The share of spans whose traces are plain; of an empty table 1.

    Args:
        spans: as :func:`roll_up_many` takes them.
    """
    if not spans.num_rows:
        return 1.0
    trace, _, found = _rolled(spans, flatten(spans))
    return float(found.is_plain[trace].mean())


class Sorted(NamedTuple):
    """A table's rows by trace.

    The number of each row's trace, the first row of each trace, rows by trace, where those of
    each trace end there, and room for the largest.
    """

    trace: Ints
    first: Ints
    by_trace: Ints
    ends: Ints
    rooms: Rooms


def sort_rows(spans: pa.Table, flat: Flat) -> Sorted:
    """Put the rows of a table together by trace.

    Args:
        spans: as :func:`roll_up_many` takes them, at least one.
        flat: the same as arrays.
    """
    hi, lo = (one(spans, name).to_numpy() for name in TRACE)
    num_spans = len(hi)
    trace, first, by_trace = (np.empty(num_spans, np.int64) for _ in range(3))
    places = np.full(1 << (2 * num_spans).bit_length(), -1)
    num_traces = number_traces(hi, lo, SEED, places, trace, first)
    sizes = np.bincount(trace, minlength=num_traces)
    ends = np.cumsum(sizes) - sizes
    place_rows(trace, ends, by_trace)
    calls = np.bincount(trace, weights=flat.columns.is_call, minlength=num_traces)
    room = rooms(int(sizes.max()), int(calls.max()))
    return Sorted(trace, first[:num_traces], by_trace, ends, room)


def _rolled(spans: pa.Table, flat: Flat) -> tuple[Ints, Ints, Rows]:
    """The number of each row's trace, the first row of each trace, and what was found."""
    trace, first, by_trace, ends, room = sort_rows(spans, flat)
    found = rows(len(first))
    loops = (flat.columns, flat.times, flat.facts, flat.answers)
    roll(*loops, by_trace, ends, SEED, *room, found)
    return trace, first, found


def _plain_traces(spans: pa.Table, flat: Flat, first: Ints, found: Rows, plain: Ints) -> pa.Table:
    critical = found.critical_ns[plain]
    pole = np.argmax(critical, axis=1) if len(plain) else plain
    pole_ns = critical[np.arange(len(plain)), pole]
    pole[pole_ns == 0] = len(STAGES) - 1

    def text(name: str, rows_: Ints) -> pa.Array:
        return _taken(spans.column(name), rows_[plain])

    def number(values: Ints) -> pa.Array:
        values = values[plain]
        return pa.array(values, mask=values == NONE)

    arrays = {
        **_ids(spans, first[plain]),
        "start_ns": number(found.start_ns),
        "end_ns": number(found.end_ns),
        "wall_ns": number(found.end_ns - found.start_ns),
        "root_name": pc.fill_null(text("name", found.root_row), SYNTHETIC_ROOT_NAME),
        "service": text("service", found.first_row),
        "route": text("route", found.route_row),
        "route_version": text("route_version", found.route_version_row),
        "prompt_version": text("prompt_version", found.prompt_row),
        "slo_class": text("slo_class", found.slo_class_row),
        "outcome": text("outcome", found.stated_row),
        "failure_class": text("failure_class", found.stated_row),
        **{
            name: number(getattr(found, name))
            for name in (
                *("time_to_useful_ns", "time_to_accepted_ns", "num_spans", "num_calls"),
                *("num_tools", "num_retries"),
                *("input_tokens", "cached_input_tokens", "output_tokens"),
            )
        },
        "cost_usd": pa.nulls(len(plain), pa.float64()),
        "long_pole": pa.array(STAGES).take(pa.array(pole)),
        "long_pole_ns": pa.array(pole_ns),
        "shape": pa.nulls(len(plain), pa.string()),
        "flags": _flag_lists(found.flags[plain], flat.flags),
    }
    return pa.table(arrays, schema=schema(Trace))


def _plain_stages(spans: pa.Table, first: Ints, found: Rows, plain: Ints) -> pa.Table:
    totals = found.total_ns[plain]
    trace, stage = np.nonzero(totals)
    arrays = {
        **_ids(spans, first[plain[trace]]),
        "stage": pa.array(STAGES).take(pa.array(stage)),
        "critical_ns": pa.array(found.critical_ns[plain[trace], stage]),
        "total_ns": pa.array(totals[trace, stage]),
    }
    return pa.table(arrays, schema=schema(TraceStage))


def _ids(spans: pa.Table, rows_: Ints) -> dict[str, pa.Array]:
    return {name: pa.array(spans.column(name).to_numpy()[rows_]) for name in TRACE}


def _taken(column: pa.ChunkedArray, rows_: Ints) -> pa.Array:
    """The texts of these rows, null for row -1."""
    found = column.take(pa.array(rows_, mask=rows_ < 0))
    return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found


def _flag_lists(bits: Ints, names: Sequence[str]) -> pa.Array:
    """The flags of each trace, sorted."""
    kinds, which = np.unique(bits, return_inverse=True)
    lists = [
        sorted(name for bit, name in enumerate(names) if flags >> bit & 1)
        for flags in kinds.tolist()
    ]
    return pa.array(lists, pa.list_(pa.string())).take(pa.array(which))


def warm_up() -> None:
    """Compile the loops, or load them: a table of one span goes through them."""
    times = {"start_ns": 1, "end_ns": 2}
    sample = {**dict.fromkeys((*TRACE, "span_id"), 1), **times, "name": "sample"}
    roll_up_many(pa.Table.from_pylist([sample], schema=schema(Span)))
