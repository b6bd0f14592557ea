"""A trace beside others of its route: what is usual, its shape, the next slow one like it.

Shape, evidence, next check and what might run in parallel are those of ``longpole explain``.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from longpole.vocab import Span, Stage, columns, keys
from longpole_analytics import related
from longpole_analytics.advice import NEXT_CHECK
from longpole_analytics.frames import spans_from_table
from longpole_analytics.prepare import distinct
from longpole_analytics.serial import Opportunity, SerialRules, opportunities
from longpole_analytics.stages import TracePartition, partition
from longpole_analytics.thresholds import configured
from longpole_analytics.trace_facts import facts_of
from longpole_collector.stores.base import Reader
from longpole_dashboard.model import text
from longpole_dashboard.model.trace import HEAVY, MAX_SPANS

if TYPE_CHECKING:
    from longpole_analytics.shapes import Usual

DAY_NS: Final = 24 * 3600 * 10**9
"""Others are looked for so long before and after a trace, as ``explain`` does."""
MIN_LIKE: Final = 20
"""Fewer have no median."""
MAX_PARALLEL: Final = 3
MAX_NAMES: Final = 4
MAX_EVIDENCE: Final = 4
_READ: Final = (
    *(keys.ENGINE_NUM_STEPS, keys.ENGINE_NUM_DRAFTED, keys.ENGINE_NUM_ACCEPTED),
    *(keys.ENGINE_NUM_PREEMPTIONS, keys.BRANCH_USED, keys.BRANCH_NAME, keys.SERVER_ADDRESS),
    *(keys.SPECULATION_STATE, keys.SPECULATION_TTL, keys.SPECULATION_AGE, keys.TOOL_CALL_ID),
    *(keys.OUTPUT_MESSAGES, keys.SIDE_EFFECTS, keys.TOOL_HAS_IDEMPOTENCY_KEY, keys.OUTPUT_HASH),
    *(keys.INPUTS, keys.TOOL_ARGUMENTS),
)
"""Attributes that shape and parallel work are told by; all others stay in the store."""
_LIGHT: Final = ", ".join(c.name for c in columns() if c.name not in HEAVY)
_SPANS: Final = (
    f"SELECT {_LIGHT}, links, map_from_entries(list_filter(map_entries(attributes), "  # noqa: S608 - our own columns
    f"lambda pair: pair.key IN ({', '.join(repr(key) for key in _READ)}))) AS attributes "
    f"FROM spans WHERE trace_id = $trace LIMIT {MAX_SPANS}"
)

_GRADES: Final = {
    "E3": "one answer asked for all of them",
    "E2": "{} other traces have them overlap or the other way round",
    "E1": "nothing is known of who needs whom",
}


class StageUsual(NamedTuple):
    """One stage of a trace and the median of its like; ``None`` where too few are known."""

    stage: str
    critical_ns: int
    p50_ms: float | None


@dataclass(frozen=True)
class Kin:
    """A trace against its route.

    Attributes:
        usual: each stage on the path, or usually on it.
        like: what it was held against, or why it was not: one sentence.
        shape: its name; ``None`` where there are too few to tell.
        sub_cause: what within it, or why it is unknown.
        evidence: a phrase for each number behind it, the decisive one first.
        next_check: one sentence.
        parallel: work that might run side by side, in words.
        num_more_parallel: further such groups.
    """

    usual: tuple[StageUsual, ...]
    like: str
    shape: str | None
    sub_cause: str
    evidence: tuple[str, ...]
    next_check: str
    parallel: tuple[str, ...]
    num_more_parallel: int


@dataclass(frozen=True)
class NextSlow:
    """Where a trace stands among those of its route, long pole and prompt version, by wall time.

    ``place`` counts from 1, the slowest; ``trace_id`` is the next one, ``None`` after the last.
    """

    place: int
    num_like: int
    trace_id: str | None
    wall_ms: float | None


def kin(trace_id: str, reader: Reader) -> Kin | None:
    """A trace against its route; ``None`` while it has no row among the workflows."""
    place = related.place_of(reader, trace_id)
    if place is None:
        return None
    received = spans_from_table(reader.sql(_SPANS, {"trace": trace_id}))
    spans, split = distinct(received), partition(received)
    own = facts_of(spans)
    baseline = related.baseline(reader, place, split, own)
    shape = related.shape_against(baseline, place, split, own)
    usual = baseline.usual(split)
    serial = _serial(reader, place, split, spans)
    return Kin(
        usual=tuple(
            StageUsual(stage.value, split.critical_ns(stage), usual.p50_ms[stage])
            for stage in Stage
            if split.critical_ns(stage) or usual.p50_ms[stage]
        ),
        like=_like(usual),
        shape=shape["name"],
        sub_cause=shape["sub_cause"] or "",
        evidence=tuple(map(_evidence, shape["evidence"][:MAX_EVIDENCE])),
        next_check=_next_check(shape, split),
        parallel=tuple(map(_parallel, serial[:MAX_PARALLEL])),
        num_more_parallel=max(0, len(serial) - MAX_PARALLEL),
    )


def _like(usual: "Usual") -> str:
    """What the medians are of, or why there are none."""
    if usual.n < MIN_LIKE:
        return (
            f"What is usual is unknown: its route has {usual.n} other workflows within a day, "
            f"{MIN_LIKE} are needed."
        )
    likeness = "of about its length, " if usual.is_matched else ""
    return (
        f"Usual: the median of {text.counted(usual.n, 'workflow')} {likeness}"
        f"out of {text.count(usual.num_route)} on its route within a day."
    )


def _serial(
    reader: Reader, place: related.Place, split: TracePartition, spans: Sequence[Span]
) -> list[Opportunity]:
    rules = configured(SerialRules(), "serial")
    apart = related.apart(reader, place, split, spans, rules)
    return opportunities(split, spans, apart, rules)


def _next_check(shape: dict[str, Any], split: TracePartition) -> str:
    """The shape's; that of the long pole where the shape is unknown."""
    is_told = shape["name"] is not None and shape["next_check"]
    return str(shape["next_check"]) if is_told else NEXT_CHECK[split.long_pole]


