"""The doors that do not generate: embeddings and tokens."""

import asyncio
import base64
import struct
from typing import Any

from longpole_engine.server.errors import ApiError
from longpole_engine.server.generation import check_model, checked, encoded, rendered
from longpole_engine.server.protocol import EmbeddingRequest, TokenizeRequest, plain
from longpole_engine.server.service import Service, Serving


async def embeddings(service: Service, serving: Serving, call: EmbeddingRequest) -> dict[str, Any]:
    """Mean-pooled last hidden states, of length 1, marked as what they are.

    Raises:
        ApiError: 400 or 404, an input that is empty or too long, or another model.
    """
    check_model(service, call.model)
    prompts = []
    for text in call.texts():
        tokens = await encoded(serving, text) if isinstance(text, str) else text
        if len(tokens) > serving.engine.max_tokens:
            message = f"an input has {len(tokens)} tokens: at most {serving.engine.max_tokens}"
            raise ApiError(400, message, param="input", code="context_length_exceeded")
        prompts.append(checked(serving, tokens, "input"))
    vectors = [asyncio.wrap_future(serving.engine.embed(tokens)) for tokens in prompts]
    num_tokens = sum(map(len, prompts))
    return {
        "object": "list",
        "model": service.name,
        "data": [
            {
                "object": "embedding",
                "index": index,
                "embedding": _written(vector, call.encoding_format),
            }
            for index, vector in enumerate(await asyncio.gather(*vectors))
        ],
        "usage": {"prompt_tokens": num_tokens, "total_tokens": num_tokens},
        "pooling": "mean",
    }


async def tokenize(service: Service, serving: Serving, call: TokenizeRequest) -> dict[str, Any]:
    """A text's tokens, in vLLM's shape.

    Raises:
        ApiError: 400 or 404, neither a prompt nor messages, or another model.
    """
    if call.model is not None:
        check_model(service, call.model)
    if (call.prompt is None) == (call.messages is None):
        raise ApiError(400, "either 'prompt' or 'messages' is needed", param="prompt")
    text = call.prompt
    if text is None:
        text = rendered(serving, plain(call.messages or []))
    tokens = await encoded(serving, text)
    return {
        "count": len(tokens),
        "max_model_len": serving.engine.max_tokens,
        "tokens": tokens,
    }


def _written(vector: list[float], encoding: str) -> list[float] | str:
    """As numbers, or as little-endian fp32 in base64."""
    if encoding == "float":
        return vector
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()
