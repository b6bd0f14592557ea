"""One wrapped method of one client, and what stays the same from call to call."""

from collections.abc import Mapping
from typing import Any

from longpole.call import AttributeValue
from longpole.providers.base import Method, Provider, Server
from longpole.vocab import keys

Place = tuple[Server | None, Mapping[str, AttributeValue]]
"""A server, and the attributes that every call to it has."""


class Site:
    """Where calls are made from: ``method`` of ``client``, read by ``provider``."""

    __slots__ = ("_known", "client", "method", "provider")

    def __init__(self, provider: Provider, method: Method, client: Any) -> None:
        self.provider, self.method, self.client = provider, method, client
        self._known: tuple[object, Place] | None = None

    def place(self) -> Place:
        """Where the client sends its calls now; asked again only when that may have changed."""
        place, known = self.provider.place(self.client), self._known
        if known is not None and place is not None and known[0] is place:
            return known[1]
        server = self.provider.server(self.client)
        found: dict[str, AttributeValue] = {
            keys.OPERATION: self.method.operation,
            keys.PROVIDER: self.provider.name(self.client),
            **at(server),
        }
        self._known = (place, (server, found))
        return server, found


def at(server: Server | None) -> dict[str, AttributeValue]:
    """The attributes that name a server; none where it is unknown."""
    if server is None:
        return {}
    found: dict[str, AttributeValue] = {keys.SERVER_ADDRESS: server.host}
    if server.port is not None:
        found[keys.SERVER_PORT] = server.port
    return found
