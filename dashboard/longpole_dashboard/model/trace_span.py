"""One span of a trace: what is stored of it, where it stands among its kind, who delayed it."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from longpole.vocab import Stage, columns, keys
from longpole_collector.stores.base import Reader
from longpole_dashboard.model import text
from longpole_dashboard.model.trace_kin import DAY_NS
from longpole_dashboard.model.trace_rows import SpanRow
from longpole_dashboard.theme import look

MIN_PEERS: Final = 20
"""With fewer of its kind a span has no percentile."""
MAX_VALUE_CHARS: Final = 2_000
MAX_CHARS: Final = 65_536
"""Of all attributes of one span together; a longer one is cut, and says so."""
MAX_GAPS: Final = 4_096
MAX_DELAYERS: Final = 5

_OF_CALLS: Final = {
    Stage.NETWORK: "network_ms",
    Stage.QUEUE: "queue_ms",
    Stage.TOKENIZE: "tokenize_ms",
    Stage.PREFILL: "prefill_ms",
    Stage.FIRST_DECODE: "first_decode_ms",
    Stage.TTFT_OPAQUE: "ttft_ms",
    Stage.LATER_DECODE: "decode_ms",
    Stage.STREAM: "tail_ms",
    Stage.RETRY: "retry_ms",
}
"""Phase of a call -> the column of ``calls`` that its like are compared by."""
_SHOWN_ELSEWHERE: Final = frozenset(
    ("trace_id", "name", "start_ns", "end_ns", "received_ns", "stage", "service", "attributes")
)
"""Columns that the page shows by themselves, or below as they were sent."""


class Standing(NamedTuple):
    """A span among others of its kind within a day; ``is_shown`` when they carry a percentile.

    ``kind`` says what they are, ``num_below`` of the ``n`` took less time.
    """

    kind: str
    n: int
    num_below: int

    @property
    def is_shown(self) -> bool:
        """Whether there are enough of them."""
        return self.n >= MIN_PEERS

    @property
    def percentile(self) -> float | None:
        """The share of its kind that took less, 0 to 1; ``None`` where it is not shown."""
        return self.num_below / self.n if self.is_shown else None


class Delayer(NamedTuple):
    """A request that the engine served while this one waited; its trace where it is stored."""

    request_id: str
    ms: float | None
    trace_id: str | None


@dataclass(frozen=True)
class Detail:
    """What the side panel shows besides the row itself.

    Attributes:
        pairs: canonical values with their units, then the attributes as sent.
        engine_pairs: the same of the engine's span of a model call.
        standing: ``None`` where the span has no kind to be compared with.
        offsets_us: when each chunk of the answer came, since the call was made.
        delayed_ms: how long the engine served others meanwhile; ``None`` if it does not say.
        delayed_by: whom, the longest first, a few of them.
    """

    pairs: tuple[tuple[str, str], ...] = ()
    engine_pairs: tuple[tuple[str, str], ...] = ()
    standing: Standing | None = None
    offsets_us: tuple[int, ...] = ()
    delayed_ms: float | None = None
    delayed_by: tuple[Delayer, ...] = ()


def detail(trace_id: str, row: SpanRow, reader: Reader) -> Detail:
    """What is stored about a row's span, and how it stands; empty for a row of no span.

    Contents that were not captured, or dropped at the collector's door, are not there to show.
    """
    if not row.span_id:
        return Detail()
    found = reader.sql(
        "SELECT * FROM spans WHERE trace_id = $trace AND span_id IN ($span, $engine) LIMIT 8",
        {"trace": trace_id, "span": row.span_id, "engine": row.engine_id or row.span_id},
    ).to_pylist()
    by_id = {each["span_id"]: each for each in found}
    own = by_id.get(row.span_id)
    if own is None:
        return Detail()
    engine = by_id.get(row.engine_id or row.span_id) or own
    told = dict(engine["attributes"] or ())
    is_apart = engine is not own
    return Detail(
        pairs=_pairs(own),
        engine_pairs=_pairs(engine) if is_apart and not row.is_phase else (),
        standing=_standing(row, own, reader),
        offsets_us=_offsets(dict(own["attributes"] or ()).get(keys.CHUNK_OFFSETS_US)),
        delayed_ms=_milliseconds(told.get(keys.ENGINE_DELAYED_TIME)),
        delayed_by=_delayers(told, engine["start_ns"], reader),
    )


def _pairs(row: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    pairs = [
        (column.name.removesuffix("_ns").removesuffix("_ms"), _value(row[column.name], column.unit))
        for column in columns()
        if column.name not in _SHOWN_ELSEWHERE and row.get(column.name) not in (None, [], "")
    ]
    pairs += sorted(dict(row.get("attributes") or ()).items())
    left, shown = MAX_CHARS, []
    for name, value in pairs:
        short = _cut(value, min(MAX_VALUE_CHARS, max(left, 0)))
        left -= len(short)
        shown.append((_cut(name, MAX_VALUE_CHARS), short))
    return tuple(shown)


def _cut(value: str, most: int) -> str:
    return value if len(value) <= most else f"{value[:most]}… (cut: {len(value):,} characters)"


def _value(value: object, unit: str) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if unit == "ns" and isinstance(value, int):
        return text.duration(value / 1e6)
    if unit == "ms" and isinstance(value, float):
        return text.duration(value)
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return text.count(value) if isinstance(value, int) and unit == "tokens" else str(value)


# --- among its kind ------------------------------------------------------------------------------
_SPANS: Final = """
    SELECT count(*) AS n, count(*) FILTER (end_ns - start_ns < $own) AS num_below FROM spans
    WHERE start_ns BETWEEN $since AND $until AND name = $name
    AND service IS NOT DISTINCT FROM CAST($service AS VARCHAR)
    AND end_ns IS NOT NULL AND NOT (trace_id = $trace AND span_id = $span)
