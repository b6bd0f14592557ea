"""The one span record.

Every wing speaks of a span through :class:`Span`. The collector derives its table from it, the
analytics derive their frame schema from it, and the reference page of columns is printed from
it, so a column is added by adding one line here.

Units are in the names: ``_ns`` integer nanoseconds, ``_tokens`` counts of tokens, ``_ms``
milliseconds. Unknown is ``None``, never 0. Ids are lower-case hex text (32 digits for a trace,
16 for a span); a store may keep them as integers.
"""

from enum import StrEnum
from typing import Annotated, Any, NamedTuple, get_args, get_origin, get_type_hints


class Kind(StrEnum):
    """OpenTelemetry span kind."""

    UNSPECIFIED = "unspecified"
    INTERNAL = "internal"
    SERVER = "server"
    CLIENT = "client"
    PRODUCER = "producer"
    CONSUMER = "consumer"


class Status(StrEnum):
    """OpenTelemetry span status. ``unset`` is not success."""

    UNSET = "unset"
    OK = "ok"
    ERROR = "error"


class Col(NamedTuple):
    """What a column holds: its unit (``""`` for none) and one line of explanation."""

    unit: str
    doc: str


class Column(NamedTuple):
    """One column of the record, as read from the annotations of :class:`Span`.

    ``type`` is the Python type without ``None``; ``unit`` is ``trace_id`` or ``span_id`` for ids.
    """

    name: str
    type: type
    is_nullable: bool
    unit: str
    doc: str


Attributes = dict[str, str]

TraceId = Annotated[str, Col("trace_id", "trace id, 32 hex digits")]


