"""Answers in OpenAI's JSON, whole or as server-sent events."""

import json
import time
from dataclasses import dataclass, field
from typing import Any, Final

from longpole_engine.server.errors import ApiError
from longpole_engine.telemetry.events import RequestRecord

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
    """

    id: str
    model: str
    is_chat: bool
    has_usage: bool
    created_s: int = field(default_factory=lambda: int(time.time()))

    def whole(self, text: str, finish: str, record: RequestRecord) -> dict[str, Any]:
        """The answer in one document."""
        choice: dict[str, Any] = {"index": 0, "finish_reason": finish, "logprobs": None}
        if self.is_chat:
            choice["message"] = {"role": "assistant", "content": text, "refusal": None}
        else:
            choice["text"] = text
        name = "chat.completion" if self.is_chat else "text_completion"
        return {**self._head(name), "choices": [choice], "usage": usage(record)}

    def role(self) -> str:
        """The first event of a chat stream."""
        return self._chunk({"delta": {"role": "assistant", "content": ""}}, None)

    def text(self, text: str) -> str:
        """An event that carries text."""
        part = {"delta": {"content": text}} if self.is_chat else {"text": text}
        return self._chunk(part, None)

    def finish(self, reason: str) -> str:
        """The event that says why the answer ended."""
        return self._chunk({"delta": {}} if self.is_chat else {"text": ""}, reason)

    def usage(self, record: RequestRecord) -> str:
        """The event with the account of tokens, without choices."""
        return event({**self._head(self._chunk_name), "choices": [], "usage": usage(record)})

    @property
    def _chunk_name(self) -> str:
        return "chat.completion.chunk" if self.is_chat else "text_completion"

    def _head(self, name: str) -> dict[str, Any]:
        return {"id": self.id, "object": name, "created": self.created_s, "model": self.model}

    def _chunk(self, part: dict[str, Any], finish: str | None) -> str:
        choice = {"index": 0, **part, "logprobs": None, "finish_reason": finish}
        document = {**self._head(self._chunk_name), "choices": [choice]}
        if self.has_usage:
            document["usage"] = None
        return event(document)
