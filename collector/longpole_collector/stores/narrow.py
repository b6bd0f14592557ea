"""A query reads only the files, and of some traces only the rows, that it can need.

Days lie in files of their own and trace ids are random, so a view that is asked for a stretch of
time, or for one trace, would read or at least prepare every file ever stored. Where the parsed
query says which it is, the view in it is replaced by the same view over the files concerned; where
it lists the traces, over their rows, which are found by numbers much faster than by text. The
condition itself stays, so the answer is the same.
"""

import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from longpole_collector.stores.base import Params
from longpole_collector.stores.views import OF_TIME, OF_TRACE

_TRACE_ID: Final = re.compile(r"[0-9a-f]{32}")
_TRACE_IDS: Final = re.compile(r"[0-9a-f]{32}(?:,[0-9a-f]{32})*")
_FIRST: Final = -(2**63) + 1
_LAST: Final = 2**63 - 1
_FLOAT_NS: Final = 1024
"""A time compared as a floating-point number is rounded by less than this."""
_INT: Final = re.compile(r"-?\d{1,30}")
_OPERATORS: Final[dict[str, Callable[[float, float], float]]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
}
_FLIPPED: Final = {
    "COMPARE_GREATERTHAN": "COMPARE_LESSTHAN",
    "COMPARE_GREATERTHANOREQUALTO": "COMPARE_LESSTHANOREQUALTO",
    "COMPARE_LESSTHAN": "COMPARE_GREATERTHAN",
    "COMPARE_LESSTHANOREQUALTO": "COMPARE_GREATERTHANOREQUALTO",
    "COMPARE_EQUAL": "COMPARE_EQUAL",
}


class Place(NamedTuple):
    """Where a trace lies: the starts of its first and last span, and its roll-up's file.

    Without a file it may be in any.
    """

    since_ns: int
    until_ns: int
    home: str | None


class Wanted(NamedTuple):
    """What a query can need of a view.

    Attributes:
        view: its name.
        since_ns: earliest start of a row.
        until_ns: latest start of a row.
        trace: the halves of the only trace's id.
        among: name of the parameter that lists the ids of all traces, with commas between.
    """

    view: str
    since_ns: int
    until_ns: int
    trace: tuple[int, int] | None
    among: str | None = None


def narrow(
    query: str, tree: Any, params: Params, source: Callable[[Wanted], str | None], skipped: int = 0
) -> str:
    """The query, with views of which it needs only a part narrowed to that.

    Args:
        query: one statement.
        tree: its parsed form, as ``json_serialize_sql`` gives it.
        params: values of its parameters.
        source: SELECT of what is wanted; ``None`` when the view as a whole is as good.
        skipped: bytes of the query before what was parsed.
    """
    text = query.encode()
    found: list[tuple[int, int, bytes]] = []
    for table, wanted in _wanted(tree, params):
        start = table["query_location"] + skipped
        name = table["table_name"].encode()
        if text[start : start + len(name)].lower() != name.lower():
            continue
        part = source(wanted)
        if part is not None:
            alias = "" if table["alias"] else f" AS {table['table_name']}"
            found.append((start, start + len(name), f"({part}){alias}".encode()))
    for start, end, part_bytes in sorted(found, reverse=True):
        text = text[:start] + part_bytes + text[end:]
    return text.decode()


def _wanted(tree: Any, params: Params) -> Iterator[tuple[dict[str, Any], Wanted]]:
    """Every view that a SELECT restricts in time or to one trace, with what it needs."""
    hidden = {str(name).lower() for name in _cte_names(tree)}
    for select in _nodes(tree):
        if select.get("type") != "SELECT_NODE":
            continue
        tables, is_whole = _tables(select.get("from_table"))
        views = [table for table in tables if _is_view(table, hidden)]
        is_whole &= len(views) == len(tables)
        timed = [table for table in views if table["table_name"].lower() in OF_TIME]
        where = list(_conjuncts(select.get("where_clause")))
        windows: dict[int, tuple[int, int]] = {}
        for table in timed:
            is_alone = is_whole and len(timed) == 1
            windows[id(table)] = _window(where, _names(table), params, is_alone=is_alone)
        for table in views:
            window = windows.get(id(table)) or _partner(select["from_table"], windows)
            trace, among = None, None
            if is_whole and len(tables) == 1:
                trace = _trace(where, table, params)
                among, its_window = _among(where, table, params, hidden)
                window = window or its_window
            if trace is not None or among is not None or window not in (None, (_FIRST, _LAST)):
                view = table["table_name"].lower()
                yield table, Wanted(view, *(window or (_FIRST, _LAST)), trace, among)


