"""What the HTTP layer told about one call: its attempts, its connections, the answer's headers."""

from collections.abc import Iterable, Mapping, Sequence
from time import perf_counter_ns
from typing import Any

from longpole import health
from longpole.call import AttributeValue
from longpole.vocab import keys

NO_ANSWER = "no_answer"
_NS_PER_S = 1e9
_OPENS = (
    *("connection.connect_tcp", "connection.start_tls", "connection.connect_unix_socket"),
    *("proxy.start_tls", "socks.connect_tcp", "socks.setup_socks5_connection", "socks.start_tls"),
)
_STEPS = {f"{what}.{when}": when for what in _OPENS for when in ("started", "complete", "failed")}
"""How httpcore names the steps that open a connection."""


class Exchange:
    """The HTTP side of one call, told by the hooks of its client's HTTP layer.

    ``plain`` are the extensions of a request without TLS, for the trace to leave them once the
    connection is open.

    Moments are nanoseconds of the monotonic clock of :class:`longpole.call.Call`.
    """

    __slots__ = (
        "_headers",
        "_opening_ns",
        "answered_ns",
        "is_new_connection",
        "is_redirected",
        "opened_ns",
        "plain",
        "request_bytes",
        "server",
        "starts_ns",
        "statuses",
    )

    def __init__(self) -> None:
        self.starts_ns: list[int] = []
        self.answered_ns: list[int | None] = []
        self.statuses: list[int | None] = []
        self.is_redirected = False
        self.is_new_connection: bool | None = None
        self.opened_ns = 0
        self.request_bytes: int | None = None
        self.server: tuple[str, int | None] = ("", None)
        self.plain: dict[str, Any] | None = None
        self._opening_ns = 0
        self._headers: dict[bytes, bytes] = {}

    def attempt(self, at_ns: int) -> None:
        """A request goes out."""
        self.starts_ns.append(at_ns)
        self.answered_ns.append(None)
        self.statuses.append(None)
        self.is_new_connection = None

    def answered(self, status: int, headers: Iterable[tuple[bytes, bytes]], at_ns: int) -> None:
        """Its response's head came; header names have any case."""
        if not self.starts_ns:
            self.attempt(at_ns)
        self.statuses[-1], self.answered_ns[-1] = status, at_ns
        self._headers = found = {}
        for name, value in headers:
            lower = name.lower()
            if lower in _WANTED:
                found[lower] = value

    def trace(self, event: str, info: Any) -> None:
        """A step of the connection (the ``trace`` extension of httpcore).

        Once the request is on its way the connection has no more to tell, and each further step
        would cost: the request is traced no longer.
        """
        try:
            when = _STEPS.get(event)
            if when is not None:
                self.is_new_connection = True
                if when == "started":
                    self._opening_ns = perf_counter_ns()
                else:
                    self.opened_ns += perf_counter_ns() - self._opening_ns
                    if self.plain is not None:  # there is no TLS to come
                        self.plain.pop("trace", None)
                        self.plain = None
            elif event.endswith(".send_request_headers.started"):
                if self.is_new_connection is None:
                    self.is_new_connection = False
                getattr(info.get("request"), "extensions", {}).pop("trace", None)
        except Exception as error:  # noqa: BLE001 - counted; the request goes on
            health.swallow("trace", error)

    async def trace_async(self, event: str, info: Any) -> None:
        """The same for an async client."""
        self.trace(event, info)

    def describe(self, found: dict[str, AttributeValue], start_ns: int) -> None:
        """Add it by vocabulary key, for a call made at ``start_ns``; unknowns are left out."""
        if self.statuses and (status := self.statuses[-1]) is not None:
            found[keys.HTTP_STATUS] = status
        if self.request_bytes is not None:
            found[keys.REQUEST_SIZE] = self.request_bytes
        if self.is_new_connection is not None:
            found[keys.CONNECTION_NEW] = self.is_new_connection
        if self.opened_ns:
            found[keys.CONNECTION_TIME] = self.opened_ns / _NS_PER_S
        if len(self.starts_ns) > 1:
            found[keys.ATTEMPT_STATUS] = tuple(
                NO_ANSWER if status is None else str(status) for status in self.statuses
            )
            offsets = ((at - start_ns) // 1000 for at in self.starts_ns)
            found[keys.ATTEMPT_OFFSETS_US] = tuple(offsets)
            found[keys.RETRY_WAIT] = _waited_ns(self.answered_ns, self.starts_ns) / _NS_PER_S
        if self._headers:
            _tell(self._headers, found)


def _waited_ns(answered_ns: Sequence[int | None], starts_ns: Sequence[int]) -> int:
    """From each answer to the next attempt; an attempt without answer has no known wait."""
    pairs = zip(answered_ns, starts_ns[1:], strict=False)
    return sum(later - answer for answer, later in pairs if answer is not None)


def _tell(headers: Mapping[bytes, bytes], found: dict[str, AttributeValue]) -> None:
    """Add what the provider's headers say."""
    for name, read in _PROCESSING.items():
        taken_ms = read(headers[name]) if name in headers else None
        if taken_ms is not None:
            found[keys.SERVER_PROCESSING] = taken_ms / 1e3
            found[keys.SERVER_PROCESSING_SOURCE] = name.decode()
            break
    for name in _REQUEST_IDS:
        if name in headers:
            found[keys.SERVER_REQUEST_ID] = headers[name].decode("latin-1")[:128]
            break
    for name, key in _LEFT.items():
        left = _number(headers[name]) if name in headers else None
        if left is not None:
            found[key] = int(left)


def _server_timing_ms(value: bytes) -> float | None:
    """The longest ``dur`` of a Server-Timing header (W3C), milliseconds."""
    parts = value.replace(b",", b";").split(b";")
    found = [_number(part.strip()[4:]) for part in parts if part.strip().startswith(b"dur=")]
    return max((ms for ms in found if ms is not None), default=None)


def _number(value: bytes) -> float | None:
    try:
        found = float(value)
    except ValueError:
        return None
    return found if 0 <= found < 1e12 else None


# Milliseconds each. The first that a response carries counts: OpenAI and Azure, Envoy edges, TGI,
# and any server's own timing.
_PROCESSING = {
    b"openai-processing-ms": _number,
    b"x-envoy-upstream-service-time": _number,
    b"x-inference-time": _number,
    b"server-timing": _server_timing_ms,
}
_REQUEST_IDS = (b"x-request-id", b"request-id", b"x-amzn-requestid", b"apim-request-id")
_LEFT = {
    b"x-ratelimit-remaining-requests": f"{keys.RATE_LIMIT_PREFIX}remaining_requests",
    b"x-ratelimit-remaining-tokens": f"{keys.RATE_LIMIT_PREFIX}remaining_tokens",
    b"anthropic-ratelimit-requests-remaining": f"{keys.RATE_LIMIT_PREFIX}remaining_requests",
    b"anthropic-ratelimit-tokens-remaining": f"{keys.RATE_LIMIT_PREFIX}remaining_tokens",
}
_WANTED = frozenset((*_PROCESSING, *_REQUEST_IDS, *_LEFT))
