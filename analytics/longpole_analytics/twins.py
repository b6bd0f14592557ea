"""Spans that tell of one call beside one another, because the library above did not nest them.

Three kinds, each seen in the wild: an SDK's own span next to that of a library which does not
put its span into the context; a stream told in two spans, one that ends with the headers and one
written when the stream has ended; a span for each attempt of one call. The readers of the
dialects mark the last two by flags. The collector settles calls by the same rules, in SQL.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any, Final

from longpole.vocab import Span

STREAM_HEAD: Final = "stream_head"
"""Flag: ended when the headers came; another span tells the rest."""
STREAM_SUMMARY: Final = "stream_summary"
"""Flag: tells the rest of a stream, from the headers on."""
FAILED_ATTEMPT: Final = "failed_attempt"
"""Flag: a failed attempt of a library that writes one span for each."""
MAX_HEAD_GAP_NS: Final = 60_000_000_000
"""Longest time from the headers to the rest of the stream."""
CLOCKS_NS: Final = 5_000_000
"""The library may read two clocks for the two halves of a stream."""


def twins(clients: Sequence[Span]) -> dict[str, str]:
    """Span id -> id of the earlier span beside it that tells of the same call.

    Beside means: of the same parent, or both without any.

    Args:
        clients: clients' spans of model calls, of one trace.
    """
    if len(clients) < 2:
        return {}
    found: dict[str, str] = {}
    for pairs in (_same_answer(clients), _attempts(clients), _stream_rests(clients)):
        found |= {later.span_id: earlier.span_id for earlier, later in pairs}
    return found


def _same_answer(clients: Sequence[Span]) -> Iterable[tuple[Span, Span]]:
    """Spans of two libraries that overlap and carry the same response id."""
    answered = (span for span in clients if span.response_id is not None)
    for told in _by(answered, lambda span: (span.response_id, span.service, span.parent_id)):
        for earlier, later in pairwise(told):
            if None in (earlier.scope, later.scope) or earlier.scope == later.scope:
                continue
            if _end_ns(earlier) >= later.start_ns:
                yield earlier, later


def _attempts(clients: Sequence[Span]) -> Iterable[tuple[Span, Span]]:
    """A failed attempt and the one after it."""
    nested = (span for span in clients if span.parent_id is not None)
    for siblings in _by(
        nested, lambda span: (span.parent_id, span.scope, span.operation, span.request_model)
    ):
        for earlier, later in pairwise(siblings):
            if FAILED_ATTEMPT in earlier.flags and _end_ns(earlier) <= later.start_ns:
                yield earlier, later


def _stream_rests(clients: Sequence[Span]) -> Iterable[tuple[Span, Span]]:
    """The two halves of a stream; of several open ones the last to open is the first to be told."""
    halves = (s for s in clients if STREAM_HEAD in s.flags or STREAM_SUMMARY in s.flags)
    for told in _by(halves, lambda s: (s.service, s.scope, s.request_model, s.parent_id)):
        told.sort(key=lambda span: (*_half_at(span), span.span_id))
        opened: list[Span] = []
        for span in told:
            if STREAM_SUMMARY not in span.flags:
                opened.append(span)
            elif opened:
                head = opened.pop()
                if _half_at(span)[0] - _half_at(head)[0] <= MAX_HEAD_GAP_NS:
                    yield head, span


def _half_at(span: Span) -> tuple[int, bool]:
    if STREAM_SUMMARY in span.flags:
        return span.start_ns + CLOCKS_NS, True
    return _end_ns(span), False


def _by(spans: Iterable[Span], key: Callable[[Span], Any]) -> list[list[Span]]:
    """Spans with an equal key together, by start."""
    groups: dict[Any, list[Span]] = {}
    for span in sorted(spans, key=lambda span: (span.start_ns, span.span_id)):
        groups.setdefault(key(span), []).append(span)
    return [group for group in groups.values() if len(group) > 1]


def _end_ns(span: Span) -> int:
    return span.start_ns if span.end_ns is None else span.end_ns