def _nodes(tree: Any) -> Iterator[dict[str, Any]]:
    stack = [tree]
    while stack:
        value = stack.pop()
        if isinstance(value, dict):
            yield value
            stack.extend(value.values())
        elif isinstance(value, list):
            stack.extend(value)


def _cte_names(tree: Any) -> Iterator[str]:
    for node in _nodes(tree):
        ctes = node.get("cte_map")
        if isinstance(ctes, dict):
            yield from (entry["key"] for entry in ctes["map"])


def _tables(source: Any) -> tuple[list[dict[str, Any]], bool]:
    """The tables that are joined row by row, and whether there is nothing else in the FROM.

    Of other joins than by equal keys none: there a row left out may bring another one in.
    """
    if not isinstance(source, dict):
        return [], False
    if source.get("type") == "BASE_TABLE":
        return [source], True
    if source.get("type") != "JOIN":
        return [], False
    if source.get("ref_type") not in ("REGULAR", "CROSS"):
        return [], False
    (left, is_left), (right, is_right) = (_tables(source.get(side)) for side in ("left", "right"))
    is_plain = "start_ns" not in [str(name).lower() for name in source.get("using_columns") or ()]
    return left + right, is_left and is_right and is_plain


def _partner(
    source: dict[str, Any], windows: Mapping[int, tuple[int, int]]
) -> tuple[int, int] | None:
    """The window of the traces that stages are joined with: both lie in one file."""
    sides = (source.get("left"), source.get("right"))
    names = [str((side or {}).get("table_name")).lower() for side in sides]
    is_so = (
        source.get("join_type") == "INNER"
        and source.get("ref_type") == "REGULAR"
        and sorted(names) == ["trace_stages", "traces"]
        and "trace_id" in [str(name).lower() for name in source.get("using_columns") or ()]
    )
    return windows.get(id(sides[names.index("traces")])) if is_so else None


def _is_view(table: dict[str, Any], hidden: set[str]) -> bool:
    name = str(table.get("table_name")).lower()
    return (
        name in (*OF_TRACE, *OF_TIME)
        and name not in hidden
        and not table.get("schema_name")
        and not table.get("catalog_name")
        and not table.get("sample")
        and not table.get("at_clause")
        and not table.get("column_name_alias")
    )


def _names(table: Mapping[str, Any]) -> set[str]:
    return {(table["alias"] or table["table_name"]).lower()}


def _trace(
    where: Sequence[dict[str, Any]], table: Mapping[str, Any], params: Params
) -> tuple[int, int] | None:
    """The halves of the trace id that every row must have; ``None`` if the condition has none."""
    if table["table_name"].lower() not in OF_TRACE:
        return None
    for part in where:
        if part.get("type") != "COMPARE_EQUAL":
            continue
        sides = (part.get("left"), part.get("right"))
        for column, value in (sides, sides[::-1]):
            if _is_column(column, "trace_id", _names(table), is_alone=True):
                text = _value(value, params)
                if isinstance(text, str) and _TRACE_ID.fullmatch(text):
                    return int(text[:16], 16), int(text[16:], 16)
    return None


def _among(
    where: Sequence[dict[str, Any]], table: Mapping[str, Any], params: Params, hidden: set[str]
) -> tuple[str | None, tuple[int, int] | None]:
    """The parameter that lists the traces of every row, and when these traces start.

    Known is a condition ``trace_id IN (...)`` on such a list, as ``SELECT unnest(string_split($ids,
    ','))``, or on ``SELECT trace_id FROM traces`` with a condition of its own. When rows start only
    the stages of a trace have from it: they lie in its file.
    """
    among, window = None, None
    is_stages = table["table_name"].lower() == "trace_stages"
    if table["table_name"].lower() not in OF_TRACE:
        return None, None
    for part in where:
        inside = _members(part, _names(table))
        if inside is None:
            continue
        source = inside.get("from_table")
        among = among or _listed(inside, params)
        if not isinstance(source, dict) or source.get("type") != "BASE_TABLE":
            continue
        chosen = inside.get("select_list") or [None]
        if str(source.get("table_name")).lower() != "traces" or not _is_view(source, hidden):
            continue
        if len(chosen) == 1 and _is_column(chosen[0], "trace_id", _names(source), is_alone=True):
            own = list(_conjuncts(inside.get("where_clause")))
            among = among or _among(own, source, params, hidden)[0]
            if is_stages and window is None:
                window = _window(own, _names(source), params, is_alone=True)
    return among, window


def _members(part: dict[str, Any], names: set[str]) -> dict[str, Any] | None:
    """The SELECT whose rows a trace's id is among; of another condition ``None``."""
    is_in = (
        part.get("type") == "SUBQUERY"
        and part.get("subquery_type") == "ANY"
        and part.get("comparison_type") == "COMPARE_EQUAL"
        and _is_column(part.get("child"), "trace_id", names, is_alone=True)
    )
    node = (part.get("subquery") or {}).get("node") if is_in else None
    is_plain = (
        isinstance(node, dict) and node.get("type") == "SELECT_NODE" and not node["cte_map"]["map"]
    )
    return node if is_plain else None


