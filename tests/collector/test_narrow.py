"""A query for one trace or a stretch of time is narrowed to what it needs, and only then."""

import json

import duckdb
import pytest

from longpole_collector.stores.narrow import Wanted, narrow

ID = "00000000000000010000000000000002"
ALL = (-(2**63) + 1, 2**63 - 1)
TRACE = (1, 2)


def narrowed(query, params=(), part="PART"):
    """The rewritten query, and what was wanted of each view."""
    tree = duckdb.execute("SELECT json_serialize_sql($1)", [query]).fetchone()[0]
    asked = []
    text = narrow(query, json.loads(tree), params, lambda each: asked.append(each) or part)
    return text, asked


@pytest.mark.parametrize(
    ("query", "params", "expected", "view"),
    [
        (
            f"SELECT * FROM spans WHERE trace_id = '{ID}'",
            (),
            f"SELECT * FROM (PART) AS spans WHERE trace_id = '{ID}'",
            "spans",
        ),
        (
            "select name from Spans s where $1 = s.trace_id and end_ns > 5 limit 3",
            [ID],
            "select name from (PART) s where $1 = s.trace_id and end_ns > 5 limit 3",
            "spans",
        ),
        (
            "SELECT 'ü😀', calls.ttft_ms FROM calls WHERE calls.trace_id = $id",
            {"id": ID},
            "SELECT 'ü😀', calls.ttft_ms FROM (PART) AS calls WHERE calls.trace_id = $id",
            "calls",
        ),
        (
            "WITH t AS (FROM traces WHERE trace_id = ?) SELECT * FROM t, trace_stages",
            [ID],
            "WITH t AS (FROM (PART) AS traces WHERE trace_id = ?) SELECT * FROM t, trace_stages",
            "traces",
        ),
    ],
)
def test_a_view_asked_for_one_trace_is_narrowed(query, params, expected, view):
    assert narrowed(query, params) == (expected, [Wanted(view, *ALL, TRACE)])


@pytest.mark.parametrize(
    ("condition", "params", "since_ns", "until_ns"),
    [
        ("start_ns >= 10 AND start_ns < 20", (), 10, 20),
        ("c.start_ns >= ? AND 20 > c.start_ns AND model = 'x'", [10], 10, 20),
        ("start_ns BETWEEN $low AND $high - 1", {"low": 10, "high": 21}, 10, 20),
        ("start_ns = 10", (), 10, 10),
        ("start_ns > 5 AND start_ns > 10", (), 10, ALL[1]),
        ("(start_ns >= -3 * 1000) AND (true AND start_ns <= 7)", (), -3000, 7),
        ("start_ns >= ?", [5000.5], 5000 - 1024, ALL[1]),
    ],
)
def test_a_view_asked_for_a_stretch_of_time_is_narrowed(condition, params, since_ns, until_ns):
    text, asked = narrowed(f"SELECT * FROM calls c WHERE {condition}", params)
    assert text == f"SELECT * FROM (PART) c WHERE {condition}"
    assert asked == [Wanted("calls", since_ns, until_ns, None)]


