"""vLLM: one SERVER span a request, times as attributes.

Source: ``vllm/tracing/utils.py`` (``llm_request``, ``gen_ai.latency.*`` in seconds from arrival).
A public fork writes nanosecond integers under the same
names: an integer above 10,000 cannot be seconds.
"""

from collections.abc import Mapping
from typing import Final

from longpole.vocab import keys
from longpole_collector.decode.raw import Value
from longpole_collector.dialects._steps import Step, plain
from longpole_collector.dialects.base import Rule, Rules, count, seconds_or_ns, word
from longpole_collector.dialects.otel_genai import RULES as _GENAI_RULES

NAME: Final = "vllm"
_KEYS: Final = (keys.ENGINE_E2E, keys.ENGINE_TTFT, keys.ENGINE_QUEUE)


def _tolerant(key: str, rule: Rule) -> Rule:
    return rule._replace(convert=seconds_or_ns) if key.startswith("gen_ai.latency.") else rule


RULES: Final[Rules] = {
    **{key: _tolerant(key, rule) for key, rule in _GENAI_RULES.items()},
    "gen_ai.usage.cached_tokens": Rule("cached_input_tokens", count, is_fallback=True),
    keys.REQUEST_ID: Rule("response_id", word, is_fallback=True),
}


def _claims(scope: str, attributes: Mapping[str, Value]) -> bool:
    return scope.startswith("vllm") or any(key in attributes for key in _KEYS)


DIALECT: Final = plain(
    NAME,
    _claims,
    RULES,
    (Step.INFER, Step.ENGINE_TPOT),
    marks=frozenset(_KEYS),
    order=20,
)
