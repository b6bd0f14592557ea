"""A query for one trace is narrowed to where the trace lies, and only then."""

import json

import duckdb
import pytest

from longpole_collector.stores.narrow import Place, narrow

ID = "00000000000000010000000000000002"
PLACE = Place(10, 20, "d20260921")
CALL = "_of_trace(1::UBIGINT, 2::UBIGINT, 10, 20, 'd20260921')"


def narrowed(query, params=(), find=lambda hi, lo: PLACE):
    tree = duckdb.execute("SELECT json_serialize_sql($1)", [query]).fetchone()[0]
    return narrow(query, json.loads(tree), params, find)


@pytest.mark.parametrize(
    ("query", "params", "expected"),
    [
        (
            f"SELECT * FROM spans WHERE trace_id = '{ID}'",
            (),
            f"SELECT * FROM spans{CALL} AS spans WHERE trace_id = '{ID}'",
        ),
        (
            "select name from Spans s where $1 = s.trace_id and start_ns > 5 limit 3",
            [ID],
            f"select name from Spans{CALL} s where $1 = s.trace_id and start_ns > 5 limit 3",
        ),
        (
            "SELECT 'ü😀', calls.ttft_ms FROM calls WHERE calls.trace_id = $id",
            {"id": ID},
            f"SELECT 'ü😀', calls.ttft_ms FROM calls{CALL} AS calls WHERE calls.trace_id = $id",
        ),
        (
            "WITH t AS (FROM traces WHERE trace_id = ?) SELECT * FROM t, trace_stages",
            [ID],
            f"WITH t AS (FROM traces{CALL} AS traces WHERE trace_id = ?) "
            "SELECT * FROM t, trace_stages",
        ),
    ],
)
def test_a_view_asked_for_one_trace_is_narrowed(query, params, expected):
    assert narrowed(query, params) == expected


@pytest.mark.parametrize(
    ("query", "params"),
    [
        ("SELECT * FROM spans", ()),
        (f"SELECT * FROM spans WHERE trace_id <> '{ID}'", ()),
        (f"SELECT * FROM spans WHERE trace_id = '{ID}' OR name = 'x'", ()),
        (f"SELECT * FROM spans WHERE NOT (trace_id = '{ID}')", ()),
        (f"SELECT * FROM spans a JOIN spans b USING (span_id) WHERE a.trace_id = '{ID}'", ()),
        (f"SELECT * FROM spans WHERE other.trace_id = '{ID}'", ()),
        ("SELECT * FROM spans WHERE trace_id = 'not an id'", ()),
        (f"SELECT * FROM spans WHERE trace_id = '{ID.replace('2', 'A')}'", ()),
        ("SELECT * FROM spans WHERE trace_id = $1", [5]),
        ("SELECT * FROM spans WHERE trace_id = $2", [ID]),
        (f"SELECT * FROM spans TABLESAMPLE 10% WHERE trace_id = '{ID}'", ()),
        (f"SELECT * FROM quality WHERE trace_id = '{ID}'", ()),
    ],
)
def test_everything_else_is_left_as_it_is(query, params):
    assert narrowed(query, params) == query


def test_a_trace_that_may_be_anywhere_is_compared_by_number():
    query = f"SELECT * FROM traces WHERE trace_id = '{ID}'"
    found = narrowed(query, find=lambda hi, lo: Place(-5, 5, None))
    assert "traces_of_trace(1::UBIGINT, 2::UBIGINT, -5, 5, NULL) AS traces" in found


def test_a_trace_whose_place_is_not_known_is_searched_everywhere():
    query = f"SELECT * FROM spans WHERE trace_id = '{ID}'"
    assert narrowed(query, find=lambda hi, lo: None) == query
