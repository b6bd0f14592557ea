"""What people wrote and what models answered does not belong in a latency store.

Attributes known to hold prompts, answers, tool arguments or documents are dropped unless the
owner keeps them; their length stays. Credentials and URL queries are dropped always; long
values are cut. This is the one list of such keys, for every dialect.
"""

import re
from collections.abc import Sequence
from enum import Enum
from functools import lru_cache
from typing import Any, Final, NamedTuple

from longpole_collector.decode.raw import RawEvent, text

MAX_VALUE_CHARS: Final = 16 * 1024
MAX_ATTRIBUTES: Final = 256
CUT_FLAG: Final = "attributes_cut"

_CONTENT_PREFIXES: Final = (
    "gen_ai.input.messages",
    "gen_ai.output.messages",
    "gen_ai.system_instructions",
    "gen_ai.tool.call.arguments",
    "gen_ai.tool.call.result",
    "gen_ai.tool.definitions",
    "gen_ai.tool.args",
    "gen_ai.completion",
    "gen_ai.content.",
    "gen_ai.event.content",
    "gen_ai.retrieval.documents",
    "gen_ai.retrieval.query",
    "gen_ai.evaluation.explanation",
    "gen_ai.headers",
    "llm.input_messages",
    "llm.output_messages",
    "llm.prompts",
    "llm.completions",
    "llm.choices",
    "llm.tools",
    "llm.function_call",
    "llm.prompt_template.template",
    "llm.prompt_template.variables",
    "llm.openai.messages",
    "llm.openai.choices",
    "llm.anthropic.messages",
    "llm.anthropic.content",
    "input.value",
    "output.value",
    "retrieval.documents",
    "reranker.query",
    "reranker.input_documents",
    "reranker.output_documents",
    "embedding.embeddings",
    "embedding.text",
    "tool.parameters",
    "tool_call.function.arguments",
    "message.content",
    "document.content",
    "traceloop.entity.input",
    "traceloop.entity.output",
    "langfuse.observation.input",
    "langfuse.observation.output",
    "langfuse.observation.metadata.response_format",
    "langfuse.trace.input",
    "langfuse.trace.output",
    "ai.prompt",
    "ai.documents",
    "ai.schema",
    "ai.response.text",
    "ai.response.object",
    "ai.response.reasoning",
    "ai.response.toolCalls",
    "ai.response.files",
    "ai.response.providerMetadata",
    "ai.result.",
    "ai.toolCall.args",
    "ai.toolCall.result",
    "ai.value",
    "ai.embedding",
    "logfire.json_schema",
    "logfire.metrics",
    "mlflow.spanInputs",
    "mlflow.spanOutputs",
    "mlflow.traceInputs",
    "mlflow.traceOutputs",
    "mlflow.chunk.value",
    "mlflow.chat.tools",
    "langsmith.inputs",
    "langsmith.outputs",
    "pydantic_ai.all_messages",
    "all_messages",
    "final_result",
    "tool_arguments",
    "tool_response",
    "model_request_parameters",
    "request_data",
    "response_data",
    "hidden_params",
    "extra_headers",
)
_PROMPT: Final = re.compile(r"gen_ai\.prompt($|\.\d+($|\.))")
"""``gen_ai.prompt`` and ``gen_ai.prompt.0.content``, but not ``gen_ai.prompt.version``."""
_SECRET: Final = re.compile(
    r"(^|[._-])(authorization|cookie|set[_-]cookie|api[_-]?key|password|secret)$", re.IGNORECASE
)
_URLS: Final = frozenset(("url.full", "http.url", "http.target"))
_MESSAGE_EVENTS: Final = ("gen_ai.",)
_MESSAGE_KEYS: Final = frozenset(
    ("content", "message", "messages", "tool_calls", "arguments", "body")
)


class _Action(Enum):
    KEEP = 0
    CONTENT = 1
    SECRET = 2
    URL = 3


class Scrubbed(NamedTuple):
    """How many values were dropped as content, dropped as credentials, and cut."""

    num_content: int = 0
    num_secret: int = 0
    num_cut: int = 0


def scrub(attributes: dict[str, Any], *, keep_content: bool = False) -> Scrubbed:
    """Clean attributes in place.

    A dropped content value leaves ``<key>.length``, its characters as text.

    Args:
        attributes: text values, or raw ones of an event.
        keep_content: leave prompts and answers in; credentials still go.
    """
    num_content = num_secret = num_cut = 0
    for key in tuple(attributes):
        action = _action(key)
        value = attributes[key]
        if action is _Action.CONTENT and not keep_content:
            attributes[f"{key}.length"] = str(len(text(value)))
            del attributes[key]
            num_content += 1
        elif action is _Action.SECRET:
            del attributes[key]
            num_secret += 1
        elif isinstance(value, str):
            if action is _Action.URL and "?" in value:
                value = attributes[key] = value.partition("?")[0]
            if len(value) > MAX_VALUE_CHARS:
                attributes[key] = value[:MAX_VALUE_CHARS]
                num_cut += 1
    for key in tuple(attributes)[MAX_ATTRIBUTES:]:
        del attributes[key]
        num_cut += 1
    return Scrubbed(num_content, num_secret, num_cut)


def scrub_events(events: Sequence[RawEvent], *, keep_content: bool = False) -> Scrubbed:
    """Clean the events' attributes in place; message events lose their bodies too."""
    totals = [0, 0, 0]
    for event in events:
        if event.name.startswith(_MESSAGE_EVENTS) and not keep_content:
            for key in _MESSAGE_KEYS & event.attributes.keys():
                event.attributes[f"{key}.length"] = len(text(event.attributes.pop(key)))
                totals[0] += 1
        for i, num in enumerate(scrub(event.attributes, keep_content=keep_content)):
            totals[i] += num
    return Scrubbed(*totals)


@lru_cache(maxsize=4096)
def _action(key: str) -> _Action:
    if _SECRET.search(key) or key == "url.query":
        return _Action.SECRET
    if key.endswith(".length"):
        return _Action.KEEP
    if key.startswith(_CONTENT_PREFIXES) or _PROMPT.match(key):
        return _Action.CONTENT
    return _Action.URL if key in _URLS else _Action.KEEP
