"""What the page of comparisons shows: two populations against each other, or two traces."""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import polars as pl

from longpole.vocab import Stage
from longpole_analytics.compare_loading import compared_of
from longpole_analytics.loading import select
from longpole_analytics.price_overrides import configured_prices
from longpole_analytics.requests import dimension_names
from longpole_analytics.scorecard.card import scorecard
from longpole_analytics.scorecard.render import blocks, markdown, page
from longpole_analytics.scorecard.rules import CardRules, Plan
from longpole_analytics.scorecard.sides import METRICS
from longpole_analytics.thresholds import configured
from longpole_collector.stores.base import Reader
from longpole_dashboard.model.clock import iso
from longpole_dashboard.model.scope import MAX_TRACES, Scope, condition, scope
from longpole_dashboard.model.window import Filters

TIME: Final = "time"
"""What is compared is what the bar compares with."""
TRACES: Final = "two traces"
"""Nothing of populations is: see :func:`two_traces`."""
MAX_VALUES: Final = 50
"""Values of a dimension that one may choose among; one with more is no choice."""
_MARKS: Final = ("cache_state", "is_cold")
_FIRST: Final = ("prompt_version", "route_version", "request_model", "route")
_PLAIN: Final = re.compile(r"[a-z_][a-z0-9_]*")


class Dimension(NamedTuple):
    """A dimension of which at least two values were sent, the one first seen first."""

    name: str
    values: tuple[str, ...]


@dataclass(frozen=True)
class Asked:
    """What a comparison is asked for, as the address has it; what is ``None`` is chosen here.

    Attributes:
        of: :data:`TIME`, :data:`TRACES`, or a dimension.
        base: its value that is the baseline.
        cand: its value that is the candidate.
        target: the metric that decides.
        is_swapped: baseline and candidate of the bar are exchanged.
    """

    of: str | None = None
    base: str | None = None
    cand: str | None = None
    target: str | None = None
    is_swapped: bool = False


@dataclass(frozen=True)
class Comparison:
    """Two populations compared.

    Attributes:
        asked: what is compared, nothing left open.
        dimensions: what else may be compared.
        targets: metrics that may decide.
        names: of baseline and candidate, as a page calls them.
        document: ``longpole.compare/1``; ``None`` where there are no two sides.
        reason: why not.
        command: what gives the document.
        limits: what the page must admit.
        written: the scorecard as one HTML file, and as Markdown.
    """

    asked: Asked
    dimensions: tuple[Dimension, ...] = ()
    targets: tuple[str, ...] = ()
    names: tuple[str, str] = ("", "")
    document: Mapping[str, Any] | None = None
    reason: str = ""
    command: str = ""
    limits: tuple[str, ...] = ()
    written: tuple[str, str] = ("", "")


class _Part(NamedTuple):
    """One side: its requests, its name, and how the command is told of it."""

    requests: pl.DataFrame
    name: str
    word: str


