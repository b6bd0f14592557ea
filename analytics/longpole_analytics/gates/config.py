"""Checks as they are written down: ``[gate.checks.NAME]``, and ``[gate.rollback]``.

A tuple of words among a check's defaults is a choice, the first of which is the default.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

from longpole import config
from longpole.errors import UsageError
from longpole.family import load
from longpole_analytics.gates.base import Check, Gate

DEFAULTS: Final[dict[str, config.Scalar | None]] = {"since": "24h", "where": ""}
"""Every key of ``[gate]`` with its default."""
MIN_CONFIRMATIONS: Final = 2
MIN_N: Final = 100
_ROLLBACK: Final[dict[str, Any]] = {
    "url": str,
    "secret": None,
    "checks": [],
    "min_n": 500,
    "confirmations": MIN_CONFIRMATIONS,
    "allow_hosts": "",
}
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True)
class Rollback:
    """Where a change is undone, and how sure it must be that it should.

    Attributes:
        url: the webhook.
        secret: what its messages are signed with.
        checks: those that may undo a change.
        min_n: requests that each confirmation rests on, at least.
        confirmations: how many in a row, each from requests that no earlier one has counted.
        allow_hosts: what may be sent to though it is private.
    """

    url: str = field(repr=False)
    secret: str | None = field(repr=False)
    checks: frozenset[str]
    min_n: int
    confirmations: int
    allow_hosts: tuple[str, ...]


@dataclass(frozen=True)
class Gates:
    """All checks of a file, with the window and the condition of their requests."""

    checks: tuple[Check, ...]
    since: str
    where: str | None
    rollback: Rollback | None


def load_gates(path: Path) -> Gates:
    """The checks of a file, in its order.

    Raises:
        UsageError: there is none, or a key or a value that cannot be.
    """
    values = {key: each.value for key, each in config.settings("gate", DEFAULTS, path).items()}
    kinds = load("longpole_analytics.gates.kinds", "GATE", Gate)
    tables = config.subtables("gate", "checks", path)
    if not tables:
        known = ", ".join(kinds)
        raise UsageError(f"{path}: no checks: write [gate.checks.NAME] with a kind: {known}")
    checks = tuple(_check(name, table, kinds) for name, table in tables.items())
    found = config.read_file(path)["gate"].get("rollback")
    rollback = None if found is None else _rollback(found, checks)
    return Gates(checks, str(values["since"]), str(values["where"] or "") or None, rollback)


def _check(name: str, table: Mapping[str, object], kinds: Mapping[str, Gate]) -> Check:
    where = f"[gate.checks.{name}]"
    if not _NAME.fullmatch(name):
        raise UsageError(f"{where}: a check's name has letters, digits, '.', '-' and '_'")
    kind = str(table.get("kind"))
    if kind not in kinds:
        raise UsageError(f"{where} kind '{table.get('kind')}': one of {', '.join(kinds)}")
    given = {key: value for key, value in table.items() if key != "kind"}
    options = _options(given, kinds[kind].keys, where)
    for key in ("margin", "min_left", "min_share"):
        if options.get(key) is not None and not 0 <= options[key] <= (10 if key == "margin" else 1):
            raise UsageError(f"{where} {key}: expected a share, as 0.1")
    if "quantile" in options and not 0 < options["quantile"] < 1:
        raise UsageError(f"{where} quantile: expected one between 0 and 1, as 0.95")
    return Check(name, kind, kinds[kind], options)


def _rollback(table: object, checks: tuple[Check, ...]) -> Rollback:
    where = "[gate.rollback]"
    if not isinstance(table, dict):
        raise UsageError(f"{where}: expected a table with url")
    options = _options(config.resolved(table, "gate.rollback"), _ROLLBACK, where)
    if not re.match(r"https?://[^/\s]", options["url"]):
        raise UsageError(f"{where} url: expected http://HOST or https://HOST")
    if options["confirmations"] < MIN_CONFIRMATIONS:
        raise UsageError(f"{where} confirmations: at least {MIN_CONFIRMATIONS}")
    if options["min_n"] < MIN_N:
        raise UsageError(f"{where} min_n: at least {MIN_N}: less is thin evidence")
    names = [check.name for check in checks]
    usual = [check.name for check in checks if check.kind in ("scorecard", "regression")]
    chosen = options["checks"] or usual
    for name in chosen:
        if name not in names:
            raise UsageError(f"{where} checks '{name}': there is no [gate.checks.{name}]")
        if next(check for check in checks if check.name == name).kind == "coverage":
            raise UsageError(f"{where} checks '{name}': coverage says nothing about a change")
    if not chosen:
        raise UsageError(f"{where}: no check that it could act on: name them in checks")
    hosts = tuple(part.strip() for part in options["allow_hosts"].split(",") if part.strip())
    return Rollback(
        options["url"],
        options["secret"],
        frozenset(chosen),
        options["min_n"],
        options["confirmations"],
        hosts,
    )


def _options(given: Mapping[str, Any], known: Mapping[str, Any], where: str) -> dict[str, Any]:
    for key in given:
        if key not in known:
            close = get_close_matches(key, known, n=1)
            hint = f"did you mean '{close[0]}'?" if close else f"known: {', '.join(known)}"
            raise UsageError(f"{where} unknown key '{key}'; {hint}")
    return {key: _option(given, key, known[key], where) for key in known}


def _option(given: Mapping[str, Any], key: str, default: Any, where: str) -> Any:
    if key not in given:
        if isinstance(default, type):
            raise UsageError(f"{where}: no {key}")
        return default[0] if isinstance(default, tuple) else default
    value = given[key]
    if isinstance(default, tuple):
        if value not in default:
            raise UsageError(f"{where} {key}: one of {', '.join(default)}")
        return value
    kind = default if isinstance(default, type) else str if default is None else type(default)
    kind = float if key == "margin" else kind
    if kind is float and type(value) is int:
        value = float(value)
    if type(value) is not kind or value == "":
        raise UsageError(f"{where} {key}: expected a {kind.__name__}")
    if isinstance(value, list) and not all(isinstance(each, str) for each in value):
        raise UsageError(f"{where} {key}: expected a list of names")
    return value
