"""Hooks on a client's HTTP layer: attempts, connections, headers, and the trace id they carry.

httpx and httpx2 are hooked by their public ``event_hooks``, aiohttp by its ``trace_configs``; a
provider file with another HTTP library tells :func:`sending` and :func:`answered` itself. Outside
a recorded call the hooks do nothing. The trace id goes to loopback and private hosts only, unless
the setting says otherwise: a public provider ignores it, and it would tell which requests belong
together.
"""

from collections.abc import Callable, Iterable, MutableMapping
from functools import lru_cache, partial
from inspect import iscoroutinefunction
from time import perf_counter_ns
from typing import Any
from weakref import WeakKeyDictionary, WeakSet, WeakValueDictionary

from longpole import health, settings
from longpole.body import follow
from longpole.context import W3C
from longpole.record import Record, current

_PRIVATE_SUFFIXES = (".localhost", ".local", ".internal", ".lan", ".home.arpa", ".svc")
_hooked: "WeakKeyDictionary[Any, int]" = WeakKeyDictionary()
"""HTTP clients that carry our hooks, with the number of wrapped clients that share each."""


@lru_cache(maxsize=1024)
def is_private(host: str) -> bool:
    """A host of one's own by its name: loopback, a private address, or a name without a dot.

    No name is looked up.
    """
    import ipaddress  # once per host, not once per import of longpole

    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        name = host.lower().rstrip(".")
        return "." not in name or name.endswith(_PRIVATE_SUFFIXES)
    return address.is_private or address.is_loopback or address.is_link_local


def hook(*http_clients: Any) -> list[Callable[[], None]]:
    """Put our hooks on HTTP clients, once, however often asked; returns how to take them off.

    What is neither an httpx client nor an aiohttp session is left alone.
    """
    return [
        partial(unhook, client)
        for client in http_clients
        if hasattr(client, "event_hooks") or hasattr(client, "trace_configs")
        if _hook(client)
    ]


def hook_made_by(owner: Any, factory: str) -> list[Callable[[], None]]:
    """Hook each HTTP client that a method of ``owner`` hands out, sync or async.

    Args:
        owner: the object; ``None``, or one without the method, is left alone.
        factory: the method's name.

    Returns:
        how to undo it, also for the clients handed out by then.
    """
    make = getattr(owner, factory, None)
    if make is None:
        return []
    made: WeakSet[Any] = WeakSet()

    def hooked(client: Any) -> Any:
        if client is not None and client not in made and hook(client):
            made.add(client)
        return client

    async def make_async() -> Any:
        return hooked(await make())

    own, before = vars(owner), vars(owner).get(factory)

    def undo() -> None:
        own.pop(factory, None)
        if before is not None:  # an owner that is reached from two wrapped objects
            own[factory] = before
        for client in made:
            unhook(client)

    own[factory] = make_async if iscoroutinefunction(make) else lambda: hooked(make())
    return [undo]


def _hook(http_client: Any) -> bool:
    uses = _hooked.get(http_client, 0)
    _hooked[http_client] = uses + 1
    if uses == 0:
        for hooks, ours in _hooks_of(http_client):
            hooks.append(ours)
    return True


def unhook(http_client: Any) -> None:
    """Take our hooks off when the last wrapped client that shares them is unwrapped."""
    uses = _hooked.get(http_client, 0)
    if uses > 1:
        _hooked[http_client] = uses - 1
    elif uses == 1:
        del _hooked[http_client]
        for hooks, ours in _hooks_of(http_client):
            if ours in hooks:
                hooks.remove(ours)


def _hooks_of(http_client: Any) -> list[tuple[list[Any], Any]]:
    """A client's own lists of hooks, each with our entry."""
    if hasattr(http_client, "event_hooks"):
        hooks, (on_request, on_response) = http_client.event_hooks, _hooks_for(http_client)
        return [(hooks["request"], on_request), (hooks["response"], on_response)]
    from longpole.aiohttp_trace import trace_config

    return [(http_client.trace_configs, trace_config())]


