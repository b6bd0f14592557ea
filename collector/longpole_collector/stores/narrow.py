"""A query that asks for one trace reads only where that trace lies.

Trace ids are random, so no index of the column store helps to find one: ``WHERE trace_id = ...``
would read every row ever stored. The roll-up knows when the trace's spans start and which file
it is at home in, and the view in the query is replaced by the same view over that stretch. The
condition itself stays, so the answer is the same.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from longpole_collector.stores.base import Params
from longpole_collector.stores.views import OF_TRACE

_TRACE_ID: Final = re.compile(r"[0-9a-f]{32}")


class Place(NamedTuple):
    """Where a trace lies: the starts of its first and last span, and its roll-up's file.

    Without a file it may be in any.
    """

    since_ns: int
    until_ns: int
    home: str | None


def narrow(query: str, tree: Any, params: Params, find: Callable[[int, int], Place | None]) -> str:
    """The query, with views that are asked for one trace narrowed to where it lies.

    Args:
        query: one statement.
        tree: its parsed form, as ``json_serialize_sql`` gives it.
        params: values of its parameters.
        find: the place of a trace by the two halves of its id; ``None`` when it is not known.
    """
    text = query.encode()
    found: list[tuple[int, int, bytes]] = []
    for select, table in _selects(tree):
        trace_id = _asked_for(select.get("where_clause"), table, params)
        if trace_id is None:
            continue
        high, low = int(trace_id[:16], 16), int(trace_id[16:], 16)
        place = find(high, low)
        if place is None:
            continue
        start = table["query_location"]
        name = table["table_name"].encode()
        if text[start : start + len(name)].lower() != name.lower():
            continue
        home = "NULL" if place.home is None else f"'{place.home}'"
        call = (
            f"{table['table_name']}_of_trace({high}::UBIGINT, {low}::UBIGINT, "
            f"{place.since_ns}, {place.until_ns}, {home})"
        )
        if not table["alias"]:
            call += f" AS {table['table_name']}"
        found.append((start, start + len(name), call.encode()))
    for start, end, call_bytes in sorted(found, reverse=True):
        text = text[:start] + call_bytes + text[end:]
    return text.decode()


def _selects(tree: Any) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Every SELECT from one view alone, with that view."""
    stack = [tree]
    while stack:
        value = stack.pop()
        if isinstance(value, dict):
            table = value.get("from_table")
            if value.get("type") == "SELECT_NODE" and isinstance(table, dict) and _is_view(table):
                yield value, table
            stack.extend(value.values())
        elif isinstance(value, list):
            stack.extend(value)


def _is_view(table: dict[str, Any]) -> bool:
    return (
        table.get("type") == "BASE_TABLE"
        and str(table.get("table_name")).lower() in OF_TRACE
        and not table.get("schema_name")
        and not table.get("catalog_name")
        and not table.get("sample")
        and not table.get("at_clause")
    )


def _asked_for(condition: Any, table: Mapping[str, Any], params: Params) -> str | None:
    """The trace id that every row must have; ``None`` when the condition names none."""
    names = {table["table_name"].lower(), table["alias"].lower()}
    for part in _conjuncts(condition):
        if part.get("type") != "COMPARE_EQUAL":
            continue
        sides = (part.get("left"), part.get("right"))
        for column, value in (sides, sides[::-1]):
            if _is_trace_id(column, names):
                text = _value(value, params)
                if isinstance(text, str) and _TRACE_ID.fullmatch(text):
                    return text
    return None


def _conjuncts(condition: Any) -> Iterator[dict[str, Any]]:
    if not isinstance(condition, dict):
        return
    if condition.get("type") == "CONJUNCTION_AND":
        for child in condition.get("children", ()):
            yield from _conjuncts(child)
    else:
        yield condition


def _is_trace_id(side: Any, names: set[str]) -> bool:
    if not isinstance(side, dict) or side.get("type") != "COLUMN_REF":
        return False
    path = [name.lower() for name in side["column_names"]]
    return path[-1] == "trace_id" and (len(path) == 1 or (len(path) == 2 and path[0] in names))


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
