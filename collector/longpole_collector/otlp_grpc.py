"""OTLP over gRPC: ``TraceService/Export`` on 4317, and the two other signals.

Generic handlers that get the request as bytes, so that no message object is built twice; gRPC
itself undoes gzip and holds the size limit. On the wire an export is one message each way; the
handlers take it as a stream of messages, which lets them look at the key before gRPC reads the
message, and give up on one that never ends. When there is no room the sender gets
``RESOURCE_EXHAUSTED`` with ``RetryInfo``, which the OTLP specification makes retryable.
"""

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from math import ceil
from time import perf_counter
from typing import Any, Final

import grpc
import grpc.aio
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status

from longpole.errors import BadInput, LongpoleError, StoreBusy, Unreachable
from longpole_collector.asgi import TooSlow
from longpole_collector.batch import Full, LogFull
from longpole_collector.decode import Compression, Format, TooLarge
from longpole_collector.doors import Door
from longpole_collector.health import Health
from longpole_collector.keys import NoKey, Scope, TooFast, WrongScope
from longpole_collector.signals import LOGS, METRICS, TRACES, Export, Signal, take

_PACKAGE: Final = "opentelemetry.proto.collector"
_SERVICES: Final = {
    f"{_PACKAGE}.trace.v1.TraceService": TRACES,
    f"{_PACKAGE}.logs.v1.LogsService": LOGS,
    f"{_PACKAGE}.metrics.v1.MetricsService": METRICS,
}
_RETRY_S: Final = 1.0
_MAX_CALLS: Final = 256
_CODE_OF: Final[dict[type[LongpoleError], tuple[Any, str]]] = {
    NoKey: (grpc.StatusCode.UNAUTHENTICATED, "no_key"),
    WrongScope: (grpc.StatusCode.PERMISSION_DENIED, "wrong_scope"),
    TooFast: (grpc.StatusCode.RESOURCE_EXHAUSTED, "too_fast"),
    LogFull: (grpc.StatusCode.RESOURCE_EXHAUSTED, "log_full"),
    Full: (grpc.StatusCode.RESOURCE_EXHAUSTED, "full"),
    Unreachable: (grpc.StatusCode.UNAVAILABLE, "not_ready"),
    TooLarge: (grpc.StatusCode.INVALID_ARGUMENT, "too_large"),
    TooSlow: (grpc.StatusCode.INVALID_ARGUMENT, "too_slow"),
    BadInput: (grpc.StatusCode.INVALID_ARGUMENT, "bad_input"),
}


class OtlpGrpc:
    """The handlers of the three export services."""

    def __init__(
        self, door: Door, *, max_body_bytes: int, max_bodies: int, body_timeout_s: float
    ) -> None:
        """Make the handlers.

        Args:
            door: says who may send.
            max_body_bytes: largest message, after decompression.
            max_bodies: messages that may be read at once: gRPC does not tell their size before.
            body_timeout_s: how long a message may take to arrive.
        """
        self._door = door
        self._reading = asyncio.Semaphore(max_bodies)
        self._max_body_bytes = max_body_bytes
        self._body_timeout_s = body_timeout_s

    def server(self) -> Any:
        """A ``grpc.aio.Server`` with the services; no port yet."""
        server = grpc.aio.server(
            maximum_concurrent_rpcs=_MAX_CALLS,
            options=[
                ("grpc.max_receive_message_length", self._max_body_bytes),
                ("grpc.so_reuseport", 0),
            ],
        )
        server.add_generic_rpc_handlers(
            tuple(
                grpc.method_handlers_generic_handler(
                    name,
                    {"Export": grpc.stream_unary_rpc_method_handler(partial(self._export, signal))},
                )
                for name, signal in _SERVICES.items()
            )
        )
        return server

    async def _export(self, signal: Signal, bodies: AsyncIterator[bytes], context: Any) -> bytes:
        since_s = perf_counter()
        health = self._door.projects.default.ingest.health
        try:
            visit = await self._door.admit(_authorization(context), Scope.INGEST)
            health = visit.health
            body = await self._read(bodies)
            self._door.access.spend(visit.grant, len(body))
            form, how = Format.PROTOBUF, Compression.IDENTITY
            export = Export(signal, body, form, how, "grpc", since_s)
            return await take(export, visit.project.ingest, self._max_body_bytes)
        except LongpoleError as error:
            await _refuse(context, error, health)
            return b""  # never reached: abort raises

    async def _read(self, bodies: AsyncIterator[bytes]) -> bytes:
        """The one message of an export."""
        wait_s = self._body_timeout_s
        try:
            await asyncio.wait_for(self._reading.acquire(), wait_s)
        except TimeoutError as error:
            raise Full("too many requests are on their way: try again") from error
        try:
            async with asyncio.timeout(wait_s):
                async for body in bodies:
                    return body
        except TimeoutError as error:
            raise TooSlow(f"the request did not arrive within {wait_s:g} s") from error
        finally:
            self._reading.release()
        raise BadInput("the call ended without a request")


def _authorization(context: Any) -> str:
    metadata = dict(context.invocation_metadata() or ())
    return str(metadata.get("authorization", ""))


async def _refuse(context: Any, error: LongpoleError, health: Health) -> None:
    code, cause = next(_CODE_OF[kind] for kind in _CODE_OF if isinstance(error, kind))
    metadata: tuple[tuple[str, bytes], ...] = ()
    if isinstance(error, StoreBusy):
        wait_s = error.wait_s if isinstance(error, TooFast) else _RETRY_S
        detail = AnyMessage()
        detail.Pack(RetryInfo(retry_delay=Duration(seconds=ceil(wait_s))))
        status = Status(code=code.value[0], message=str(error), details=[detail])
        metadata = (("grpc-status-details-bin", status.SerializeToString()),)
    health.add("requests_refused", cause)
    await context.abort(code, str(error), metadata)
