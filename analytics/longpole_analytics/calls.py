"""The model calls of a trace, each once, however many spans tell of it.

One call may be seen by a framework, by the client library below it, by the provider's own SDK
beside that, and by the engine that serves it. Counted as four it would be four calls with four
times the tokens. The view ``calls`` follows the same rules in SQL, across traces too.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from longpole.vocab import Span, Status
from longpole_analytics.twins import FAILED_ATTEMPT, STREAM_HEAD, twins

MIN_INNER_PARTS: Final = 100
"""A span inside a call that takes less than this part of it is a record, no call of its own."""
MAX_HOPS: Final = 8
"""Plain spans (an HTTP client's, a server's) between two accounts of one call."""
FIRST_EVENT: Final = "ttft_first_event"
"""Flag of a time to the first event, which may be empty: worse than any other source."""
NATIVE: Final = "anthropic_sdk"
"""Dialect of a provider's own SDK, which is believed before what is wrapped around it."""

_STARTS: Final = frozenset((STREAM_HEAD, FAILED_ATTEMPT))
_TIMES: Final = ("first_chunk_ns", "ttfv_ns", "last_content_ns")
_FACTS: Final = (
    "is_streamed",
    "ttft_attempt_ns",
    "retry_ns",
    "stream_state",
    "error_type",
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
    "cache_write_tokens",
    "output_tokens",
    "reasoning_tokens",
    "route",
    "route_version",
    "prompt_version",
    "slo_class",
)


class ModelCall(NamedTuple):
    """One model call: the client's span, the engine's, or both, and the spans below the engine's.

    ``client`` holds what all clients' spans of the call know. ``earlier`` are engine spans of
    attempts that were given up before ``engine`` ended, ``told_by`` the ids of further clients'
    spans of the call.
    """

    client: Span | None
    engine: Span | None
    earlier: tuple[Span, ...]
    told_by: tuple[str, ...] = ()

    @property
    def span(self) -> Span:
        """The span that stands for the call: the client's where there is one."""
        found = self.client or self.engine
        assert found is not None  # noqa: S101 - a call is built from at least one span
        return found


def model_calls(spans: Sequence[Span]) -> list[ModelCall]:
    """The calls among the spans of one trace (one span per id), by start.

    Clients' spans inside one another (a framework instrumented above the library it uses), or
    beside one another (:func:`twins`), are one call: the outermost or first stands for it. A
    client's span around several calls is none itself. An engine's span belongs to the nearest
    client's above it; of several engines the last to end answered. A server's span with a
    client's below it is a gateway and neither call nor engine.
    """
    seen = sorted((span for span in spans if span.is_model_call), key=_by_start)
    by_id = {span.span_id: span for span in spans} if len(seen) > 1 else {}
    above = {span.span_id: _call_above(span, by_id) for span in seen}
    clients = [span for span in seen if not span.is_engine]
    groups, lost = _grouped(clients, above)
    owners = {member.span_id: group[0].span_id for group in groups for member in group}
    gateways = {outer.span_id for span in clients if (outer := above[span.span_id]) is not None}
    served: dict[str, list[Span]] = {}
    calls: list[ModelCall] = []
    for span in seen:
        if not span.is_engine or span.span_id in gateways:
            continue
        outer = above[span.span_id]
        if outer is None or outer.span_id in lost:
            calls.append(ModelCall(None, span, ()))
        elif outer.span_id in owners:
            served.setdefault(owners[outer.span_id], []).append(span)
    for group in groups:
        own = sorted(served.get(group[0].span_id, ()), key=_end)
        others = tuple(member.span_id for member in group[1:])
        calls.append(ModelCall(_known(group), own[-1] if own else None, tuple(own[:-1]), others))
    calls.sort(key=lambda call: _by_start(call.span))
    return calls


def _call_above(span: Span, by_id: dict[str, Span]) -> Span | None:
    """The nearest model call above, past plain spans that say nothing of other work."""
    above = by_id.get(span.parent_id or "")
    for _ in range(MAX_HOPS):
        if above is None or above.is_model_call or above.operation or above.stage:
            break
        above = by_id.get(above.parent_id or "")
    return above if above is not None and above.is_model_call and above is not span else None


