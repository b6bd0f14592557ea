"""The known phases of one model call, laid inside its span.

Joined, the client says how long the caller waited and the engine says what for. The two clocks
may disagree, so only the engine's *durations* are used, laid inside the client's span in their
order; the rest of the client's time to first content is the network's. Phases that nobody
measured are never invented: they stay in ``ttft_opaque``.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from longpole.vocab import ENGINE_TTFT_STAGES, Span, Stage
from longpole_analytics.calls import ModelCall, duration_ns
from longpole_analytics.tree import Phase

MAX_FOLDED_NS = 1_000_000
"""Time inside the engine that none of its phases covers counts as network up to this or up to
1 % of the attempt; above, it is opaque."""

_ENGINE_PARTS = frozenset((*ENGINE_TTFT_STAGES, Stage.LATER_DECODE, Stage.STREAM))


class _Part(NamedTuple):
    stage: Stage
    duration_ns: int
    span_id: str
    name: str


class _Engine(NamedTuple):
    """The engine's account of a call. ``first_token_ns``: from its door; ``None`` is unknown."""

    before: list[_Part]
    after: list[_Part]
    stream: list[_Part]
    first_token_ns: int | None
    duration_ns: int | None


def client_phases(
    call: ModelCall, below_engine: Sequence[Span]
) -> tuple[tuple[Phase, ...], list[str]]:
    """The phases of a finished client's span, which they tile exactly, and the doubts about them.

    Streamed: ``retry``, ``network`` and the engine's phases up to the first content (without an
    engine ``ttft_opaque``), then ``later_decode`` to the last content, but not longer than the
    engine decoded, then ``stream``. Where the last content is unknown, decoding is taken to last
    to the end (``stream_tail_unknown``).

    Not streamed, or without content: the answer comes in one piece, so all of the call precedes
    its first content. What an engine accounts for is shown; the rest is ``ttft_opaque``, which
    then holds decoding too, and the flag ``call_opaque`` says so.

    ``network_negative``: the engine claims more time than the client waited; its last phases
    are cut.

    Args:
        call: a call whose client's span has an end.
        below_engine: the engine span's children; empty where the engine gives attributes only.
    """
    client = call.client
    assert client is not None and client.end_ns is not None  # noqa: S101, PT018 - by contract
    engine = _account(call.engine or client, below_engine, client)
    total = max(client.end_ns - client.start_ns, 0)
    flags: list[str] = []
    if client.ttft_ns is None:
        lead_end, last = total, total
    else:
        lead_end = _within(client.ttft_ns, 0, total)
        last = total if client.last_content_ns is None else client.last_content_ns
        last = _within(last, lead_end, total)
        if client.last_content_ns is None:
            flags.append("stream_tail_unknown")
    retry = _within(_retry_ns(client, call.earlier, engine, lead_end), 0, lead_end)
    layout = _Layout(client)
    layout.fill(Stage.RETRY, retry)
    if client.ttft_ns is None:
        _lay_whole(layout, engine, lead_end, flags)
    else:
        _lay_lead(layout, engine, lead_end, flags)
        for part in engine.after if engine else ():
            layout.put(part, last)
        if engine is None or not engine.after:
            layout.fill(Stage.LATER_DECODE, last)
        layout.fill(Stage.STREAM, total)
    return tuple(layout.phases), flags


def engine_phases(engine: Span) -> tuple[Phase, ...]:
    """The phases of an engine's span that no client's span holds, from its attributes.

    They end where the engine says the first token came; what they leave is the span's own time.
    """
    account = _account(engine, (), engine)
    if account is None or engine.end_ns is None:
        return ()
    total = max(engine.end_ns - engine.start_ns, 0)
    layout = _Layout(engine)
    layout.at += max((account.first_token_ns or 0) - _sum(account.before), 0)
    for part in (*account.before, *account.after, *account.stream):
        layout.put(part, total)
    return tuple(layout.phases)


class _Layout:
    """Lays phases end to end from the start of a span. ``at`` and ends are offsets from it."""

    def __init__(self, span: Span) -> None:
        self.span = span
        self.at = 0
        self.phases: list[Phase] = []

    def put(self, part: _Part, limit: int) -> None:
        """Lay a part, cut at ``limit``."""
        end = min(self.at + part.duration_ns, limit)
        if end > self.at:
            start = self.span.start_ns
            self.phases.append(
                Phase(part.span_id, part.name, part.stage, start + self.at, start + end)
            )
            self.at = end

    def fill(self, stage: Stage, end: int) -> None:
        """Lay a stage that no engine span stands for, up to ``end``."""
        self.put(_Part(stage, end - self.at, self.span.span_id, self.span.name), end)


