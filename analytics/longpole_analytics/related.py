"""What ``longpole explain`` reads of a store besides the trace itself: others of its route."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from longpole_analytics.serial import Names, SerialRules, Sibling, pairs, seen_apart
from longpole_analytics.thresholds import configured

if TYPE_CHECKING:
    from longpole.vocab import Span
    from longpole_analytics.shapes import Baseline
    from longpole_analytics.stages import TracePartition
    from longpole_collector.stores.base import Reader, Value

MAX_OTHERS: Final = 500
"""The latest within a day of the trace."""
MAX_NAMES: Final = 200
_DAY_NS: Final = 24 * 3600 * 10**9
_OTHERS: Final = f"""
    SELECT trace_id FROM traces
    WHERE route IS NOT DISTINCT FROM ? AND trace_id <> ? AND start_ns BETWEEN ? AND ?
    ORDER BY start_ns DESC, trace_id LIMIT {MAX_OTHERS}
"""  # noqa: S608 - a number of ours
_AMONG: Final = "trace_id IN (SELECT unnest(string_split($ids, ',')))"
"""Ids are given as a list, so that a store compares them before it reads anything else."""


class Place(NamedTuple):
    """Where a trace belongs, as its row says."""

    route: str | None
    route_version: str | None
    prompt_version: str | None = None


def place_of(reader: Reader, trace_id: str) -> Place | None:
    """The route and version of a trace; ``None`` while it has no row."""
    found = reader.sql(
        "SELECT route, route_version, prompt_version FROM traces WHERE trace_id = ?", [trace_id]
    )
    return Place(**found.to_pylist()[0]) if found.num_rows else None


def apart(
    reader: Reader,
    place: Place,
    split: TracePartition,
    spans: Sequence[Span],
    rules: SerialRules,
) -> dict[Names, int]:
    """In how many other traces of the route and version what ran in a row here did not.

    Args:
        reader: the store.
        place: where the trace belongs; without a route it has no others.
        split: the trace.
        spans: its spans.
        rules: what follows what.
    """
    wanted = pairs(split, spans, rules) if place.route is not None else set()
    if not wanted:
        return {}
    names = sorted({name for pair in wanted for name in pair})[:MAX_NAMES]
    named: dict[str, Value] = {f"name{number}": name for number, name in enumerate(names)}
    found = reader.sql(
        f"""SELECT trace_id, parent_id, name, start_ns, end_ns FROM spans
            WHERE {_AMONG} AND route_version IS NOT DISTINCT FROM CAST($version AS VARCHAR)
            AND name IN ({", ".join(f"${name}" for name in named)})""",  # noqa: S608 - ours
        {**_others(reader, place, split), "version": place.route_version, **named},
    )
    traces: dict[str, list[Sibling]] = {}
    for row in found.to_pylist():
        traces.setdefault(row.pop("trace_id"), []).append(Sibling(**row))
    return seen_apart(traces.values(), wanted)


def baseline(
    reader: Reader, place: Place, split: TracePartition, own: dict[str, Any] | None = None
) -> Baseline:
    """The other requests of a trace's route, the latest within a day of it.

    Args:
        reader: the store.
        place: where the trace belongs.
        split: the trace.
        own: facts of it (:mod:`longpole_analytics.trace_facts`); theirs are read only if it has
            any, since there is nothing to compare without.
    """
    import polars as pl

    from longpole_analytics.requests import from_views
    from longpole_analytics.shapes import Baseline
    from longpole_analytics.trace_facts import load_facts, with_facts

    ids = _others(reader, place, split)
    tables = [
        pl.DataFrame(reader.sql(f"SELECT * FROM {view} WHERE {_AMONG}", ids))  # noqa: S608 - ours
        for view in ("traces", "trace_stages", "calls")
    ]
    others = from_views(*tables)
    if own:
        at = split.start_ns
        told = load_facts(
            reader,
            (at - _DAY_NS, at + _DAY_NS),
            where=f"trace_id IN ({_OTHERS})",
            given=_given(place, split),
            engine_only=True,
        )
        others = with_facts(others, told)
    return Baseline.of_route(others, place.route, split.trace_id)


def shape(
    reader: Reader, place: Place, split: TracePartition, spans: Sequence[Span]
) -> dict[str, Any]:
    """The shape of a trace against the other traces of its route, as the document has it.

    ``name`` is null where there are too few of them.

    Args:
        reader: the store.
        place: where the trace belongs.
        split: the trace.
        spans: its spans.
    """
    from longpole_analytics.trace_facts import facts_of

    own = facts_of(spans)
    return shape_against(baseline(reader, place, split, own), place, split, own)


def shape_against(
    usual: Baseline, place: Place, split: TracePartition, own: dict[str, Any]
) -> dict[str, Any]:
    """The same against a baseline that is there already.

    Args:
        usual: see :func:`baseline`.
        place: where the trace belongs.
        split: the trace.
        own: its facts.
    """
    from longpole_analytics.shapes import ShapeRules, shape_of_trace

    rules = configured(ShapeRules(), "shapes")
    versions = {"route_version": place.route_version, "prompt_version": place.prompt_version}
    found = shape_of_trace(split, usual, rules, own | versions)
    return {
        "name": found.name,
        "sub_cause": found.sub_cause,
        "evidence": [evidence.document() for evidence in found.evidence],
        "next_check": found.next_check,
    }


def _given(place: Place, split: TracePartition) -> list[Value]:
    at = split.start_ns
    return [place.route, split.trace_id, at - _DAY_NS, at + _DAY_NS]


def _others(reader: Reader, place: Place, split: TracePartition) -> dict[str, Value]:
    """The ids of the others of a trace's route, as a query takes them."""
    found = reader.sql(_OTHERS, _given(place, split))
    return {"ids": ",".join(found["trace_id"].to_pylist())}
