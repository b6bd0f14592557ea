"""The stopwatch of one model call.

A :class:`Call` is told when things happened (integer nanoseconds of one clock) and answers with
the times every other part of longpole speaks of: TTFT, TPOT, gaps, tail. These definitions live
here and nowhere else on the client's side. It knows neither OpenTelemetry nor any provider and
does no I/O. On the hot path it costs one comparison or two and one append per content chunk.
"""

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from enum import StrEnum
from operator import sub
from typing import Any, NamedTuple

from longpole.vocab import keys

AttributeValue = str | bool | int | float | Sequence[str] | Sequence[int]
"""What an attribute of ours may hold (a subset of OpenTelemetry's)."""

STALL_FLOOR_NS = 250_000_000
STALL_FACTOR = 5
MAX_OFFSETS = 4096
_NS_PER_S = 1e9

_SECONDS = (
    keys.TIME_TO_HEADERS,
    keys.TIME_TO_FIRST_CHUNK,
    keys.TIME_TO_FIRST_CONTENT,
    keys.TIME_TO_FIRST_CONTENT_ATTEMPT,
    keys.TIME_TO_FIRST_VISIBLE,
    keys.TIME_TO_LAST_CONTENT,
    keys.TIME_PER_OUTPUT_TOKEN,
    keys.CHUNK_GAP_P50,
    keys.CHUNK_GAP_P99,
    keys.CHUNK_GAP_MAX,
    keys.STALL_TIME,
    keys.RETRY_TIME,
)
"""The keys of the first fields of :class:`Times`, in their order."""
_COUNTS = (
    keys.CHUNK_COUNT,
    keys.TOKENS_PER_CHUNK,
    keys.NUM_STALLS,
    keys.INPUT_TOKENS,
    keys.CACHED_INPUT_TOKENS,
    keys.CACHE_WRITE_TOKENS,
    keys.OUTPUT_TOKENS,
    keys.REASONING_TOKENS,
)
"""The keys of the next three fields, and those of :class:`Usage`."""


class Kind(StrEnum):
    """What one event of a stream carries. The first three are content."""

    TEXT = "text"
    REASONING = "reasoning"
    TOOL = "tool"
    ROLE = "role"
    PING = "ping"
    EMPTY = "empty"
    USAGE = "usage"


TEXT, REASONING, TOOL = Kind.TEXT, Kind.REASONING, Kind.TOOL  # a global is found faster


class StreamState(StrEnum):
    """How a stream ended."""

    COMPLETED = "completed"
    CLOSED_EARLY = "closed_early"
    ERROR = "error"
    ABANDONED = "abandoned"


class Usage(NamedTuple):
    """Token counts of one call; ``None`` is unknown.

    ``input_tokens`` holds cached and cache-write tokens, ``output_tokens`` holds reasoning.
    """

    input_tokens: int | None = None
    cached_input_tokens: int | None = None
    cache_write_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None

    def merged(self, later: "Usage") -> "Usage":
        """Field by field, the later known value; a missing field never erases an earlier one."""
        if self == UNKNOWN:
            return later
        given, cached, written, output, reasoning = later
        return Usage(
            self.input_tokens if given is None else given,
            self.cached_input_tokens if cached is None else cached,
            self.cache_write_tokens if written is None else written,
            self.output_tokens if output is None else output,
            self.reasoning_tokens if reasoning is None else reasoning,
        )


UNKNOWN = Usage()
"""No count is known."""


class Times(NamedTuple):
    """The times of one finished call, nanoseconds since the call was made; ``None`` is unknown."""

    headers_ns: int | None
    first_event_ns: int | None
    ttft_ns: int | None
    ttft_attempt_ns: int | None
    ttfv_ns: int | None
    last_content_ns: int | None
    tpot_ns: float | None
    gap_p50_ns: int | None
    gap_p99_ns: int | None
    gap_max_ns: int | None
    stall_ns: int | None
    retry_ns: int | None
    num_chunks: int | None
    tokens_per_chunk: float | None
    num_stalls: int | None
    num_attempts: int | None
    flags: tuple[str, ...]
    e2e_ns: int
    decode_ns: int | None
    tail_ns: int | None
    gaps_ns: tuple[int, ...]


