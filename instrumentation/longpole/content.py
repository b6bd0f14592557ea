"""What people wrote and what models answered, for who opted in: redacted, cut, as JSON.

The shapes are OpenTelemetry's (``gen_ai.input.messages`` and its neighbours). Every text passes
longpole's rules (:mod:`longpole.redact`), the application's own expression and its own function
before it is put on a span. Texts together take at most :data:`MAX_CHARS`, the newest first: what
is left out is marked where it was.
"""

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Self

from longpole import health, settings
from longpole.redact import OWN, clean

MAX_CHARS = 16 * 1024
"""Characters of one attribute at most: the collector keeps no more of one either."""

Part = Mapping[str, Any]
"""One part of a message, as :func:`text` and its neighbours make them."""

_MARGIN_CHARS = 4096
"""Rules see this much more than is kept, so that what begins in it is seen whole."""
MAX_GATHERED = MAX_CHARS + _MARGIN_CHARS
"""Characters of an answer that need to be kept while it comes."""
_PIECE_CHARS = 24
"""What the JSON around one value costs, roughly."""
_MAX_WORD_CHARS = 256
_MAX_DEPTH = 12
_NUM_TRIES = 8
_MIN_NUMBER = 10**6
"""Whole numbers from here on may be somebody's."""
_FRAME = frozenset(["role", "type", "finish_reason", "id", "name", "modality", "mime_type"])
"""Words of the schema, not the text of anybody."""
_FAILED = "[redaction failed]"


class Begun(str):
    """The beginning of a text that had ``num_chars`` characters in all."""

    __slots__ = ("num_chars",)
    num_chars: int

    def __new__(cls, kept: str, num_chars: int) -> Self:
        """As long as said, or all of it."""
        made = super().__new__(cls, kept)
        made.num_chars = num_chars
        return made


def is_captured() -> bool:
    """The application opted in."""
    return settings.current().capture_content


def text(content: str) -> Part:
    """A part that is text."""
    return {"type": "text", "content": content}


def reasoning(content: str) -> Part:
    """A part that is the model's reasoning."""
    return {"type": "reasoning", "content": content}


def tool_call(name: str, arguments: object, call_id: str | None = None) -> Part:
    """A part that asks for a tool; ``arguments`` that are JSON text are read."""
    if isinstance(arguments, str):
        with suppress(ValueError):
            arguments = json.loads(arguments)
    return {"type": "tool_call", "id": call_id, "name": name, "arguments": arguments}


def tool_response(response: object, call_id: str | None = None) -> Part:
    """A part that is a tool's answer."""
    return {"type": "tool_call_response", "id": call_id, "response": response}


def media(modality: str, mime_type: str | None = None) -> Part:
    """A part that is an image, sound or file (``image``, ``audio``, ``video``); never its data."""
    return {"type": "blob", "modality": modality, "mime_type": mime_type}


def input_messages(messages: Iterable[tuple[str, Sequence[Part]]]) -> str | None:
    """The value of ``gen_ai.input.messages``; ``None`` if content is not captured or there is none.

    Args:
        messages: role and parts of each, in order.
    """
    return _guarded(lambda: [{"role": role, "parts": parts} for role, parts in messages])


def output_messages(messages: Iterable[tuple[str, Sequence[Part], str | None]]) -> str | None:
    """The value of ``gen_ai.output.messages``, as :func:`input_messages`.

    Args:
        messages: role, parts and finish reason of each answer, in order.
    """
    return _guarded(
        lambda: [
            {"role": role, "parts": parts, "finish_reason": reason or ""}
            for role, parts, reason in messages
        ]
    )


def system_instructions(parts: Iterable[Part]) -> str | None:
    """The value of ``gen_ai.system_instructions``, as :func:`input_messages`."""
    return _guarded(lambda: list(parts))


def value(found: object) -> str | None:
    """Anything as JSON, redacted and cut: a tool's arguments, its result. ``None`` as above."""
    return _guarded(lambda: found, is_frame=False)


def _guarded(make: Callable[[], object], *, is_frame: bool = True) -> str | None:
    if not is_captured():
        return None
    try:
        found = make()
        return None if found is None or found == [] else _encoded(found, is_frame)
    except Exception as error:  # noqa: BLE001 - counted; the span goes without this text
        health.swallow("content", error)
        return None


