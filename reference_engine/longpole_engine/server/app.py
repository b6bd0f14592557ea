"""The HTTP doors: OpenAI's chat and completion calls, models, health."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from longpole.errors import BadInput
from longpole.vocab import Stage
from longpole_engine import types
from longpole_engine.server import sse
from longpole_engine.server.errors import ApiError
from longpole_engine.server.protocol import ChatRequest, CompletionRequest, parse
from longpole_engine.server.service import Service, Serving
from longpole_engine.telemetry.events import RequestRecord, Timeline, now_ns
from longpole_engine.types import Chunk, FinishReason, QueueFull

_RECORD = "longpole.record"
_CHAT, _COMPLETION = "/v1/chat/completions", "/v1/completions"
_BODY_WAIT_S = 30.0
_FAILURES = (FinishReason.ERROR, FinishReason.EXPIRED)
_INLINE_CHARS = 16_384
"""Longer texts are tokenised off the event loop."""


def create_app(service: Service, max_body_bytes: int) -> FastAPI:
    """The application; the model starts loading with it and stops with it.

    Args:
        service: the model being served.
        max_body_bytes: larger request bodies are refused.
    """

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        service.start()
        yield
        await service.stop()

    app = FastAPI(lifespan=life, docs_url=None, redoc_url=None, openapi_url=None)
    app.add_middleware(Door, service=service)
    app.add_exception_handler(ApiError, _refused)
    app.add_exception_handler(HTTPException, _http_error)

    async def chat(request: Request) -> Response:
        serving = service.serving()
        call = parse(ChatRequest, await _body(request, max_body_bytes))
        return await _answer(request, service, serving, call)

    async def completion(request: Request) -> Response:
        serving = service.serving()
        call = parse(CompletionRequest, await _body(request, max_body_bytes))
        return await _answer(request, service, serving, call)

    async def models() -> dict[str, Any]:
        card = {
            "id": service.name,
            "object": "model",
            "created": service.started_s,
            "owned_by": "longpole",
        }
        return {"object": "list", "data": [card]}

    async def health() -> JSONResponse:
        status = "ok" if service.is_ready else "loading"
        content = {"status": status, "model": service.name}
        return JSONResponse(content, 200 if service.is_ready else 503)

    app.post(_CHAT, response_model=None)(chat)
    app.post(_COMPLETION, response_model=None)(completion)
    app.get("/v1/models")(models)
    app.get("/health", response_model=None)(health)
    return app


class Door:
    """Stamps a generating request on arrival and closes its record when its response ends.

    However it ends: sent, refused, failed or left by its caller.
    """

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app = app
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        if scope["type"] != "http" or scope["path"] not in (_CHAT, _COMPLETION):
            await self._app(scope, receive, send)
            return
        headers = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]
        }
        record = RequestRecord(Timeline(now_ns()), headers)
        record.operation = "chat" if scope["path"] == _CHAT else "text_completion"
        scope[_RECORD] = record
        is_sent = False

        async def watched(message: Message) -> None:
            nonlocal is_sent
            await send(message)
            if message["type"] == "http.response.start":
                record.http_status = message["status"]
            elif not message.get("more_body"):
                is_sent = True

        try:
            await self._app(scope, receive, watched)
        except Exception:
            record.error_type = record.error_type or "internal_error"
            raise
        finally:
            self._service.finish(record, is_sent=is_sent)


async def _answer(
    request: Request, service: Service, serving: Serving, call: ChatRequest | CompletionRequest
) -> Response:
    """From a checked request to its response, or its stream."""
    record: RequestRecord = request.scope[_RECORD]
    record.request_model, record.is_streamed = call.model, bool(call.stream)
    record.temperature = call.temperature
    if call.model != service.name:
        message = f"no model '{call.model}': this server has '{service.name}'"
        raise ApiError(404, message, param="model", code="model_not_found")
    record.timeline.begin(Stage.TOKENIZE, now_ns())
    prompt = await _prompt(serving, call)
    record.input_tokens = len(prompt)
    params = call.sampling(call.limit(len(prompt), serving.engine.max_tokens))
    is_chat = isinstance(call, ChatRequest)
    answer_id = f"{'chatcmpl' if is_chat else 'cmpl'}-{uuid.uuid4().hex}"
    chunks: asyncio.Queue[Chunk] = asyncio.Queue()
    try:
        serving.engine.submit(
            types.Request(
                answer_id,
                tuple(prompt),
                params,
                chunks.put_nowait,
                record,
                call.priority or 0,
                deadline_s=serving.engine.config.deadline_s or None,
                salt=call.cache_salt or "",
                session=call.prompt_cache_key,
            )
        )
    except QueueFull as error:
        wait_s = error.retry_after_s
        raise ApiError(429, str(error), code="queue_full", retry_after_s=wait_s) from error
    record.response_id, record.response_model = answer_id, service.name
    record.max_tokens = params.max_tokens
    service.started(record)
    has_usage = bool(call.stream_options and call.stream_options.include_usage)
    writer = sse.Writer(answer_id, service.name, is_chat, has_usage)
    if call.stream:
        events = _events(chunks, writer, record)
        return StreamingResponse(
            events, media_type="text/event-stream", headers={"cache-control": "no-cache"}
        )
    return await _whole(request, chunks, writer, record)


async def _prompt(serving: Serving, call: ChatRequest | CompletionRequest) -> list[int]:
    """The prompt's tokens.

    Raises:
        ApiError: 400, no template, an empty prompt or a token that does not exist.
    """
    tokenizer = serving.engine.tokenizer
    if isinstance(call, ChatRequest):
        if serving.template is None:
            raise ApiError(400, "this model has no chat template: use /v1/completions")
        try:
            text = serving.template.render(call.plain_messages())
        except BadInput as error:
            raise ApiError(400, str(error), param="messages") from error
    elif isinstance(call.prompt, str):
        text = call.prompt
    elif isinstance(call.prompt[0] if call.prompt else None, str):
        text = str(call.prompt[0])
    else:
        prompt = [token for token in call.prompt if isinstance(token, int)]
        if not prompt or not all(0 <= token < tokenizer.vocab_size for token in prompt):
            raise ApiError(
                400, f"prompt: token ids from 0 to {tokenizer.vocab_size - 1}", param="prompt"
            )
        return prompt
    encode: Callable[[str], list[int]] = tokenizer.encode
    is_long = len(text) > _INLINE_CHARS
    tokens = await asyncio.to_thread(encode, text) if is_long else encode(text)
    if not tokens:
        raise ApiError(400, "the prompt is empty", param="prompt")
    return tokens


async def _events(
    chunks: asyncio.Queue[Chunk], writer: sse.Writer, record: RequestRecord
) -> AsyncIterator[str]:
    """The stream's events; what one step produced goes out in one write."""
    is_first = True
    while True:
        chunk = await chunks.get()
        if chunk.finish in _FAILURES:
            yield sse.error_event(_failure(chunk.finish))
            return
        pieces = [writer.role()] if is_first and writer.is_chat else []
        is_first = False
        if chunk.text:
            pieces.append(writer.text(chunk.text))
        if chunk.finish:
            pieces.append(writer.finish(chunk.finish.value))
            if writer.has_usage:
                pieces.append(writer.usage(record))
            pieces.append(sse.DONE)
        if pieces:
            yield "".join(pieces)
        if chunk.finish:
            return


