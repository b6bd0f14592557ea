"""Our own spans, from the SDK and from the reference engine: canonical names only."""

from collections.abc import Mapping
from typing import Final

from longpole.vocab import Span, keys
from longpole_collector.decode.raw import RawSpan, Value
from longpole_collector.dialects.base import Dialect, Rule, Rules, draft, infer, word
from longpole_collector.dialects.otel_genai import RULES as _GENAI_RULES

NAME: Final = "longpole"
RULES: Final[Rules] = {
    **_GENAI_RULES,
    keys.PROVIDER: Rule("provider", word),
    keys.PROVIDER_OLD: Rule("provider", word, is_fallback=True),
}


def _claims(scope: str, attributes: Mapping[str, Value]) -> bool:
    return scope in (keys.SCOPE_SDK, keys.SCOPE_ENGINE)


def _read(raw: RawSpan) -> Span:
    read = draft(raw, NAME, RULES)
    infer(read.columns)
    return read.span()


DIALECT: Final = Dialect(NAME, _claims, _read, order=10)