def _encoded(found: object, is_frame: bool) -> str | None:
    """JSON that fits, by halving what texts may take until it does: escapes make it longer."""
    for number in range(_NUM_TRIES):
        writer = _Writer(MAX_CHARS >> number)
        kept = writer.newest(found) if is_frame else writer.of(found, 0, is_frame=False)
        encoded = json.dumps(kept, ensure_ascii=False, separators=(",", ":"))
        if len(encoded) <= MAX_CHARS:
            return encoded.encode(errors="replace").decode()  # a lone surrogate cannot be sent
    return None


class _Writer:
    """Makes a redacted copy of a value, of as many characters as are left."""

    def __init__(self, num_chars: int) -> None:
        self._left = num_chars

    def newest(self, found: Any) -> list[object]:
        """Messages or parts from the last backwards, in their order; the first says what is cut."""
        kept: list[object] = []
        for item in reversed(found):
            if self._left <= 0:
                break
            kept.append(self.of(item, 0, is_frame=True))
        kept.reverse()
        if len(kept) < len(found):
            mark = {"type": "cut", "num_left_out": len(found) - len(kept)}
            oldest = kept[0] if kept else None
            parts = oldest.get("parts") if isinstance(oldest, dict) else None
            (parts if isinstance(parts, list) else kept).insert(0, mark)
        return kept

    def of(self, found: object, depth: int, *, is_frame: bool) -> object:
        """The value; ``is_frame`` says that its words are the schema's."""
        self._left -= _PIECE_CHARS
        if isinstance(found, str):
            return self._text(found)
        if found is None or isinstance(found, bool):
            return found
        if isinstance(found, int):
            return self._number(found)
        if isinstance(found, float):
            return found if math.isfinite(found) else str(found)
        if depth >= _MAX_DEPTH:
            return "[cut: too deep]"
        if isinstance(found, Mapping):
            return self._mapping(found, depth, is_frame=is_frame)
        if isinstance(found, list | tuple | set | frozenset):
            return self._list(found, depth, is_frame=is_frame)
        dump = getattr(found, "model_dump", None)  # a client library's own object (pydantic)
        if dump is not None:
            return self.of(dump(mode="json"), depth + 1, is_frame=is_frame)
        return f"[{type(found).__name__}]"

    def _mapping(self, found: Mapping[Any, Any], depth: int, *, is_frame: bool) -> object:
        kept: dict[str, object] = {}
        for key, item in found.items():
            if self._left <= 0:
                kept["[cut]"] = f"{len(found) - len(kept)} more"
                break
            if is_frame and key in _FRAME:
                word = item[:_MAX_WORD_CHARS] if isinstance(item, str) else None
                self._left -= _PIECE_CHARS + len(word or "")
                kept[key] = word
            elif is_frame:
                kept[key] = self.of(item, depth + 1, is_frame=key == "parts")
            else:
                kept[self._text(str(key))] = self.of(item, depth + 1, is_frame=False)
        return kept

    def _list(self, found: Any, depth: int, *, is_frame: bool) -> object:
        kept: list[object] = []
        for item in found:
            if self._left <= 0:
                left_out = len(found) - len(kept)
                mark = {"type": "cut", "num_left_out": left_out}
                kept.append(mark if is_frame else f"[cut: {left_out} more]")
                break
            kept.append(self.of(item, depth + 1, is_frame=is_frame))
        return kept

    def _text(self, found: str) -> str:
        room = max(self._left, 0)
        seen = found[: room + _MARGIN_CHARS]
        num_chars = found.num_chars if isinstance(found, Begun) else len(found)
        kept = _cleaned(seen)
        if len(seen) < num_chars:
            kept = kept[:-_MARGIN_CHARS]  # what begins there may not have been seen whole
        elif len(kept) <= room:
            self._left -= len(kept)
            return kept
        self._left -= room
        return f"{kept[:room]} [cut: {num_chars} characters in all]"

    def _number(self, found: int) -> int | str:
        if abs(found) < _MIN_NUMBER:
            return found
        said = str(found)
        kept = _cleaned(said)
        return found if kept == said else kept


def _cleaned(found: str) -> str:
    """The text by all rules; one that fails drops it."""
    chosen = settings.current()
    try:
        found = clean(found)
        if chosen.redact_pattern is not None:
            found = re.sub(chosen.redact_pattern, OWN, found)
        if chosen.redact is not None:
            found = chosen.redact(found)
            if not isinstance(found, str):
                raise TypeError(f"redact returned {type(found).__name__}, not text")
    except Exception as error:  # noqa: BLE001 - counted; the text is dropped
        health.swallow("redact", error)
        return _FAILED
    return found