@pytest.mark.parametrize(
    ("query", "views"),
    [
        ("SELECT * FROM traces t JOIN calls c USING (trace_id) WHERE c.start_ns > 5", ["calls"]),
        (
            "SELECT * FROM trace_stages JOIN traces USING (trace_id) WHERE start_ns > 5",
            ["trace_stages", "traces"],
        ),
        (
            "SELECT * FROM traces LEFT JOIN trace_stages s USING (trace_id) WHERE start_ns > 5",
            ["traces"],
        ),
        (
            "WITH t AS (FROM traces WHERE start_ns > 5) FROM t JOIN trace_stages USING (trace_id)",
            ["traces"],
        ),
        ("SELECT (SELECT max(e2e_ms) FROM calls WHERE start_ns > 5), * FROM spans", ["calls"]),
        ("SELECT * FROM hours h, (FROM spans) x WHERE h.start_ns > 5", ["hours"]),
    ],
)
def test_of_several_views_those_that_are_restricted_are_narrowed(query, views):
    _, asked = narrowed(query)
    assert sorted(each.view for each in asked) == views
    assert {(each.since_ns, each.until_ns) for each in asked} == {(5, ALL[1])}


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
        (f"WITH spans AS (SELECT '{ID}' AS trace_id) FROM spans WHERE trace_id = '{ID}'", ()),
        ("WITH calls AS (SELECT 7 AS start_ns) FROM calls WHERE start_ns > 5", ()),
        ("SELECT * FROM spans WHERE start_ns > 5 OR name = 'x'", ()),
        ("SELECT * FROM spans WHERE start_ns NOT BETWEEN 5 AND 7", ()),
        ("SELECT * FROM spans WHERE start_ns + 1 > 5", ()),
        ("SELECT * FROM spans WHERE start_ns > ?", [None]),
        ("SELECT * FROM spans WHERE start_ns > ?", ["7"]),
        ("SELECT * FROM spans WHERE start_ns > ?", [True]),
        ("SELECT * FROM trace_stages WHERE start_ns > 5", ()),
        ("SELECT * FROM traces JOIN calls USING (trace_id) WHERE start_ns > 5", ()),
        ("SELECT * FROM traces JOIN calls USING (start_ns) WHERE start_ns > 5", ()),
        ("SELECT * FROM traces POSITIONAL JOIN calls c WHERE c.start_ns > 5", ()),
        ("SELECT * FROM traces t ASOF JOIN calls c ON t.start_ns >= c.start_ns "
         "WHERE c.start_ns > 5", ()),
    ],
)  # fmt: skip
def test_everything_else_is_left_as_it_is(query, params):
    assert narrowed(query, params) == (query, [])


def test_a_view_that_is_as_good_as_its_part_stays():
    query = f"SELECT * FROM spans WHERE trace_id = '{ID}'"
    assert narrowed(query, part=None)[0] == query


AMONG = "trace_id IN (SELECT unnest(string_split($ids, ',')))"
IDS = f"{ID},{'f' * 32}"


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (f"SELECT * FROM calls WHERE {AMONG}", [("calls", *ALL)]),
        (f"SELECT * FROM spans s WHERE s.{AMONG} AND start_ns > 5", [("spans", 5, ALL[1])]),
        (
            f"SELECT * FROM trace_stages WHERE trace_id IN (SELECT trace_id FROM traces "
            f"WHERE start_ns >= $low AND start_ns < 20 AND {AMONG} LIMIT 7)",
            [("trace_stages", 10, 20), ("traces", 10, 20)],
        ),
        (
            # when a call starts is not when its trace does
            f"SELECT * FROM calls WHERE trace_id IN (SELECT t.trace_id FROM traces t "
            f"WHERE t.start_ns >= $low AND {AMONG})",
            [("calls", *ALL), ("traces", 10, ALL[1])],
        ),
    ],
)
def test_a_view_asked_for_a_list_of_traces_is_narrowed_to_them(query, expected):
    _, asked = narrowed(query, {"ids": IDS, "low": 10})
    assert sorted(asked) == [Wanted(*each, None, "ids") for each in expected]


def test_stages_of_the_traces_of_a_stretch_lie_where_these_do():
    query = "SELECT * FROM trace_stages WHERE trace_id IN (SELECT trace_id FROM traces WHERE {})"
    _, asked = narrowed(query.format("start_ns >= ? AND start_ns < ?"), [10, 20])
    assert {each.view: each[1:3] for each in asked} == dict.fromkeys(
        ("trace_stages", "traces"), (10, 20)
    )


@pytest.mark.parametrize(
    "condition",
    [
        f"NOT {AMONG}",
        f"({AMONG} OR true)",
        "trace_id IN (SELECT unnest(string_split($ids, ';')))",
        "trace_id IN (SELECT unnest(string_split($wrong, ',')))",
        "trace_id IN (SELECT unnest(string_split($none, ',')))",
        "trace_id IN (SELECT unnest(string_split($ids, ',')) UNION SELECT 'a')",
        "trace_id IN (SELECT trace_id || '' FROM traces)",
        "span_id IN (SELECT unnest(string_split($ids, ',')))",
        f"trace_id NOT IN (SELECT trace_id FROM traces WHERE {AMONG.replace('IN', 'NOT IN', 1)})",
    ],
)
def test_a_list_that_is_none_of_traces_narrows_nothing(condition):
    params = {"ids": IDS, "wrong": "a,b", "none": None}
    query = f"SELECT * FROM spans WHERE {condition}"
    assert narrowed(query, params) == (query, [])
