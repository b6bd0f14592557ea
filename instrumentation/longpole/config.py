"""Configuration: ``longpole.toml`` and the environment, and the only reader of both.

Precedence: flag > environment (``LONGPOLE_<TABLE>_<KEY>``) > file > default. A wing names the
keys it knows with their defaults; an unknown key in the file is an error that names the nearest
known one.
"""

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from longpole.errors import UsageError

FILE_NAME = "longpole.toml"
TABLES = ("sdk", "collector", "dashboard", "engine", "slo", "prices")
SUBTABLES = {"collector": ("projects",)}
"""Tables of named tables within a table, as in ``[collector.projects.NAME]``."""

Scalar = str | int | float | bool


@dataclass(frozen=True)
class Setting:
    """One value and where it came from: ``default``, ``file`` or ``environment``."""

    value: Scalar | None
    source: str


def find_file(start: Path | None = None) -> Path | None:
    """The nearest ``longpole.toml`` upward from ``start`` (default: working directory)."""
    here = (start or Path.cwd()).resolve()
    for folder in (here, *here.parents):
        if (folder / FILE_NAME).is_file():
            return folder / FILE_NAME
    return None


def read_file(path: Path | None) -> dict[str, dict[str, object]]:
    """The tables of a configuration file; empty without a file.

    Raises:
        UsageError: unreadable file, broken TOML, or a table nobody knows.
    """
    if path is None:
        return {}
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"cannot read {path}: {error}") from error
    for name, table in document.items():
        if name not in TABLES or not isinstance(table, dict):
            raise UsageError(f"{path}: unknown table [{name}]{_nearest(name, TABLES)}")
    return document


def settings(
    table: str, defaults: Mapping[str, Scalar | None], path: Path | None = None
) -> dict[str, Setting]:
    """The settings of one table, merged.

    Args:
        table: table name, e.g. ``collector``.
        defaults: every key the caller knows, with its default; a value from the environment
            takes the default's type (text where the default is ``None``).
        path: configuration file; default is the nearest ``longpole.toml`` upward.

    Raises:
        UsageError: an unknown key, or an environment value of the wrong type.
    """
    in_file = read_file(path or find_file()).get(table, {})
    inner = SUBTABLES.get(table, ())
    for key in in_file:
        if key not in defaults and key not in inner:
            raise UsageError(f"[{table}] unknown key '{key}'{_nearest(key, defaults)}")
    merged: dict[str, Setting] = {}
    for key, default in defaults.items():
        variable = f"LONGPOLE_{table}_{key}".upper()
        if variable in os.environ:
            value = _typed(os.environ[variable], default, variable)
            merged[key] = Setting(value, "environment")
        elif key in in_file:
            merged[key] = Setting(_scalar(in_file[key], f"[{table}] {key}"), "file")
        else:
            merged[key] = Setting(default, "default")
    return merged


def subtables(table: str, name: str, path: Path | None = None) -> dict[str, dict[str, object]]:
    """The tables ``[table.name.X]`` of the file by X, as they stand there; empty without any.

    Args:
        table: table name, e.g. ``collector``.
        name: one of its :data:`SUBTABLES`.
        path: configuration file; default is the nearest ``longpole.toml`` upward.

    Raises:
        UsageError: something else than a table of tables stands there.
    """
    found = read_file(path or find_file()).get(table, {}).get(name, {})
    if not isinstance(found, dict) or not all(isinstance(part, dict) for part in found.values()):
        raise UsageError(f"[{table}] {name}: expected tables, as in [{table}.{name}.NAME]")
    return found


def _scalar(value: object, where: str) -> Scalar:
    if isinstance(value, str | int | float | bool):
        return value
    raise UsageError(f"{where}: expected one value, got {type(value).__name__}")


def _typed(text: str, default: Scalar | None, variable: str) -> Scalar:
    try:
        if isinstance(default, bool):
            return {"1": True, "true": True, "0": False, "false": False}[text.lower()]
        if isinstance(default, int | float):
            return type(default)(text)
    except (KeyError, ValueError) as error:
        kind = type(default).__name__
        raise UsageError(f"{variable}: '{text}' is not a {kind}") from error
    return text


def _nearest(name: str, known: Mapping[str, object] | tuple[str, ...]) -> str:
    close = get_close_matches(name, list(known), n=1)
    return f"; did you mean '{close[0]}'?" if close else f"; known: {', '.join(known)}"
