"""Answers in OpenAI's JSON, whole or as server-sent events."""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from longpole_engine.server.errors import ApiError
from longpole_engine.telemetry.events import RequestRecord
from longpole_engine.types import Chunk, Likely, TokenLogprob

DONE: Final = "data: [DONE]\n\n"


def event(document: dict[str, Any]) -> str:
    """One server-sent event."""
    return f"data: {json.dumps(document, ensure_ascii=False, separators=(',', ':'))}\n\n"


def error_event(error: ApiError) -> str:
    """The event that ends a stream that failed."""
    return event(error.body())


def usage(record: RequestRecord) -> dict[str, Any]:
    """OpenAI's account of tokens; the prompt's include the cached ones."""
    prompt, completion = record.input_tokens or 0, record.output_tokens or 0
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": record.cached_tokens or 0},
    }


@dataclass(frozen=True)
class Writer:
    """Shapes the documents of one answer.

    Args:
        id: the answer's id.
        model: the model's served name.
        is_chat: chat, or plain completion.
        has_usage: the caller wants a last chunk with the account of tokens.
        has_logprobs: the caller wants each token's log-probability.
    """

    id: str
    model: str
    is_chat: bool
    has_usage: bool
    has_logprobs: bool = False
    created_s: int = field(default_factory=lambda: int(time.time()))
    _lengths: dict[int, int] = field(default_factory=dict)
    """Characters of each choice that are out."""

    def whole(self, choices: Sequence[Chunk], record: RequestRecord) -> dict[str, Any]:
        """The answer in one document, each choice as one chunk."""
        documents = []
        for chunk in choices:
            choice: dict[str, Any] = {
                "index": chunk.choice,
                "finish_reason": chunk.finish.value if chunk.finish else None,
                "logprobs": self._logprobs(chunk),
            }
            if self.is_chat:
                choice["message"] = {"role": "assistant", "content": chunk.text, "refusal": None}
            else:
                choice["text"] = chunk.text
            documents.append(choice)
        name = "chat.completion" if self.is_chat else "text_completion"
        return {**self._head(name), "choices": documents, "usage": usage(record)}

    def role(self, choice: int = 0) -> str:
        """The first event of a choice in a chat stream."""
        return self._chunk({"delta": {"role": "assistant", "content": ""}}, Chunk("", None, choice))

    def text(self, chunk: Chunk) -> str:
        """An event that carries text."""
        part = {"delta": {"content": chunk.text}} if self.is_chat else {"text": chunk.text}
        return self._chunk(part, chunk._replace(finish=None))

    def finish(self, chunk: Chunk) -> str:
        """The event that says why a choice ended."""
        part: dict[str, Any] = {"delta": {}} if self.is_chat else {"text": ""}
        return self._chunk(part, chunk._replace(text="", logprobs=()))

    def usage(self, record: RequestRecord) -> str:
        """The event with the account of tokens, without choices."""
        return event({**self._head(self._chunk_name), "choices": [], "usage": usage(record)})

    @property
    def _chunk_name(self) -> str:
        return "chat.completion.chunk" if self.is_chat else "text_completion"

    def _head(self, name: str) -> dict[str, Any]:
        return {"id": self.id, "object": name, "created": self.created_s, "model": self.model}

    def _chunk(self, part: dict[str, Any], chunk: Chunk) -> str:
        choice = {
            "index": chunk.choice,
            **part,
            "logprobs": self._logprobs(chunk) if chunk.logprobs else None,
            "finish_reason": chunk.finish.value if chunk.finish else None,
        }
        document = {**self._head(self._chunk_name), "choices": [choice]}
        if self.has_usage:
            document["usage"] = None
        return event(document)

    def _logprobs(self, chunk: Chunk) -> dict[str, Any] | None:
        """The two shapes OpenAI has for them."""
        if not self.has_logprobs:
            return None
        if self.is_chat:
            return {"content": [_of_chat(one) for one in chunk.logprobs], "refusal": None}
        offset = self._lengths.get(chunk.choice, 0)
        offsets = []
        for one in chunk.logprobs:
            offsets.append(offset)
            offset += len(_shown(one))
        self._lengths[chunk.choice] = offset
        return {
            "tokens": [_shown(one) for one in chunk.logprobs],
            "token_logprobs": [one.logprob for one in chunk.logprobs],
            "top_logprobs": [
                {_shown(other): other.logprob for other in one.top} for one in chunk.logprobs
            ],
            "text_offset": offsets,
        }


def _of_chat(one: TokenLogprob) -> dict[str, Any]:
    return {**_entry(one), "top_logprobs": [_entry(other) for other in one.top]}


def _entry(one: TokenLogprob | Likely) -> dict[str, Any]:
    return {"token": _shown(one), "logprob": one.logprob, "bytes": list(one.data)}


def _shown(one: TokenLogprob | Likely) -> str:
    """A token as text; U+FFFD stands for what is no character by itself."""
    return one.data.decode("utf-8", "replace")