def _evidence(row: dict[str, Any]) -> str:
    """One number against the usual: ``queue_ms 2,400 ms, p50 of its like 80 ms (30x, n 72)``."""
    name = row["metric"]
    is_time = name.endswith("_ms")

    def shown(value: float | None) -> str:
        if is_time or value is None:
            return text.duration(value)
        return text.significant(value)

    said = f"{name} {shown(row['current'])}"
    if row["baseline"] is None:
        return f"{said} (n {text.count(row['n'])})"
    quantile = row["quantile"]
    what = "usual" if quantile is None else f"p{100 * quantile:g} of its like"
    ratio = f"{text.significant(row['ratio'])}x, " if row["ratio"] else ""
    return f"{said}, {what} {shown(row['baseline'])} ({ratio}n {text.count(row['n'])})"


def _parallel(one: Opportunity) -> str:
    """A group that ran one after the other, with how well it is known that it need not."""
    why = _GRADES[one.evidence].format(one.num_traces_apart)
    risk = f"; all call {one.rate_limit}: mind its rate limit" if one.rate_limit else ""
    return (
        f"{_names(one.names)}: side by side they would save "
        f"{text.duration(one.saved_ns / 1e6)}, at most {text.duration(one.bound_ns / 1e6)} "
        f"({one.evidence}: {why}{risk})"
    )


def _names(names: Sequence[str]) -> str:
    shown = " | ".join(names[:MAX_NAMES])
    more = len(names) - MAX_NAMES
    return f"{shown} | and {more} more" if more > 0 else shown


_OWN: Final = (
    "SELECT route, prompt_version, long_pole, wall_ns, start_ns FROM traces "
    "WHERE trace_id = $trace AND wall_ns IS NOT NULL"
)
_LIKE: Final = (
    "FROM traces WHERE start_ns BETWEEN $since AND $until AND wall_ns IS NOT NULL "
    "AND long_pole IS NOT DISTINCT FROM CAST($pole AS VARCHAR) "
    "AND route IS NOT DISTINCT FROM CAST($route AS VARCHAR) "
    "AND prompt_version IS NOT DISTINCT FROM CAST($version AS VARCHAR)"
)
_BEFORE: Final = "wall_ns > $wall OR (wall_ns = $wall AND trace_id < $trace)"
_AFTER: Final = "wall_ns < $wall OR (wall_ns = $wall AND trace_id > $trace)"
_PLACE: Final = f"SELECT count(*) AS num_like, count(*) FILTER ({_BEFORE}) AS num_before {_LIKE}"
_NEXT: Final = (
    f"SELECT trace_id, wall_ns {_LIKE} AND ({_AFTER}) ORDER BY wall_ns DESC, trace_id LIMIT 1"
)


def next_slow(trace_id: str, reader: Reader) -> NextSlow | None:
    """The next trace like this one, from slow to fast; ``None`` while this one has no wall time."""
    own = reader.sql(_OWN, {"trace": trace_id}).to_pylist()
    if not own:
        return None
    row = own[0]
    given = {
        "trace": trace_id,
        "wall": row["wall_ns"],
        "pole": row["long_pole"],
        "route": row["route"],
        "version": row["prompt_version"],
        "since": row["start_ns"] - DAY_NS,
        "until": row["start_ns"] + DAY_NS,
    }
    place = reader.sql(_PLACE, given).to_pylist()[0]
    after = reader.sql(_NEXT, given).to_pylist()
    following = after[0] if after else {"trace_id": None, "wall_ns": None}
    return NextSlow(
        place["num_before"] + 1,
        place["num_like"],
        following["trace_id"],
        None if following["wall_ns"] is None else following["wall_ns"] / 1e6,
    )
