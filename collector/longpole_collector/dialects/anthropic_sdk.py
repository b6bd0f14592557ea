"""What the Anthropic SDK emits by itself: the GenAI conventions plus ``anthropic.*``.

Seen with anthropic 2.14: its clock for ``time_to_first_chunk`` stops at the first content, not at
``message_start``, and ``http.request.resend_count`` tells its retries. Other libraries' spans
around or beside it tell of the same call (see the view ``calls``).
"""

from collections.abc import Mapping
from typing import Final

from longpole_collector.decode.raw import Value
from longpole_collector.dialects._steps import Step, plain
from longpole_collector.dialects.base import Rule, Rules, finish_reason, word
from longpole_collector.dialects.otel_genai import RULES as _GENAI_RULES

NAME: Final = "anthropic_sdk"
_SCOPE: Final = "com.anthropic.sdk."

RULES: Final[Rules] = {
    **_GENAI_RULES,
    "anthropic.message.stop_reason": Rule("finish_reason", finish_reason, is_fallback=True),
    "anthropic.response.service_tier": Rule("service_tier", word, is_fallback=True),
}


def _claims(scope: str, attributes: Mapping[str, Value]) -> bool:
    return scope.startswith(_SCOPE)


DIALECT: Final = plain(
    NAME,
    _claims,
    RULES,
    (Step.INFER, Step.INPUT_WHOLE, Step.FIRST_CONTENT, Step.NOT_STREAMED, Step.SETTLE),
    order=15,
)