async def _whole(
    request: Request, chunks: asyncio.Queue[Chunk], writer: sse.Writer, record: RequestRecord
) -> Response:
    """The answer in one piece, unless the caller leaves first."""
    collected = asyncio.create_task(_collect(chunks))
    gone = asyncio.create_task(_gone(request.receive))
    try:
        await asyncio.wait({collected, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not collected.done():
            return Response(status_code=499)  # nobody reads it
        text, finish = collected.result()
    finally:
        collected.cancel()
        gone.cancel()
    if finish in _FAILURES:
        raise _failure(finish)
    return JSONResponse(writer.whole(text, finish.value, record))


async def _collect(chunks: asyncio.Queue[Chunk]) -> tuple[str, FinishReason]:
    pieces: list[str] = []
    while True:
        chunk = await chunks.get()
        pieces.append(chunk.text)
        if chunk.finish:
            return "".join(pieces), chunk.finish


def _failure(reason: FinishReason) -> ApiError:
    """A request the engine did not answer."""
    if reason is FinishReason.EXPIRED:
        return ApiError(504, "the deadline passed in the queue", code="deadline_exceeded")
    return ApiError(500, "the engine failed on this request", code="engine_error")


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _body(request: Request, max_bytes: int) -> bytes:
    """The body, bounded in size and time.

    Raises:
        ApiError: 413 or 408.
    """
    body = bytearray()
    try:
        async with asyncio.timeout(_BODY_WAIT_S):
            async for piece in request.stream():
                body += piece
                if len(body) > max_bytes:
                    raise ApiError(413, f"the body is larger than {max_bytes} bytes")
    except TimeoutError as error:
        raise ApiError(408, f"the body did not come within {_BODY_WAIT_S:.0f} s") from error
    return bytes(body)


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)  # noqa: S101 - registered for this type only
    record: RequestRecord | None = request.scope.get(_RECORD)
    if record is not None:
        record.error_type = record.error_type or error.code or error.type
    return JSONResponse(error.body(), error.status, headers=error.headers())


async def _http_error(request: Request, error: Exception) -> Response:
    """Unknown path or method, in the same shape."""
    assert isinstance(error, HTTPException)  # noqa: S101 - registered for this type only
    return await _refused(request, ApiError(error.status_code, str(error.detail)))
