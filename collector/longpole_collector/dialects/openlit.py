"""OpenLIT: the GenAI conventions with habits of its own.

Seen in captures of OpenLIT 1.45: its time to first token starts when the response headers are
there and a call that was not streamed has one too; with Anthropic the input leaves cached tokens
out; when a stream brought no usage, it counts tokens by itself and does not say so.
"""

from collections.abc import Mapping
from typing import Any, Final

from longpole.vocab import Span, Stage, keys
from longpole_collector.decode.raw import RawSpan, Value
from longpole_collector.dialects._foreign import (
    AFTER_HEADERS,
    ANSWER_COLUMNS,
    ESTIMATED,
    count_input_whole,
    exclusive_input,
    mark,
    provider_name,
    settle,
    without,
)
from longpole_collector.dialects.base import (
    MODEL_OPERATIONS,
    Dialect,
    Rule,
    Rules,
    draft,
    infer,
    word,
)
from longpole_collector.dialects.otel_genai import RULES as _GENAI_RULES

NAME: Final = "openlit"
_OPENAI_SCOPE: Final = "openlit.instrumentation.openai"
_SDK: Final = "telemetry.sdk.name"
_FIRST_TOKEN: Final = "gen_ai.server.time_to_first_token"  # noqa: S105 - an attribute's key
_VECTOR_STORE: Final = "vectordb"

RULES: Final[Rules] = {
    **_GENAI_RULES,
    keys.PROVIDER: Rule("provider", provider_name),
}
_OUTER_RULES: Final = without(RULES, ANSWER_COLUMNS)


def _claims(scope: str, attributes: Mapping[str, Value]) -> bool:
    return scope.startswith(NAME) or attributes.get(_SDK) == NAME


def _read(raw: RawSpan) -> Span:
    is_call = word(raw.attributes.get(keys.OPERATION, "")) in MODEL_OPERATIONS
    read = draft(raw, NAME, RULES if is_call else _OUTER_RULES)
    columns = read.columns
    infer(columns)
    if columns.get("operation") == _VECTOR_STORE:
        columns.setdefault("stage", Stage.RETRIEVAL.value)
    if columns["is_model_call"]:
        _read_call(columns, raw)
    settle(columns, raw)
    return read.span()


def _read_call(columns: dict[str, Any], raw: RawSpan) -> None:
    if columns.get("provider") == "anthropic":
        exclusive_input(columns)
    else:
        count_input_whole(columns)
    if not columns.get("is_streamed"):
        return
    if _FIRST_TOKEN in raw.attributes:
        mark(columns, AFTER_HEADERS)
    # usage read from the wire comes with the cached part, be it 0
    is_counted_here = raw.scope.startswith(_OPENAI_SCOPE) and "cached_input_tokens" not in columns
    if is_counted_here and "output_tokens" in columns:
        mark(columns, ESTIMATED)


DIALECT: Final = Dialect(NAME, _claims, _read, order=40, marks=frozenset((_SDK,)))
