"""Thresholds from ``longpole.toml``: the tables ``[analytics.NAME]``, checked."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

from longpole.config import find_file, read_file
from longpole.errors import UsageError

T = TypeVar("T")


def configured(defaults: T, name: str, path: Path | None = None) -> T:
    """The thresholds with those that the table ``[analytics.NAME]`` sets.

    Args:
        defaults: a dataclass of numbers, or of such dataclasses; all their fields are keys.
        name: the table.
        path: configuration file; default is the nearest ``longpole.toml`` upward.

    Raises:
        UsageError: a key that is no threshold, or a value that is no number of its kind.
    """
    table: Any = read_file(path or find_file()).get("analytics", {}).get(name, {})
    if not isinstance(table, dict):
        raise UsageError(f"[analytics] {name}: expected a table, as in [analytics.{name}]")
    return overridden(defaults, table, f"analytics.{name}")


def overridden(defaults: T, table: Mapping[str, object], name: str) -> T:
    """The thresholds with those of a table; see :func:`configured`."""
    known = _leaves(defaults)
    for key, value in table.items():
        if key not in known:
            near = get_close_matches(key, known, n=1)
            hint = f"; did you mean '{near[0]}'?" if near else f"; known: {', '.join(known)}"
            raise UsageError(f"[{name}] unknown key '{key}'{hint}")
        kind = int if isinstance(known[key], int) else (int, float)
        if isinstance(value, bool) or not isinstance(value, kind) or not 0 <= value < float("inf"):
            word = "whole number" if kind is int else "number"
            raise UsageError(f"[{name}] {key} = {value!r}: expected a {word} from 0")
    changed: T = _replaced(defaults, table)
    return changed


def _leaves(rules: Any) -> dict[str, int | float]:
    found: dict[str, int | float] = {}
    for field in fields(rules):
        value = getattr(rules, field.name)
        found |= _leaves(value) if is_dataclass(value) else {field.name: value}
    return found


def _replaced(rules: Any, table: Mapping[str, object]) -> Any:
    changed: dict[str, Any] = {}
    for field in fields(rules):
        value = getattr(rules, field.name)
        if is_dataclass(value):
            changed[field.name] = _replaced(value, table)
        elif field.name in table:
            changed[field.name] = type(value)(table[field.name])
    return replace(rules, **changed)
