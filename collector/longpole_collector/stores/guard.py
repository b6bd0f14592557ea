"""What a reader may ask: one SELECT (or EXPLAIN, DESCRIBE, SHOW) over the views.

The database itself is locked down too (no files, no extensions, settings frozen, read-only
transaction). This check looks at the parsed statement, so that tables and functions that are
not meant for readers are refused by name with one clear sentence.
"""

import json
import re
from collections.abc import Collection, Iterator
from typing import Any, Final

import duckdb

from longpole.errors import BadInput

MAX_QUERY_CHARS: Final = 1 << 20
TABLE_FUNCTIONS: Final = frozenset(
    ("unnest", "range", "generate_series", "json_each", "json_tree", "duckdb_columns")
)
_EXPLAIN: Final = re.compile(r"\s*explain\s+(analyze\s+)?(?=[a-z(])", re.IGNORECASE)
_SCHEMA: Final = "information_schema"
_QUERIES: Final = frozenset(("SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE", "CTE_NODE"))
_REFUSED: Final = "only one SELECT, EXPLAIN, DESCRIBE or SHOW over the views is allowed"


def check(
    connection: duckdb.DuckDBPyConnection, query: str, views: Collection[str]
) -> dict[str, Any]:
    """Pass a statement that only reads the views; nothing is executed. Gives its parsed form.

    Raises:
        BadInput: it does not parse, is not one statement, changes something, or reads what is
            no view.
        duckdb.InterruptException: it was broken off.
    """
    if len(query) > MAX_QUERY_CHARS:
        raise BadInput(f"the statement has {len(query)} characters: at most {MAX_QUERY_CHARS}")
    statement = query.encode()[skipped(query) :].decode()
    try:
        found = connection.execute("SELECT json_serialize_sql($1)", [statement]).fetchall()
        tree: dict[str, Any] = json.loads(found[0][0])
    except duckdb.InterruptException:
        raise
    except (duckdb.Error, ValueError, RecursionError) as error:
        raise BadInput(f"the statement cannot be read: {first_line(error)}") from error
    if tree["error"]:
        if tree.get("error_type") == "parser":
            raise BadInput(f"syntax error: {first_line(tree['error_message'])}")
        raise BadInput(_REFUSED)
    if len(tree["statements"]) != 1:
        raise BadInput(f"one statement at a time, not {len(tree['statements'])}")
    nodes = list(_nodes(tree["statements"]))
    names = {entry["key"] for node in nodes for entry in _ctes(node)} | set(views)
    for node in nodes:
        _check_node(node, names, views)
    return tree


def skipped(query: str) -> int:
    """Bytes before the statement that is parsed: those of an EXPLAIN."""
    found = _EXPLAIN.match(query)
    return len(found[0].encode()) if found else 0


def _check_node(node: dict[str, Any], names: set[str], views: Collection[str]) -> None:
    kind = str(node.get("type"))
    if kind == "BASE_TABLE":
        path = (node["catalog_name"], node["schema_name"], node["table_name"])
        is_view = path[0] == "" and path[1] in ("", "main") and path[2] in names
        if not is_view and path[:2] != ("", _SCHEMA):
            raise BadInput(f"no view '{path[2]}'; there are: {', '.join(sorted(views))}")
    elif kind == "TABLE_FUNCTION":
        name = node["function"]["function_name"]
        if name not in TABLE_FUNCTIONS:
            raise BadInput(f"function '{name}' is not open to readers")
    elif kind.endswith("_NODE") and kind not in _QUERIES:  # a CTE may hold an INSERT
        raise BadInput(_REFUSED)


def _nodes(tree: Any) -> Iterator[dict[str, Any]]:
    """Every object of a JSON tree, without recursion."""
    stack = [tree]
    while stack:
        value = stack.pop()
        if isinstance(value, dict):
            yield value
            stack.extend(value.values())
        elif isinstance(value, list):
            stack.extend(value)


def _ctes(node: dict[str, Any]) -> list[dict[str, Any]]:
    ctes = node.get("cte_map")
    return ctes["map"] if isinstance(ctes, dict) else []


def first_line(error: object) -> str:
    """An engine's message without its excerpt of the statement."""
    return str(error).split("\n", 1)[0].strip()
