"""From a checked request to its answer, whole or as a stream."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable
from typing import Final

from fastapi import Request
from fastapi.responses import JSONResponse, Response, StreamingResponse
from starlette.types import Receive

from longpole.errors import BadInput, UsageError
from longpole.vocab import Stage
from longpole_engine import types
from longpole_engine.sampling.structured import Matcher
from longpole_engine.server import sse
from longpole_engine.server.errors import ApiError
from longpole_engine.server.protocol import ChatRequest, CompletionRequest
from longpole_engine.server.service import Service, Serving
from longpole_engine.telemetry.events import RequestRecord, now_ns
from longpole_engine.types import Chunk, FinishReason, QueueFull

ROUTE_HEADER: Final = "x-longpole-route"
"""Names the kind of work, for the list of routes that may be answered approximately."""

_FAILURES = (FinishReason.ERROR, FinishReason.EXPIRED)
_INLINE_CHARS = 16_384
"""Longer texts are tokenised off the event loop."""


async def answer(
    request: Request,
    record: RequestRecord,
    service: Service,
    serving: Serving,
    call: ChatRequest | CompletionRequest,
) -> Response:
    """The response, or its stream.

    Raises:
        ApiError: the request is refused.
    """
    record.request_model, record.is_streamed = call.model, bool(call.stream)
    record.temperature = call.temperature
    check_model(service, call.model)
    record.timeline.begin(Stage.TOKENIZE, now_ns())
    prompt = await _prompt(serving, call)
    record.input_tokens = len(prompt)
    engine = serving.engine
    limit = call.limit(len(prompt), engine.max_tokens)
    params = call.sampling(limit, engine.vocab_size, await _grammar(serving, call))
    is_chat = isinstance(call, ChatRequest)
    answer_id = f"{'chatcmpl' if is_chat else 'cmpl'}-{uuid.uuid4().hex}"
    chunks: asyncio.Queue[Chunk] = asyncio.Queue()
    try:
        engine.submit(
            types.Request(
                answer_id,
                tuple(prompt),
                params,
                chunks.put_nowait,
                record,
                call.priority or 0,
                deadline_s=engine.config.deadline_s or None,
                salt=call.cache_salt or "",
                session=call.prompt_cache_key,
                route=record.headers.get(ROUTE_HEADER),
            )
        )
    except QueueFull as error:
        wait_s = error.retry_after_s
        raise ApiError(429, str(error), code="queue_full", retry_after_s=wait_s) from error
    except BadInput as error:
        raise ApiError(400, str(error), param="n", code="invalid_value") from error
    record.response_id, record.response_model = answer_id, service.name
    record.max_tokens = params.max_tokens
    service.started(record)
    has_usage = bool(call.stream_options and call.stream_options.include_usage)
    writer = sse.Writer(
        answer_id, service.name, is_chat, has_usage, has_logprobs=params.num_top is not None
    )
    if call.stream:
        events = _events(chunks, writer, record, params.num_choices)
        return StreamingResponse(
            events, media_type="text/event-stream", headers={"cache-control": "no-cache"}
        )
    return await _whole(request, chunks, writer, record, params.num_choices)


def check_model(service: Service, name: str) -> None:
    """Refuse any other model than the one served.

    Raises:
        ApiError: 404.
    """
    if name != service.name:
        message = f"no model '{name}': this server has '{service.name}'"
        raise ApiError(404, message, param="model", code="model_not_found")


async def encoded(serving: Serving, text: str) -> list[int]:
    """A text's tokens."""
    encode: Callable[[str], list[int]] = serving.engine.tokenizer.encode
    is_long = len(text) > _INLINE_CHARS
    return await asyncio.to_thread(encode, text) if is_long else encode(text)


def rendered(serving: Serving, messages: list[dict[str, str]]) -> str:
    """Messages as the model's template writes them.

    Raises:
        ApiError: 400, no template, or it refuses them.
    """
    if serving.template is None:
        raise ApiError(400, "this model has no chat template: use /v1/completions")
    try:
        return serving.template.render(messages)
    except BadInput as error:
        raise ApiError(400, str(error), param="messages") from error


