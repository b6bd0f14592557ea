"""What people wrote and what models answered does not belong in a latency store.

Attributes known to hold prompts, answers, tool arguments or documents are dropped by default;
their length and a keyed hash stay, so that equal values can be told from different ones. Their
owner may have them redacted or kept, project by project. Credentials and URL queries are dropped
always, ids of users and sessions become pseudonyms always, long values are cut. Which keys those
are is told by ``content_keys``.
"""

import hmac
import json
import logging
import os
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, Literal

from longpole.errors import Unreachable
from longpole.vocab import Span
from longpole_collector.content_keys import Action, action
from longpole_collector.decode.raw import RawEvent, RawLink, Value, text
from longpole_collector.health import Health
from longpole_collector.keys import DEFAULT_PROJECT
from longpole_collector.redact import Hook, Redactor, load_hook
from longpole_collector.settings import PROJECTS_FOLDER, ProjectSettings, load_settings

MAX_VALUE_CHARS: Final = 16 * 1024
MAX_ATTRIBUTES: Final = 256
CUT_FLAG: Final = "attributes_cut"
KEY_FILE: Final = "pseudonym.key"
Content = Literal["drop", "redact", "keep"]
"""What is done with prompts, answers, tool arguments and documents."""

_KEY_BYTES: Final = 32
_HASH_BYTES: Final = 8
_MAX_PSEUDONYMS: Final = 4096
_MARGIN_CHARS: Final = 4096
_REDACT_CHARS: Final = MAX_VALUE_CHARS + _MARGIN_CHARS
"""Rules see this much of a value, so that what begins in the part that stays is seen whole."""
_PSEUDONYM: Final = re.compile(r"h:[0-9a-f]{16}")
_MESSAGE_EVENTS: Final = ("gen_ai.",)
_MESSAGE_KEYS: Final = frozenset(
    ("content", "message", "messages", "tool_calls", "arguments", "body")
)
_log = logging.getLogger("longpole.collector.content")


def is_message(event_name: str) -> bool:
    """Whether the event of that name is a message, whose body is content."""
    return event_name.startswith(_MESSAGE_EVENTS)


def _is_content(key: str, *, is_message: bool) -> bool:
    return (is_message and key in _MESSAGE_KEYS) or action(key) is Action.CONTENT


@dataclass(frozen=True)
class Policy:
    """What a project stores of what people said and who they are."""

    content: Content = "drop"
    key: bytes = field(default_factory=lambda: os.urandom(_KEY_BYTES), repr=False)
    """Key of the hashes and pseudonyms; a random one, for what is kept in memory only."""
    rules: tuple[str, ...] = ()
    """The owner's expressions for ``redact``, see :mod:`longpole_collector.redact`."""
    hook: Hook | None = None
    """The owner's function for ``redact``, called last."""


