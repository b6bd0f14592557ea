"""SGLang: vLLM's names for a request's times, in a trace with spans of its threads.

Source: ``python/sglang/srt/observability/trace.py`` and ``req_time_stats.py``. One span a request
carries ``gen_ai.latency.*`` (seconds from its creation) and ``gen_ai.usage.cached_tokens``; the
spans below it carry ``host_id``, ``pid`` and ``thread_label`` and are parts of it.
"""

from collections.abc import Mapping
from typing import Final

from longpole.vocab import keys
from longpole_collector.decode.raw import Value
from longpole_collector.dialects._steps import Step, plain
from longpole_collector.dialects.vllm import RULES

NAME: Final = "sglang"
_CACHED: Final = "gen_ai.usage.cached_tokens"
_THREAD: Final = ("host_id", "pid", "thread_label")


def _claims(scope: str, attributes: Mapping[str, Value]) -> bool:
    return (
        scope.startswith(NAME)
        or all(key in attributes for key in _THREAD)
        or (_CACHED in attributes and keys.ENGINE_E2E in attributes)
    )


DIALECT: Final = plain(
    NAME,
    _claims,
    RULES,
    (Step.INFER, Step.ENGINE_TPOT),
    marks=frozenset((*_THREAD, _CACHED, keys.ENGINE_E2E)),
    order=19,
)
