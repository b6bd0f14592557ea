"""``routes.toml``: the rules of routing, read whole or refused with line and key.

    version = "2026-11-20.1"

    [routes."rag.search"]
    version = "7"
    owner = "search"
    inputs = ["input_tokens", "language"]
    timeout_ms = 8000

    [[routes."rag.search".choices]]
    name = "long"
    when = { input_tokens = { min = 8000 }, language = ["de", "fr"] }
    provider = "openai"
    model = "gpt-5.4"
    tier = "priority"
    fallback = "usual"

    [[routes."rag.search".choices]]
    name = "usual"
    model = "gpt-5.4-mini"

    [[routes."rag.search".promotions]]
    version = "7"
    date = 2026-11-19
    by = "ana"
    verdict = "better"
    card = "cards/rag-7.json"

The first choice whose conditions all hold is made; the last one has none.
"""

import re
import tomllib
from collections.abc import Callable, Mapping
from datetime import date
from difflib import get_close_matches
from typing import Any, Final, TypeVar

from longpole.errors import UsageError
from longpole_analytics.routing.policy import (
    PROMOTED,
    Choice,
    Condition,
    OneOf,
    Policy,
    Promotion,
    Route,
    Span,
)
from longpole_analytics.scorecard.rules import VERDICTS

T = TypeVar("T")
_TOP: Final = ("version", "routes")
_ROUTE: Final = ("version", "owner", "inputs", "timeout_ms", "choices", "promotions")
_CHOICE: Final = ("name", "when", "provider", "model", "tier", "timeout_ms", "fallback")
_PROMOTION: Final = ("version", "date", "by", "verdict", "card", "from", "reason")
_SPAN: Final = ("min", "below")
_TIMEOUT_MS: Final = 60_000
_MAX_TIMEOUT_MS: Final = 24 * 3600 * 1000


def read_policy(text: str, file: str = "routes.toml") -> Policy:
    """The rules of a file.

    Args:
        text: the whole file.
        file: what it is called in a message.

    Raises:
        UsageError: it is broken, or what it says cannot be; names line and key.
    """
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{file}: {error}") from error
    try:
        return _policy(table)
    except _RefusedError as error:
        line = _line(text, error.route, error.part, error.key)
        raise UsageError(f"{file}, line {line}: {error}") from error


class _RefusedError(Exception):
    """What cannot be, in which route, in which of its tables (kind and number), at which key."""

    def __init__(
        self,
        message: str,
        key: str | None = None,
        route: str | None = None,
        part: tuple[str, int] | None = None,
    ) -> None:
        super().__init__(message)
        self.key, self.route, self.part = key, route, part


def _policy(table: Mapping[str, Any]) -> Policy:
    _known(table, _TOP, "")
    version = _text(table, "version", "", is_needed=True)
    routes = table.get("routes")
    if not isinstance(routes, dict) or not routes:
        raise _RefusedError('no route: write [routes."NAME"]', "routes")
    found = {}
    for name, entry in routes.items():
        try:
            found[name] = _route(name, entry)
        except _RefusedError as error:
            error.route = name
            raise
    return Policy(str(version), found)


def _route(name: str, entry: Any) -> Route:
    where = f'[routes."{name}"] '
    if not isinstance(entry, dict):
        raise _RefusedError(f"{where}is a table")
    _known(entry, _ROUTE, where)
    version = _text(entry, "version", where, is_needed=True)
    inputs = entry.get("inputs", [])
    if not isinstance(inputs, list) or not all(isinstance(i, str) and i for i in inputs):
        raise _RefusedError(f"{where}inputs: a list of names is needed", "inputs")
    if len(set(inputs)) < len(inputs):
        raise _RefusedError(f"{where}inputs: a name stands there twice", "inputs")
    usual = _timeout(entry, where, _TIMEOUT_MS)

    def choice(each: Mapping[str, Any]) -> Choice:
        return _choice(each, where, tuple(inputs), usual)

    def promotion(each: Mapping[str, Any]) -> Promotion:
        return _promotion(each, where)

    choices = _read(entry, "choices", where, choice)
    _complete(choices, where)
    promotions = _read(entry, "promotions", where, promotion)
    owner = _text(entry, "owner", where)
    return Route(name, str(version), owner, tuple(inputs), choices, promotions)


