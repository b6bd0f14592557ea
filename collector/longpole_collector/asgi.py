"""The few things the HTTP doors need of ASGI: a bounded body, one response, a Host check.

Bare ASGI because the OTLP door answers thousands of small requests a second and needs no
framework for it.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

from longpole.errors import BadInput
from longpole_collector.batch import Budget
from longpole_collector.decode import TooLarge

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


_HEADERS: Final = "longpole.headers"


class TooSlow(BadInput):
    """A body did not arrive in time."""


class Gone(Exception):
    """The sender closed the connection before its body was complete."""


def header(scope: Scope, name: bytes) -> str:
    """A request header's value, lower-cased; empty if absent. Of several the first counts."""
    found = scope.get(_HEADERS)
    if found is None:  # several are asked for, thousands of times a second
        found = scope[_HEADERS] = dict(reversed(scope["headers"]))
    text: str = found.get(name, b"").decode("latin-1")
    return text.lower()


def media_type(scope: Scope) -> str:
    """The content type without its parameters."""
    return header(scope, b"content-type").partition(";")[0].strip()


async def read_body(
    scope: Scope, receive: Receive, *, limit_bytes: int, timeout_s: float, budget: Budget
) -> bytes:
    """The whole body; while it arrives, its bytes count against the budget.

    Raises:
        TooLarge: longer than the limit.
        TooSlow: not complete in time.
        Full: no room for it now.
        Gone: the sender went away.
    """
    length = header(scope, b"content-length")
    if length.isdigit() and int(length) > limit_bytes:
        raise TooLarge(f"body of {length} bytes: at most {limit_bytes} are taken")
    pieces: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(timeout_s):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise Gone
                piece = message.get("body", b"")
                budget.take(len(piece))
                size += len(piece)
                if size > limit_bytes:
                    raise TooLarge(f"body of more than {limit_bytes} bytes: none is taken")
                pieces.append(piece)
                if not message.get("more_body"):
                    return b"".join(pieces)
    except TimeoutError as error:
        raise TooSlow(f"the body did not arrive within {timeout_s:g} s") from error
    finally:
        budget.give(size)


async def respond(
    send: Send,
    status: int,
    body: bytes,
    content_type: str,
    headers: tuple[tuple[bytes, bytes], ...] = (),
) -> None:
    """Send one whole response."""
    start: Message = {
        "type": "http.response.start",
        "status": status,
        "headers": [
            (b"content-type", content_type.encode()),
            (b"content-length", str(len(body)).encode()),
            *headers,
        ],
    }
    await send(start)
    await send({"type": "http.response.body", "body": body})


async def respond_json(
    send: Send, status: int, value: object, headers: tuple[tuple[bytes, bytes], ...] = ()
) -> None:
    """Send a JSON document."""
    await respond(send, status, to_json(value), "application/json", headers)


def to_json(value: object) -> bytes:
    """Compact JSON in UTF-8."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def is_host_allowed(scope: Scope, allowed: frozenset[str]) -> bool:
    """Whether the request is addressed to a name of ours, so that no web page can rebind DNS."""
    host = header(scope, b"host")
    name = host if host.endswith("]") else host.rpartition(":")[0] or host
    return name in allowed
