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
from weakref import WeakKeyDictionary, WeakSet, ref

from longpole import health
from longpole.body import follow
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


def sending(headers: MutableMapping[str, str], host: str, num_bytes: int | None) -> None:
    """A request of the current call goes out: an attempt, which carries the trace id.

    Args:
        headers: of the request; gets ``traceparent``.
        host: where it goes.
        num_bytes: size of its body, if known.
    """
    record = current.get()
    if record is not None and record.is_being_made:
        _attempt(record, num_bytes)
        _tell(headers, host, record)


def _attempt(record: Record, num_bytes: int | None) -> None:
    try:
        exchange = record.exchange
        if exchange.is_redirected:  # the same attempt goes on elsewhere
            exchange.is_redirected = False
        else:
            now_ns = perf_counter_ns()
            record.call.attempt(now_ns)
            exchange.attempt(now_ns)
            exchange.request_bytes = num_bytes
    except Exception as error:  # noqa: BLE001 - counted; the request goes out
        health.swallow("request hook", error)


def _tell(
    headers: MutableMapping[str, str], host: str, record: Record, *, is_untold: bool = False
) -> None:
    """Give a host that may know it the trace id, as W3C Trace Context writes it."""
    try:
        policy = record.settings.propagate
        is_wanted = policy == "always" or (policy != "never" and is_private(host))
        if is_wanted and (is_untold or "traceparent" not in headers):
            trace_id, span_id, _, flags, state, is_valid = record.span.get_span_context()
            if is_valid:
                headers["traceparent"] = f"00-{trace_id:032x}-{span_id:016x}-{int(flags):02x}"
                if state:
                    headers["tracestate"] = state.to_header()
    except Exception as error:  # noqa: BLE001 - counted; the request goes out as it was
        health.swallow("request hook", error)


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

_connections: "set[ref[Any]]" = set()
"""Connections that have answered a recorded call, as long as their pools keep them."""
_open_to: "dict[tuple[str, int | None], ref[Any]]" = {}
"""The last of them by host and port."""
_MAX_OPEN = 1024


def _hooks_for(http_client: Any) -> tuple[Any, Any]:
    is_async = hasattr(http_client, "aclose")
    return (_request_async, _response_async) if is_async else (_request, _response)


async def _request_async(request: Any) -> None:
    _request(request, "trace_async")


def _request(request: Any, trace: str = "trace") -> None:
    """A request goes out; the steps of its connection are told to that method of an exchange.

    That costs about a tenth of a call, so it is left out while a connection to the host is known
    to be open: the request most likely takes that one.
    """
    record = current.get()
    if record is None or not record.is_being_made:
        return
    try:
        num_bytes, is_told = None, False
        for name, value in request.headers.raw:  # to ask for one by its name decodes them all
            lower = name.lower()
            if lower == b"content-length":
                num_bytes = int(value) if value.isdigit() else None
            elif lower == b"traceparent":
                is_told = True
        _attempt(record, num_bytes)
        url, exchange = request.url, record.exchange
        exchange.server = server = (url.host, url.port)
        if not is_told:
            _tell(request.headers, server[0], record, is_untold=True)
        known = _open_to.get(server)
        if known is None or known() is None:
            extensions = request.extensions
            extensions.setdefault("trace", getattr(exchange, trace))
            exchange.plain = extensions if url.scheme == "http" else None
    except Exception as error:  # noqa: BLE001 - counted; the request goes out
        health.swallow("request hook", error)


def _response(response: Any) -> None:
    record = current.get()
    if record is None or not record.is_being_made:
        return
    status = response.status_code
    is_redirect = status // 100 == 3 and response.has_redirect_location
    answered(status, response.headers.raw, is_redirect=is_redirect)
    try:
        _note_connection(response, record)
        if record.is_raw and status < 400 and not is_redirect:
            follow(response, record)
    except Exception as error:  # noqa: BLE001 - counted; the body is the application's
        health.swallow("body", error)


def _note_connection(response: Any, record: Record) -> None:
    stream = response.extensions.get("network_stream")
    if stream is None:
        return
    exchange = record.exchange
    known = _open_to.get(exchange.server)
    is_known = known is not None and known() is stream
    if exchange.is_new_connection is None:
        exchange.is_new_connection = not is_known and ref(stream) not in _connections
    if not is_known:
        _connections.add(ref(stream, _connections.discard))
        if len(_open_to) >= _MAX_OPEN:
            _open_to.clear()
        _open_to[exchange.server] = ref(stream)


async def _response_async(response: Any) -> None:
    _response(response)
