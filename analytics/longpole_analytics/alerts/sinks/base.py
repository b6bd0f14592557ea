"""What a sink is: the keys of its table, and how it sends one event.

A sink renders the event and asks nothing else. It goes out through the gate alone, raises
:class:`~longpole_analytics.alerts.net.Later` where sending again may help and
:class:`~longpole_analytics.alerts.net.Never` where it does not, and says in neither what an
address or a secret is.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, Final, NamedTuple

from longpole.config import Scalar
from longpole.errors import UsageError
from longpole.family import load
from longpole_analytics.alerts.event import Event
from longpole_analytics.alerts.net import Gate

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}")
Options = Mapping[str, Scalar | None]


class Post(NamedTuple):
    """What is to be sent.

    Attributes:
        event: the document.
        is_refresh: it only says that what was told still is so.
        now_s: the moment, seconds since the Unix epoch.
    """

    event: Event
    is_refresh: bool
    now_s: float


@dataclass(frozen=True)
class SinkKind:
    """A member of the family.

    Attributes:
        keys: of its table, with their defaults; a type takes the place of one that must be given.
        send: sends one event; returns when it has arrived.
        check: refuses options that cannot be, by ``UsageError``.
        refresh_s: how often it must hear of an alert that goes on; 0 is never.
    """

    keys: Mapping[str, Scalar | type | None]
    send: Callable[[Post, Options, Gate], None]
    check: Callable[[Options], None] = field(default=lambda _: None)
    refresh_s: float = 0.0


@dataclass(frozen=True)
class Sink:
    """One configured sink; its options hold secrets and are not shown."""

    name: str
    kind: SinkKind
    options: Options = field(repr=False)
    severities: frozenset[str] = frozenset(("page", "ticket"))


def make_sinks(tables: Mapping[str, Mapping[str, object]]) -> tuple[Sink, ...]:
    """The sinks that tables ``[alerts.sinks.NAME]`` say.

    Raises:
        UsageError: a key or a value that cannot be.
    """
    if not tables:
        return ()
    kinds = load("longpole_analytics.alerts.sinks", "SINK", SinkKind)
    return tuple(_sink(name, table, kinds) for name, table in tables.items())


def _sink(name: str, table: Mapping[str, object], kinds: Mapping[str, SinkKind]) -> Sink:
    where = f"[alerts.sinks.{name}]"
    if not _NAME.fullmatch(name):
        raise UsageError(f"{where}: a sink's name has small letters, digits, '-' and '_'")
    kind = kinds.get(str(table.get("kind")))
    if kind is None:
        raise UsageError(f"{where} kind '{table.get('kind')}': one of {', '.join(sorted(kinds))}")
    options: dict[str, Scalar | None] = {}
    for key, default in kind.keys.items():
        value = table.get(key)
        wanted = default if isinstance(default, type) else type(default or "")
        if value is None:
            if isinstance(default, type):
                raise UsageError(f"{where}: no {key}")
            options[key] = default
        else:
            options[key] = _typed(value, wanted, f"{where} {key}")
    _known(table, {"kind", "severities", *kind.keys}, where)
    kind.check(options)
    return Sink(name, kind, options, _severities(table.get("severities"), where))


def _typed(value: object, wanted: type, where: str) -> Scalar:
    fits = isinstance(value, wanted) or (wanted is float and isinstance(value, int))
    if not fits or (isinstance(value, bool) and wanted is not bool) or value == "":
        raise UsageError(f"{where}: expected a {wanted.__name__}")  # the value may be a secret
    return wanted(value)  # type: ignore[no-any-return]


def _severities(value: object, where: str) -> frozenset[str]:
    found = ["page", "ticket"] if value is None else value
    if not isinstance(found, list) or not found or not set(found) <= {"page", "ticket"}:
        raise UsageError(f'{where} severities: expected ["page"], ["ticket"] or both')
    return frozenset(found)


def _known(table: Mapping[str, object], keys: set[str], where: str) -> None:
    for key in table:
        if key not in keys:
            close = get_close_matches(key, keys, n=1)
            hint = f"did you mean '{close[0]}'?" if close else f"known: {', '.join(sorted(keys))}"
            raise UsageError(f"{where} unknown key '{key}'; {hint}")


def needs_url(options: Options, key: str = "url") -> None:
    """Refuse an address that is none.

    Raises:
        UsageError: it does not begin with ``http://`` or ``https://``.
    """
    if not re.match(r"https?://[^/\s]", str(options[key])):
        raise UsageError(f"[alerts.sinks] {key}: expected http://HOST or https://HOST")


def encoded(document: Any) -> bytes:
    """A document as JSON in UTF-8."""
    return json.dumps(document, ensure_ascii=False, allow_nan=False).encode()


def cut(text: str, most: int) -> str:
    """The text, at most so long."""
    return text if len(text) <= most else text[: most - 1] + "…"
