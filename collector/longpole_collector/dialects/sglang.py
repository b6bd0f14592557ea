"""SGLang: vLLM's names for a request's times, in a trace with spans of its threads.

Source: ``python/sglang/srt/observability/trace.py`` and ``req_time_stats.py``. One span a request
carries ``gen_ai.latency.*`` (seconds from its creation) and ``gen_ai.usage.cached_tokens``; the
spans below it carry ``host_id``, ``pid`` and ``thread_label`` and are parts of it.
"""

from collections.abc import Mapping
from typing import Final

from longpole.vocab import Span, keys
from longpole_collector.decode.raw import RawSpan, Value
from longpole_collector.dialects.base import Dialect
from longpole_collector.dialects.vllm import read_engine

NAME: Final = "sglang"
_CACHED: Final = "gen_ai.usage.cached_tokens"
_THREAD: Final = ("host_id", "pid", "thread_label")


def _claims(scope: str, attributes: Mapping[str, Value]) -> bool:
    return (
        scope.startswith(NAME)
        or all(key in attributes for key in _THREAD)
        or (_CACHED in attributes and keys.ENGINE_E2E in attributes)
    )


def _read(raw: RawSpan) -> Span:
    return read_engine(raw, NAME)


DIALECT: Final = Dialect(NAME, _claims, _read, order=19)
