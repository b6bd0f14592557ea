"""A small round-robin balancer: each request goes to the next server, its answer streams through.

A server that takes no connection is passed over. A request that was sent is never sent again: it
may have been run. One whose server breaks off in mid answer breaks off.
"""

import asyncio
import contextlib
from typing import NamedTuple
from urllib.parse import urlsplit

from longpole.errors import UsageError
from longpole_engine.load.relay import Door, Reply, refuse, write_head, write_piece


class _Place(NamedTuple):
    url: str
    host: str
    port: int


class Balancer(Door):
    """Serves until its server is closed; who answers may change while it does."""

    def __init__(self) -> None:
        self._places: list[_Place] = []
        self._turn = 0
        self.num_by_url: dict[str, int] = {}
        """Requests sent to each server."""
        self.num_refused = 0
        """Connections that a server did not take."""

    def add(self, url: str) -> None:
        """From now on this server has its turn.

        Raises:
            UsageError: it is not an http address.
        """
        parts = urlsplit(url)
        if parts.scheme != "http" or not parts.hostname:
            raise UsageError(f"'{url}' is no http address of a server")
        self._places.append(_Place(url, parts.hostname, parts.port or 80))
        self.num_by_url.setdefault(url, 0)

    def remove(self, url: str) -> None:
        """It gets no more requests; those it has go on."""
        self._places = [place for place in self._places if place.url != url]

    async def request(self, head: bytes, body: bytes, writer: asyncio.StreamWriter) -> bool:
        """Answer one request by whose turn it is; whether the connection goes on."""
        found = await self._connect()
        if found is None:
            refuse(writer, 503, "Service Unavailable", "no_server")
            await writer.drain()
            return True
        upstream, sender = found
        try:
            sender.write(head + body)
            await sender.drain()
            answer = Reply(upstream)
            try:
                answered = await answer.head()
            except (asyncio.IncompleteReadError, OSError):
                refuse(writer, 502, "Bad Gateway", "server_went")
                await writer.drain()
                return True
            write_head(writer, answered)
            async for piece in answer.body():
                await write_piece(writer, piece)
            await write_piece(writer, b"")
            return True
        finally:
            sender.close()
            with contextlib.suppress(OSError):
                await sender.wait_closed()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        """A connection to the next server that takes one."""
        first = self._turn % max(1, len(self._places))
        self._turn += 1
        for place in (*self._places[first:], *self._places[:first]):
            try:
                made = await asyncio.open_connection(place.host, place.port)
            except OSError:
                self.num_refused += 1
                continue
            self.num_by_url[place.url] += 1
            return made
        return None
