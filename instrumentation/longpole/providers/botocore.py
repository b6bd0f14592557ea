"""The AWS client of Bedrock's models (``boto3.client("bedrock-runtime")``); other AWS clients pass.

Attempts are told by botocore's own events. The body of a whole answer is read before they tell of
it, so the time of its headers is known for streams and InvokeModel only.
"""

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from longpole import body, health, transport
from longpole.call import Kind
from longpole.loose import Loose
from longpole.providers import _bedrock, _messages
from longpole.providers.base import (
    Answer,
    Arguments,
    Chunks,
    Method,
    Prompt,
    Provider,
    Request,
    Server,
    asked,
    class_name,
)

_SERVICE = "bedrock-runtime"
_STREAMS = ("ConverseStream", "InvokeModelWithResponseStream")
_CONVERSES = ("Converse", "ConverseStream")
_INVOKES = ("InvokeModel", "InvokeModelWithResponseStream")
MAX_PARSED_BYTES = 1 << 18
"""A longer body of InvokeModel is not parsed: that would take long."""


def _is_client(client: Any) -> bool:
    """A Bedrock client, and not of the async library that builds on botocore."""
    model = getattr(getattr(client, "meta", None), "service_model", None)
    if getattr(model, "service_name", None) != _SERVICE:
        return False
    return all(cls.__module__.partition(".")[0] != "aiobotocore" for cls in type(client).__mro__)


def _server(client: Any) -> Server:
    url = urlsplit(client.meta.endpoint_url)
    return Server(url.hostname or "", url.port)


# --- requests -----------------------------------------------------------------------------------


def _chat(args: Sequence[Any], kwargs: Arguments) -> Request | None:
    operation, params = _called(args, kwargs)
    if operation in _CONVERSES:
        found = _request(operation, params, params.get("inferenceConfig") or {})
    elif operation in _INVOKES and not _is_embedding(params):
        found = _request(operation, params, _settings(_document(params)))
    else:
        return None
    return found._replace(prompt=partial(_prompt, params))


def _embeddings(args: Sequence[Any], kwargs: Arguments) -> Request | None:
    operation, params = _called(args, kwargs)
    if operation == "InvokeModel" and _is_embedding(params):
        return _request(operation, params, {})
    return None


def _called(args: Sequence[Any], kwargs: Arguments) -> tuple[str, Mapping[str, Any]]:
    operation, params = (*args, kwargs.get("operation_name"), kwargs.get("api_params"))[:2]
    return str(operation), params if isinstance(params, Mapping) else {}


def _is_embedding(params: Mapping[str, Any]) -> bool:
    return "embed" in str(params.get("modelId"))


def _request(operation: str, params: Mapping[str, Any], settings: Mapping[str, Any]) -> Request:
    tier = params.get("serviceTier")
    most = next((settings[name] for name in _MAX_TOKENS if name in settings), None)
    tier = tier.get("type") if isinstance(tier, Mapping) else tier
    return Request(
        facts=asked(params.get("modelId"), most, settings.get("temperature"), tier),
        is_streamed=operation in _STREAMS,
        is_raw=operation == "InvokeModel",
    )


_MAX_TOKENS = ("maxTokens", "max_tokens", "max_new_tokens", "max_gen_len", "maxTokenCount")


def _document(params: Mapping[str, Any]) -> Mapping[str, Any]:
    """The body of InvokeModel, where it is JSON and not too long."""
    sent = params.get("body")
    if not isinstance(sent, str | bytes | bytearray) or len(sent) > MAX_PARSED_BYTES:
        return {}
    try:
        doc = json.loads(sent)
    except ValueError:
        return {}
    return doc if isinstance(doc, Mapping) else {}


def _prompt(params: Mapping[str, Any]) -> Prompt:
    doc = _document(params) if "body" in params else params
    return _messages.chat(
        _messages.first(doc, "messages", "prompt", "inputText", "message"),
        tools=doc.get("tools") or _bedrock.at(doc, "toolConfig", "tools"),
        system=_messages.first(doc, "system", "preamble"),
    )


def _settings(doc: Mapping[str, Any]) -> Mapping[str, Any]:
    """The settings in a body of InvokeModel, by the names its model family has for them."""
    return {
        **doc,
        **(doc.get("inferenceConfig") or {}),
        **(doc.get("textGenerationConfig") or {}),
    }


# --- answers ------------------------------------------------------------------------------------


def _chunks(result: Any) -> Chunks | None:
    stream = result.get("stream") or result.get("body")
    if hasattr(stream, "_event_generator"):
        return Chunks(stream, "_event_generator", stream._raw_stream)
    return None


def _chunk(message: Any, answer: Answer) -> Kind:
    """Read one message of the AWS event stream."""
    headers = message.headers
    if headers.get(":message-type") != "event":
        code = headers.get(":exception-type") or headers.get(":error-code")
        answer.error_type = str(code or "error")
        return Kind.EMPTY
    doc = json.loads(message.payload)
    name = headers.get(":event-type")
    if name != "chunk":
        return _bedrock.event(name, doc, answer)
    return _bedrock.part(json.loads(base64.b64decode(doc["bytes"])), answer)


def _response(result: Any, answer: Answer) -> None:
    if isinstance(result, Loose):  # a body that the application has read
        _bedrock.whole(result._members, answer)
    else:
        _bedrock.converse(result, answer)


def _error_type(error: BaseException) -> str:
    """AWS's own code, where there is one."""
    code = _bedrock.at(getattr(error, "response", None) or {}, "Error", "Code")
    return code if isinstance(code, str) and code else class_name(error)


# --- the HTTP layer -----------------------------------------------------------------------------


def _attach(client: Any) -> Sequence[Callable[[], None]]:
    events = client.meta.events
    handlers: Sequence[tuple[str, Callable[..., None]]] = (
        (f"before-send.{_SERVICE}", _sending),
        (f"before-parse.{_SERVICE}", _answered),
    )
    for name, handler in handlers:
        events.register(name, handler)
    return [partial(events.unregister, name, handler) for name, handler in handlers]


def _sending(request: Any, **kwargs: Any) -> None:
    """Told before each attempt; what is returned would be taken for the response."""
    sent = request.body
    size = len(sent) if isinstance(sent, bytes | bytearray | str) else None
    transport.sending(request.headers, urlsplit(request.url).hostname or "", size)


def _answered(response_dict: Any, **kwargs: Any) -> None:
    """Told when an attempt's response came, before it is parsed."""
    headers, status = response_dict["headers"], response_dict["status_code"]
    record = transport.answered(
        status, [(name.encode(), value.encode()) for name, value in headers.items()]
    )
    if record is None:
        return
    found = response_dict.get("body")
    if isinstance(found, bytes):
        record.call.headers_ns = None  # the body came since
    if not record.is_raw or status >= 300:
        return
    try:
        _bedrock.head({name.lower(): value for name, value in headers.items()}, record.answer)
        body.follow_reads(found, found._raw_stream, record)
    except Exception as error:  # noqa: BLE001 - counted; the call ends when the method returns
        record.is_raw = False
        health.swallow("body", error)


_METHOD = "_make_api_call"

PROVIDER = Provider(
    package="botocore",
    majors=frozenset({1}),
    classes=(),
    factories=("ClientCreator.create_client",),
    module="botocore.client",
    methods=(
        Method(_METHOD, "chat", _chat, _chunk, _response, _chunks),
        Method(_METHOD, "embeddings", _embeddings, _chunk, _response),
    ),
    name=lambda client: "aws.bedrock",
    server=_server,
    attach=_attach,
    is_client=_is_client,
    error_type=_error_type,
)