def _lay_lead(layout: _Layout, engine: _Engine | None, end: int, flags: list[str]) -> None:
    """From the start of the attempt to the first content."""
    if engine is None:
        layout.fill(Stage.TTFT_OPAQUE, end)
        return
    explained = _sum(engine.before)
    _lay_before_engine(layout, engine.first_token_ns, explained, end, flags)
    for part in engine.before:
        layout.put(part, end)


def _lay_whole(layout: _Layout, engine: _Engine | None, end: int, flags: list[str]) -> None:
    """A call without a first content: everything the engine says, in order."""
    if engine is None:
        flags.append("call_opaque")
        layout.fill(Stage.TTFT_OPAQUE, end)
        return
    parts = [*engine.before, *engine.after, *engine.stream]
    is_opaque = _lay_before_engine(layout, engine.duration_ns, _sum(parts), end, flags)
    if is_opaque:
        flags.append("call_opaque")
    for part in parts:
        layout.put(part, end)


def _lay_before_engine(
    layout: _Layout, inside: int | None, explained: int, end: int, flags: list[str]
) -> bool:
    """Lay network and opaque time so that the engine's phases end at ``end``.

    ``inside`` is the engine's whole time up to there, ``explained`` the part its phases cover.
    Returns whether some of it is opaque.
    """
    waited = end - layout.at
    known = explained if inside is None else max(inside, explained)
    if known > waited:
        flags.append("network_negative")
    if inside is None:
        opaque, network = max(waited - explained, 0), 0
    else:
        network = max(waited - known, 0)
        opaque = max(min(known, waited) - explained, 0)
        if opaque <= max(MAX_FOLDED_NS, waited // 100):
            network, opaque = network + opaque, 0
    layout.fill(Stage.NETWORK, layout.at + network)
    layout.fill(Stage.TTFT_OPAQUE, layout.at + opaque)
    return opaque > 0


def _account(span: Span, below: Sequence[Span], shown: Span) -> _Engine | None:
    """The engine's account, from its child spans, else from attributes; ``None`` without any.

    A client's span has one too, where the provider reports its times. ``shown`` is the span that
    stands for a phase without a span of its own.
    """
    duration = duration_ns(span) if span.is_engine and span.end_ns is not None else None
    parts = [
        (child.start_ns, _Part(Stage(child.stage), duration_ns(child), child.span_id, child.name))
        for child in sorted(below, key=lambda s: (s.start_ns, s.span_id))
        if child.stage in _ENGINE_PARTS and child.end_ns is not None
    ]
    if parts:
        return _from_children(span, parts, duration)

    def known(**values: int | None) -> list[_Part]:
        return [
            _Part(Stage(stage), max(value, 0), shown.span_id, shown.name)
            for stage, value in values.items()
            if value is not None
        ]

    before = known(
        admission=span.engine_admission_ns,
        tokenize=span.tokenize_ns,
        queue=span.queue_ns,
        prefill=span.prefill_ns,
        first_decode=span.first_decode_ns,
    )
    after = known(later_decode=span.engine_decode_ns)
    if not (before or after or span.is_engine or span.engine_ttft_ns is not None):
        return None
    stream = known(stream=span.engine_stream_ns)
    return _Engine(before, after, stream, span.engine_ttft_ns, duration)


def _from_children(engine: Span, parts: list[tuple[int, _Part]], duration: int | None) -> _Engine:
    """Split the phases at the first token; a queue after it (pre-emption) stays behind it."""
    turn = next(
        (
            index
            for index, (_, part) in enumerate(parts)
            if part.stage in (Stage.LATER_DECODE, Stage.STREAM)
        ),
        len(parts),
    )
    before = [part for _, part in parts[:turn]]
    rest = [part for _, part in parts[turn:]]
    first_token = engine.engine_ttft_ns
    if before:
        first_token = max(start + part.duration_ns for start, part in parts[:turn])
        first_token -= engine.start_ns
    return _Engine(
        before,
        [part for part in rest if part.stage != Stage.STREAM],
        [part for part in rest if part.stage == Stage.STREAM],
        first_token,
        duration,
    )


def _retry_ns(client: Span, earlier: Sequence[Span], engine: _Engine | None, lead_end: int) -> int:
    """Time before the attempt that answered; from the engine's earlier spans if nobody says."""
    if client.retry_ns is not None:
        return client.retry_ns
    if client.ttft_ns is not None and client.ttft_attempt_ns is not None:
        return client.ttft_ns - client.ttft_attempt_ns
    inside = None
    if engine is not None:
        inside = engine.duration_ns if client.ttft_ns is None else engine.first_token_ns
    return min(sum(duration_ns(span) for span in earlier), lead_end - (inside or 0))


def _sum(parts: Iterable[_Part]) -> int:
    return sum(part.duration_ns for part in parts)


def _within(value: int, low: int, high: int) -> int:
    return min(max(value, low), high)
