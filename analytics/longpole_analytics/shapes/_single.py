"""The shape of one trace: the stage that took longest beyond what is usual on its route.

Usual is what requests of about the same length took. Nothing is said of a stage that stays
within the baseline's p95, unless it is beyond that of every other version: then a version made
the slowness usual.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import numpy as np
import polars as pl

from longpole.vocab import Stage
from longpole_analytics.advice import NEXT_CHECK
from longpole_analytics.shapes._refine import sub_causes_of_trace
from longpole_analytics.shapes._samples import Sample, sample
from longpole_analytics.shapes.base import NORMAL, Evidence, Shape, ShapeRules, TraceCase
from longpole_analytics.stages import TracePartition
from longpole_analytics.stats import is_shown, rank_interval
from longpole_analytics.wording import printable

SHAPE_OF: Final = {
    Stage.ADMISSION: "high_ttft_queue",
    Stage.NETWORK: "client_slow",
    Stage.QUEUE: "high_ttft_queue",
    Stage.COLD_START: "high_ttft_cold_start",
    Stage.TOKENIZE: "high_ttft_prefill",
    Stage.PREFILL: "high_ttft_prefill",
    Stage.FIRST_DECODE: "high_ttft_opaque",
    Stage.TTFT_OPAQUE: "high_ttft_opaque",
    Stage.LATER_DECODE: "high_tpot",
    Stage.STREAM: "client_slow",
    Stage.TOOL: "workflow_slow_serial_tools",
    Stage.RETRIEVAL: "high_ttft_retrieval",
    Stage.VALIDATION: "workflow_slow_wait",
    Stage.RETRY: "workflow_slow_retries",
    Stage.HUMAN_WAIT: "workflow_slow_wait",
    Stage.RENDER: "client_slow",
    Stage.OTHER: "workflow_slow_wait",
}
BY_INPUT: Final = (Stage.TOKENIZE, Stage.PREFILL, Stage.TTFT_OPAQUE)
MIX_CHECK: Final = "this request is longer than the route's usual: compare it with its like"
LENGTHS: Final = ("input_tokens", "output_tokens")
VERSIONS: Final = ("prompt_version", "route_version")
"""What slowed a whole version is usual for it: the trace is held against the others too."""
NEAREST_SHARE: Final = 0.2
"""Requests of about the trace's length: so many of the route's, those nearest."""


class _Excess(NamedTuple):
    stage: Stage
    ms: float
    usual: Sample

    @property
    def above_ms(self) -> float:
        return self.ms - self.usual.quantile(0.5)


class Usual(NamedTuple):
    """What is usual for a trace's like.

    Attributes:
        n: requests that it is held against.
        num_route: those of its route that they were chosen from.
        is_matched: chosen by length, which the trace tells.
        p50_ms: the median by stage; ``None`` where too few know it.
    """

    n: int
    num_route: int
    is_matched: bool
    p50_ms: dict[Stage, float | None]


@dataclass(frozen=True)
class Baseline:
    """What is usual on a route: its requests (:mod:`longpole_analytics.requests`)."""

    requests: pl.DataFrame

    @classmethod
    def of_route(
        cls, requests: pl.DataFrame, route: str | None, but: str | None = None
    ) -> Baseline:
        """The baseline of a route, without the trace that is judged; no route is one too."""
        kept = requests
        if "route" in requests.columns:
            kept = kept.filter(pl.col("route").eq_missing(pl.lit(route, pl.String)))
        return cls(kept.filter(pl.col("trace_id").ne_missing(but)) if but else kept)

    def like(self, tokens: Sequence[int | None], at_least: int) -> pl.DataFrame:
        """The requests nearest in length, on a logarithmic scale, that the baseline has."""
        count = max(at_least, round(NEAREST_SHARE * self.requests.height))
        apart = np.zeros(self.requests.height)
        for name, own in zip(LENGTHS, tokens, strict=True):
            theirs = self.requests[name].cast(pl.Float64).to_numpy()
            if own is not None and own > 0 and np.isfinite(theirs).any():
                with np.errstate(divide="ignore", invalid="ignore"):
                    apart += np.nan_to_num(np.abs(np.log(theirs / own)), nan=10.0, posinf=10.0)
        return self.requests[np.sort(np.argsort(apart, kind="stable")[:count])]

    def usual(self, split: TracePartition, rules: ShapeRules | None = None) -> Usual:
        """What each stage of a trace takes in requests of about its length.

        Args:
            split: the trace.
            rules: thresholds.
        """
        limits = rules or ShapeRules()
        tokens = [_tokens(split, name) for name in LENGTHS]
        like = self.like(tokens, limits.min_n(0.95))
        p50_ms: dict[Stage, float | None] = {}
        for stage in Stage:
            known = sample(like[f"{stage.value}_ms"].cast(pl.Float64).to_numpy())
            p50_ms[stage] = known.quantile(0.5) if is_shown(known.n, 0.5) else None
        return Usual(like.height, self.requests.height, any(map(bool, tokens)), p50_ms)


def shape_of_trace(
    split: TracePartition,
    baseline: Baseline,
    rules: ShapeRules | None = None,
    facts: Mapping[str, Any] | None = None,
) -> Shape:
    """The shape of a trace against its route's baseline.

    Args:
        split: the trace.
        baseline: the route's requests, as :meth:`Baseline.of_route` picks them.
        rules: thresholds.
        facts: what is known of the trace besides, by column of ``requests.FACTS`` and ``PLACES``,
            and its versions.
    """
    limits, known = rules or ShapeRules(), facts or {}
    found = _judged(split, baseline, limits, known)
    if found.name != NORMAL:
        return found
    for name in VERSIONS:
        own = known.get(name)
        if own is None or name not in baseline.requests.columns:
            continue
        others = baseline.requests.filter(pl.col(name) != own)
        unlike = _judged(split, Baseline(others), limits, known)
        if unlike.name not in (None, NORMAL):
            cause = f"{unlike.sub_cause}; usual for {name} {printable(str(own))}, not for others"
            return replace(unlike, sub_cause=cause)
    return found


def _judged(
    split: TracePartition, baseline: Baseline, limits: ShapeRules, facts: Mapping[str, Any]
) -> Shape:
    """The shape against one set of requests."""
    tokens = [_tokens(split, name) for name in LENGTHS]
    at_least = limits.min_n(0.95)
    like = baseline.like(tokens, at_least)
    if like.height < at_least:
        return _too_few(split, like.height, at_least)
    found = []
    for stage in Stage:
        usual = sample(like[f"{stage.value}_ms"].cast(pl.Float64).to_numpy())
        if usual.n >= at_least:
            found.append(_Excess(stage, split.critical_ns(stage) / 1e6, usual))
    whole = sample(like["e2e_ms"].to_numpy())
    if not found or not whole.n:
        return _too_few(split, 0, at_least)
    most = max(found, key=lambda excess: excess.above_ms)
    floor = max(limits.min_change_ms, limits.min_change_share * whole.quantile(0.5))
    rows = (*_rows(most), _row("e2e_ms", split.wall_ns / 1e6, whole, 0.5))
    if most.ms <= most.usual.quantile(0.95) or most.above_ms < floor:
        return Shape(name=NORMAL, sub_cause="within normal variation", evidence=rows)
    name, check, more = SHAPE_OF[most.stage], NEXT_CHECK[most.stage], None
    longer = _longer(most.stage, tokens, like, limits)
    if longer is not None:
        name, more = longer
        check = MIX_CHECK
    evidence = rows if more is None else (*rows, more)
    case = TraceCase(split, most.stage, facts, like, limits)
    refined = sub_causes_of_trace(case, name)
    checks = [each.next_check for each in refined if each.next_check is not None]
    return Shape(
        {},
        name,
        "; ".join((most.stage.value, *(each.text for each in refined))),
        (*evidence, *(row for each in refined for row in each.evidence)),
        checks[0] if checks else check,
        (),
        most.above_ms,
    )


def _longer(
    stage: Stage, tokens: Sequence[int | None], like: pl.DataFrame, rules: ShapeRules
) -> tuple[str, Evidence] | None:
    """A stage whose time grows with a length that even the nearest requests do not have."""
    if stage not in (*BY_INPUT, Stage.LATER_DECODE):
        return None
    which = int(stage == Stage.LATER_DECODE)
    own, name = tokens[which], LENGTHS[which]
    usual = sample(like[name].cast(pl.Float64).to_numpy())
    if own is None or not usual.n or own <= usual.quantile(0.95):
        return None
    if own < rules.min_ratio * usual.quantile(0.5):
        return None
    shape = "mix_longer_outputs" if which else "mix_longer_inputs"
    return shape, _row(name, float(own), usual, 0.5)


def _tokens(split: TracePartition, name: str) -> int | None:
    """Tokens of all the trace's calls; ``None`` where one of them does not tell."""
    counts = [getattr(call.span, name) for call in split.calls]
    return sum(counts) if counts and None not in counts else None


def _rows(most: _Excess) -> tuple[Evidence, Evidence]:
    metric = f"{most.stage.value}_ms"
    return _row(metric, most.ms, most.usual, 0.5), _row(metric, most.ms, most.usual, 0.95)


def _row(metric: str, value: float, usual: Sample, q: float) -> Evidence:
    """The trace's value against a quantile of the baseline and its interval."""
    before = usual.quantile(q)
    ranks = rank_interval(usual.n, q)
    ends = [float(usual.values[rank - 1]) if rank else 0.0 for rank in ranks]
    bounds = (value / ends[1], value / ends[0]) if min(ends) > 0 else None
    ratio = value / before if before > 0 else None
    return Evidence(metric, q, value, before, ratio, bounds, usual.n)


def _too_few(split: TracePartition, n: int, at_least: int) -> Shape:
    row = Evidence("e2e_ms", None, split.wall_ns / 1e6, None, None, None, n)
    return Shape(
        sub_cause=f"too few samples: {n} like requests on its route",
        evidence=(row,),
        next_check=f"record at least {at_least} requests of the route to compare with",
    )
