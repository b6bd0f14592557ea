"""Our own spans, of the SDK, the browser beacon and the reference engine: canonical names only."""

from collections.abc import Mapping
from typing import Final

from longpole.vocab import keys
from longpole_collector.decode.raw import Value
from longpole_collector.dialects._steps import Step, plain
from longpole_collector.dialects.base import Rule, Rules, word
from longpole_collector.dialects.otel_genai import RULES as _GENAI_RULES

NAME: Final = "longpole"
RULES: Final[Rules] = {
    **_GENAI_RULES,
    keys.PROVIDER: Rule("provider", word),
    keys.PROVIDER_OLD: Rule("provider", word, is_fallback=True),
}


def _claims(scope: str, attributes: Mapping[str, Value]) -> bool:
    return scope in (keys.SCOPE_SDK, keys.SCOPE_ENGINE, keys.SCOPE_BROWSER)


DIALECT: Final = plain(NAME, _claims, RULES, (Step.INFER,), order=10)
