"""The table of rules: each says on ClickHouse what it says on DuckDB, or is refused by its name."""

import pytest

from longpole.errors import BadInput
from longpole_collector.stores.clickhouse import rules
from longpole_collector.stores.clickhouse.rewrite import OutsideSubset, rewrite
from longpole_collector.stores.clickhouse.schema import COUNTING

from .both import compare
from .conftest import Pair

ROWS = (
    "WITH t AS (SELECT 1 AS g, 3.5::DOUBLE AS x, 'a' AS s, 7 AS n "
    "UNION ALL SELECT 1, 1.25, 'b', -7 UNION ALL SELECT 1, NULL, 'Äb', 3 "
    "UNION ALL SELECT 2, 2.5, NULL, NULL "
    "UNION ALL SELECT 2, -2.5, 'c', 0 UNION ALL SELECT 3, NULL, NULL, NULL) "
)
SAME = [
    "SELECT g, quantile_disc(x, 0.5) AS q FROM t GROUP BY g",
    "SELECT g, quantile_disc(x, [0.1, 0.95, 0, 1]) AS q FROM t WHERE x IS NOT NULL GROUP BY g",
    "SELECT quantile_disc(x, $share) AS q, quantile_disc(x, 0.29) FILTER (g = 1) AS r FROM t",
    "SELECT g, n, quantile_disc(n, 0.5) OVER (PARTITION BY g) AS q FROM t",
    "SELECT quantile_cont(x, 0.3) AS q, median(n) AS m FROM t",
    "SELECT quantile_cont(x, [0.3, 0.9]) AS q FROM t",
    "SELECT g, list(s) AS l FROM t GROUP BY g",
    "SELECT g, list_sort(list(n) FILTER (n IS NOT NULL)) AS l FROM t WHERE g < 3 GROUP BY g",
    "SELECT list_sort(list(n) FILTER (n IS NOT NULL))[2] AS e FROM t",
    "SELECT list_sort(list(DISTINCT s) FILTER (s IS NOT NULL)) AS l FROM t",
    "SELECT g, len(list(DISTINCT n)) AS num FROM t GROUP BY g",
    "SELECT list_sort(list(n) FILTER (n IS NOT NULL))[count(*) + 9] AS e, [4, 5][-1] AS l FROM t",
    "SELECT g, string_agg(s, '+') AS l FROM t WHERE s < 'b' OR s IS NULL GROUP BY g",
    "SELECT g, sum(n) AS s, count(n) AS c, min(x) AS a, max(s) AS z, avg(n) AS m FROM t GROUP BY g",
    "SELECT sum(n) FILTER (g > 5) AS s, count(*) FILTER (g = 1) AS c FROM t",
    "SELECT arg_min(s, n) AS a, arg_max(s, x) AS b, any_value(n) FILTER (g = 2) AS c FROM t",
    "SELECT n // 2 AS d, n % 2 AS r, n / 2 AS f FROM t",
    "SELECT x > 1 AS is_big, NOT x > 1 AS is_small, coalesce(x > 1, false) AS c FROM t",
    "SELECT max(x > 1) AS m, g = 1 AND s IS NULL AS b FROM t GROUP BY g, s",
    "SELECT greatest(n, x, 1) AS g, least(0, n) AS l, greatest(n, NULL) AS k FROM t",
    "SELECT coalesce(x, n) AS c, nullif(g, 1) AS k, CASE WHEN g = 1 THEN x ELSE 0 END AS e FROM t",
    "SELECT TRY_CAST(s AS BIGINT) AS a, TRY_CAST('3.7' AS BIGINT) AS b, "
    "TRY_CAST(' 5 ' AS DOUBLE) AS c, TRY_CAST('x' AS DOUBLE) AS d, TRY_CAST('-2.5' AS BIGINT) AS e "
    "FROM t",
    "SELECT (x * 1.0)::BIGINT AS w, CAST(g AS VARCHAR) AS s, g::DOUBLE AS d FROM t",
    "SELECT round(2.5::DOUBLE * g) AS r, round(x, 1) AS k FROM t",
    "SELECT floor(x) AS f, ceil(x) AS c, abs(n) AS a FROM t",
    "SELECT unnest([1, 2]) AS i, unnest(['a', 'b']) AS k, g FROM t",
    "SELECT g FROM t WHERE CAST(g AS VARCHAR) IN (SELECT unnest(string_split('1,3', ',')))",
    "SELECT unnest(generate_series(1, g)) * 10 AS b FROM t",
    "SELECT lower(s) AS l, upper(s) AS u, s || '!' AS b, s LIKE '%b' AS k FROM t",
    "SELECT starts_with(s, 'a') AS a, contains(s, 'b') AS c, s ILIKE 'A%' AS i FROM t",
    r"SELECT '\' || s AS b, s LIKE '\%' AS k, 'it''s' AS q FROM t",
    "SELECT s IS DISTINCT FROM 'a' AS d, s IS NOT DISTINCT FROM NULL AS e FROM t",
    "SELECT a.g, b.s FROM t AS a JOIN t AS b ON a.s IS NOT DISTINCT FROM b.s",
    "SELECT a.g, b.n FROM t AS a LEFT JOIN (SELECT g, n FROM t WHERE n > 5) AS b USING (g)",
    "SELECT coalesce(a.g, b.g) AS g FROM (SELECT 1 AS g) AS a FULL OUTER JOIN t AS b ON a.g = b.g",
    "SELECT g AS k, -g AS g FROM t ORDER BY g LIMIT 2",
    "SELECT n FROM t ORDER BY n NULLS FIRST LIMIT 3",
    "SELECT n FROM t ORDER BY n DESC LIMIT CAST($two AS BIGINT) + 1",
    "SELECT g, n, sum(n) OVER (PARTITION BY g ORDER BY n NULLS FIRST) AS s FROM t",
    "SELECT n, row_number() OVER w AS r, lag(n) OVER w AS p FROM t WINDOW w AS (ORDER BY n, g)",
    "SELECT g, min(min(n)) OVER () AS m FROM t GROUP BY g",
    "SELECT * EXCLUDE (x) FROM t WHERE (g, coalesce(n, 0)) > (1, 0)",
    "SELECT g, n FROM t WHERE n IS NOT NULL UNION ALL BY NAME SELECT 9 AS n, 'z' AS more",
    "SELECT m.g FROM main.traces AS r, t AS m WHERE r.trace_id = '' OR m.g = 3 LIMIT 1",
    "SELECT count(DISTINCT g) AS d, count(*) AS n FROM t HAVING count(*) > 1",
    "SELECT log_value(g) AS v, ln(g) AS l, sqrt(g) AS r, pow(g, 2) AS p FROM t",
    "SELECT (SELECT max(n) FROM t WHERE g > 9) AS none, EXISTS (SELECT 1 FROM t) AS e",
    "SELECT $none AS a, $text AS b, $real AS c, $yes AS d, $big AS e FROM t LIMIT 1",
    "SELECT g FROM t WHERE n BETWEEN 0 AND 5 AND s IN ('a', 'c') OR n IS NULL",
    "FROM t WHERE g = 2",
]
GIVEN = {
    "share": 0.95, "two": 2, "none": None, "text": "it's \\ \n?", "real": 0.1, "yes": True,
    "big": 2**62,
}  # fmt: skip


