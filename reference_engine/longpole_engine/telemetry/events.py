"""The timeline of one request: when each stage began, on one clock.

Stages share their boundaries, so they tile the time from the door to the closed response
without gaps. The clock is the monotonic one, anchored once to the Unix epoch, so no step of the
wall clock can bend a duration.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from longpole.vocab import Stage

_EPOCH_NS: Final = time.time_ns() - time.monotonic_ns()


def now_ns() -> int:
    """Nanoseconds since the Unix epoch on the engine's one clock."""
    return time.monotonic_ns() + _EPOCH_NS


class Phase(NamedTuple):
    """One stage of one request, from ``start_ns`` to ``end_ns`` (epoch)."""

    stage: Stage
    start_ns: int
    end_ns: int


class Timeline:
    """The stages a request has entered, in order; the first is admission, at the door."""

    def __init__(self, received_ns: int) -> None:
        self.received_ns = received_ns
        self.closed_ns: int | None = None
        self._begun: list[tuple[Stage, int]] = [(Stage.ADMISSION, received_ns)]

    def begin(self, stage: Stage, at_ns: int) -> None:
        """Enter a stage, and so end the one before it."""
        self._begun.append((stage, at_ns))

    def close(self, at_ns: int) -> None:
        """End the last stage: the response is closed. The first call counts."""
        if self.closed_ns is None:
            self.closed_ns = at_ns

    def phases(self) -> list[Phase]:
        """The stages from the door to the end; empty while not closed.

        A stage that the engine entered after a client had gone is not part of the response.
        """
        if self.closed_ns is None:
            return []
        begun = [(stage, at) for stage, at in self._begun if at <= self.closed_ns]
        ends = [at for _, at in begun[1:]] + [self.closed_ns]
        return [Phase(stage, at, end) for (stage, at), end in zip(begun, ends, strict=True)]


@dataclass
class RequestRecord:
    """All that the span of one request says; unknown is ``None``.

    The server fills in what it reads from the request, the engine what it does with it.
    ``error_type`` is set on failures; ``stream_state`` when a client went away.
    """

    timeline: Timeline
    headers: Mapping[str, str] = field(default_factory=dict)
    operation: str = "chat"
    request_model: str | None = None
    response_model: str | None = None
    response_id: str | None = None
    is_streamed: bool | None = None
    is_cold_start: bool = False
    max_tokens: int | None = None
    temperature: float | None = None
    input_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None
    cache_state: str | None = None
    finish_reason: str | None = None
    error_type: str | None = None
    http_status: int | None = None
    stream_state: str | None = None
    num_steps: int = 0
    num_decode_steps: int = 0
    decode_rows: int = 0
    """Sum over decode steps of the requests that shared the step."""
    num_preempted: int = 0
    num_drafted: int = 0
    num_accepted: int = 0
    token_ns: list[int] = field(default_factory=list)
    """When each token of the answer was there (epoch)."""
    stall_ns: int = 0
    """Time in which the connection took no more: a slow client."""
