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
_FLAGS = 16
"""The place of the flags among the fields."""


class Kind(StrEnum):
    """What one event of a stream carries. The first three are content."""

    TEXT = "text"
    REASONING = "reasoning"
    TOOL = "tool"
    ROLE = "role"
    PING = "ping"
    EMPTY = "empty"
    USAGE = "usage"


# A global is found in a tenth of the time.
TEXT, REASONING, TOOL = Kind.TEXT, Kind.REASONING, Kind.TOOL
ROLE, EMPTY, USAGE = Kind.ROLE, Kind.EMPTY, Kind.USAGE


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

    def end(self, at_ns: int, state: StreamState | None = None, usage: Usage = UNKNOWN) -> None:
        """The response was returned, or the stream ended in ``state``, with ``usage`` in all."""
        self.end_ns = at_ns
        self.state = state
        self.usage = usage if self.usage is UNKNOWN else self.usage.merged(usage)

    def times(self) -> Times:
        """All times of the call, by section C of the methods specification.

        ``tpot`` = (last content - first content) / (output tokens - 1), where reasoning that was
        counted but never streamed is not output. Identity where ``tpot`` is known:
        e2e = ttft + tpot x (tokens - 1) + tail.

        Raises:
            ValueError: the call has not ended.
        """
        return Times(*self._measured())

    def attributes(self, *, with_offsets: bool = True) -> dict[str, AttributeValue]:
        """The finished call by the vocabulary's keys; durations in seconds, unknowns left out.

        Args:
            with_offsets: also the arrival of each content chunk, evenly thinned beyond 4,096.

        Raises:
            ValueError: the call has not ended.
        """
        measured, content = self._measured(), self.content_ns
        found: dict[str, AttributeValue] = {}
        for key, ns in zip(_SECONDS, measured, strict=False):
            if ns is not None:
                found[key] = ns / _NS_PER_S
        num_seconds = len(_SECONDS)
        for key, num in zip(
            _COUNTS, measured[num_seconds : num_seconds + 3] + self.usage, strict=True
        ):
            if num is not None:
                found[key] = num  # noqa: PERF403 - a comprehension is one call more
        if self.is_streamed:
            found[keys.CONSUMER_HOLD] = self.hold_ns / _NS_PER_S
        if self.attempts_ns:
            found[keys.RESEND_COUNT] = len(self.attempts_ns) - 1
        if self.state is not None:
            found[keys.STREAM_STATE] = str(self.state)
        flags = measured[_FLAGS]
        if flags:
            found[keys.FLAGS] = flags
        if with_offsets and content:
            start, step = self.start_ns, -(-len(content) // MAX_OFFSETS)
            offsets = [(at - start) // 1000 for at in content[::step]]
            found[keys.CHUNK_OFFSETS_US] = tuple(offsets)
        return found

    def _measured(self) -> tuple[Any, ...]:
        """The fields of :class:`Times`, in their order; to make one takes as long as all else."""
        end, start, content = self.end_ns, self.start_ns, self.content_ns
        if end is None:
            raise ValueError("the call has not ended: tell end() first")
        flags: list[str] = []
        first = last = decode = tail = tpot = per_chunk = None
        if content:
            first, last = content[0], content[-1]
        if not self.is_streamed:
            flags.append("not_streamed")
        elif first is None or last is None:
            flags.append("no_content")
        else:
            decode, tail = last - first, end - last
            tpot, per_chunk = self._pace(decode, flags)
            if self.first_text_ns is None:
                flags.append("no_visible_text")
        attempts = self.attempts_ns
        if len(attempts) > 1:
            flags.append("retried")
        gaps, p50, p99, longest, stalled, num_stalls = (
            _gaps(content) if len(content) > 1 else _NO_GAPS
        )
        headers, first_event, first_text = self.headers_ns, self.first_event_ns, self.first_text_ns
        return (
            None if headers is None else headers - start,
            None if first_event is None else first_event - start,
            None if first is None else first - start,
            None if first is None or not attempts else first - attempts[-1],
            None if first_text is None else first_text - start,
            None if last is None else last - start,
            tpot,
            p50,
            p99,
            longest,
            stalled,
            attempts[-1] - start if attempts else None,
            len(content) if self.is_streamed else None,
            per_chunk,
            num_stalls,
            len(attempts) or None,
            tuple(flags),
            end - start,
            decode,
            tail,
            gaps,
        )

    def _pace(self, decode_ns: int, flags: list[str]) -> tuple[float | None, float | None]:
        """Nanoseconds for each output token, and tokens in each chunk, while the stream ran."""
        num_tokens, num_chunks = self.usage.output_tokens, len(self.content_ns)
        if num_tokens is not None:
            if self.usage.reasoning_tokens and not self.has_reasoning:
                flags.append("hidden_reasoning")
                num_tokens -= self.usage.reasoning_tokens
        elif self.num_known == num_chunks:
            flags.append("tokens_from_chunks")
            num_tokens = self.known_tokens
        if num_tokens is None or num_tokens < 1:  # content came, so a count below one is no count
            flags.append("tokens_unknown")
            return None, None
        tpot = None
        if num_tokens == 1:
            flags.append("one_token")
        elif decode_ns == 0:
            flags.append("single_burst")
        else:
            tpot = decode_ns / (num_tokens - 1)
        return tpot, num_tokens / num_chunks


_NO_GAPS = ((), None, None, None, None, None)


def _gaps(content_ns: "array[int]") -> tuple[Any, ...]:
    """The gaps between chunks, their p50, p99 and longest, time stalled and number of stalls."""
    gaps = tuple(map(sub, content_ns[1:], content_ns))
    ordered = sorted(gaps)
    p50 = _nearest_rank(ordered, 50)
    stalls = ordered[bisect_right(ordered, max(STALL_FACTOR * p50, STALL_FLOOR_NS)) :]
    return gaps, p50, _nearest_rank(ordered, 99), ordered[-1], sum(stalls), len(stalls)


def _nearest_rank(ordered: Sequence[int], percent: int) -> int:
    """The smallest value with at least ``percent`` % of the values at or below it."""
    return ordered[-(-len(ordered) * percent // 100) - 1]
