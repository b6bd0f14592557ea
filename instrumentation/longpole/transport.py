"""Hooks on a client's HTTP client: each attempt's start and headers, and the trace id it carries.

The hooks use the public ``event_hooks`` of httpx and httpx2. Outside a recorded call they do
nothing. The trace id goes to loopback and private hosts only, unless the setting says otherwise:
a public provider ignores it, and it would tell which requests belong together.
"""

from functools import lru_cache
from time import perf_counter_ns
from typing import Any
from weakref import WeakKeyDictionary

from longpole import health, settings
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


def hook(http_client: Any) -> None:
    """Put our hooks on an HTTP client that has ``event_hooks``; once, however often asked."""
    hooks = getattr(http_client, "event_hooks", None)
    if hooks is None:
        return
    uses = _hooked.get(http_client, 0)
    _hooked[http_client] = uses + 1
    if uses == 0:
        on_request, on_response = _hooks_for(http_client)
        hooks["request"].append(on_request)
        hooks["response"].append(on_response)


def unhook(http_client: Any) -> None:
    """Take our hooks off when the last wrapped client that shares them is unwrapped."""
    uses = _hooked.get(http_client, 0)
    if uses > 1:
        _hooked[http_client] = uses - 1
    elif uses == 1:
        del _hooked[http_client]
        hooks = http_client.event_hooks
        for name, ours in zip(("request", "response"), _hooks_for(http_client), strict=True):
            if ours in hooks[name]:
                hooks[name].remove(ours)


def _hooks_for(http_client: Any) -> tuple[Any, Any]:
    is_async = hasattr(http_client, "aclose")
    return (_request_async, _response_async) if is_async else (_request, _response)


def _request(request: Any) -> None:
    record = current.get()
    if record is None or not record.is_being_made:
        return
    try:
        if record.is_redirected:  # the same attempt goes on elsewhere
            record.is_redirected = False
        else:
            record.call.attempt(perf_counter_ns())
        _inject(record, request)
    except Exception as error:  # noqa: BLE001 - counted; the request goes out as it was
        health.swallow("request hook", error)


def _response(response: Any) -> None:
    record = current.get()
    if record is None or not record.is_being_made:
        return
    try:
        record.call.headers(perf_counter_ns())
        record.status_code = response.status_code
        record.is_redirected = response.has_redirect_location
    except Exception as error:  # noqa: BLE001 - counted
        health.swallow("response hook", error)


async def _request_async(request: Any) -> None:
    _request(request)


async def _response_async(response: Any) -> None:
    _response(response)


def _inject(record: Record, request: Any) -> None:
    """The call's span as the parent of whatever the server traces."""
    policy = settings.current().propagate
    if policy == "never" or "traceparent" in request.headers:
        return
    if policy == "always" or is_private(request.url.host):
        W3C.inject(request.headers, record.context)
