"""Rows of the view ``spans`` become spans again, and what is no such row is refused by name."""

import duckdb
import polars as pl
import pyarrow as pa
import pytest

from longpole.errors import BadInput
from longpole.vocab import Span
from longpole_analytics.frames import by_trace, spans_from_table

from .tables import spans_table
from .traces import call, engine, span

SPANS = [
    span("00000000000000a1", None, 0, 100, attributes={"k": "v"}, flags=["odd"]),
    call("00000000000000a2", "00000000000000a1", 10, None, tpot_ms=1.5, input_tokens=7),
    *engine("00000000000000a3", "00000000000000a2", 12, {"queue": 3}),
]


def test_a_table_gives_back_its_spans():
    assert spans_from_table(spans_table(SPANS)) == SPANS


def test_a_polars_frame_does_as_well():
    assert spans_from_table(pl.from_arrow(spans_table(SPANS))) == SPANS


def test_what_duckdb_returns_does_as_well():
    with duckdb.connect() as connection:
        connection.register("spans", spans_table(SPANS))
        found = connection.sql("SELECT *, 1 AS unknown FROM spans").to_arrow_table()
    assert spans_from_table(found) == SPANS


def test_an_empty_table_gives_no_spans():
    assert spans_from_table(spans_table([])) == []


def test_a_missing_nullable_column_is_unknown():
    table = spans_table(SPANS).drop_columns(["queue_ns", "flags"])
    assert [s.flags for s in spans_from_table(table)] == [[], [], [], []]


def test_a_missing_required_column_is_named():
    with pytest.raises(BadInput, match="no column start_ns"):
        spans_from_table(spans_table(SPANS).drop_columns(["start_ns"]))


def test_a_null_where_every_span_has_a_value_is_refused():
    table = spans_table(SPANS)
    index = table.column_names.index("name")
    table = table.set_column(index, "name", pa.array([None] * len(SPANS), pa.string()))
    with pytest.raises(BadInput, match="column name holds a null"):
        spans_from_table(table)


def test_a_wrong_type_is_named():
    table = spans_table(SPANS)
    index = table.column_names.index("start_ns")
    table = table.set_column(index, "start_ns", pa.array(["soon"] * len(SPANS)))
    with pytest.raises(BadInput, match="column start_ns holds string"):
        spans_from_table(table)


def test_spans_are_grouped_by_trace():
    other = span("b", None, 0, 1)._replace(trace_id="0" * 32)
    assert by_trace([SPANS[0], other, SPANS[1]]) == {
        SPANS[0].trace_id: [SPANS[0], SPANS[1]],
        other.trace_id: [other],
    }
    assert Span is type(SPANS[0])
