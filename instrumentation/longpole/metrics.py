"""The client metrics of OpenTelemetry's GenAI conventions, through the application's own meters.

Nothing is recorded until the application sets a ``MeterProvider``; longpole sets up none. Names,
units and bucket bounds are the conventions' (gen-ai-metrics, OpenTelemetry semantic conventions).
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from opentelemetry import metrics
from opentelemetry.metrics import _internal

from longpole.call import AttributeValue, Call
from longpole.vocab import keys

if TYPE_CHECKING:
    from opentelemetry.metrics import Histogram, MeterProvider

_NS_PER_S = 1e9
_SECONDS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
_TOKENS = tuple(4**power for power in range(14))
_SHORT = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10)
_DIMENSIONS = (
    keys.OPERATION,
    keys.PROVIDER,
    keys.REQUEST_MODEL,
    keys.RESPONSE_MODEL,
    keys.SERVER_ADDRESS,
    keys.SERVER_PORT,
    keys.ERROR_TYPE,
)


class _Instruments(NamedTuple):
    duration: "Histogram"
    tokens: "Histogram"
    first_chunk: "Histogram"
    chunk_gap: "Histogram"


_known: "tuple[MeterProvider, _Instruments | None] | None" = None


def are_wanted() -> bool:
    """The application has set a provider of meters."""
    # Without one, each question goes through the environment: 10 us of a call. Where OpenTelemetry
    # keeps the answer is its own affair, so it is asked where that is not found.
    is_none_set = getattr(_internal, "_METER_PROVIDER", _internal) is None
    if is_none_set and _known is not None and _known[1] is None:
        return False
    return _instruments() is not None


def record(call: Call, attributes: Mapping[str, AttributeValue]) -> None:
    """Record one finished call that is described by ``attributes`` (vocabulary keys)."""
    found = _instruments()
    if found is None or call.end_ns is None:
        return
    where: dict[str, Any] = {key: attributes[key] for key in _DIMENSIONS if key in attributes}
    found.duration.record((call.end_ns - call.start_ns) / _NS_PER_S, where)
    first_ns = call.first_event_ns if call.is_streamed else None
    if first_ns is not None:
        found.first_chunk.record((first_ns - call.start_ns) / _NS_PER_S, where)
    if len(call.content_ns) > 1:
        decode_ns = call.content_ns[-1] - call.content_ns[0]
        found.chunk_gap.record(decode_ns / (len(call.content_ns) - 1) / _NS_PER_S, where)
    for kind, num in (("input", call.usage.input_tokens), ("output", call.usage.output_tokens)):
        if num is not None:
            found.tokens.record(num, {**where, keys.TOKEN_TYPE: kind})


def _instruments() -> _Instruments | None:
    """Those of the provider in force; ``None`` while the application has set none."""
    global _known  # noqa: PLW0603 - a cache: making instruments is slow
    provider = metrics.get_meter_provider()
    if _known is None or _known[0] is not provider:
        is_real = hasattr(provider, "force_flush")  # neither the proxy nor the no-op one
        _known = (provider, _made(provider) if is_real else None)
    return _known[1]


def _made(provider: "MeterProvider") -> _Instruments:
    meter = provider.get_meter(keys.SCOPE_SDK)

    def histogram(name: str, unit: str, bounds: tuple[float, ...], what: str) -> "Histogram":
        return meter.create_histogram(
            f"gen_ai.client.{name}", unit, what, explicit_bucket_boundaries_advisory=bounds
        )

    return _Instruments(
        histogram("operation.duration", "s", _SECONDS, "GenAI operation duration."),
        histogram("token.usage", "{token}", _TOKENS, "Number of input and output tokens used."),
        histogram("operation.time_to_first_chunk", "s", _SHORT, "Time to receive the first chunk."),
        histogram("operation.time_per_output_chunk", "s", _SHORT, "Mean time between chunks."),
    )
