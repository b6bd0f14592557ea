"""What a dialect is, and the shared machinery to read one.

A dialect turns a raw span into the canonical :class:`~longpole.vocab.Span`. To add one, add a
file with a constant ``DIALECT``: it claims spans by instrumentation scope or by attributes, and
reads them, usually with a table of rules (attribute key -> column, converter) over
:func:`draft`. What a rule recognises becomes a column; the rest stays in ``attributes`` as text.
"""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from longpole.vocab import Span, Stage, Status, keys
from longpole_collector.content import CUT_FLAG
from longpole_collector.decode.raw import RawSpan, Value, text
from longpole_collector.tracestate import sampled

EXCEPTION_EVENT: Final = "exception"
EXCEPTION_TYPE: Final = "exception.type"
ENGINE_TIMES: Final = frozenset(("queue_ns", "prefill_ns", "engine_decode_ns", "engine_ttft_ns"))
"""Columns that only an engine can fill."""
MAX_SECONDS: Final = 9.2e9
"""Longest duration that fits the store's 64-bit nanoseconds."""
_SECONDS_LIMIT: Final = 10_000
MODEL_OPERATIONS: Final = frozenset(("chat", "text_completion", "generate_content", "embeddings"))
_STAGES: Final = frozenset(Stage)
STAGE_OF_OPERATION: Final = {
    "execute_tool": Stage.TOOL.value,
    "retrieval": Stage.RETRIEVAL.value,
    "rerank": Stage.RETRIEVAL.value,
}


@dataclass(frozen=True)
class Dialect:
    """A member of the family ``longpole.dialect``.

    Attributes:
        name: goes to the column ``dialect``.
        claims: whether spans of this scope with these attributes are ours. It is asked first
            with no attributes: a yes then holds for the whole scope and is remembered.
        read: the canonical span; raises nothing on strange values (they stay attributes).
        order: who is asked first; the lowest wins.
        marks: the attributes ``claims`` looks at; a span without any of them is claimed by its
            scope or not at all. ``None`` if that cannot be told: every span is then asked.
        plain: the reading as rules and steps, if that is all there is to it (see ``_steps``);
            ``claims`` may then look at the scope and at which marks are there, not at values.
    """

    name: str
    claims: Callable[[str, Mapping[str, Value]], bool]
    read: Callable[[RawSpan], Span]
    order: int = 50
    marks: frozenset[str] | None = None
    plain: "Plain | None" = None


class Rule(NamedTuple):
    """One recognised key: its column, how to convert, and whether a newer key wins over it."""

    column: str
    convert: Callable[[Any], Any | None]
    is_fallback: bool = False


Rules = Mapping[str, Rule]


class Plain(NamedTuple):
    """A reading that is rules and the steps of ``_steps.Step`` whose bits are set."""

    rules: Rules
    steps: int


class Draft(NamedTuple):
    """A span being read: columns by name, ready for ``Span(**columns)``, and the raw span."""

    columns: dict[str, Any]
    raw: RawSpan

    def span(self) -> Span:
        """The finished record."""
        return Span._make({**_BLANK, **self.columns}.values())


_BLANK: Final[dict[str, Any]] = {name: Span._field_defaults.get(name) for name in Span._fields}


# --- converters: the canonical value, or None when the value is not of that kind ----------------
def word(value: Value) -> str | None:
    """Non-empty text; numbers become text."""
    if isinstance(value, str):
        return value or None
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def flag(value: Value) -> bool | None:
    """A truth value, also spelled as text."""
    if isinstance(value, bool):
        return value
    return {"true": True, "false": False}.get(value.lower()) if isinstance(value, str) else None


def count(value: Value) -> int | None:
    """A whole number >= 0, also as text or as a float without a fraction."""
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        return int(value) if value.isascii() and value.isdigit() and len(value) < 19 else None
    if isinstance(value, float):
        value = int(value) if value.is_integer() else -1
    return value if isinstance(value, int) and 0 <= value < 2**63 else None


def attempts(value: Value) -> int | None:
    """Attempts, from the number of times a request was sent again."""
    resends = count(value)
    return None if resends is None or resends == 2**63 - 1 else resends + 1


