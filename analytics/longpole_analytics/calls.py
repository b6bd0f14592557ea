"""The model calls of a trace, each once, however many spans tell of it.

One call may be seen by a framework, by the client library below it, and by the engine that
serves it. Counted as three it would be three calls with three times the tokens.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from longpole.vocab import Span, Status

MIN_INNER_PARTS = 100
"""A span inside a call that takes less than this part of it is no call of its own."""

_TIMES = ("ttft_ns", "last_content_ns")
_FACTS = (
    "is_streamed",
    "ttft_attempt_ns",
    "retry_ns",
    "num_attempts",
    "stream_state",
    "engine_admission_ns",
    "tokenize_ns",
    "queue_ns",
    "prefill_ns",
    "first_decode_ns",
    "engine_decode_ns",
    "engine_stream_ns",
    "engine_ttft_ns",
    "input_tokens",
    "cached_input_tokens",
    "output_tokens",
    "route",
    "route_version",
    "prompt_version",
    "slo_class",
)


class ModelCall(NamedTuple):
    """One model call: the client's span, the engine's, or both, and the spans below the engine's.

    ``earlier`` are engine spans of attempts that were given up before ``engine`` ended.
    """

    client: Span | None
    engine: Span | None
    earlier: tuple[Span, ...]

    @property
    def span(self) -> Span:
        """The span that stands for the call: the client's where there is one."""
        found = self.client or self.engine
        assert found is not None  # noqa: S101 - a call is built from at least one span
        return found


def model_calls(spans: Sequence[Span]) -> list[ModelCall]:
    """The calls among the spans of one trace (one span per id), by start.

    Clients' spans inside one another (a framework instrumented above the library it uses) are one
    call: the outermost stands for it, and what it does not know the inner ones tell. A client's
    span around several calls is none itself. An engine's span belongs to the nearest client's
    above it; of several engines the last to end answered.
    """
    seen = sorted((span for span in spans if span.is_model_call), key=_by_start)
    by_id = {span.span_id: span for span in spans} if len(seen) > 1 else {}
    above = _calls_above(seen, by_id)
    inner: dict[str, list[Span]] = {}
    todo: list[Span] = []
    for span in (span for span in seen if not span.is_engine):
        outer = above[span.span_id]
        if outer is None or outer.is_engine:
            todo.append(span)
        else:
            inner.setdefault(outer.span_id, []).append(span)
    clients: dict[str, Span] = {}
    owners: dict[str, str] = {}
    while todo:
        outermost = todo.pop()
        members, separate = _one_call(outermost, inner)
        todo += separate
        if not separate:
            clients[outermost.span_id] = _filled(members)
            owners.update((member.span_id, outermost.span_id) for member in members)
    engines: dict[str, list[Span]] = {}
    calls = []
    for span in (span for span in seen if span.is_engine):
        outer = above[span.span_id]
        owner = owners.get(outer.span_id) if outer else None
        if owner is not None:
            engines.setdefault(owner, []).append(span)
        elif outer is None or not outer.is_engine:
            calls.append(ModelCall(None, span, ()))
    for span_id, client in clients.items():
        own = sorted(engines.get(span_id, ()), key=_end)
        calls.append(ModelCall(client, own[-1] if own else None, tuple(own[:-1])))
    calls.sort(key=lambda call: _by_start(call.span))
    return calls


def _calls_above(seen: Sequence[Span], by_id: dict[str, Span]) -> dict[str, Span | None]:
    """For each model call the nearest one above it; none where the parents run in a circle."""
    at_or_above: dict[str, Span | None] = {}
    found: dict[str, Span | None] = {}
    for span in seen:
        passed: dict[str, None] = {}
        nearest: Span | None = None
        above = by_id.get(span.parent_id or "")
        while above is not None and above.span_id not in passed:
            if above.span_id in at_or_above:
                nearest = at_or_above[above.span_id]
                break
            passed[above.span_id] = None
            if above.is_model_call:
                nearest = above
                break
            above = by_id.get(above.parent_id or "")
        at_or_above.update(dict.fromkeys(passed, nearest))
        found[span.span_id] = None if nearest is span else nearest
    return found


def _one_call(outermost: Span, inner: dict[str, list[Span]]) -> tuple[list[Span], list[Span]]:
    """The spans of one call from the outside in; or the separate calls inside the outermost.

    An inner span far shorter than the one around it is a record of the same call (the summary of
    a stream, say), not another call.
    """
    members = [outermost]
    for span in members:
        nested = inner.get(span.span_id, [])
        attempts = [n for n in nested if duration_ns(n) * MIN_INNER_PARTS >= duration_ns(span)]
        if len(attempts) > 1 or any(_is_other_work(n, span) for n in attempts):
            return members, nested
        members += nested
    return members, []


def _filled(members: Sequence[Span]) -> Span:
    """The outermost span with the facts that only inner ones know."""
    client = members[0]
    for member in members[1:]:
        known: dict[str, Any] = {
            fact: getattr(member, fact) for fact in _FACTS if getattr(client, fact) is None
        }
        for fact in _TIMES:
            value = getattr(member, fact)
            if getattr(client, fact) is None and value is not None:
                known[fact] = value + member.start_ns - client.start_ns
        client = client._replace(**known)
    return client


def _by_start(span: Span) -> tuple[int, str]:
    return span.start_ns, span.span_id


def _end(span: Span) -> tuple[bool, int]:
    return span.end_ns is not None, span.end_ns or 0


def is_failed(span: Span) -> bool:
    """Whether a call ended in an error; giving up by the caller is none."""
    return span.status == Status.ERROR or span.stream_state == "error"


def _is_other_work(inner: Span, outer: Span) -> bool:
    return len({inner.operation, outer.operation} - {None}) > 1


def duration_ns(span: Span) -> int:
    """Length of a span; 0 while it is unfinished or if its end precedes its start."""
    return max((span.end_ns or span.start_ns) - span.start_ns, 0)
