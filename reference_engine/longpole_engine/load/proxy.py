"""A proxy that makes a provider fail as providers do, the same way for the same seed.

It stands between a client and any OpenAI-compatible server on this machine and harms a share of
the answers to POST: refusals, errors, silence, streams that break off, an error in mid stream, a
gateway that holds a stream back; and it can slow all of them down.
"""

import asyncio
import contextlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from random import Random
from typing import Final
from urllib.parse import urlsplit

from longpole.errors import UsageError
from longpole_engine.load.relay import Door, Reply, refuse, write_head, write_piece


class Fault(StrEnum):
    """What happens to an answer."""

    RATE_LIMIT = "429"
    """429 with ``Retry-After``."""
    SILENT_RATE_LIMIT = "429_silent"
    """429 that does not say when to come back."""
    ERROR = "500"
    OVERLOADED = "529"
    """What Anthropic answers when it is overloaded."""
    HANG = "hang"
    """Nothing comes, for :attr:`Faults.hang_s`; then the connection ends."""
    CUT = "cut"
    """The stream ends after :attr:`Faults.after_events` events, without its end."""
    ERROR_EVENT = "error_event"
    """After so many events the stream says that it failed, and ends."""
    BUFFER = "buffer"
    """All of the answer at once, at its end."""


_STATUSES: Final = {
    Fault.RATE_LIMIT: (429, "Too Many Requests", "rate_limit_exceeded"),
    Fault.SILENT_RATE_LIMIT: (429, "Too Many Requests", "rate_limit_exceeded"),
    Fault.ERROR: (500, "Internal Server Error", "server_error"),
    Fault.OVERLOADED: (529, "Overloaded", "overloaded_error"),
}


@dataclass(frozen=True)
class Faults:
    """Which share of the requests (0 to 1) meets which fault, and what all of them meet.

    Raises:
        UsageError: shares below 0, or of more than 1 together.
    """

    shares: Mapping[Fault, float] = field(default_factory=dict)
    seed: int = 0
    retry_after_s: float = 1.0
    hang_s: float = 60.0
    after_events: int = 3
    jitter_s: float = 0.0
    """Each piece of an answer is late by up to so much."""
    bytes_per_s: float | None = None

    def __post_init__(self) -> None:
        shares = self.shares.values()
        if not (all(share >= 0 for share in shares) and sum(shares) <= 1):  # nan is neither
            raise UsageError("shares of faults are 0 to 1, and at most 1 together")

    def of(self, number: int) -> Fault | None:
        """What meets the request of this number; the same for the same seed."""
        at = Random(f"{self.seed} {number}").random()  # noqa: S311 - no secret
        for fault, share in self.shares.items():
            at -= share
            if at < 0:
                return fault
        return None


class Proxy(Door):
    """Serves until its server is closed.

    Args:
        upstream: http address of the real server.
        faults: what goes wrong.

    Raises:
        UsageError: the address is not an http one.
    """

    def __init__(self, upstream: str, faults: Faults) -> None:
        parts = urlsplit(upstream)
        if parts.scheme != "http" or not parts.hostname:
            raise UsageError(f"'{upstream}' is no http address of a server")
        self._host, self._port = parts.hostname, parts.port or 80
        self._faults = faults
        self._num_requests = 0
        self.num_by_fault: dict[str, int] = {}
        """Requests by what met them; ``none`` for those left alone."""

    async def request(self, head: bytes, body: bytes, writer: asyncio.StreamWriter) -> bool:
        """Answer one request as its number says; whether the connection goes on."""
        if not head.startswith(b"POST "):  # a list of models, a check of health
            return await self._relay(head, body, writer, None)
        fault = self._faults.of(self._num_requests)
        self._num_requests += 1
        name = "none" if fault is None else str(fault)
        self.num_by_fault[name] = self.num_by_fault.get(name, 0) + 1
        if fault in _STATUSES:
            more = ""
            if fault is Fault.RATE_LIMIT:
                more = f"Retry-After: {self._faults.retry_after_s:g}\r\n"
            refuse(writer, *_STATUSES[fault], more)
            await writer.drain()
            return True
        if fault is Fault.HANG:
            await asyncio.sleep(self._faults.hang_s)
            return False
        return await self._relay(head, body, writer, fault)

    async def _relay(
        self, head: bytes, body: bytes, writer: asyncio.StreamWriter, fault: Fault | None
    ) -> bool:
        try:
            upstream, sender = await asyncio.open_connection(self._host, self._port)
        except OSError:
            refuse(writer, 502, "Bad Gateway", "upstream_unreachable")
            return True
        try:
            sender.write(head + body)
            await sender.drain()
            answer = Reply(upstream)
            write_head(writer, await answer.head())
            is_whole = await self._pieces(answer, writer, fault)
            if is_whole:
                await write_piece(writer, b"")
            await writer.drain()
            return is_whole
        finally:
            sender.close()
            with contextlib.suppress(OSError):
                await sender.wait_closed()

    async def _pieces(
        self, answer: Reply, writer: asyncio.StreamWriter, fault: Fault | None
    ) -> bool:
        """Pass the body on; ``False`` if it was broken off."""
        held: list[bytes] = []
        num_events, random = 0, Random(f"{self._faults.seed} jitter")  # noqa: S311
        async for piece in answer.body():
            if fault is Fault.BUFFER:
                held.append(piece)
                continue
            if fault in (Fault.CUT, Fault.ERROR_EVENT):
                for event in piece.splitlines(keepends=True):
                    num_events += event.startswith(b"data:")
                    if num_events > self._faults.after_events:
                        if fault is Fault.ERROR_EVENT:
                            error = {"error": {"type": "server_error", "message": "it failed"}}
                            await self._send(writer, b"data: %s\n\n" % json.dumps(error).encode())
                        return fault is Fault.ERROR_EVENT
                    await self._send(writer, event)
                continue
            await asyncio.sleep(random.random() * self._faults.jitter_s)
            await self._send(writer, piece)
        if held:
            await self._send(writer, b"".join(held))
        return True

    async def _send(self, writer: asyncio.StreamWriter, piece: bytes) -> None:
        await write_piece(writer, piece)
        if self._faults.bytes_per_s:
            await asyncio.sleep(len(piece) / self._faults.bytes_per_s)
