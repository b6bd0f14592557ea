"""What the Anthropic SDK emits by itself: the GenAI conventions plus ``anthropic.*``.

Seen with anthropic 2.14: its clock for ``time_to_first_chunk`` stops at the first content, not at
``message_start``, and ``http.request.resend_count`` tells its retries. Other libraries' spans
around or beside it tell of the same call (see the view ``calls``).
"""

from collections.abc import Mapping
from typing import Final

from longpole.vocab import Span
from longpole_collector.decode.raw import RawSpan, Value
from longpole_collector.dialects._foreign import FIRST_CONTENT, first_token, settle
from longpole_collector.dialects.base import Dialect, Rule, Rules, draft, finish_reason, infer, word
from longpole_collector.dialects.otel_genai import RULES as _GENAI_RULES
from longpole_collector.dialects.otel_genai import count_input_whole, say_not_streamed

NAME: Final = "anthropic_sdk"
_SCOPE: Final = "com.anthropic.sdk."

RULES: Final[Rules] = {
    **_GENAI_RULES,
    "anthropic.message.stop_reason": Rule("finish_reason", finish_reason, is_fallback=True),
    "anthropic.response.service_tier": Rule("service_tier", word, is_fallback=True),
}


def _claims(scope: str, attributes: Mapping[str, Value]) -> bool:
    return scope.startswith(_SCOPE)


def _read(raw: RawSpan) -> Span:
    read = draft(raw, NAME, RULES)
    columns = read.columns
    infer(columns)
    count_input_whole(columns)
    if "ttft_ns" not in columns:
        first_token(columns, columns.get("first_chunk_ns"), FIRST_CONTENT)
    say_not_streamed(columns)
    settle(columns, raw)
    return read.span()


DIALECT: Final = Dialect(NAME, _claims, _read, order=15)
