"""Trace requests with text that is not UTF-8: such text is repaired, the spans are kept.

Protobuf's parser refuses the whole request then. The same messages with all text declared as
bytes have equal wire bytes, are parsed without that check, and can be repaired.
"""

from functools import cache
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

INVALID_UTF8: Final = "invalid_utf8"
"""The flag of a span some of whose text was no UTF-8."""
Place = tuple[int, int, int]
"""Where a span stands in its request: resource, scope, span."""

_NOT_STORED: Final = frozenset(("trace_state", "schema_url", "version"))
_REQUEST: Final = ExportTraceServiceRequest.DESCRIPTOR


def mend(body: bytes) -> tuple[ExportTraceServiceRequest, frozenset[Place]] | None:
    """The request with all its text valid, and the places of the spans whose text was repaired.

    ``None`` if the bytes are no protobuf trace request at all.
    """
    try:
        request = _lenient_type().FromString(body)
    except (DecodeError, ValueError):
        return None
    repaired: set[Place] = set()
    for i, resource_spans in enumerate(request.resource_spans):
        is_bad_resource = _repair(resource_spans.resource)
        _repair(resource_spans, is_deep=False)
        for j, scope_spans in enumerate(resource_spans.scope_spans):
            scope_name = scope_spans.scope.name
            _repair(scope_spans.scope)
            _repair(scope_spans, is_deep=False)
            is_bad_scope = scope_spans.scope.name != scope_name
            for k, span in enumerate(scope_spans.spans):
                if _repair(span) or is_bad_resource or is_bad_scope:
                    repaired.add((i, j, k))
    try:
        return ExportTraceServiceRequest.FromString(request.SerializeToString()), frozenset(
            repaired
        )
    except (DecodeError, ValueError):
        return None


def _repair(message: Any, *, is_deep: bool = True) -> bool:
    """Repair text in place; whether some that is stored was repaired."""
    is_repaired = False
    texts = _texts()[message.DESCRIPTOR.full_name]
    for field, value in message.ListFields():
        if field.message_type is not None:
            if is_deep:
                for inner in value if field.is_repeated else (value,):
                    is_repaired |= _repair(inner)
        elif field.name in texts:
            if field.is_repeated:
                for i, item in enumerate(value):
                    value[i] = _valid(item)
            elif (valid := _valid(value)) != value:
                setattr(message, field.name, valid)
                is_repaired |= field.name not in _NOT_STORED
    return is_repaired


def _valid(value: bytes) -> bytes:
    return value.decode(errors="replace").encode()


@cache
def _texts() -> dict[str, frozenset[str]]:
    """Message -> its fields of text."""
    found: dict[str, frozenset[str]] = {}
    waiting = [_REQUEST]
    while waiting:
        message = waiting.pop()
        if message.full_name not in found:
            found[message.full_name] = frozenset(
                field.name for field in message.fields if field.type == FieldDescriptor.TYPE_STRING
            )
            waiting += [field.message_type for field in message.fields if field.message_type]
    return found


@cache
def _lenient_type() -> Any:
    """The request's class with every text field declared as bytes."""
    pool = descriptor_pool.DescriptorPool()

    def add(file: Any) -> None:
        for dependency in file.dependencies:
            add(dependency)
        proto = descriptor_pb2.FileDescriptorProto()
        file.CopyToProto(proto)
        for message in proto.message_type:
            _retype(message)
        pool.Add(proto)

    add(_REQUEST.file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(_REQUEST.full_name))


def _retype(message: Any) -> None:
    for field in message.field:
        if field.type == FieldDescriptor.TYPE_STRING:
            field.type = FieldDescriptor.TYPE_BYTES
    for inner in message.nested_type:
        _retype(inner)