def number(value: Value) -> float | None:
    """A finite number >= 0."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) and value >= 0 else None


def paid(value: Value) -> float | None:
    """Money a library reckoned: a finite number > 0, as 0 is what it says of an unknown price."""
    return number(value) or None


def seconds_ns(value: Value) -> int | None:
    """A duration in seconds, as whole nanoseconds by rounding."""
    seconds = number(value)
    return None if seconds is None or seconds > MAX_SECONDS else round(seconds * 1e9)


def seconds_or_ns(value: Value) -> int | None:
    """As :func:`seconds_ns`, but an integer above 10,000 is nanoseconds already."""
    if isinstance(value, int) and value > _SECONDS_LIMIT:
        return count(value)
    return seconds_ns(value)


def seconds_ms(value: Value) -> float | None:
    """A duration in seconds, as milliseconds to the nanosecond."""
    seconds = number(value)
    return None if seconds is None or seconds > MAX_SECONDS else round(seconds * 1e3, 6)


def words(value: Value) -> list[str] | None:
    """A list of texts."""
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return list(value)
    return None


def stage(value: Value) -> str | None:
    """A stage name of our vocabulary."""
    return value if isinstance(value, str) and value in _STAGES else None


def one_of(*allowed: str) -> Callable[[Value], str | None]:
    """A converter that takes these words only."""
    return lambda value: value if isinstance(value, str) and value in allowed else None


_FINISH: Final = {
    "stop": "stop end_turn stop_sequence completed complete finished eos eos_token done",
    "length": "length max_tokens max_output_tokens incomplete model_context_window_exceeded",
    "tool_call": "tool_call tool_calls tool-calls tool_use function_call",
    "content_filter": "content_filter content-filter safety refusal recitation blocklist "
    "prohibited_content spii guardrail_intervened content_filtered",
    "error": "error failed abort aborted malformed_function_call",
}
_FINISH_WORD: Final = {word: name for name, words in _FINISH.items() for word in words.split()}


def finish_reason(value: Value) -> str | None:
    """The first finish reason, as stop, length, tool_call, content_filter or error.

    Takes one word, a list, or a list as JSON text; a word nobody knows is kept as sent.
    """
    if isinstance(value, str) and value.startswith("["):
        try:
            value = json.loads(value)
        except ValueError:
            return None
    if isinstance(value, list):
        value = value[0] if value else ""
    if not isinstance(value, str) or not value:
        return None
    return _FINISH_WORD.get(value.lower(), value)


# --- facts a span states about itself: they win, in every dialect -------------------------------
FACTS: Final[Rules] = {
    keys.STAGE: Rule("stage", stage),
    keys.DETACHED: Rule("is_detached", flag),
    keys.STREAM: Rule("is_streamed", flag),
    keys.ROUTE: Rule("route", word),
    keys.ROUTE_VERSION: Rule("route_version", word),
    keys.PROMPT_VERSION: Rule("prompt_version", word),
    keys.PROMPT_VERSION_OTEL: Rule("prompt_version", word, is_fallback=True),
    keys.PREFIX_HASH: Rule("prefix_hash", word),
    keys.SLO_CLASS: Rule("slo_class", word),
    keys.OUTCOME: Rule("outcome", one_of("accepted", "rejected", "failed")),
    keys.FAILURE_CLASS: Rule("failure_class", word),
    keys.TIME_TO_USEFUL: Rule("time_to_useful_ns", seconds_ns),
    keys.TIME_TO_ACCEPTED: Rule("time_to_accepted_ns", seconds_ns),
    keys.CACHE_STATE: Rule("cache_state", one_of("hit", "partial", "miss", "ineligible")),
    keys.COLD_START: Rule("is_cold_start", flag),
    keys.CONVERSATION_ID: Rule("conversation_id", word),
    keys.ERROR_TYPE: Rule("error_type", word),
    keys.FLAGS: Rule("flags", words),
}


def draft(raw: RawSpan, dialect: str, rules: Rules) -> Draft:
    """The span's generic fields and everything the rules recognise.

    A value its rule cannot convert stays in ``attributes``, like a key without a rule. Of two
    keys for one column the one that is no fallback wins, else the first.
    """
    rest = dict(raw.resource.attributes)
    columns: dict[str, Any] = {
        "trace_id": raw.trace_id,
        "span_id": raw.span_id,
        "parent_id": raw.parent_id,
        "name": raw.name,
        "kind": raw.kind,
        "start_ns": raw.start_ns,
        "end_ns": raw.end_ns or None,
        "received_ns": raw.received_ns,
        "service": raw.resource.service,
        "instance_id": raw.resource.instance_id,
        "scope": raw.scope or None,
        "dialect": dialect,
        "status": raw.status,
        "status_message": raw.status_message or None,
        "flags": [*raw.flags, CUT_FLAG] if raw.resource.is_cut else list(raw.flags),
        "attributes": rest,
    }
    if raw.state:
        columns["weight"], columns["randomness"] = sampled(raw.state)
    for key, value in raw.attributes.items():
        rule = rules.get(key)
        converted = None if rule is None else rule.convert(value)
        if rule is None or converted is None:
            rest[key] = text(value)
        elif not rule.is_fallback:
            columns[rule.column] = converted
        else:
            columns.setdefault(rule.column, converted)
    _repair(columns, raw)
    return Draft(columns, raw)


def _repair(columns: dict[str, Any], raw: RawSpan) -> None:
    """Times and errors that can be wrong in any dialect; what was repaired is flagged."""
    if not raw.start_ns:
        columns["start_ns"] = raw.end_ns or raw.received_ns
        columns["flags"].append("no_start_time")
    elif raw.end_ns and raw.end_ns < raw.start_ns:
        columns["flags"].append("negative_duration")
    if raw.status == Status.ERROR and "error_type" not in columns:
        for event in raw.events:
            if event.name == EXCEPTION_EVENT:
                columns["error_type"] = word(event.attributes.get(EXCEPTION_TYPE, ""))


def infer(columns: dict[str, Any]) -> None:
    """What the operation and the span's kind say: stage, model call, engine.

    The conventions allow ``internal`` for a model called in process, so only ``server`` is the
    engine's side. A stated stage is left alone.
    """
    operation = columns.get("operation")
    if "stage" not in columns and operation in STAGE_OF_OPERATION:
        columns["stage"] = STAGE_OF_OPERATION[operation]
    is_model = operation in MODEL_OPERATIONS
    has_engine_times = not columns.keys().isdisjoint(ENGINE_TIMES)
    is_engine = columns["kind"] == "server" and (is_model or has_engine_times)
    columns["is_engine"] = is_engine
    columns["is_model_call"] = is_engine or (
        is_model and columns["kind"] in ("client", "internal", "unspecified")
    )
