"""Hooks on an aiohttp session, by its public trace configuration.

aiohttp itself is never imported: whoever has a session has it loaded.
"""

import sys
from functools import cache
from typing import Any

from longpole.record import Record, current
from longpole.transport import answered, sending


@cache
def trace_config() -> Any:
    """An entry for ``ClientSession.trace_configs`` that tells the current call its attempts."""
    config = sys.modules["aiohttp"].TraceConfig()
    config.on_request_start.append(_start)
    config.on_request_chunk_sent.append(_sent)
    config.on_request_end.append(_end)
    config.on_connection_create_start.append(_connecting)
    config.on_connection_create_end.append(_connected)
    config.on_connection_reuseconn.append(_reused)
    config.freeze()
    return config


async def _start(session: Any, context: Any, request: Any) -> None:
    sending(request.headers, request.url.host or "", 0)


async def _sent(session: Any, context: Any, chunk: Any) -> None:
    record = _sender()
    if record is not None and record.exchange.request_bytes is not None:
        record.exchange.request_bytes += len(chunk.chunk)


async def _end(session: Any, context: Any, answer: Any) -> None:
    answered(answer.response.status, answer.response.raw_headers)


async def _connecting(session: Any, context: Any, nothing: Any) -> None:
    _trace("connection.connect_tcp.started")


async def _connected(session: Any, context: Any, nothing: Any) -> None:
    _trace("connection.connect_tcp.complete")


async def _reused(session: Any, context: Any, nothing: Any) -> None:
    _trace("connection.send_request_headers.started")


def _trace(event: str) -> None:
    record = _sender()
    if record is not None:
        record.exchange.trace(event, {})


def _sender() -> Record | None:
    record = current.get()
    return record if record is not None and record.is_being_made else None
