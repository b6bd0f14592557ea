"""Steps that ran one after the other and may not have to, over many traces.

Runs of siblings are found over all traces at once and grouped by the names in them; of each
pattern a few traces go through :func:`longpole_analytics.serial.opportunities`, which says what
may run side by side and how well that is known. What most of them agree on is replayed in all.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np
import polars as pl

from longpole.vocab import Span, Stage
from longpole_analytics.advisor._apart import Families
from longpole_analytics.advisor._population import Population
from longpole_analytics.advisor._replay import Change
from longpole_analytics.advisor._thresholds import AdvisorRules
from longpole_analytics.advisor.base import LOW, MEDIUM, Candidate, Fact, ask, same, text
from longpole_analytics.frames import spans_from_table
from longpole_analytics.serial import (
    Names,
    Opportunity,
    SerialRules,
    opportunities,
    pairs,
)
from longpole_analytics.stages import partition

MAX_OTHERS: Final = 2_000
"""Traces of a route in which two names are looked for apart."""
_STEP_STAGES: Final = frozenset((Stage.TOOL.value, Stage.RETRIEVAL.value))
_SEQUENTIAL: Final = ("rerank", "embed")
"""Words in names of steps that come after, or before, a search by their nature."""


class Pattern(NamedTuple):
    """Runs of the same names on one route that may be cut: ``segments`` of each may run at once.

    ``asked``: a model asked for all of them in one answer.
    """

    route: str | None
    names: tuple[str, ...]
    segments: frozenset[int]
    grade: str
    asked: bool
    num_sampled: int
    num_agreed: int
    parallelism: float
    num_apart: int
    rate_limit: str | None
    rows: pl.DataFrame


def patterns(pop: Population, rules: AdvisorRules) -> list[Pattern]:
    """The patterns that may be cut, found once for a population."""
    if "serial" not in pop.memo:
        pop.memo["serial"] = list(_patterns(pop, rules))
    found: list[Pattern] = pop.memo["serial"]
    return found


def _runs(pop: Population, serial: SerialRules) -> pl.DataFrame:
    """Siblings that follow each other at once, with their run and their place in it.

    ``segment`` counts changes of the name within a run.
    """
    columns = ["row", "trace", "parent", "route", "name", "stage", "start_ns", "end_ns"]
    is_below = pl.col("parent").is_not_null() & pl.col("end_ns").is_not_null()
    nodes = pop.spans.filter(pl.col("is_node") & pl.col("is_sound") & is_below)
    nodes = nodes.select(*columns, "length_ns").sort("parent", "start_ns", "row")
    before = pl.col("end_ns").shift(1)
    shorter = pl.min_horizontal(pl.col("length_ns"), pl.col("length_ns").shift(1))
    limit = pl.max_horizontal(pl.lit(serial.max_gap_ms * 1e6), shorter * serial.max_gap_share)
    gap = pl.col("start_ns") - before
    follows = (pl.col("parent") == pl.col("parent").shift(1)) & (gap >= 0) & (gap <= limit)
    nodes = nodes.with_columns(run=(~follows.fill_null(False)).cum_sum())
    nodes = nodes.filter(pl.len().over("run") > 1)
    is_new = (pl.col("name") != pl.col("name").shift(1)).fill_null(True)
    nodes = nodes.with_columns(segment=is_new.cast(pl.Int64).cum_sum().over("run") - 1)
    kinds = nodes.group_by("run", maintain_order=True).agg(
        pl.col("name").filter(is_new).str.replace_all("\x1f", "", literal=True).alias("names"),
        bound=pl.col("length_ns").sum() - pl.col("length_ns").max(),
    )
    return nodes.join(kinds, on="run", how="left", maintain_order="left")


def _patterns(pop: Population, rules: AdvisorRules) -> Any:
    serial = SerialRules()
    runs = _runs(pop, serial)
    if runs.is_empty():
        return
    runs = runs.with_columns(names=pl.col("names").list.join("\x1f"))
    kinds = (
        runs.group_by("route", "names")
        .agg(num=pl.col("run").n_unique(), bound=pl.col("bound").sum())
        .filter(pl.col("num") >= min(rules.min_calls, 10))
        .sort("bound", "names", descending=[True, False])
        .head(rules.max_patterns)
    )
    kinds = kinds.with_columns(pattern=pl.int_range(pl.len(), dtype=pl.Int64))
    parts = runs.join(
        kinds.select("route", "names", "pattern"), on=["route", "names"], nulls_equal=True,
        maintain_order="left",
    ).partition_by("pattern", as_dict=True)  # fmt: skip
    for number, (route, names) in enumerate(kinds.select("route", "names").iter_rows()):
        at = parts[number,]
        yield from _of_pattern(pop, rules, serial, route, tuple(names.split("\x1f")), at)


def _of_pattern(
    pop: Population,
    rules: AdvisorRules,
    serial: SerialRules,
    route: str | None,
    names: tuple[str, ...],
    at: pl.DataFrame,
) -> list[Pattern]:
    traces = at["trace"].unique(maintain_order=True)
    step = max(len(traces) // rules.sample_traces, 1)
    sampled = traces.gather_every(step).head(rules.sample_traces).to_list()
    samples = _samples(pop, sampled)
    splits = [partition(spans) for _, spans in samples]
    wanted = {
        pair for split, (_, s) in zip(splits, samples, strict=True) for pair in pairs(split, s)
    }
    apart = _apart(pop, route, sampled, wanted) if wanted else {}
    own = at.filter(pl.col("trace").is_in(sampled))
    segment_of = dict(own.select("row", "segment").iter_rows())
    agreed: dict[frozenset[int], list[tuple[Opportunity, bool]]] = {}
    for split, (rows, spans) in zip(splits, samples, strict=True):
        ids = {span.span_id: k for k, span in enumerate(spans)}
        for one in opportunities(split, spans, apart, serial):
            places = [segment_of.get(rows[ids[span_id]]) for span_id in one.span_ids]
            if None not in places and _is_told(one, [spans[ids[i]] for i in one.span_ids]):
                key = frozenset(int(place) for place in places if place is not None)
                agreed.setdefault(key, []).append((one, _is_asked(one, spans, ids)))
    found, taken = [], set[int]()
    for segments, ones in sorted(agreed.items(), key=lambda each: -len(each[1])):
        if len(ones) < rules.pattern_share * len(sampled) or segments & taken:
            continue
        taken |= segments
        first = ones[0][0]
        found.append(
            Pattern(
                route=route,
                names=tuple(names[k] for k in sorted(segments)),
                segments=segments,
                grade=Counter(one.evidence for one, _ in ones).most_common(1)[0][0],
                asked=sum(asked for _, asked in ones) * 2 > len(ones),
                num_sampled=len(sampled),
                num_agreed=len(ones),
                parallelism=float(np.median([one.parallelism for one, _ in ones])),
                num_apart=first.num_traces_apart,
                rate_limit=first.rate_limit,
                rows=at.filter(pl.col("segment").is_in(list(segments))),
            )
        )
    return found


def _samples(pop: Population, traces: Sequence[int]) -> list[tuple[list[int], list[Span]]]:
    """The spans of some traces, in the order of their rows, and these rows."""
    found: dict[int, tuple[list[int], list[Span]]] = {trace: ([], []) for trace in traces}
    rows = pop.spans.filter(pl.col("trace").is_in(list(traces))).select("trace", "row")
    spans = spans_from_table(pop.table.take(rows["row"].to_numpy()))
    for (trace, row), span in zip(rows.iter_rows(), spans, strict=True):
        found[trace][0].append(row)
        found[trace][1].append(span)
    return list(found.values())


def _apart(
    pop: Population, route: str | None, own: Sequence[int], wanted: set[Names]
) -> dict[Names, int]:
    """In how many other traces of the route the names of each pair are seen apart."""
    names = sorted({name for pair in wanted for name in pair})[:64]
    families = _families(pop, route)
    traces = np.setdiff1d(families.with_any(names), own, assume_unique=True)
    kept = traces[:: max(len(traces) // MAX_OTHERS, 1)][:MAX_OTHERS]
    known = {pair for pair in wanted if {*pair} <= {*names}}
    counts = {pair: int(np.isin(kept, families.apart(*pair)).sum()) for pair in known}
    return dict.fromkeys(wanted, 0) | counts


def _families(pop: Population, route: str | None) -> Families:
    """The steps of a route, gathered once for a population."""
    key = f"families of {route!r}"
    if key not in pop.memo:
        is_own = pl.col("route").eq_missing(pl.lit(route, pl.String)) & pl.col("is_node")
        pop.memo[key] = Families(pop.spans.filter(is_own))
    found: Families = pop.memo[key]
    return found


def _is_told(one: Opportunity, spans: Sequence[Span]) -> bool:
    """Whether more than an order is known of them, or they are of one kind by their nature."""
    if one.evidence != "E1":
        return True
    if any(span.is_model_call for span in spans):
        return all(span.is_model_call for span in spans) and not _goes_on(spans)
    if len(set(one.names)) == 1:
        return True
    if any(word in name.lower() for name in one.names for word in _SEQUENTIAL):
        return False
    return {span.stage for span in spans} <= _STEP_STAGES


def _goes_on(calls: Sequence[Span]) -> bool:
    """Whether a later call may hold an earlier one's prompt and answer: a conversation goes on.

    Where sizes are not known it may.
    """
    for earlier, later in pairwise(calls):
        sizes = (earlier.input_tokens, earlier.output_tokens, later.input_tokens)
        if None in sizes:
            return True
        size, made, given = (number or 0 for number in sizes)
        if given >= size + made / 2:
            return True
    return False


def _is_asked(one: Opportunity, spans: Sequence[Span], ids: dict[str, int]) -> bool:
    """Whether tools follow at once an answer that asked for tools."""
    group = [spans[ids[span_id]] for span_id in one.span_ids]
    if any(span.stage != Stage.TOOL for span in group):
        return False
    if one.evidence == "E3":
        return True
    start = min(span.start_ns for span in group)
    before = [
        span
        for span in spans
        if span.is_model_call and not span.is_engine and (span.end_ns or start + 1) <= start
    ]
    return bool(before) and max(before, key=lambda s: s.end_ns or 0).finish_reason == "tool_call"


def candidate(found: Pattern, confidence: str, title: str, change: str) -> Candidate:
    """A pattern as an advice."""
    rows = found.rows
    first = rows.group_by("run", maintain_order=True).agg(leader=pl.col("row").first())
    rows = rows.join(first, on="run", how="left", maintain_order="left")
    caution = (
        f" They all call {text(found.rate_limit)}: mind its rate limit." if found.rate_limit else ""
    )
    where = {"route": found.route}
    names = dict.fromkeys(found.names)
    wanted = ", ".join("'{}'".format(name.replace("'", "''")) for name in names)
    return Candidate(
        where={**where, "steps": " -> ".join(text(name) for name in found.names)},
        title=title,
        change=f"{change}{caution}",
        verify=ask(
            "trace_id, (max(end_ns) - min(start_ns)) / 1e6 AS all_ms, "
            "sum(end_ns - start_ns) / 1e6 AS sum_ms",
            "spans",
            f"name IN ({wanted})",
            f"trace_id IN (SELECT trace_id FROM traces WHERE {same('route', found.route)})",  # noqa: S608 - a command for a person
            more=" GROUP BY trace_id ORDER BY max(end_ns) DESC LIMIT 20",
        ),
        evidence=(
            Fact("traces_that_agree", found.num_agreed, found.num_sampled),
            Fact("achieved_parallelism", found.parallelism, found.num_agreed),
            Fact("other_traces_with_another_order", found.num_apart, found.num_sampled),
        ),
        touched=rows["trace"].unique().to_numpy(),
        replayed=Change(members=rows["row"].to_numpy(), leaders=rows["leader"].to_numpy()),
        confidence=confidence,
    )


GRADES: Final = {"E1": LOW, "E2": MEDIUM}