def _read(
    entry: Mapping[str, Any], kind: str, where: str, read: Callable[[Mapping[str, Any]], T]
) -> tuple[T, ...]:
    """What each table of a list says; a refusal knows which one it was."""
    found = []
    for at, each in enumerate(_tables(entry, kind, where)):
        try:
            found.append(read(each))
        except _RefusedError as error:
            error.part = (kind, at)
            raise
    return tuple(found)


def _choice(entry: Mapping[str, Any], where: str, inputs: tuple[str, ...], usual: int) -> Choice:
    _known(entry, _CHOICE, where + "choices: ")
    name = str(_text(entry, "name", where + "choices: ", is_needed=True))
    where = f"{where}choice '{name}': "
    when = entry.get("when", {})
    if not isinstance(when, dict):
        raise _RefusedError(f"{where}when: a table of inputs is needed", "when")
    conditions = {}
    for key, said in when.items():
        if key not in inputs:
            hint = _nearest(key, inputs) or f"; declared are {', '.join(inputs) or 'none'}"
            raise _RefusedError(f"{where}when: '{key}' is no input of this route{hint}", "when")
        conditions[key] = _condition(key, said, where)
    return Choice(
        name,
        str(_text(entry, "model", where, is_needed=True)),
        _text(entry, "provider", where),
        _text(entry, "tier", where),
        _timeout(entry, where, usual),
        _text(entry, "fallback", where),
        conditions,
    )


def _condition(key: str, said: Any, where: str) -> Condition:
    if isinstance(said, dict):
        _known(said, _SPAN, f"{where}when {key}: ", "when")
        ends = [said.get(name) for name in _SPAN]
        if not said or any(end is not None and not _is_number(end) for end in ends):
            raise _RefusedError(f"{where}when {key}: numbers are needed, as {{ min = 1 }}", "when")
        low, high = (None if end is None else float(end) for end in ends)
        if low is not None and high is not None and low >= high:
            raise _RefusedError(f"{where}when {key}: no number is from min on and below", "when")
        return Span(low, high)
    values = said if isinstance(said, list) else [said]
    if not values or not all(isinstance(v, str | bool) or _is_number(v) for v in values):
        text = f"{where}when {key}: a value, a list of values or {{ min, below }} is needed"
        raise _RefusedError(text, "when")
    return OneOf(tuple(values))


def _complete(choices: tuple[Choice, ...], where: str) -> None:
    """Refuse what leaves a request undecided, a choice out of reach, or a fallback in a circle."""
    if not choices:
        raise _RefusedError(f"{where}no choice: write a [[...choices]]", "choices")
    names = [choice.name for choice in choices]
    by_name = dict(zip(names, choices, strict=True))
    for at, choice in enumerate(choices):
        part = ("choices", at)
        if choice.name in names[:at]:
            raise _RefusedError(
                f"{where}choice '{choice.name}' stands there twice", "name", part=part
            )
        if not choice.when and at + 1 < len(choices):
            text = f"choice '{choice.name}' has no condition: those after it are never made"
            raise _RefusedError(where + text, "name", part=part)
        if choice.when and at + 1 == len(choices):
            text = f"the last choice, '{choice.name}', has a condition: what if it does not hold?"
            raise _RefusedError(where + text, "when", part=part)
        passed, next_one = [choice.name], choice.fallback
        while next_one is not None:
            if next_one not in by_name:
                text = f"choice '{passed[-1]}': no choice is called '{next_one}'"
                hint = _nearest(next_one, names)
                raise _RefusedError(where + text + hint, "fallback", part=part)
            if next_one in passed:
                text = f"choice '{choice.name}': its fallbacks go in a circle"
                raise _RefusedError(where + text, "fallback", part=part)
            passed.append(next_one)
            next_one = by_name[next_one].fallback


