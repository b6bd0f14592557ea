"""A reader that asks both stores and fails where they answer differently."""

import ast
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from longpole_collector.stores.base import Params
from longpole_collector.stores.clickhouse.store import ClickStore
from longpole_collector.stores.duckdb import DuckStore

WINGS = ("longpole_analytics", "longpole_dashboard")


class Both:
    """Answers as the local store does, when ClickHouse says the same.

    ``asked`` are the functions that had a part in a query, as ``module.function``.
    """

    def __init__(self, duck: DuckStore, click: ClickStore) -> None:
        self._duck = duck
        self._click = click
        self.asked: set[str] = set()
        self._known: dict[str, pa.Table] = {}

    def sql(self, query: str, params: Params = ()) -> pa.Table:
        path = list(_path())
        self.asked.update(path)
        told = repr((query, params))
        if told in self._known:
            return self._known[told]
        wanted = self._duck.sql(query, params)
        try:
            found = self._click.sql(query, params)
        except Exception as error:
            raise AssertionError(f"{name_of(path)}: {error}\n{query}") from error
        differences = compare(wanted, found)
        assert not differences, f"{name_of(path)}: {differences}\n{query}\n{params}"
        self._known[told] = wanted
        return wanted

    def close(self) -> None:
        """Leave both open: others ask them too."""


def name_of(path: list[str]) -> str:
    """Who asked."""
    return " < ".join(path) or "a test"


def compare(wanted: pa.Table, found: pa.Table) -> str:
    """How two answers differ; empty where they do not. Rows without an order may be in any."""
    names = [name if name.isidentifier() else "" for name in wanted.column_names]
    if len(names) != len(found.column_names) or any(
        name and name != other for name, other in zip(names, found.column_names, strict=True)
    ):
        return f"columns {wanted.column_names} and {found.column_names}"
    found = found.rename_columns(wanted.column_names)  # what has no name is called otherwise
    for one, other in zip(wanted.schema, found.schema, strict=True):
        if _family(one.type) != _family(other.type) and wanted.num_rows:
            return f"{one.name} is {one.type} and {other.type}"
    rows = [sorted(map(_row, table.to_pylist()), key=repr) for table in (wanted, found)]
    if len(rows[0]) != len(rows[1]):
        return f"{len(rows[0])} and {len(rows[1])} rows"
    for one, other in zip(*rows, strict=True):
        for name in one:
            if not _same(one[name], other[name]):
                return f"{name} is {one[name]!r} and {other[name]!r}"
    return ""


def _family(kind: pa.DataType) -> str:
    if pa.types.is_integer(kind):
        return "whole"
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return "real"
    if pa.types.is_null(kind):
        return "any"
    return str(kind).split("<", 1)[0]


def _row(row: dict[str, Any]) -> dict[str, Any]:
    return {name: _ordered(value) for name, value in row.items()}


def _ordered(value: Any) -> Any:
    """A list that a group gathered has no order; a float's last digits follow that of a sum."""
    if isinstance(value, list):
        return sorted((_ordered(each) for each in value), key=repr)
    if isinstance(value, float) and math.isfinite(value):
        return float(f"{value:.12g}")
    return value


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-9) or (math.isnan(one) and math.isnan(other))
    return bool(one == other)


def _path() -> Iterator[str]:
    """The functions of ours that lead to this query, the nearest first."""
    frame = sys._getframe(2)
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if module.startswith(WINGS):
            yield f"{module}.{frame.f_code.co_name}"
        frame = frame.f_back  # type: ignore[assignment]


def readers(root: Path) -> set[str]:
    """Every function of the wings that takes a reader and says what to ask it.

    That is one that calls ``.sql(``, or holds a SELECT or the name of a constant that does; as
    ``module.function``.
    """
    found: set[str] = set()
    for folder in ("analytics/longpole_analytics", "dashboard/longpole_dashboard"):
        for path in (root / folder).rglob("*.py"):
            inside = path.relative_to(root / folder.split("/")[0]).with_suffix("")
            found |= {f"{'.'.join(inside.parts)}.{name}" for name in _asking(path)}
    return found


def _asking(path: Path) -> Iterator[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    words = {".sql(", "SELECT"}
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and "SELECT" in ast.unparse(node):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            words.add(ast.unparse(target))
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            given = [arg.annotation for arg in (*node.args.args, *node.args.kwonlyargs)]
            takes = any("Reader" in ast.unparse(kind) for kind in given if kind is not None)
            if takes and any(word in ast.unparse(ast.Module(node.body, [])) for word in words):
                yield node.name