class Span(NamedTuple):
    """One span, in the names and units that every wing uses."""

    # identity and time
    trace_id: TraceId
    span_id: Annotated[str, Col("span_id", "span id, 16 hex digits")]
    parent_id: Annotated[str | None, Col("span_id", "parent's span id; null for a root")]
    name: Annotated[str, Col("", "span name")]
    kind: Annotated[str, Col("", "unspecified, internal, server, client, producer, consumer")]
    start_ns: Annotated[int, Col("ns", "start, Unix epoch")]
    end_ns: Annotated[int | None, Col("ns", "end, Unix epoch; null while unfinished")]
    received_ns: Annotated[int, Col("ns", "arrival at the collector, Unix epoch")]
    service: Annotated[str | None, Col("", "service.name")]
    instance_id: Annotated[
        str | None, Col("", "service.instance.id, else host, else service: whose clock it is")
    ]
    scope: Annotated[str | None, Col("", "instrumentation scope")]
    dialect: Annotated[str, Col("", "which reader understood the span; unknown if none")]
    status: Annotated[str, Col("", "unset, ok, error")]
    status_message: Annotated[str | None, Col("", "status description")] = None
    error_type: Annotated[str | None, Col("", "exception class or provider's error code")] = None
    # what it is
    stage: Annotated[str | None, Col("", "stage of the span's own time, when it is known")] = None
    operation: Annotated[str | None, Col("", "gen_ai.operation.name")] = None
    is_model_call: Annotated[bool, Col("", "a model call seen by a client or an engine")] = False
    is_engine: Annotated[bool, Col("", "the engine's side of a model call")] = False
    is_detached: Annotated[bool, Col("", "nobody waits for it: never on the path")] = False
    is_streamed: Annotated[bool | None, Col("", "the answer came in chunks")] = None
    # the model call
    provider: Annotated[str | None, Col("", "gen_ai.provider.name")] = None
    request_model: Annotated[str | None, Col("", "model asked for")] = None
    response_model: Annotated[str | None, Col("", "model that answered")] = None
    response_id: Annotated[str | None, Col("", "the provider's id of the answer")] = None
    finish_reason: Annotated[
        str | None, Col("", "stop, length, tool_call, content_filter, error, as sent")
    ] = None
    service_tier_requested: Annotated[str | None, Col("", "tier asked for")] = None
    service_tier: Annotated[str | None, Col("", "tier received")] = None
    input_tokens: Annotated[
        int | None, Col("tokens", "all the prompt held: uncached, cached and cache-write")
    ] = None
    cached_input_tokens: Annotated[int | None, Col("tokens", "read from a prompt cache")] = None
    cache_write_tokens: Annotated[int | None, Col("tokens", "written to a prompt cache")] = None
    cache_write_1h_tokens: Annotated[
        int | None, Col("tokens", "the part of these that lives an hour")
    ] = None
    output_tokens: Annotated[int | None, Col("tokens", "all produced, reasoning included")] = None
    reasoning_tokens: Annotated[int | None, Col("tokens", "reasoning part of the output")] = None
    reported_cost_usd: Annotated[
        float | None, Col("usd", "what the sender said the call cost, in reported_currency")
    ] = None
    reported_currency: Annotated[str | None, Col("", "currency of that; US dollars if null")] = None
    # times of the model call, since the call was made
    first_chunk_ns: Annotated[int | None, Col("ns", "first event of any kind")] = None
    ttft_ns: Annotated[int | None, Col("ns", "first content event")] = None
    ttft_attempt_ns: Annotated[
        int | None, Col("ns", "first content since the start of the attempt that succeeded")
    ] = None
    ttfv_ns: Annotated[int | None, Col("ns", "first visible text")] = None
    last_content_ns: Annotated[int | None, Col("ns", "last content event")] = None
    tpot_ms: Annotated[float | None, Col("ms", "time per output token after the first")] = None
    num_chunks: Annotated[int | None, Col("", "content events")] = None
    tokens_per_chunk: Annotated[float | None, Col("", "output tokens per content event")] = None
    chunk_gap_p50_ns: Annotated[int | None, Col("ns", "median gap between content events")] = None
    chunk_gap_p99_ns: Annotated[int | None, Col("ns", "99th percentile gap")] = None
    chunk_gap_max_ns: Annotated[int | None, Col("ns", "largest gap")] = None
    num_stalls: Annotated[int | None, Col("", "gaps over max(5 x median, 250 ms)")] = None
    stall_ns: Annotated[int | None, Col("ns", "sum of these gaps")] = None
    consumer_hold_ns: Annotated[
        int | None, Col("ns", "the application held the stream between reads")
    ] = None
    num_attempts: Annotated[int | None, Col("", "attempts, the first included")] = None
    retry_ns: Annotated[int | None, Col("ns", "failed attempts and waits")] = None
    stream_state: Annotated[str | None, Col("", "completed, closed_early, error, abandoned")] = None
    # the engine's account of it
    engine_admission_ns: Annotated[int | None, Col("ns", "engine: door to arrival")] = None
    tokenize_ns: Annotated[int | None, Col("ns", "engine: arrival to tokens ready")] = None
    queue_ns: Annotated[int | None, Col("ns", "engine: waiting to be scheduled")] = None
    prefill_ns: Annotated[int | None, Col("ns", "engine: scheduled to prompt complete")] = None
    first_decode_ns: Annotated[int | None, Col("ns", "engine: prompt to first token")] = None
    engine_decode_ns: Annotated[int | None, Col("ns", "engine: first to last token")] = None
    engine_stream_ns: Annotated[int | None, Col("ns", "engine: last token to closed")] = None
    engine_ttft_ns: Annotated[int | None, Col("ns", "engine: arrival to first token")] = None
    # the application's facts
    route: Annotated[str | None, Col("", "route id")] = None
    route_version: Annotated[str | None, Col("", "route version")] = None
    prompt_version: Annotated[str | None, Col("", "prompt version")] = None
    prefix_hash: Annotated[str | None, Col("", "keyed hash of the stable prefix")] = None
    slo_class: Annotated[str | None, Col("", "task class of the workflow")] = None
    cache_state: Annotated[str | None, Col("", "hit, partial, miss, ineligible")] = None
    is_cold_start: Annotated[bool | None, Col("", "first call on a cold engine")] = None
    conversation_id: Annotated[str | None, Col("", "conversation or session id")] = None
    outcome: Annotated[
        str | None, Col("", "accepted, rejected, failed; null is unknown, not success")
    ] = None
    failure_class: Annotated[str | None, Col("", "kind of failure")] = None
    time_to_useful_ns: Annotated[int | None, Col("ns", "root start to first useful output")] = None
    time_to_accepted_ns: Annotated[int | None, Col("ns", "root start to acceptance")] = None
    # how it was sampled
    weight: Annotated[
        float | None, Col("", "how many spans like it this one stands for; null: itself alone")
    ] = None
    randomness: Annotated[
        int | None, Col("", "the sender's random number for sampling; null: the trace id's end")
    ] = None
    # the rest
    flags: Annotated[list[str], Col("", "data-quality marks")] = []  # noqa: RUF012 - never mutated
    attributes: Annotated[Attributes, Col("", "what was not recognised, as text")] = {}  # noqa: RUF012
    events: Annotated[str | None, Col("", "span events, JSON")] = None
    links: Annotated[str | None, Col("", "span links, JSON")] = None


def columns(record: Any = Span) -> tuple[Column, ...]:
    """The columns of a record in order, with type, unit and meaning.

    Args:
        record: a ``NamedTuple`` class whose fields are annotated with :class:`Col`.
    """
    hints: dict[str, Any] = get_type_hints(record, include_extras=True)
    found: list[Column] = []
    for name in record._fields:
        base, col = get_args(hints[name])
        parts = [arg for arg in get_args(base) if arg is not type(None)]
        is_nullable = type(None) in get_args(base)
        python_type = parts[0] if is_nullable else base
        found.append(
            Column(name, get_origin(python_type) or python_type, is_nullable, col.unit, col.doc)
        )
    return tuple(found)