def _promotion(entry: Mapping[str, Any], where: str) -> Promotion:
    where += "promotions: "
    _known(entry, _PROMOTION, where)
    day = entry.get("date")
    if type(day) is not date:
        raise _RefusedError(f"{where}date: write a day, as 2026-11-19, without quotes", "date")
    verdict = str(_text(entry, "verdict", where, is_needed=True))
    if verdict not in VERDICTS:
        raise _RefusedError(f"{where}verdict: one of {', '.join(VERDICTS)} is needed", "verdict")
    reason = _text(entry, "reason", where)
    if verdict not in PROMOTED and reason is None:
        text = f"{where}promoted on '{verdict}': say why, by a reason"
        raise _RefusedError(text, "verdict")
    return Promotion(
        str(_text(entry, "version", where, is_needed=True)),
        day.isoformat(),
        str(_text(entry, "by", where, is_needed=True)),
        verdict,
        _text(entry, "card", where),
        _text(entry, "from", where),
        reason,
    )


# --- pieces -------------------------------------------------------------------------------------
def _tables(entry: Mapping[str, Any], key: str, where: str) -> list[Mapping[str, Any]]:
    found = entry.get(key, [])
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise _RefusedError(f"{where}{key}: tables are needed, as [[...{key}]]", key)
    return found


def _known(
    entry: Mapping[str, Any], names: tuple[str, ...], where: str, at: str | None = None
) -> None:
    for key in entry:
        if key not in names:
            hint = _nearest(key, names) or f"; there are {', '.join(names)}"
            raise _RefusedError(f"{where}{key}: no such key{hint}", at or key)


def _text(entry: Mapping[str, Any], key: str, where: str, *, is_needed: bool = False) -> str | None:
    found = entry.get(key)
    if found is None and is_needed:
        raise _RefusedError(f"{where}no {key}", key)
    if key == "version" and type(found) is int:
        return str(found)
    if found is not None and (not isinstance(found, str) or not found.strip()):
        raise _RefusedError(f"{where}{key}: text is needed, not {found!r}", key)
    return found


def _timeout(entry: Mapping[str, Any], where: str, usual: int) -> int:
    found = entry.get("timeout_ms", usual)
    if type(found) is not int or not 0 < found <= _MAX_TIMEOUT_MS:
        raise _RefusedError(f"{where}timeout_ms: whole milliseconds up to a day", "timeout_ms")
    return found


def _is_number(value: object) -> bool:
    return type(value) in (int, float) and value == value and abs(value) != float("inf")  # type: ignore[arg-type]


def _nearest(name: str, known: Any) -> str:
    near = get_close_matches(name, list(known), 1)
    return f"; did you mean {near[0]}?" if near else ""


def _line(text: str, route: str | None, part: tuple[str, int] | None, key: str | None) -> int:
    """The line of a key in its table, else of the table; 1 if it is written otherwise."""
    name = None if route is None else rf"[\"']?{re.escape(route)}[\"']?"
    kind = rf"\s*\.\s*{part[0]}\s*\]" if part else r"\s*\]"
    header = None if name is None else re.compile(rf"\s*\[\[?\s*routes\s*\.\s*{name}{kind}")
    wanted = None if key is None else re.compile(rf"\s*[\"']?{re.escape(key)}[\"']?\s*=")
    found, is_inside, number_of = 1, header is None, -1
    for number, line in enumerate(text.splitlines(), start=1):
        if line.lstrip().startswith("["):
            is_inside = header is not None and header.match(line) is not None
            if is_inside:
                number_of += 1
                is_inside = part is None or number_of == part[1]
                found = number if is_inside else found
        elif is_inside and wanted is not None and wanted.match(line):
            return number
    return found