def compare(filters: Filters, asked: Asked, reader: Reader) -> Comparison:
    """Compare two populations of the window, or the window with what the bar compares with."""
    chosen = scope(filters, reader, most=MAX_TRACES // 2)
    found = _load(chosen, reader)
    dimensions = _dimensions(found)
    of = _of(asked.of, dimensions, has_baseline=filters.baseline is not None)
    settled = replace(asked, of=of)
    if of == TRACES:
        return Comparison(settled, dimensions)
    if of == TIME:
        if filters.baseline is None:
            reason = "There is nothing before this range to compare it with: choose a dimension."
            return Comparison(settled, dimensions, reason=reason, limits=chosen.limits())
        sides, options, limits = _by_bar(filters, filters.baseline, chosen, found, reader)
        sides = sides[::-1] if asked.is_swapped else sides
    else:
        values = next(each.values for each in dimensions if each.name == of)
        base = asked.base if asked.base in values else values[0]
        others = [value for value in values if value != base]
        cand = asked.cand if asked.cand in others else others[0]
        settled = replace(settled, base=base, cand=cand, is_swapped=False)
        sides, limits = (_part(found, of, base), _part(found, of, cand)), chosen.limits()
        options = _window(chosen)
    return _compared(settled, dimensions, sides, options, limits)


def _compared(
    asked: Asked,
    dimensions: tuple[Dimension, ...],
    sides: Sequence[_Part],
    options: list[str],
    limits: tuple[str, ...],
) -> Comparison:
    base, cand = sides
    targets = tuple(
        name
        for name in METRICS
        if any(name in s.requests.columns and s.requests[name].count() for s in sides)
    )
    target = asked.target if asked.target in targets else "e2e_ms"
    plan, rules = Plan(target), configured(CardRules(), "compare")
    document = scorecard(base.requests, cand.requests, plan, rules).document()
    words = ["longpole", "compare", base.word, cand.word, *options]
    words += ["--target", target] if target != "e2e_ms" else []
    shown = blocks(document, (base.name, cand.name))
    title = f"{cand.name} against {base.name}"
    return Comparison(
        replace(asked, target=target),
        dimensions,
        targets,
        (base.name, cand.name),
        document,
        "",
        shlex.join([*words, "--json"]),
        limits,
        (page(title, shown), markdown(title, shown)),
    )


# --- sides --------------------------------------------------------------------------------------
def _load(chosen: Scope, reader: Reader, *, is_whole: bool = False) -> pl.DataFrame:
    return compared_of(
        reader,
        configured_prices(),
        where=None if is_whole else chosen.where,
        since_ns=chosen.since_ns,
        until_ns=chosen.until_ns,
    )


def _by_bar(
    now: Filters, baseline: Filters, chosen: Scope, found: pl.DataFrame, reader: Reader
) -> tuple[tuple[_Part, _Part], list[str], tuple[str, ...]]:
    """The window against what the bar names: another time, or the same with another version."""
    before = scope(baseline, reader, most=MAX_TRACES // 2)
    if (now.start_ns, now.end_ns) == (baseline.start_ns, baseline.end_ns):
        whole = _load(chosen, reader, is_whole=True)
        # a request on both sides would make them alike: the version is taken out of the others
        named = {match.column for match in now.where if not match.is_not}
        extra = [m for m in baseline.where if m not in now.where and m.column not in named]
        others = (*now.where, *(match._replace(is_not=not match.is_not) for match in extra))
        rest, _ = condition(others, "requests", reader)
        name = f"not {now.versus}" if extra else "this selection"
        words = ((now.versus, before.where or "true"), (name, rest or "true"))
        parts = [_Part(select(whole, word), name, word) for name, word in words]
        options = ["--since", iso(chosen.since_ns), "--at", iso(chosen.until_ns)]
        return (parts[0], parts[1]), options, chosen.limits()
    if before.until_ns > chosen.since_ns >= before.since_ns:
        # whole microseconds: what lies between the two belongs to the later one
        before = replace(before, until_ns=max(chosen.since_ns, before.since_ns))
    sides = (
        _Part(_load(before, reader), now.versus, before.range),
        _Part(found, "this period", chosen.range),
    )
    options = ["--where", chosen.where] if chosen.where else []
    limits = (*chosen.limits(), *(f"{now.versus}: {said}" for said in before.limits()))
    return sides, options, limits


def _part(found: pl.DataFrame, name: str, value: str) -> _Part:
    column = name if _PLAIN.fullmatch(name) else '"' + name.replace('"', '""') + '"'
    word = f"{column} = '" + value.replace("'", "''") + "'"
    return _Part(select(found, word), f"{name} {value}", word)


def _window(chosen: Scope) -> list[str]:
    where = ["--where", chosen.where] if chosen.where else []
    return ["--since", iso(chosen.since_ns), "--at", iso(chosen.until_ns), *where]


def _dimensions(found: pl.DataFrame) -> tuple[Dimension, ...]:
    """What tells at least two groups of requests apart, and not too many."""
    made = []
    for name in (*dimension_names(found), *_MARKS):
        column = found[name]
        if not (column.dtype == pl.String or column.dtype == pl.Boolean):
            continue
        values = column.cast(pl.String).drop_nulls().unique(maintain_order=True)
        if 2 <= len(values) <= MAX_VALUES:
            made.append(Dimension(name, tuple(values)))
    return tuple(made)


def _of(asked: str | None, dimensions: tuple[Dimension, ...], *, has_baseline: bool) -> str:
    known = [each.name for each in dimensions]
    if asked in (TIME, TRACES, *known) and asked is not None:
        return asked
    if has_baseline:
        return TIME
    return next(iter([*(n for n in _FIRST if n in known), *known, TIME]))


# --- two traces ---------------------------------------------------------------------------------
class StagePair(NamedTuple):
    """A stage's time on the critical path of two traces; 0 where a trace has none."""

    stage: str
    first_ms: float
    second_ms: float


@dataclass(frozen=True)
class TracePair:
    """Two traces; ``missing`` are those that are not stored."""

    ids: tuple[str, str]
    missing: tuple[str, ...]
    walls_ms: tuple[float, ...] = ()
    routes: tuple[str | None, ...] = ()
    outcomes: tuple[str | None, ...] = ()
    stages: tuple[StagePair, ...] = ()


def two_traces(first: str, second: str, reader: Reader) -> TracePair:
    """The stages of two traces beside each other, in the order in which a request meets them."""
    ids = (first, second)
    rows = reader.sql(
        "SELECT trace_id, wall_ms, route, outcome FROM traces WHERE trace_id IN (?, ?)", ids
    ).to_pylist()
    known = {row["trace_id"]: row for row in rows}
    missing = tuple(dict.fromkeys(each for each in ids if each not in known))
    if missing:
        return TracePair(ids, missing)
    stages = reader.sql(
        "SELECT trace_id, stage, critical_ms FROM trace_stages WHERE trace_id IN (?, ?)", ids
    ).to_pylist()
    times = {(row["trace_id"], row["stage"]): row["critical_ms"] for row in stages}
    pairs = [
        StagePair(stage, *(times.get((each, stage.value)) or 0.0 for each in ids))
        for stage in Stage
    ]
    return TracePair(
        ids,
        (),
        tuple(known[each]["wall_ms"] for each in ids),
        tuple(known[each]["route"] for each in ids),
        tuple(known[each]["outcome"] for each in ids),
        tuple(pair for pair in pairs if pair.first_ms or pair.second_ms),
    )
