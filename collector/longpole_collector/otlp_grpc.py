"""OTLP over gRPC: ``TraceService/Export`` on 4317, and the two other signals.

A generic handler that gets the request as bytes, so that no message object is built twice; gRPC
itself undoes gzip and holds the size limit. When there is no room the sender gets
``RESOURCE_EXHAUSTED`` with ``RetryInfo``, which the OTLP specification makes retryable.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Final

import grpc
import grpc.aio
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status

from longpole.errors import BadInput, LongpoleError, StoreBusy
from longpole_collector.batch import Full
from longpole_collector.decode import Compression, Format, TooLarge
from longpole_collector.ingest import Ingest
from longpole_collector.signals import LOGS, METRICS, TRACES, Signal, count_records

_PACKAGE: Final = "opentelemetry.proto.collector"
_RETRY_S: Final = 1
_MAX_CALLS: Final = 256
_Handler = Callable[[bytes, Any], Awaitable[bytes]]


class OtlpGrpc:
    """The handlers of the three export services."""

    def __init__(self, ingest: Ingest) -> None:
        self._ingest = ingest

    def server(self, max_body_bytes: int) -> Any:
        """A ``grpc.aio.Server`` with the services; no port yet."""
        server = grpc.aio.server(
            maximum_concurrent_rpcs=_MAX_CALLS,
            options=[
                ("grpc.max_receive_message_length", max_body_bytes),
                ("grpc.so_reuseport", 0),
            ],
        )
        services: dict[str, _Handler] = {
            f"{_PACKAGE}.trace.v1.TraceService": self._traces,
            f"{_PACKAGE}.logs.v1.LogsService": self._logs,
            f"{_PACKAGE}.metrics.v1.MetricsService": self._metrics,
        }
        server.add_generic_rpc_handlers(
            tuple(
                grpc.method_handlers_generic_handler(
                    name, {"Export": grpc.unary_unary_rpc_method_handler(handler)}
                )
                for name, handler in services.items()
            )
        )
        return server

    async def _traces(self, body: bytes, context: Any) -> bytes:
        try:
            receipt = await self._ingest.accept(body, Format.PROTOBUF, Compression.IDENTITY)
        except LongpoleError as error:
            return await self._refuse(context, error)
        return TRACES.answer(Format.PROTOBUF, receipt.num_rejected, receipt.reason)

    async def _logs(self, body: bytes, context: Any) -> bytes:
        return await self._drop(body, context, LOGS)

    async def _metrics(self, body: bytes, context: Any) -> bytes:
        return await self._drop(body, context, METRICS)

    async def _drop(self, body: bytes, context: Any, signal: Signal) -> bytes:
        try:
            num = count_records(body, Format.PROTOBUF, signal)
        except BadInput as error:
            return await self._refuse(context, error)
        self._ingest.health.add("signals_dropped", signal.name, num)
        return signal.refusal(Format.PROTOBUF, num)

    async def _refuse(self, context: Any, error: LongpoleError) -> bytes:
        code, cause = grpc.StatusCode.INVALID_ARGUMENT, "bad_input"
        metadata: tuple[tuple[str, bytes], ...] = ()
        if isinstance(error, TooLarge):
            cause = "too_large"
        elif isinstance(error, StoreBusy):
            code, cause = grpc.StatusCode.UNAVAILABLE, "not_ready"
            if isinstance(error, Full):
                code, cause = grpc.StatusCode.RESOURCE_EXHAUSTED, "full"
            detail = AnyMessage()
            detail.Pack(RetryInfo(retry_delay=Duration(seconds=_RETRY_S)))
            status = Status(code=code.value[0], message=str(error), details=[detail])
            metadata = (("grpc-status-details-bin", status.SerializeToString()),)
        self._ingest.health.add("requests_refused", cause)
        await context.abort(code, str(error), metadata)
        return b""  # never reached: abort raises
