"""Text Generation Inference: the router's span of a request, with times as printed durations.

Source: ``router/src/server.rs``: fields ``total_time``, ``validation_time`` (queue of the
tokenizer and tokenizing), ``queue_time``, ``inference_time`` and ``time_per_token``, each a Rust
``Duration`` in its Debug form (``1.234567ms``). Prefill and decode are not told apart.
"""

import re
from collections.abc import Mapping
from typing import Final

from longpole.vocab import Span
from longpole_collector.decode.raw import RawSpan, Value
from longpole_collector.dialects.base import MAX_SECONDS, Dialect, Rule, Rules, count, draft, word
from longpole_collector.dialects.otel_genai import RULES as _GENAI_RULES

NAME: Final = "tgi"
_QUEUE: Final = "queue_time"
_INFERENCE: Final = "inference_time"
_VALIDATION: Final = "validation_time"
_PRINTED: Final = re.compile(r"(\d+(?:\.\d+)?)(ns|µs|μs|us|ms|s)")
_UNIT_NS: Final = {"ns": 1, "µs": 1e3, "μs": 1e3, "us": 1e3, "ms": 1e6, "s": 1e9}
_STREAMED: Final = "generate_stream"


def duration_ns(value: Value) -> int | None:
    """A duration as Rust's Debug prints it, in nanoseconds."""
    found = _PRINTED.fullmatch(value) if isinstance(value, str) else None
    ns = float(found[1]) * _UNIT_NS[found[2]] if found else MAX_SECONDS * 1e9
    return round(ns) if ns < MAX_SECONDS * 1e9 else None


def _duration_ms(value: Value) -> float | None:
    ns = duration_ns(value)
    return None if ns is None else round(ns / 1e6, 6)


RULES: Final[Rules] = {
    **_GENAI_RULES,
    _QUEUE: Rule("queue_ns", duration_ns),
    _VALIDATION: Rule("tokenize_ns", duration_ns),
    "time_per_token": Rule("tpot_ms", _duration_ms),
    "generated_tokens": Rule("output_tokens", count, is_fallback=True),
    "prompt_tokens": Rule("input_tokens", count, is_fallback=True),
    "model_id": Rule("response_model", word, is_fallback=True),
}


def _claims(scope: str, attributes: Mapping[str, Value]) -> bool:
    return _QUEUE in attributes and _INFERENCE in attributes and _VALIDATION in attributes


def _read(raw: RawSpan) -> Span:
    read = draft(raw, NAME, RULES)
    columns = read.columns
    for key in (_QUEUE, _VALIDATION):  # they tell the dialect, also of a span written out again
        columns["attributes"][key] = str(raw.attributes[key])
    columns.setdefault("operation", "text_completion")
    columns["is_model_call"] = columns["is_engine"] = True
    columns.setdefault("is_streamed", raw.name.endswith(_STREAMED))
    return read.span()


DIALECT: Final = Dialect(
    NAME, _claims, _read, order=25, marks=frozenset((_QUEUE, _INFERENCE, _VALIDATION))
)