def checked(serving: Serving, tokens: list[int], param: str) -> list[int]:
    """Tokens that exist, at least one.

    Raises:
        ApiError: 400.
    """
    size = serving.engine.tokenizer.vocab_size
    if not tokens or not all(0 <= token < size for token in tokens):
        raise ApiError(400, f"{param}: token ids from 0 to {size - 1}", param=param)
    return tokens


async def _prompt(serving: Serving, call: ChatRequest | CompletionRequest) -> list[int]:
    """The prompt's tokens.

    Raises:
        ApiError: 400, no template, an empty prompt or a token that does not exist.
    """
    if isinstance(call, ChatRequest):
        text = rendered(serving, call.plain_messages())
    elif isinstance(call.prompt, str):
        text = call.prompt
    elif isinstance(call.prompt[0] if call.prompt else None, str):
        text = str(call.prompt[0])
    else:
        whole = [token for token in call.prompt if isinstance(token, int)]
        return checked(serving, whole, "prompt")
    tokens = await encoded(serving, text)
    if not tokens:
        raise ApiError(400, "the prompt is empty", param="prompt")
    return tokens


async def _grammar(serving: Serving, call: ChatRequest | CompletionRequest) -> Matcher | None:
    """The form asked for, compiled.

    Raises:
        ApiError: 400, it cannot be promised here.
    """
    if not call.is_structured:
        return None
    try:
        return await asyncio.to_thread(serving.engine.grammar, call.form)
    except (BadInput, UsageError) as error:
        raise ApiError(400, str(error), param="response_format", code="invalid_value") from error


async def _events(
    chunks: asyncio.Queue[Chunk], writer: sse.Writer, record: RequestRecord, num_choices: int
) -> AsyncIterator[str]:
    """The stream's events; what one step produced goes out in one write."""
    begun: set[int] = set()
    num_open = num_choices
    while num_open:
        chunk = await chunks.get()
        if chunk.finish in _FAILURES:
            yield sse.error_event(_failure(chunk.finish))
            return
        pieces = []
        if chunk.choice not in begun and writer.is_chat:
            pieces.append(writer.role(chunk.choice))
        begun.add(chunk.choice)
        if chunk.text or chunk.logprobs:
            pieces.append(writer.text(chunk))
        if chunk.finish:
            pieces.append(writer.finish(chunk))
            num_open -= 1
        if num_open == 0:
            if writer.has_usage:
                pieces.append(writer.usage(record))
            pieces.append(sse.DONE)
        if pieces:
            begun_ns = now_ns()
            yield "".join(pieces)
            record.stall_ns += now_ns() - begun_ns


async def _whole(
    request: Request,
    chunks: asyncio.Queue[Chunk],
    writer: sse.Writer,
    record: RequestRecord,
    num_choices: int,
) -> Response:
    """The answer in one piece, unless the caller leaves first."""
    collected = asyncio.create_task(_collect(chunks, num_choices))
    gone = asyncio.create_task(_gone(request.receive))
    try:
        await asyncio.wait({collected, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not collected.done():
            return Response(status_code=499)  # nobody reads it
        choices = collected.result()
    finally:
        collected.cancel()
        gone.cancel()
    return JSONResponse(writer.whole(choices, record))


async def _collect(chunks: asyncio.Queue[Chunk], num_choices: int) -> list[Chunk]:
    """Each choice as one chunk, in order.

    Raises:
        ApiError: the engine did not answer.
    """
    parts: list[list[Chunk]] = [[] for _ in range(num_choices)]
    num_open = num_choices
    while num_open:
        chunk = await chunks.get()
        if chunk.finish in _FAILURES:
            raise _failure(chunk.finish)
        parts[chunk.choice].append(chunk)
        num_open -= chunk.finish is not None
    return [
        Chunk(
            "".join(chunk.text for chunk in part),
            part[-1].finish,
            choice,
            tuple(one for chunk in part for one in chunk.logprobs),
        )
        for choice, part in enumerate(parts)
    ]


def _failure(reason: FinishReason) -> ApiError:
    """A request the engine did not answer."""
    if reason is FinishReason.EXPIRED:
        return ApiError(504, "the deadline passed in the queue", code="deadline_exceeded")
    return ApiError(500, "the engine failed on this request", code="engine_error")


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
