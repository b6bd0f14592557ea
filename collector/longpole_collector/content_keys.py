"""Which attributes hold what people wrote, who they are, or credentials: the one list of keys.

For every dialect, of spans, events, links and resources.
"""

import re
from enum import Enum
from functools import lru_cache
from typing import Final

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
_PERSON: Final = re.compile(
    r"(^|[._-])((end[._]?)?user|session|conversation|customer)[._]?(id|email)$"
    r"|(^|\.)(enduser\.pseudo\.id|user\.(name|full_name))$"
    r"|^(gen_ai\.request|llm|mlflow\.trace)\.user$|^mlflow\.trace\.session$"
    r"|^langsmith\.metadata\.thread_id$",
    re.IGNORECASE,
)
"""Ids of users and sessions, in the words of every dialect."""


class Action(Enum):
    """What is done with an attribute."""

    KEEP = 0
    """Stored as it is."""
    CONTENT = 1
    """Dropped, redacted or kept as the policy says."""
    SECRET = 2
    """Dropped."""
    URL = 3
    """Stored without its query."""
    PERSON = 4
    """Stored as a pseudonym."""


@lru_cache(maxsize=4096)
def action(key: str) -> Action:
    """What is done with the attribute of that key, of a span, an event or a link.

    A key of a resource (``resource.`` before it) is judged by the rest of it.
    """
    key = key.removeprefix("resource.")
    if _SECRET.search(key) or key == "url.query":
        return Action.SECRET
    if key.endswith((".length", ".hash")):
        return Action.KEEP
    if key.startswith(_CONTENT_PREFIXES) or _PROMPT.match(key):
        return Action.CONTENT
    if _PERSON.search(key):
        return Action.PERSON
    return Action.URL if key in _URLS else Action.KEEP
