"""Our own spans, from the SDK and from the reference engine: canonical names only."""

from collections.abc import Mapping
from typing import Final

from longpole.vocab import Span, keys
from longpole_collector.decode.raw import RawSpan, Value
from longpole_collector.dialects.base import Dialect, draft, infer
from longpole_collector.dialects.otel_genai import RULES

NAME: Final = "longpole"


def _claims(scope: str, attributes: Mapping[str, Value]) -> bool:
    return scope in (keys.SCOPE_SDK, keys.SCOPE_ENGINE)


def _read(raw: RawSpan) -> Span:
    read = draft(raw, NAME, RULES)
    infer(read.columns)
    return read.span()


DIALECT: Final = Dialect(NAME, _claims, _read, order=10)