@pytest.mark.parametrize("query", SAME)
def test_a_rule_gives_what_the_local_store_gives(pair: Pair, query: str) -> None:
    params = {name: value for name, value in GIVEN.items() if f"${name}" in query}
    wanted, found = (store.sql(ROWS + query, params) for store in pair)
    assert not compare(wanted, found)


def test_parameters_go_by_place_and_by_number(pair: Pair) -> None:
    query = "WITH a AS (SELECT ? AS x, '?' AS q) SELECT x + $1 AS s, q, ? AS y FROM a"
    wanted, found = (store.sql(query, [1, 2]) for store in pair)
    assert not compare(wanted, found)


@pytest.mark.parametrize("params", [[], ["a"], {"x": 1}])
def test_a_missing_parameter_is_named(params: object) -> None:
    with pytest.raises(BadInput, match="parameter"):
        rewrite("SELECT ?, $2", params)  # type: ignore[arg-type]


def test_text_never_becomes_a_statement() -> None:
    asked = rewrite("SELECT ? AS a", ["'; DROP TABLE x -- \\'"])
    assert asked.count("'") % 2 == 0
    assert "\\'" in asked


@pytest.mark.parametrize(
    ("query", "word"),
    [
        ("SELECT approx_quantile(x, 0.5) FROM t", "approx_quantile"),
        ("SELECT now()", "now"),
        ("SELECT current_date", "current"),
        ("SELECT x::TIMESTAMP FROM t", "TIMESTAMP"),
        ("SELECT list(x ORDER BY y) FROM t", "ORDER BY"),
        ("SELECT * FROM range(3)", "table function"),
        ("SELECT * FROM t USING SAMPLE 3", "SAMPLE"),
        ("SELECT {'a': 1}", "struct"),
        ("SELECT x[1:2] FROM t", "SLICE"),
        ("SELECT * FROM t UNION ALL BY NAME SELECT 1 AS a", "BY NAME"),
        ('SELECT 1 AS "a\\", 2 AS "b"', "backslash"),
        ("SUMMARIZE t", "SUMMARIZE"),
        ("DESCRIBE t", "DESCRIBE"),
        ("SELECT some_macro(1)", "some_macro"),
    ],
)
def test_what_is_outside_the_subset_is_refused_by_its_name(query: str, word: str) -> None:
    with pytest.raises(OutsideSubset, match=f"(?i){word}"):
        rewrite(query)


