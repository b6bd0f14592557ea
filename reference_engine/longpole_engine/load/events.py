"""What the events of a streamed answer say, told to its stopwatch.

Most events of a stream are alike but for their text. The first one shows what stands before and
after it; one that has the same around a text without quotes and escapes is content, and need not
be parsed.
"""

import json
from json import JSONDecoder
from typing import Any, Final

from longpole.call import TEXT, Call, Kind, Usage

_MAX_FORMS: Final = 4
"""A stream whose events differ in more than their text is parsed: no more is tried."""
_parsed: Final = JSONDecoder().raw_decode


class ErrorEvent(Exception):
    """The stream said that it failed; the text is its error."""


class Broken(Exception):
    """An event is no JSON, or no object of this protocol."""


class Events:
    """The events of one answer.

    Args:
        call: is told when content came, and the counts of tokens.
    """

    __slots__ = ("_after", "_around", "_before", "_call", "_num_forms", "_rest")

    def __init__(self, call: Call) -> None:
        self._call = call
        self._rest = b""
        self._before, self._after = b"\n", b""  # no line begins so
        self._around = 0
        self._num_forms = 0

    def feed(self, body: bytes, at_ns: int) -> None:
        """A piece of a stream came.

        Raises:
            ErrorEvent: it tells an error.
            Broken: it cannot be read.
        """
        *lines, self._rest = (self._rest + body if self._rest else body).split(b"\n")
        for line in lines:
            if (
                line.startswith(self._before)
                and line.endswith(self._after)
                and len(line) > self._around
                and _is_plain(line[len(self._before) : len(line) - len(self._after)])
            ):
                self._call.event(TEXT, at_ns)
            elif line.startswith(b"data:"):
                self._event(line, at_ns)

    def whole(self, body: bytes, at_ns: int) -> None:
        """An answer that was not streamed came.

        Raises:
            ErrorEvent: it tells an error.
            Broken: it cannot be read.
        """
        self._say(_read(body), at_ns)

    def _event(self, line: bytes, at_ns: int) -> None:
        data = line[5:].strip()
        if data == b"[DONE]":
            return
        found = _read(data)
        kind, has_usage = self._say(found, at_ns)
        if kind is TEXT and not has_usage and self._num_forms < _MAX_FORMS:
            self._num_forms += 1
            self._learn(line)

    def _say(self, found: Any, at_ns: int) -> tuple[Kind, bool]:
        kind, usage = _meaning(found)
        if usage is not None:
            self._call.use(usage)
        self._call.event(kind, at_ns)
        return kind, usage is not None

    def _learn(self, line: bytes) -> None:
        """Remember what stands around the text, if its text alone makes it content."""
        begin = line.find(b'"', line.find(b'"content":') + 10) + 1
        end = line.find(b'"', begin)
        before, after = line[:begin], line[end:]
        if not begin or end < begin or not _is_plain(line[begin:end]):
            return
        try:
            full, empty = (_meaning(_read((before + each + after)[5:])) for each in (b"x", b""))
        except (Broken, ErrorEvent):
            return
        if full == (TEXT, None) and empty[0] is not TEXT and empty[1] is None:
            self._before, self._after = before, after
            self._around = len(before) + len(after)


def _is_plain(text: bytes) -> bool:
    """Whether this stands for itself between the quotes of JSON."""
    return b'"' not in text and b"\\" not in text


def _read(data: bytes) -> Any:
    try:
        text = data.decode().strip()
        found, end = _parsed(text)
    except ValueError as error:
        raise Broken(f"{type(error).__name__}: {error}") from error
    if end != len(text):
        raise Broken(f"more than one document: {text[end : end + 40]}")
    return found


def _meaning(found: Any) -> tuple[Kind, Usage | None]:
    """What an event carries, and its counts."""
    try:
        if found.get("error"):
            raise ErrorEvent(json.dumps(found["error"]))
        usage = found.get("usage")
        return _kind(found), _usage(usage) if usage else None
    except (TypeError, AttributeError, KeyError, IndexError) as error:
        raise Broken(f"{type(error).__name__}: {error}") from error


def _kind(found: dict[str, Any]) -> Kind:
    choices = found.get("choices")
    if not choices:
        return Kind.USAGE if found.get("usage") else Kind.EMPTY
    said = choices[0].get("delta") or choices[0].get("message") or choices[0]
    if said.get("content") or said.get("text"):
        return TEXT
    if said.get("reasoning_content") or said.get("reasoning"):
        return Kind.REASONING
    if said.get("tool_calls"):
        return Kind.TOOL
    return Kind.ROLE if said.get("role") else Kind.EMPTY


def _usage(found: dict[str, Any]) -> Usage:
    details = found.get("prompt_tokens_details") or {}
    return Usage(
        input_tokens=found.get("prompt_tokens"),
        cached_input_tokens=details.get("cached_tokens"),
        output_tokens=found.get("completion_tokens"),
    )
