"""What a decoder produces: spans as plain Python values, still in the sender's own words.

Both wire forms (protobuf and JSON) give the same records, so a dialect never knows which one
came in.
"""

import base64
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from longpole.vocab import Kind, Status, keys
from longpole_collector.decode.compression import TooLarge

Value = str | bool | int | float | bytes | list[Any] | dict[str, Any]
"""An attribute's value: a scalar, or a list or map of these."""
Attributes = dict[str, Value]

KINDS: Final = tuple(kind.value for kind in Kind)
"""Span kind by its OTLP number."""
STATUSES: Final = tuple(status.value for status in Status)
"""Status by its OTLP number."""
MAX_TIME_NS: Final = 2**63 - 1
"""Times beyond this (year 2262) are no times; the store's columns end here too."""

MAX_SPANS: Final = 10_000
"""Most spans one request may hold; a file may hold more."""

MAX_NAME_CHARS: Final = 1024
"""Longest name of a service, instance or scope: each span holds a copy."""
MAX_RESOURCE_CHARS: Final = 16 * 1024
"""Most text of a resource's attributes, for the same reason; the first ones are kept."""

_NOISE: Final = (
    "telemetry.",
    "process.",
    "os.",
    "host.",
    keys.SERVICE_NAME,
    keys.SERVICE_INSTANCE_ID,
)


class RawEvent(NamedTuple):
    """One span event."""

    name: str
    time_ns: int
    attributes: Attributes


class RawLink(NamedTuple):
    """One span link; ids are lower-case hex."""

    trace_id: str
    span_id: str
    attributes: Attributes


class Resource(NamedTuple):
    """The sender: its service, whose clock it runs on, and its other attributes as text.

    ``is_cut`` says that there were more attributes than each of its spans can hold a copy of.
    """

    service: str | None
    instance_id: str | None
    attributes: dict[str, str]
    is_cut: bool = False


class RawSpan(NamedTuple):
    """One span as sent. Ids are lower-case hex; ``end_ns`` is 0 while unfinished.

    ``flags`` say what the decoder had to repair; ``state`` is the W3C trace state.
    """

    trace_id: str
    span_id: str
    parent_id: str | None
    name: str
    kind: str
    start_ns: int
    end_ns: int
    received_ns: int
    status: str
    status_message: str
    attributes: Attributes
    events: list[RawEvent]
    links: list[RawLink]
    scope: str
    resource: Resource
    flags: tuple[str, ...] = ()
    state: str = ""


class Body(NamedTuple):
    """A request body that was understood.

    ``spans(received_ns)`` yields its good spans; it may be called once. ``num_rejected`` spans
    were bad, ``reason`` says why the first of them was.
    """

    spans: Callable[[int], Iterator[RawSpan]]
    num_spans: int
    num_rejected: int
    reason: str


def body_of(good: Sequence[RawSpan], flaws: Sequence[str]) -> Body:
    """The body of these good spans; ``flaws`` say why each of the others was bad."""

    def spans(received_ns: int) -> Iterator[RawSpan]:
        for span in good:
            yield span._replace(received_ns=received_ns)

    return Body(spans, len(good), len(flaws), flaws[0] if flaws else "")


def check_size(num_spans: int, max_spans: int | None) -> None:
    """Refuse a request of too many spans, as a whole; ``None`` is no limit.

    Raises:
        TooLarge: more spans than that.
    """
    if max_spans is not None and num_spans > max_spans:
        raise TooLarge(
            f"request of {num_spans} spans: at most {max_spans} are taken; send smaller batches"
        )


def check_groups(num_groups: int) -> None:
    """Refuse a request of more groups of spans (by resource, by scope) than any sender has.

    Raises:
        TooLarge: more than :data:`MAX_SPANS` groups.
    """
    if num_groups > MAX_SPANS:
        raise TooLarge(f"request of more than {MAX_SPANS} groups of spans: none is taken")


def text(value: Value) -> str:
    """Any value as text; lists and maps as JSON, bytes as base64."""
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, bool | list | dict):
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=text)
    return str(value)


def resource_of(attributes: Attributes) -> Resource:
    """The sender described by a resource's attributes.

    What names the program, host or SDK (``process.*``, ``host.*``, ``telemetry.*`` ...) is left
    out of the kept attributes: it repeats on every span and may hold command lines.
    """
    service = _name(attributes.get(keys.SERVICE_NAME))
    instance = _name(attributes.get(keys.SERVICE_INSTANCE_ID))
    host = _name(attributes.get(keys.HOST_NAME))
    kept: dict[str, str] = {}
    num_chars = 0
    is_cut = False
    for key, value in attributes.items():
        if not key.startswith(_NOISE):
            said = text(value)
            num_chars += len(key) + len(said)
            if num_chars > MAX_RESOURCE_CHARS:
                is_cut = True
                break
            kept[f"resource.{key}"] = said
    return Resource(service, instance or host or service, kept, is_cut)


def _name(value: Value | None) -> str | None:
    return value[:MAX_NAME_CHARS] if isinstance(value, str) and value else None