def _listed(select: dict[str, Any], params: Params) -> str | None:
    """The parameter that ``SELECT unnest(string_split($ids, ','))`` reads, if it lists traces."""
    chosen = select.get("select_list") or [None]
    text = _argument(chosen[0], "unnest") if len(chosen) == 1 else None
    given = _argument(text, "string_split", ",")
    if not isinstance(given, dict) or given.get("type") != "VALUE_PARAMETER":
        return None
    name = str(given.get("identifier"))
    value = params.get(name) if isinstance(params, Mapping) else None
    return name if isinstance(value, str) and _TRACE_IDS.fullmatch(value) else None


def _argument(side: Any, function: str, *others: str) -> Any:
    """The first argument of a call of a function whose others are these constants."""
    if not isinstance(side, dict) or side.get("type") != "FUNCTION":
        return None
    given = [each["expression"] for each in side.get("arguments", ())]
    is_so = side.get("function_name") == function and len(given) == 1 + len(others)
    return given[0] if is_so and [_value(each, ()) for each in given[1:]] == [*others] else None


def _window(
    where: Sequence[dict[str, Any]], names: set[str], params: Params, *, is_alone: bool
) -> tuple[int, int]:
    """Between which starts every row must be."""
    since_ns, until_ns = _FIRST, _LAST
    for sign, column, value in _comparisons(where):
        if not _is_column(column, "start_ns", names, is_alone=is_alone):
            continue
        number = _number(value, params)
        if number is None or not _FIRST < number < _LAST:
            continue
        slack = _FLOAT_NS if isinstance(number, float) else 0
        if "GREATER" in sign or sign == "COMPARE_EQUAL":
            since_ns = max(since_ns, math.floor(number) - slack)
        if "LESS" in sign or sign == "COMPARE_EQUAL":
            until_ns = min(until_ns, math.ceil(number) + slack)
    return since_ns, until_ns


def _comparisons(where: Sequence[dict[str, Any]]) -> Iterator[tuple[str, Any, Any]]:
    """Sign, left and right side of each comparison, also the other way round."""
    for part in where:
        sign = str(part.get("type"))
        if sign == "COMPARE_BETWEEN":
            yield "COMPARE_GREATERTHANOREQUALTO", part.get("input"), part.get("lower")
            yield "COMPARE_LESSTHANOREQUALTO", part.get("input"), part.get("upper")
        elif sign in _FLIPPED:
            yield sign, part.get("left"), part.get("right")
            yield _FLIPPED[sign], part.get("right"), part.get("left")


def _conjuncts(condition: Any) -> Iterator[dict[str, Any]]:
    if not isinstance(condition, dict):
        return
    if condition.get("type") == "CONJUNCTION_AND":
        for child in condition.get("children", ()):
            yield from _conjuncts(child)
    else:
        yield condition


def _is_column(side: Any, name: str, names: set[str], *, is_alone: bool) -> bool:
    if not isinstance(side, dict) or side.get("type") != "COLUMN_REF":
        return False
    path = [part.lower() for part in side["column_names"]]
    return path[-1] == name and (
        (len(path) == 1 and is_alone) or (len(path) == 2 and path[0] in names)
    )


def _number(side: Any, params: Params) -> float | None:
    """The value of a number, of a parameter, or of their sum, difference or product."""
    if isinstance(side, dict) and side.get("type") == "FUNCTION" and side.get("is_operator"):
        work = _OPERATORS.get(side["function_name"])
        given = [_number(each["expression"], params) for each in side.get("arguments", ())]
        known = [number for number in given if number is not None]
        return work(*known) if work is not None and len(known) == len(given) == 2 else None
    value = _value(side, params)
    if isinstance(value, str) and isinstance(side, dict) and side.get("type") == "VALUE_CONSTANT":
        kind = (side.get("literal") or {}).get("kind")
        value = int(value) if kind == "INTEGER" and _INT.fullmatch(value) else None
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return value if is_number and math.isfinite(value) else None


def _value(side: Any, params: Params) -> Any:
    if not isinstance(side, dict):
        return None
    if side.get("type") == "VALUE_CONSTANT":
        return (side.get("literal") or {}).get("text")
    if side.get("type") != "VALUE_PARAMETER":
        return None
    name = str(side.get("identifier"))
    if isinstance(params, Mapping):
        return params.get(name)
    given: Sequence[Any] = params
    is_there = name.isdigit() and 0 < int(name) <= len(given)
    return given[int(name) - 1] if is_there else None
