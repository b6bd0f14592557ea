"""Reading a span in a test: what it says beside the times that differ from run to run."""

from __future__ import annotations

from typing import Any

from opentelemetry.sdk.trace import ReadableSpan

from longpole.testing import Spans
from longpole.vocab import keys

_TIMED = frozenset(
    {
        keys.SERVER_PORT,
        keys.REQUEST_SIZE,
        keys.CONNECTION_NEW,
        keys.CONNECTION_TIME,
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
        keys.CHUNK_OFFSETS_US,
        keys.NUM_STALLS,
        keys.STALL_TIME,
        keys.CONSUMER_HOLD,
        keys.RETRY_TIME,
    }
)


def only(spans: Spans) -> dict[str, Any]:
    """All attributes of the one span there is."""
    assert len(spans) == 1
    return dict(spans[0].attributes or {})


def untimed(span: ReadableSpan) -> dict[str, Any]:
    """The attributes that are the same in every run."""
    found = dict(span.attributes or {})
    return {key: value for key, value in found.items() if key not in _TIMED}


def plain_stream(**facts: Any) -> dict[str, Any]:
    """What every whole stream of the scenario ``plain`` says, with a provider's own facts."""
    told = {key: value for key, value in facts.items() if value is not None}
    return {
        keys.OPERATION: "chat",
        keys.SERVER_ADDRESS: "127.0.0.1",
        keys.REQUEST_STREAM: True,
        keys.REQUEST_MODEL: "plain",
        keys.RESPONSE_MODEL: "plain-2026",
        keys.HTTP_STATUS: 200,
        keys.RESEND_COUNT: 0,
        keys.CHUNK_COUNT: 10,
        keys.STREAM_STATE: "completed",
        **told,
    }


def in_order(found: dict[str, Any]) -> bool:
    """Headers, first event, first content and last content came one after the other."""
    moments = (
        keys.TIME_TO_HEADERS,
        keys.TIME_TO_FIRST_CHUNK,
        keys.TIME_TO_FIRST_CONTENT,
        keys.TIME_TO_LAST_CONTENT,
    )
    times = [found[key] for key in moments]
    return times == sorted(times) and times[0] > 0