@pytest.mark.parametrize(
    ("where", "told"),
    [
        ("start_ns >= ? AND ? > 0", "intDiv(start_ns, 600000000000) >= intDiv(toInt64('5'), "),
        ("start_ns < 7 + 9", "intDiv(start_ns, 600000000000) <= intDiv(7 + 9, 600000000000)"),
        ("start_ns BETWEEN 7 AND 9", "intDiv(start_ns, 600000000000) >= intDiv(7, 600000000000)"),
        ("start_ns BETWEEN 7 AND 9", "intDiv(start_ns, 600000000000) <= intDiv(9, 600000000000)"),
        ("service = 'a' AND start_ns > 7", "intDiv(start_ns, 600000000000) >= intDiv(7, "),
        ("start_ns >= 7 OR service = 'a'", None),  # the other side may begin at any time
        ("start_ns >= end_ns", None),
        ("true AND start_ns >= 7", "intDiv(start_ns, 600000000000) >= intDiv(7, "),
        ("start_ns >= 7.5", None),
    ],
)
def test_a_window_is_told_as_the_tables_are_sorted(where: str, told: str | None) -> None:
    given = [5, 5][: where.count("?")]
    made = rewrite(f"SELECT count(*) AS num FROM spans WHERE {where}", given)
    assert "intDiv" not in made if told is None else told in made


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("FROM minutes WHERE start_ns >= 7 AND start_ns < 9", "minutes_near(since = 7, until = 9)"),
        ("FROM hours WHERE start_ns BETWEEN 7 AND 9", "hours_near(since = 7, until = 9)"),
        ("FROM stage_hours AS s WHERE s.start_ns >= 7", "stage_hours_near(since = 7, until = toI"),
        ("FROM stage_minutes WHERE num > 1", None),
        ("FROM minutes WHERE start_ns >= 7 OR num > 1", None),
        ("FROM traces WHERE start_ns >= 7", None),
    ],
)
def test_views_that_count_are_asked_for_the_window_alone(query: str, told: str | None) -> None:
    made = rewrite(f"SELECT start_ns {query}")
    assert "_near" not in made if told is None else told in made


@pytest.mark.parametrize("view", COUNTING)
@pytest.mark.parametrize("where", ["start_ns >= $m", "start_ns < $m", "start_ns BETWEEN $m AND $m"])
def test_of_a_window_a_view_counts_the_same_as_of_all(pair: Pair, view: str, where: str) -> None:
    starts = pair.click.sql(f"SELECT DISTINCT start_ns FROM {view} ORDER BY 1")["start_ns"]
    query, given = f"SELECT * FROM {view} WHERE {where}", {"m": starts[len(starts) // 2].as_py()}
    wanted, found = (store.sql(query, given) for store in pair)
    assert wanted.num_rows > 0
    assert not compare(wanted, found)


def test_the_table_stays_small() -> None:
    assert len(rules.RULES) + len(rules.NAMED) <= 30


@pytest.mark.parametrize(
    ("query", "is_lean"),
    [
        ("SELECT count(*) FROM calls", True),
        ("SELECT calls.ttft_ms, t.wall_ms FROM calls JOIN traces AS t USING (trace_id)", True),
        ("SELECT c.ttft_ms FROM main.calls AS c WHERE c.trace_id IN (SELECT 'a')", True),
        ("SELECT * FROM calls", False),
        ("SELECT c.* FROM calls AS c", False),
        ("SELECT ttft_ms FROM calls WHERE response_id = 'a'", False),
        ("WITH calls AS (SELECT 1 AS x) SELECT x FROM calls", False),
    ],
)
def test_answers_ids_are_joined_to_calls_only_where_they_are_asked_for(
    pair: Pair, query: str, is_lean: bool
) -> None:
    assert ("calls_lean" in rewrite(query)) is is_lean
    wanted, found = (store.sql(query) for store in pair)
    assert not compare(wanted, found)
