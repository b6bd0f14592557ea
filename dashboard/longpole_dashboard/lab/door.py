"""What stands before the engines: spreads requests over replicas, and does what a recipe asks.

It is the fault proxy of ``longpole engine proxy`` with several servers behind it.
"""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from typing import Final

from longpole_dashboard.lab.app import hash_of
from longpole_dashboard.lab.recipe import Door, Routing
from longpole_engine.load.proxy import Fault, Faults, Proxy

_BEGINNING: Final = 400
"""Characters of a prompt that choose its replica, and that a provider knows a prefix by."""


class Balancer(Proxy):
    """A proxy before several engines.

    Args:
        ports: where the engines listen, on this machine.
        door: what it does.
        seed: of its faults.
        wake: starts an engine that was stopped for want of requests; returns its port.
    """

    def __init__(
        self,
        ports: list[int],
        door: Door,
        seed: int,
        wake: Callable[[], Awaitable[int]] | None = None,
    ) -> None:
        kind = _EvenFaults if door.is_even else Faults
        faults = kind(door.faults, seed, door.retry_after_s)
        super().__init__(f"http://127.0.0.1:{ports[0]}", faults)
        self._ports, self._door, self._wake = ports, door, wake
        self._next = 0
        self._last_use: dict[int, tuple[float, int]] = {}
        self._seen: set[int] = set()
        self._waking = asyncio.Lock()

    async def request(self, head: bytes, body: bytes, writer: asyncio.StreamWriter) -> bool:
        """Send a request to the replica that is its turn; whether the connection goes on."""
        await asyncio.sleep(self._door.delay_s)
        key = _beginning(body)
        if self._door.prefix_life_s:
            head, body = _salted(head, body, self._epoch(key))
        port = await self._chosen(key)
        if port == self._ports[-1]:
            await asyncio.sleep(self._door.odd_delay_s)
        self._port = port  # read by the next statement that runs, before anything else can
        return await super().request(head, body, writer)

    async def _chosen(self, key: int) -> int:
        """The port of the engine that shall answer."""
        if self._wake is not None:
            async with self._waking:
                return await self._wake()
        routing = self._door.routing
        if routing is Routing.AFFINITY:
            return self._ports[key % len(self._ports)]
        if routing is Routing.HOME:
            port = self._ports[-1 if key in self._seen else 0]
            self._seen.add(key)
            return port
        self._next += 1
        return self._ports[self._next % len(self._ports)]

    def _epoch(self, key: int) -> int:
        """How often this prefix has been forgotten for want of use."""
        now = time.monotonic()
        last, epoch = self._last_use.get(key, (now, 0))
        if now - last > self._door.prefix_life_s:
            epoch += 1
        self._last_use[key] = (now, epoch)
        return epoch


class _EvenFaults(Faults):
    """As many faults as the shares say, however few requests there are."""

    def of(self, number: int) -> Fault | None:
        """What meets the request of this number."""
        for fault, share in self.shares.items():
            if int((number + 1) * share) > int(number * share):
                return fault
        return None


def _beginning(body: bytes) -> int:
    """A number for what the prompt begins with; 0 of a body that has none."""
    try:
        content = json.loads(body)["messages"][0]["content"]
    except (ValueError, KeyError, IndexError, TypeError):
        return 0
    return hash_of(content[:_BEGINNING])


def _salted(head: bytes, body: bytes, epoch: int) -> tuple[bytes, bytes]:
    """The request with a salt, so that what was cached under another one is not found."""
    try:
        asked = json.loads(body)
    except ValueError:
        return head, body
    body = json.dumps({**asked, "cache_salt": f"epoch {epoch}"}).encode()
    lines = [
        f"Content-Length: {len(body)}".encode() if line[:15].lower() == b"content-length:" else line
        for line in head.split(b"\r\n")
    ]
    return b"\r\n".join(lines), body
