"""A gate in front of a dashboard that only tells whom it sees, reached without a network."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import streamlit as st

from longpole_collector.stores.base import Reader
from longpole_dashboard.login import store as login_store
from longpole_dashboard.login.gate import Gate, viewer_in
from longpole_dashboard.login.store import Logins
from longpole_dashboard.source import Source

GOOD = "correct horse battery"
BASE = "http://127.0.0.1:8501"


def cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hash of 16 KiB in place of 32 MiB."""
    monkeypatch.setattr(login_store, "_LOG_N", 4)
    monkeypatch.setattr(login_store, "_DUMMY", login_store.hash_password(""))


def two_logins(folder: Path) -> Logins:
    """Ann and Bob, each with a project and a key of their own."""
    found = Logins(folder)
    for name in ("ann", "bob"):
        found.add(name, project=f"of-{name}", key=f"lp_{name}_secret")
        found.set_password(found.new_link(name), GOOD + name)
    return found


@contextmanager
def sources_closed() -> Iterator[None]:
    """Stores that pages open stay open inside the block, and are closed with it."""
    readers: list[Reader] = []
    was_opened = Source.open

    def opened(self: Source) -> Reader:
        readers.append(was_opened(self))
        return readers[-1]

    st.cache_resource.clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Source, "open", opened)
        yield
    st.cache_data.clear()
    st.cache_resource.clear()
    for reader in readers:
        reader.close()


async def dashboard(scope: Any, receive: Any, send: Any) -> None:
    """What stands behind the gate: it answers with whom it sees."""
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.accept", "subprotocol": None})
        while (message := await receive())["type"] == "websocket.receive":
            await send({"type": "websocket.send", "text": message["text"]})
        return
    headers = {name.decode(): value.decode() for name, value in scope["headers"]}
    body = f"behind as {viewer_in(headers)} by {scope['scheme']}".encode()
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": body})


def browser(gate: Gate, peer: str = "127.0.0.1", base: str = BASE) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app=gate, client=(peer, 4711))
    return httpx.AsyncClient(transport=transport, base_url=base)


async def log_in(client: httpx.AsyncClient, name: str, onward: str = "/") -> httpx.Response:
    form = {"name": name, "password": GOOD + name, "next": onward}
    return await client.post("/login", data=form)


class Socket:
    """A websocket that reaches the gate without a network."""

    def __init__(self, gate: Gate, *given: str, **headers: str) -> None:
        self.sent: list[dict[str, Any]] = []
        self._incoming = [{"type": "websocket.connect"}]
        self._incoming += [{"type": "websocket.receive", "text": text} for text in given]
        self._gate = gate
        named = {"host": "127.0.0.1:8501", **headers}
        self.scope = {
            "type": "websocket",
            "path": "/_stcore/stream",
            "scheme": "ws",
            "query_string": b"",
            "client": ("127.0.0.1", 4711),
            "subprotocols": headers.get("sec-websocket-protocol", "").split(", "),
            "headers": [
                (name.replace("_", "-").encode(), value.encode()) for name, value in named.items()
            ],
        }

    async def receive(self) -> dict[str, Any]:
        return self._incoming.pop(0) if self._incoming else {"type": "websocket.disconnect"}

    async def send(self, message: Any) -> None:
        self.sent.append(message)

    async def run(self) -> list[str]:
        await self._gate(self.scope, self.receive, self.send)
        return [message["type"].partition(".")[2] for message in self.sent]
