"""Dialects that are rules and a few named steps: what most libraries' spans need.

Such a dialect can be read in bulk too, many spans at once (see ``longpole_collector.bulk``);
the functions here say what that must give.
"""

from collections.abc import Callable, Mapping
from enum import IntFlag
from typing import Any, Final

from longpole.vocab import Span
from longpole_collector.decode.raw import RawSpan, Value
from longpole_collector.dialects._foreign import (
    FIRST_CONTENT,
    FIRST_EVENT,
    SAY_WHETHER_STREAMED,
    count_input_whole,
    first_token,
    say_not_streamed,
    settle,
)
from longpole_collector.dialects.base import Dialect, Plain, Rules, draft, infer, seconds_ms


class Step(IntFlag):
    """What is done with a draft after the rules, in this order."""

    INFER = 1
    """Stage, model call and engine from operation and kind."""
    INPUT_WHOLE = 2
    """Input tokens hold the cached part."""
    FIRST_EVENT = 4
    """A client's time to the first chunk is its time to first token, marked as such."""
    NOT_STREAMED = 8
    """Some libraries mark streamed requests only."""
    SETTLE = 16
    """The last look at a foreign span."""
    ENGINE_TPOT = 32
    """An engine's time per output token from its decode time."""
    FIRST_CONTENT = 64
    """The time to the first chunk is the time to the first content, marked as such."""


def _first_event(columns: dict[str, Any], raw: RawSpan) -> None:
    if columns["is_model_call"] and not columns["is_engine"] and "ttft_ns" not in columns:
        first_token(columns, columns.get("first_chunk_ns"), FIRST_EVENT)


def _first_content(columns: dict[str, Any], raw: RawSpan) -> None:
    if "ttft_ns" not in columns:
        first_token(columns, columns.get("first_chunk_ns"), FIRST_CONTENT)


def _not_streamed(columns: dict[str, Any], raw: RawSpan) -> None:
    if raw.scope.startswith(SAY_WHETHER_STREAMED):
        say_not_streamed(columns)


def _engine_tpot(columns: dict[str, Any], raw: RawSpan) -> None:
    output, decode_ns = columns.get("output_tokens"), columns.get("engine_decode_ns")
    if columns["is_engine"] and output is not None and output > 1 and decode_ns is not None:
        columns.setdefault("tpot_ms", seconds_ms(decode_ns / (output - 1) / 1e9))


_DO: Final[dict[Step, Callable[[dict[str, Any], RawSpan], None]]] = {
    Step.INFER: lambda columns, raw: infer(columns),
    Step.INPUT_WHOLE: lambda columns, raw: count_input_whole(columns),
    Step.FIRST_EVENT: _first_event,
    Step.FIRST_CONTENT: _first_content,
    Step.NOT_STREAMED: _not_streamed,
    Step.SETTLE: settle,
    Step.ENGINE_TPOT: _engine_tpot,
}


def plain(
    name: str,
    claims: Callable[[str, Mapping[str, Value]], bool],
    rules: Rules,
    steps: tuple[Step, ...],
    *,
    marks: frozenset[str] = frozenset(),
    order: int,
) -> Dialect:
    """A dialect of rules and steps; ``claims`` asks of ``marks`` only whether they are there."""
    do = [_DO[step] for step in steps]

    def read(raw: RawSpan) -> Span:
        drafted = draft(raw, name, rules)
        for step in do:
            step(drafted.columns, raw)
        return drafted.span()

    return Dialect(name, claims, read, order, marks, Plain(rules, sum(steps)))