def _grouped(
    clients: Sequence[Span], above: dict[str, Span | None]
) -> tuple[list[list[Span]], set[str]]:
    """Clients' spans by call, the one that stands for it first; and the ids of those of no call."""
    told_with = twins(clients)
    inner: dict[str, list[Span]] = {}
    for span in clients:
        outer = above[span.span_id]
        if outer is not None and outer.is_engine:
            outer = above[outer.span_id]
        if outer is not None and not outer.is_engine and span.span_id not in told_with:
            inner.setdefault(outer.span_id, []).append(span)
    lost = {span.span_id for span in clients if _is_around_many(span, inner.get(span.span_id, ()))}
    for outer_id, nested in inner.items():
        if outer_id not in lost:
            told_with |= {span.span_id: outer_id for span in nested}
    together: dict[str, list[Span]] = {}
    for span in clients:
        if span.span_id in told_with:
            together.setdefault(told_with[span.span_id], []).append(span)
    groups: list[list[Span]] = []
    for span in clients:
        if span.span_id in told_with:
            continue
        group = [span]
        for member in group:
            group += together.get(member.span_id, ())
        ids = {member.span_id for member in group}
        if ids & lost:
            lost |= ids
        else:
            groups.append(group)
    return groups, lost


def _is_around_many(outer: Span, nested: Sequence[Span]) -> bool:
    """Whether a span holds several calls, or another kind of call, and so is none itself."""
    attempts = [n for n in nested if duration_ns(n) * MIN_INNER_PARTS >= duration_ns(outer)]
    return len(attempts) > 1 or any(
        len({n.operation, outer.operation} - {None}) > 1 for n in attempts
    )


def _known(group: Sequence[Span]) -> Span:
    """The span that stands for a call with what all its spans know, best source first.

    A span that another continues (the head of a stream, an attempt that failed) tells its start.
    """
    client = group[0]
    if len(group) == 1:
        return client
    last_ns = max(span.start_ns for span in group)
    starts = [
        span for span in group if span.start_ns < last_ns and not _STARTS.isdisjoint(span.flags)
    ]
    sources = sorted(
        (span for span in group if span not in starts),
        key=lambda span: (span.dialect != NATIVE, span.start_ns, span.span_id),
    )
    known: dict[str, Any] = {fact: _first(getattr(s, fact) for s in sources) for fact in _FACTS}
    known |= {
        time: _first(_since(client, span, getattr(span, time)) for span in sources)
        for time in _TIMES
    }
    by_event = sorted(sources, key=lambda span: FIRST_EVENT in span.flags)
    known["ttft_ns"] = _first(_since(client, span, span.ttft_ns) for span in by_event)
    known["num_attempts"] = _first(span.num_attempts for span in sources)
    if any(span.status == Status.ERROR for span in sources):
        known["status"] = Status.ERROR.value
    elif starts:
        known["status"] = sources[0].status
    failed = [span for span in starts if FAILED_ATTEMPT in span.flags]
    beside = [span for span in group if span.parent_id == client.parent_id]
    if failed:
        known["num_attempts"] = len(failed) + (known["num_attempts"] or 1)
        answered = max(span.start_ns for span in sources)
        known["retry_ns"] = known["retry_ns"] or answered - failed[0].start_ns
        known["ttft_attempt_ns"] = known["ttft_attempt_ns"] or _first(s.ttft_ns for s in by_event)
    if client.end_ns is not None:
        known["end_ns"] = max(span.end_ns or client.end_ns for span in beside)
    return client._replace(**known)


def _since(client: Span, span: Span, value: int | None) -> int | None:
    """A time since the start of one span of a call as one since the start of the call."""
    return None if value is None else value + span.start_ns - client.start_ns


def _first(values: Iterable[Any]) -> Any:
    return next((value for value in values if value is not None), None)


def _by_start(span: Span) -> tuple[int, str]:
    return span.start_ns, span.span_id


def _end(span: Span) -> tuple[bool, int]:
    return span.end_ns is not None, span.end_ns or 0


def is_failed(span: Span) -> bool:
    """Whether a call ended in an error; giving up by the caller is none."""
    return span.status == Status.ERROR or span.stream_state == "error"


def duration_ns(span: Span) -> int:
    """Length of a span; 0 while it is unfinished or if its end precedes its start."""
    return max((span.end_ns or span.start_ns) - span.start_ns, 0)