class Call:
    """One model call, from the moment it was made to its end.

    All moments are nanoseconds of one monotonic clock. The start of the first attempt is the
    moment the call was made.
    """

    __slots__ = (
        "attempts_ns",
        "content_ns",
        "end_ns",
        "first_event_ns",
        "first_text_ns",
        "has_reasoning",
        "headers_ns",
        "hold_ns",
        "is_streamed",
        "known_tokens",
        "num_known",
        "start_ns",
        "state",
        "usage",
    )

    def __init__(self, start_ns: int, *, is_streamed: bool) -> None:
        self.start_ns = start_ns
        self.is_streamed = is_streamed
        self.attempts_ns: list[int] = []
        self.headers_ns: int | None = None
        self.first_event_ns: int | None = None
        self.first_text_ns: int | None = None
        self.content_ns = array("q")
        self.has_reasoning = False
        self.known_tokens = 0
        self.num_known = 0
        self.hold_ns = 0
        self.usage = UNKNOWN
        self.end_ns: int | None = None
        self.state: StreamState | None = None

    def attempt(self, at_ns: int) -> None:
        """An attempt starts; the first one counts from the moment the call was made."""
        self.attempts_ns.append(at_ns if self.attempts_ns else self.start_ns)

    def headers(self, at_ns: int) -> None:
        """Response headers arrived; those of the last attempt stay."""
        self.headers_ns = at_ns

    def event(self, kind: Kind, at_ns: int, num_tokens: int | None = None) -> None:
        """One event of the stream arrived, carrying ``num_tokens`` output tokens if known."""
        if self.first_event_ns is None:
            self.first_event_ns = at_ns
        if kind is TEXT:
            if self.first_text_ns is None:
                self.first_text_ns = at_ns
        elif kind is REASONING:
            self.has_reasoning = True
        elif kind is not TOOL:
            return
        self.content_ns.append(at_ns)
        if num_tokens is not None:
            self.known_tokens += num_tokens
            self.num_known += 1

    def use(self, usage: Usage) -> None:
        """Token counts arrived; later known fields win."""
        self.usage = self.usage.merged(usage)

    def end(self, at_ns: int, state: StreamState | None = None) -> None:
        """The response was returned, or the stream ended in ``state``."""
        self.end_ns = at_ns
        self.state = state

    def times(self) -> Times:
        """All times of the call, by section C of the methods specification.

        ``tpot`` = (last content - first content) / (output tokens - 1), where reasoning that was
        counted but never streamed is not output. Identity where ``tpot`` is known:
        e2e = ttft + tpot x (tokens - 1) + tail.

        Raises:
            ValueError: the call has not ended.
        """
        if self.end_ns is None:
            raise ValueError("the call has not ended: tell end() first")
        start, content, flags = self.start_ns, self.content_ns, list[str]()
        decode = tail = None
        tpot = per_chunk = None
        if not self.is_streamed:
            flags.append("not_streamed")
        elif not content:
            flags.append("no_content")
        else:
            decode, tail = content[-1] - content[0], self.end_ns - content[-1]
            num_tokens = self._streamed_tokens(flags)
            tpot = _tpot(decode, num_tokens, flags)
            per_chunk = None if num_tokens is None else num_tokens / len(content)
            if self.first_text_ns is None:
                flags.append("no_visible_text")
        attempts = self.attempts_ns
        if len(attempts) > 1:
            flags.append("retried")
        gaps = tuple(map(sub, content[1:], content))
        p50 = p99 = longest = num_stalls = stalled = None
        if gaps:
            ordered = sorted(gaps)
            p50, p99, longest = _nearest_rank(ordered, 50), _nearest_rank(ordered, 99), ordered[-1]
            stalls = ordered[bisect_right(ordered, max(STALL_FACTOR * p50, STALL_FLOOR_NS)) :]
            num_stalls, stalled = len(stalls), sum(stalls)
        headers, first_event, first_text = self.headers_ns, self.first_event_ns, self.first_text_ns
        return Times(
            headers_ns=None if headers is None else headers - start,
            first_event_ns=None if first_event is None else first_event - start,
            ttft_ns=content[0] - start if content else None,
            ttft_attempt_ns=content[0] - attempts[-1] if content and attempts else None,
            ttfv_ns=None if first_text is None else first_text - start,
            last_content_ns=content[-1] - start if content else None,
            tpot_ns=tpot,
            gap_p50_ns=p50,
            gap_p99_ns=p99,
            gap_max_ns=longest,
            stall_ns=stalled,
            retry_ns=attempts[-1] - start if attempts else None,
            num_chunks=len(content) if self.is_streamed else None,
            tokens_per_chunk=per_chunk,
            num_stalls=num_stalls,
            num_attempts=len(attempts) or None,
            flags=tuple(flags),
            e2e_ns=self.end_ns - start,
            decode_ns=decode,
            tail_ns=tail,
            gaps_ns=gaps,
        )

    def attributes(self, *, with_offsets: bool = True) -> dict[str, AttributeValue]:
        """The finished call by the vocabulary's keys; durations in seconds, unknowns left out.

        Args:
            with_offsets: also the arrival of each content chunk, evenly thinned beyond 4,096.

        Raises:
            ValueError: the call has not ended.
        """
        times = self.times()
        of_times: tuple[Any, ...] = times
        found: dict[str, AttributeValue] = {}
        for key, ns in zip(_SECONDS, of_times, strict=False):
            if ns is not None:
                found[key] = ns / _NS_PER_S
        counted = (*of_times[len(_SECONDS) : len(_SECONDS) + 3], *self.usage)
        pairs = zip(_COUNTS, counted, strict=True)
        found |= {key: num for key, num in pairs if num is not None}
        if self.is_streamed:
            found[keys.CONSUMER_HOLD] = self.hold_ns / _NS_PER_S
        if times.num_attempts is not None:
            found[keys.RESEND_COUNT] = times.num_attempts - 1
        if self.state is not None:
            found[keys.STREAM_STATE] = str(self.state)
        if times.flags:
            found[keys.FLAGS] = times.flags
        if with_offsets and self.content_ns:
            found[keys.CHUNK_OFFSETS_US] = self._offsets_us()
        return found

    def _streamed_tokens(self, flags: list[str]) -> int | None:
        """Output tokens that were produced while the stream ran; ``None`` if unknown."""
        num_tokens = self.usage.output_tokens
        if num_tokens is not None:
            if self.usage.reasoning_tokens and not self.has_reasoning:
                flags.append("hidden_reasoning")
                num_tokens -= self.usage.reasoning_tokens
        elif self.num_known == len(self.content_ns):
            flags.append("tokens_from_chunks")
            num_tokens = self.known_tokens
        if num_tokens is None or num_tokens < 1:  # content came, so a count below one is no count
            flags.append("tokens_unknown")
            return None
        return num_tokens

    def _offsets_us(self) -> list[int]:
        start, step = self.start_ns, -(-len(self.content_ns) // MAX_OFFSETS)
        return [(at - start) // 1000 for at in self.content_ns[::step]]


def _tpot(decode_ns: int, num_tokens: int | None, flags: list[str]) -> float | None:
    if num_tokens is None:
        return None
    if num_tokens == 1:
        flags.append("one_token")
        return None
    if decode_ns == 0:
        flags.append("single_burst")
        return None
    return decode_ns / (num_tokens - 1)


def _nearest_rank(ordered: Sequence[int], percent: int) -> int:
    """The smallest value with at least ``percent`` % of the values at or below it."""
    return ordered[-(-len(ordered) * percent // 100) - 1]