"""
_CALLS: Final = """
    WITH own AS (
        SELECT {column} AS own_ms, request_model, operation FROM calls
        WHERE start_ns BETWEEN $since AND $until AND trace_id = $trace AND span_id = $span
    )
    SELECT count(*) AS n, count(*) FILTER (c.{column} < own.own_ms) AS num_below,
        (SELECT request_model FROM own) AS model
    FROM calls AS c, own
    WHERE c.start_ns BETWEEN $since AND $until
    AND c.{column} IS NOT NULL AND own.own_ms IS NOT NULL
    AND c.request_model IS NOT DISTINCT FROM own.request_model
    AND c.operation IS NOT DISTINCT FROM own.operation
    AND NOT (c.trace_id = $trace AND c.span_id = $span)
"""


def _standing(row: SpanRow, own: Mapping[str, Any], reader: Reader) -> Standing | None:
    at: int = own["start_ns"]
    given: dict[str, Any] = {
        "trace": own["trace_id"],
        "span": row.call_id or own["span_id"],
        "since": at - DAY_NS,
        "until": at + DAY_NS,
    }
    if row.call_id is not None:
        column = _OF_CALLS.get(Stage(row.stage)) if row.is_phase else "e2e_ms"
        if column is None:
            return None
        found = reader.sql(_CALLS.format(column=column), given).to_pylist()[0]
        model = found["model"] or "this model"
        phase = f"{look(row.stage).label} of " if row.is_phase else ""
        return Standing(f"{phase}calls to {model}", *_counts(found))
    if own["end_ns"] is None:
        return None
    given |= {"own": own["end_ns"] - at, "name": own["name"], "service": own["service"]}
    found = reader.sql(_SPANS, given).to_pylist()[0]
    return Standing("spans of this name and service", *_counts(found))


def _counts(found: Mapping[str, Any]) -> tuple[int, int]:
    return found["n"], found["num_below"]


# --- the stream and the engine's batch ----------------------------------------------------------
def _listed(value: str | None) -> list[Any]:
    """A list that an attribute holds as JSON; empty for anything else."""
    try:
        found = json.loads(value or "")
    except (ValueError, RecursionError):
        return []
    return found if isinstance(found, list) else []


def _offsets(value: str | None) -> tuple[int, ...]:
    """Arrivals of chunks in order; what is no whole number of microseconds is left out."""
    known = [us for us in _listed(value)[:MAX_GAPS] if type(us) is int and us >= 0]
    return tuple(sorted(known))


def _milliseconds(seconds: object) -> float | None:
    try:
        found = float(seconds) * 1e3  # type: ignore[arg-type]  # anything else is an error below
    except (TypeError, ValueError):
        return None
    return found if math.isfinite(found) and found >= 0 else None


def _delayers(told: Mapping[str, str], at_ns: int, reader: Reader) -> tuple[Delayer, ...]:
    ids = [each for each in _listed(told.get(keys.ENGINE_DELAYED_BY)) if isinstance(each, str)]
    ids = ids[:MAX_DELAYERS]
    if not ids:
        return ()
    times = [_milliseconds(s) for s in _listed(told.get(keys.ENGINE_DELAYED_BY_TIME))]
    traces = _traces(ids, at_ns, reader)
    return tuple(
        Delayer(_cut(each, 200), times[i] if i < len(times) else None, traces.get(each))
        for i, each in enumerate(ids)
    )


def _traces(ids: Sequence[str], at_ns: int, reader: Reader) -> dict[str, str]:
    """Request id -> the trace it belongs to, for those that are stored."""
    names = {f"id{i}": each for i, each in enumerate(ids)}
    found = reader.sql(
        "SELECT response_id, min(trace_id) AS trace_id FROM spans "  # noqa: S608 - placeholders
        "WHERE start_ns BETWEEN $since AND $until AND is_engine "
        f"AND response_id IN ({', '.join(f'${name}' for name in names)}) GROUP BY response_id",
        {**names, "since": at_ns - DAY_NS, "until": at_ns + DAY_NS},
    ).to_pylist()
    return {row["response_id"]: row["trace_id"] for row in found}
