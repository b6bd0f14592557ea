"""Configuration: ``longpole.toml`` and the environment, and the only reader of both.

Precedence: flag > environment (``LONGPOLE_<TABLE>_<KEY>``) > file > default. A wing names the
keys it knows with their defaults; an unknown key in the file is an error that names the nearest
known one.

Text in the file may refer to what does not belong there: ``${env:NAME}`` is a variable of the
environment, ``${file:/run/secrets/name}`` what that file holds. A secret written out in the file
works, with a warning.
"""

import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path

from longpole import health
from longpole.errors import UsageError

FILE_NAME = "longpole.toml"
TABLES = (
    *("sdk", "collector", "dashboard", "engine", "slo", "alerts", "prices", "budget", "analytics"),
    *("report", "gate"),
)
SUBTABLES = {
    "collector": ("projects", "sampling"),
    "alerts": ("sinks",),
    "gate": ("checks", "rollback"),
}
"""Tables within a table: of named tables, as ``[collector.projects.NAME]``, or of keys."""

HIDDEN = "***"
_CREDENTIALS = re.compile(r"(?<=://)[^/\s]+@")
"""What is shown in place of a secret."""
MAX_SECRET_BYTES = 64 << 10
_REFERENCE = re.compile(r"\$\{(env|file):([^{}]*)\}")
_SECRET = re.compile(r"(^|_)(key|token|password|secret)$")

Scalar = str | int | float | bool


@dataclass(frozen=True)
class Setting:
    """One value and where it came from: ``default``, ``file`` or ``environment``.

    Attributes:
        value: the value; ``None`` if nothing is set.
        source: where it came from.
        is_secret: it must not be shown: its key says so, or the file only refers to it.
    """

    value: Scalar | None
    source: str
    is_secret: bool = field(default=False, compare=False)

    @property
    def shown(self) -> Scalar | None:
        """The value as it may be printed."""
        if self.is_secret and self.value:
            return HIDDEN
        if isinstance(self.value, str):
            return _CREDENTIALS.sub(f"{HIDDEN}@", self.value)
        return self.value


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
        UsageError: an unknown key, a value of the wrong type, or a reference to nothing.
    """
    in_file = read_file(path or find_file()).get(table, {})
    inner = SUBTABLES.get(table, ())
    for key in in_file:
        if key not in defaults and key not in inner:
            raise UsageError(f"[{table}] unknown key '{key}'{_nearest(key, defaults)}")
    merged: dict[str, Setting] = {}
    for key, default in defaults.items():
        variable = f"LONGPOLE_{table}_{key}".upper()
        is_secret = _SECRET.search(key) is not None
        if variable in os.environ:
            value = _typed(os.environ[variable], default, variable)
            merged[key] = Setting(value, "environment", is_secret)
        elif key in in_file:
            merged[key] = _in_file(in_file[key], default, table, key)
        else:
            merged[key] = Setting(default, "default", is_secret)
    return merged


def subtables(table: str, name: str, path: Path | None = None) -> dict[str, dict[str, object]]:
    """The tables ``[table.name.X]`` of the file by X; empty without any.

    They are as they stand there, but for references, in whose place is what they refer to.

    Args:
        table: table name, e.g. ``collector``.
        name: one of its :data:`SUBTABLES`.
        path: configuration file; default is the nearest ``longpole.toml`` upward.

    Raises:
        UsageError: something else than a table of tables stands there, or a reference to nothing.
    """
    found = read_file(path or find_file()).get(table, {}).get(name, {})
    if not isinstance(found, dict) or not all(isinstance(part, dict) for part in found.values()):
        raise UsageError(f"[{table}] {name}: expected tables, as in [{table}.{name}.NAME]")
    return {inner: resolved(part, f"{table}.{name}.{inner}") for inner, part in found.items()}


# --- references and secrets ---------------------------------------------------------------------
def _in_file(value: object, default: Scalar | None, table: str, key: str) -> Setting:
    """A value of the file; what it refers to takes the default's type, as the environment does."""
    where = f"[{table}] {key}"
    scalar = _scalar(value, where)
    if isinstance(scalar, str) and _REFERENCE.search(scalar):
        return Setting(_typed(_referred(scalar, where), default, where, HIDDEN), "file", True)
    _warn_of_secret(scalar, where, key)
    return Setting(scalar, "file", _SECRET.search(key) is not None)


def resolved(table: dict[str, object], name: str) -> dict[str, object]:
    """A table with what its texts refer to, those in lists and in tables within it too."""

    def resolve(value: object, path: str, key: str) -> object:
        if isinstance(value, str):
            _warn_of_secret(value, f"[{name}] {path}", key)
            return _referred(value, f"[{name}] {path}")
        if isinstance(value, list):
            return [resolve(item, path, key) for item in value]
        if isinstance(value, dict):
            return {word: resolve(item, f"{path}.{word}", word) for word, item in value.items()}
        return value

    return {key: resolve(value, key, key) for key, value in table.items()}


def _referred(text: str, where: str) -> str:
    """The text with what each of its references stands for.

    Raises:
        UsageError: there is no such variable, or no such file that can be read.
    """

    def look_up(found: re.Match[str]) -> str:
        kind, name = found[1], found[2]
        if kind == "env":
            if name in os.environ:
                return os.environ[name]
            raise UsageError(f"{where}: the environment has no variable '{name}': set it")
        try:
            with Path(name).open("rb") as file:
                data = file.read(MAX_SECRET_BYTES + 1)
            if len(data) > MAX_SECRET_BYTES:
                raise ValueError(f"more than {MAX_SECRET_BYTES >> 10} KiB")
            return data.decode().rstrip("\r\n")
        except (OSError, ValueError) as error:
            # a decoding error's text would show what the file holds
            reason = "no UTF-8 text" if isinstance(error, UnicodeDecodeError) else error
            raise UsageError(f"{where}: cannot read the file '{name}': {reason}") from None

    return _REFERENCE.sub(look_up, text)


def _warn_of_secret(value: object, where: str, key: str) -> None:
    if _SECRET.search(key) and isinstance(value, str) and value and not _REFERENCE.search(value):
        health.warn_once(
            f"secret:{where}",
            f"{where}: a secret stands in {FILE_NAME} itself: refer to it, "
            '"${env:NAME}" or "${file:/run/secrets/NAME}"',
        )


def _scalar(value: object, where: str) -> Scalar:
    if isinstance(value, str | int | float | bool):
        return value
    raise UsageError(f"{where}: expected one value, got {type(value).__name__}")


def _typed(text: str, default: Scalar | None, where: str, shown: str | None = None) -> Scalar:
    """The text as a value of the default's type; an error shows ``shown`` in its place."""
    try:
        if isinstance(default, bool):
            return {"1": True, "true": True, "0": False, "false": False}[text.lower()]
        if isinstance(default, int | float):
            return type(default)(text)
    except (KeyError, ValueError) as error:
        kind = type(default).__name__
        cause = error if shown is None else None  # its text holds the value
        raise UsageError(f"{where}: '{shown or text}' is not a {kind}") from cause
    return text


def _nearest(name: str, known: Mapping[str, object] | tuple[str, ...]) -> str:
    close = get_close_matches(name, list(known), n=1)
    return f"; did you mean '{close[0]}'?" if close else f"; known: {', '.join(known)}"