def sending(headers: MutableMapping[str, str], host: str, num_bytes: int | None) -> Record | None:
    """A request of the current call goes out: an attempt, which carries the trace id.

    Args:
        headers: of the request; gets ``traceparent``.
        host: where it goes.
        num_bytes: size of its body, if known.

    Returns:
        the record of the call, ``None`` outside one.
    """
    record = current.get()
    if record is None or not record.is_being_made:
        return None
    try:
        exchange = record.exchange
        if exchange.is_redirected:  # the same attempt goes on elsewhere
            exchange.is_redirected = False
        else:
            now_ns = perf_counter_ns()
            record.call.attempt(now_ns)
            exchange.attempt(now_ns)
            exchange.request_bytes = num_bytes
        if "traceparent" not in headers and _is_told(host):
            W3C.inject(headers, record.context)
    except Exception as error:  # noqa: BLE001 - counted; the request goes out as it was
        health.swallow("request hook", error)
    return record


def _is_told(host: str) -> bool:
    policy = settings.current().propagate
    return policy == "always" or (policy != "never" and is_private(host))


def answered(
    status: int, headers: Iterable[tuple[bytes, bytes]], *, is_redirect: bool = False
) -> Record | None:
    """The head of the current call's response came.

    Args:
        status: HTTP status.
        headers: names in any case, and values.
        is_redirect: the HTTP library goes on to another address by itself.

    Returns:
        the record of the call, ``None`` outside one.
    """
    record = current.get()
    if record is None or not record.is_being_made:
        return None
    try:
        now_ns = perf_counter_ns()
        record.call.headers(now_ns)
        record.exchange.answered(status, headers, now_ns)
        record.exchange.is_redirected = is_redirect
    except Exception as error:  # noqa: BLE001 - counted
        health.swallow("response hook", error)
    return record


# --- httpx and httpx2 --------------------------------------------------------------------------

_connections: "WeakSet[Any]" = WeakSet()
"""Connections that have answered a recorded call, as long as their pools keep them."""
_open_to: "WeakValueDictionary[tuple[str, int | None], Any]" = WeakValueDictionary()
"""The last of them by host and port."""


def _hooks_for(http_client: Any) -> tuple[Any, Any]:
    is_async = hasattr(http_client, "aclose")
    return (_request_async, _response_async) if is_async else (_request, _response)


def _request(request: Any) -> None:
    record = _sent(request)
    if record is not None:
        request.extensions.setdefault("trace", record.exchange.trace)


async def _request_async(request: Any) -> None:
    record = _sent(request)
    if record is not None:
        request.extensions.setdefault("trace", record.exchange.trace_async)


def _sent(request: Any) -> Record | None:
    """The record of the call, where the connection's steps are to be traced.

    Tracing costs about a tenth of a call, so it is left out while a connection to the host is
    known to be open: the request most likely takes that one.
    """
    size, url = request.headers.get("content-length", ""), request.url
    record = sending(request.headers, url.host, int(size) if size.isdecimal() else None)
    return record if (url.host, url.port) not in _open_to else None


def _response(response: Any) -> None:
    record = answered(
        response.status_code, response.headers.raw, is_redirect=response.has_redirect_location
    )
    if record is None:
        return
    try:
        _note_connection(response, record)
        if record.is_raw and not response.is_error and not response.has_redirect_location:
            follow(response, record)
    except Exception as error:  # noqa: BLE001 - counted; the body is the application's
        health.swallow("body", error)


def _note_connection(response: Any, record: Record) -> None:
    stream = response.extensions.get("network_stream")
    if stream is None:
        return
    if record.exchange.is_new_connection is None:
        record.exchange.is_new_connection = stream not in _connections
    _connections.add(stream)
    _open_to[response.url.host, response.url.port] = stream


async def _response_async(response: Any) -> None:
    _response(response)
