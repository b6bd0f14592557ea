"""One wrapped method call: begin a record, make the call inside it, follow what comes back.

The application's arguments, result and exceptions pass through unchanged.
"""

import functools
import inspect
from collections.abc import Callable
from contextvars import Token
from typing import Any

from opentelemetry import context as otel

from longpole import health
from longpole.context import release
from longpole.entered import enters
from longpole.providers.base import Method, Provider
from longpole.record import Record, current
from longpole.site import Site
from longpole.stand_in import is_generator, stand_in
from longpole.stream import tap


def measured(
    original: Callable[..., Any], client: Any, provider: Provider, method: Method
) -> Callable[..., Any]:
    """``original`` with a record around it, sync or async as it is."""
    site = Site(provider, method, client)
    if inspect.iscoroutinefunction(original):

        @functools.wraps(original)
        async def measured_coroutine(*args: Any, **kwargs: Any) -> Any:
            return await _call_async(original, args, kwargs, site, otel.get_current())

        return measured_coroutine
    if inspect.iscoroutinefunction(inspect.unwrap(original)):

        @functools.wraps(original)
        def measured_async(*args: Any, **kwargs: Any) -> Any:
            # The parent is who makes the call, whoever awaits it; time runs from the await.
            return _call_async(original, args, kwargs, site, otel.get_current())

        return measured_async

    @functools.wraps(original)
    def measured_sync(*args: Any, **kwargs: Any) -> Any:
        record = _begin(site, args, kwargs, otel.get_current())
        if record is None:
            return original(*args, **kwargs)
        tokens = current.set(record), otel.attach(record.context)
        try:
            result = _send(original, args, kwargs, record)
        except BaseException as error:
            record.failed(error)
            raise
        finally:
            _left(record, *tokens)
        return _followed(site, record, result)

    return measured_sync


async def _call_async(
    original: Callable[..., Any],
    args: Any,
    kwargs: dict[str, Any],
    site: Site,
    parent: otel.Context,
) -> Any:
    record = _begin(site, args, kwargs, parent)
    if record is None:
        return await original(*args, **kwargs)
    tokens = current.set(record), otel.attach(record.context)
    try:
        result = await _send_async(original, args, kwargs, record)
    except BaseException as error:
        record.failed(error)
        raise
    finally:
        _left(record, *tokens)
    return _followed(site, record, result)


def _send(original: Callable[..., Any], args: Any, kwargs: dict[str, Any], record: Record) -> Any:
    """Make the call with what we ask for; where the server refuses that, as the application did."""
    try:
        return original(*args, **record.kwargs)
    except Exception as error:
        if not record.takes_back(error):
            raise
    return original(*args, **kwargs)


async def _send_async(
    original: Callable[..., Any], args: Any, kwargs: dict[str, Any], record: Record
) -> Any:
    try:
        return await original(*args, **record.kwargs)
    except Exception as error:
        if not record.takes_back(error):
            raise
    return await original(*args, **kwargs)


def _begin(site: Site, args: Any, kwargs: Any, parent: otel.Context) -> Record | None:
    """The record of a call, or ``None`` where it is not to be measured or cannot be."""
    try:
        outer = current.get()
        if outer is not None and (outer.is_being_made or outer.is_pulling):
            return None
        request = site.method.request(args, kwargs)
        return None if request is None else Record(site, request, kwargs, parent)
    except Exception as error:  # noqa: BLE001 - counted; the call goes on unmeasured
        health.swallow("begin", error)
        return None


def _left(record: Record, token: Token[Record | None], attached: Token[otel.Context]) -> None:
    """The method has returned or raised: what was current before it is so again."""
    record.kwargs, record.is_being_made, record.exchange.plain = {}, False, None
    release(attached)
    try:
        current.reset(token)
    except ValueError:  # a coroutine closed from another context
        health.count(health.internal_errors, "context left elsewhere")


def _followed(site: Site, record: Record, result: Any) -> Any:
    """The method returned: follow its stream, or end the record with the whole result."""
    if record.is_raw or record.call.end_ns is not None:
        # The body is followed since its headers came, and may have been read.
        return enters(result, record)
    try:
        if record.call.is_streamed:
            chunks = site.method.chunks(result)
            if chunks is not None:
                tap(chunks, record)
                return result
            if is_generator(result):
                return stand_in(result, record)
    except Exception as error:  # noqa: BLE001 - counted; the result is the application's
        health.swallow("tap", error)
    record.returned(result)
    return result
