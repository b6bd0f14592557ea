"""What a model said, gathered from the chunks of its answer for who opted in to content.

Bounded: what would not be sent anyway is counted and let go.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from longpole import content
from longpole.content import Part

_PIECE_CHARS = 24
"""What a part of its own costs, however short."""
_ROLE = "assistant"
_TEXT, _REASONING, _CALL, _WHOLE, _CUT = "text", "reasoning", "tool_call", "whole", "cut"


class Said:
    """The answers of one call, each a list of parts in the order they came."""

    __slots__ = ("_calls", "_choices", "_room")

    def __init__(self, num_chars: int = content.MAX_GATHERED) -> None:
        self._room = num_chars
        self._choices: dict[int, list[_Piece]] = {}
        self._calls: dict[object, _Piece] = {}

    def text(self, text: str, choice: int = 0) -> None:
        """More text."""
        if text:
            self._grow(self._piece(_TEXT, choice), text)

    def reasoning(self, text: str, choice: int = 0) -> None:
        """More reasoning."""
        if text:
            self._grow(self._piece(_REASONING, choice), text)

    def call(
        self,
        index: object,
        name: str | None = None,
        arguments: str | None = None,
        call_id: str | None = None,
        choice: int = 0,
    ) -> None:
        """More of a tool call, which is told from others by its index."""
        piece = self._calls.get((choice, index))
        if piece is None:
            piece = self._piece(_CALL, choice, is_own=True)
            if piece is None or piece.kind is not _CALL:
                return
            self._calls[choice, index] = piece
        piece.name, piece.call_id = name or piece.name, call_id or piece.call_id
        self._grow(piece, arguments or "")

    def parts(self, parts: Iterable[Part], choice: int = 0) -> None:
        """Parts that came whole; texts go on where the last one ended."""
        for part in parts:
            if part["type"] == _TEXT:
                self.text(part["content"], choice)
            elif part["type"] == _REASONING:
                self.reasoning(part["content"], choice)
            else:
                piece = self._piece(_WHOLE, choice, is_own=True)
                if piece is not None and piece.kind is _WHOLE:
                    piece.part = part

    def messages(
        self, reasons: Mapping[int, str]
    ) -> Iterator[tuple[str, Sequence[Part], str | None]]:
        """Role, parts and finish reason of each answer, for ``gen_ai.output.messages``."""
        for choice in sorted(self._choices):
            parts = [piece.made() for piece in self._choices[choice]]
            yield _ROLE, parts, reasons.get(choice)

    def _piece(self, kind: str, choice: int, *, is_own: bool = False) -> "_Piece | None":
        """The piece that grows, or a new one; without room the last piece only counts."""
        pieces = self._choices.get(choice)
        last = pieces[-1] if pieces else None
        if last is not None and (last.kind is _CUT or (last.kind is kind and not is_own)):
            return last
        if self._room <= 0:
            if pieces is None:
                return None
            kind = _CUT
        self._room -= _PIECE_CHARS
        made = _Piece(kind)
        self._choices.setdefault(choice, []).append(made)
        return made

    def _grow(self, piece: "_Piece | None", text: str) -> None:
        if piece is None:
            return
        piece.num_chars += len(text)
        if self._room > 0 and text:
            piece.texts.append(text[: self._room])
            self._room -= len(text)


class _Piece:
    """A part that is being said."""

    __slots__ = ("call_id", "kind", "name", "num_chars", "part", "texts")

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.texts: list[str] = []
        self.num_chars = 0
        self.name: str | None = None
        self.call_id: str | None = None
        self.part: Part = {}

    def made(self) -> Part:
        text: str = content.Begun("".join(self.texts), self.num_chars)
        if self.kind is _TEXT:
            return content.text(text)
        if self.kind is _REASONING:
            return content.reasoning(text)
        if self.kind is _CALL:
            return content.tool_call(self.name or "", text, self.call_id)
        return self.part or {"type": _CUT}