class Scrubber:
    """Cleans spans by a policy; used by one thread at a time."""

    pseudonym: Callable[[str], str]
    """The pseudonym of a user's or session's id: ``h:`` and 16 hex digits.

    Equal ids have equal ones within a project. Empty text and what is a pseudonym already stay,
    so that an export can be imported again; quotes around an id (JSON) do not count.
    """

    def __init__(self, policy: Policy, health: Health) -> None:
        """``health`` counts values dropped, redacted and cut (``values_dropped``).

        Raises:
            UsageError: a redaction rule cannot be used.
        """
        self.policy = policy
        self._health = health
        self._redactor = Redactor(policy.rules)
        self._has_hook_failed = False
        self.pseudonym = lru_cache(_MAX_PSEUDONYMS)(self._pseudonym)

    def digest(self, value: str) -> str:
        """The keyed hash of a dropped value, 16 hex digits (HMAC-SHA256, RFC 2104)."""
        message = value.encode(errors="surrogatepass")
        return hmac.digest(self.policy.key, message, "sha256")[:_HASH_BYTES].hex()

    def clean(
        self, span: Span, events: Sequence[RawEvent] = (), links: Sequence[RawLink] = ()
    ) -> Span:
        """The span as it may be stored, its events and links within as JSON text.

        A content value that is dropped leaves ``<key>.length``, its characters, and
        ``<key>.hash``. The attributes given are changed in place.

        Args:
            span: a canonical span; its attributes are text.
            events: its events as sent.
            links: its links as sent.
        """
        if self._clean(span.attributes, length=str):
            span.flags.append(CUT_FLAG)
        if span.conversation_id:
            span = span._replace(conversation_id=self.pseudonym(span.conversation_id))
        if not events and not links:
            return span
        for event in events:
            self._clean(event.attributes, is_message=is_message(event.name))
        for link in links:
            self._clean(link.attributes)
        return span._replace(
            events=_json([event._asdict() for event in events]),
            links=_json([link._asdict() for link in links]),
        )

    def drop_content(
        self,
        attributes: dict[str, Any],
        *,
        is_message: bool = False,
        length: Callable[[int], str | int] = int,
    ) -> int:
        """Drop content from attributes that are stored already; returns how many values.

        Args:
            attributes: of a span, an event or a link; changed in place.
            is_message: they are a message event's.
            length: how a length is written.
        """
        found = [key for key in attributes if _is_content(key, is_message=is_message)]
        for key in found:
            self._drop(attributes, key, length)
        return len(found)

    def _drop(
        self, attributes: dict[str, Any], key: str, length: Callable[[int], str | int]
    ) -> None:
        said = text(attributes.pop(key))
        attributes[f"{key}.length"] = length(len(said))
        attributes[f"{key}.hash"] = self.digest(said)
        self._health.add("values_dropped", "content")

    def _clean(
        self,
        attributes: dict[str, Any],
        *,
        is_message: bool = False,
        length: Callable[[int], str | int] = int,
    ) -> int:
        """Clean attributes in place; returns how many were cut."""
        names = tuple(attributes)
        num_cut = len(names[MAX_ATTRIBUTES:])
        for key in names[MAX_ATTRIBUTES:]:
            del attributes[key]
        for key in names[:MAX_ATTRIBUTES]:
            found = Action.CONTENT if is_message and key in _MESSAGE_KEYS else action(key)
            value = attributes[key]
            if found is Action.SECRET:
                del attributes[key]
                self._health.add("values_dropped", "secret")
                continue
            if found is Action.CONTENT and self.policy.content != "keep":
                redacted = self._redact(key, value) if self.policy.content == "redact" else None
                if redacted is None:
                    self._drop(attributes, key, length)
                    continue
                value, is_cut = redacted
                num_cut += is_cut
            elif found is Action.PERSON:
                value = self.pseudonym(text(value))
            elif found is Action.URL and isinstance(value, str):
                value = value.partition("?")[0]
            if isinstance(value, str) and len(value) > MAX_VALUE_CHARS:
                value = value[:MAX_VALUE_CHARS]
                num_cut += 1
            attributes[key] = value
        if num_cut:
            self._health.add("values_dropped", "too_long", num_cut)
        return num_cut

    def _redact(self, key: str, value: Value) -> tuple[Value, bool] | None:
        """The value without what the rules find, and whether its end was cut off.

        ``None`` if the owner's function failed: then nobody knows what may be stored of it.
        """
        said = text(value)
        seen = said[:_REDACT_CHARS]
        redacted = self._redactor.clean(seen)
        if self.policy.hook is not None:
            try:
                redacted = self.policy.hook(key, redacted)
                if not isinstance(redacted, str):
                    raise TypeError(f"it returned {type(redacted).__name__}, not str")
            except (Exception, SystemExit) as error:  # noqa: BLE001 - it must not lose the span
                self._health.add("values_dropped", "hook_failed")
                if not self._has_hook_failed:  # once; its text may quote what people wrote
                    self._has_hook_failed = True
                    _log.error("redact_hook fails with %s: text is dropped", type(error).__name__)
                return None
        if redacted != seen:
            self._health.add("values_dropped", "redacted")
        elif len(said) <= MAX_VALUE_CHARS:
            return value, False
        if len(said) > _REDACT_CHARS:
            redacted = redacted[:-_MARGIN_CHARS]
        is_cut = max(len(said), len(redacted)) > MAX_VALUE_CHARS
        return redacted[:MAX_VALUE_CHARS], is_cut

    def _pseudonym(self, value: str) -> str:
        name = value.strip('"')
        if not name or _PSEUDONYM.fullmatch(name):
            return name
        return f"h:{self.digest(name)}"


def make_policy(folder: Path, own: ProjectSettings) -> Policy:
    """The policy of the project that lies in a folder, by its settings.

    Raises:
        UsageError: its redaction hook cannot be loaded.
        Unreachable: the key of its pseudonyms cannot be read or made.
    """
    hook = None if own.redact_hook is None else load_hook(own.redact_hook)
    return Policy(own.content, load_key(folder), own.redact, hook)


def policy_of(folder: Path) -> Policy:
    """The policy of the project that lies in a folder, for who works there without a collector.

    Raises:
        UsageError: the configuration cannot be used.
        Unreachable: the key of its pseudonyms cannot be read or made.
    """
    return make_policy(folder, own_settings(folder))


def own_settings(folder: Path) -> ProjectSettings:
    """The configured settings of the project that lies in a folder.

    Raises:
        UsageError: the configuration cannot be used.
    """
    name = folder.name if folder.parent.name == PROJECTS_FOLDER else DEFAULT_PROJECT
    return load_settings().project(name)


def load_key(folder: Path) -> bytes:
    """The key of a data folder's pseudonyms; made when it has none, for its owner's eyes only.

    Raises:
        Unreachable: the file cannot be read or made, or holds no key.
    """
    path = folder / KEY_FILE
    draft = folder / f"{KEY_FILE}.{os.getpid()}"
    try:
        if not path.exists():
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            draft.touch(mode=0o600)
            draft.write_bytes(os.urandom(_KEY_BYTES))
            with suppress(FileExistsError):  # another process was first
                path.hardlink_to(draft)
            draft.unlink()
        key = path.read_bytes()
    except OSError as error:
        raise Unreachable(f"cannot read or make {path}: {error.strerror}") from error
    if len(key) != _KEY_BYTES:
        raise Unreachable(
            f"{path} has {len(key)} bytes, not {_KEY_BYTES}: bring it back from a backup, or "
            "remove it (users and sessions then get new pseudonyms)"
        )
    return key


def _json(value: list[dict[str, Any]]) -> str | None:
    if not value:
        return None
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=text)
