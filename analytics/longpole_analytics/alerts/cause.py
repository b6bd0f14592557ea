"""Why a budget burns: what the analysis of causes, shapes and changes says of the bad requests."""

from __future__ import annotations

from typing import Any, Final

import polars as pl

from longpole.vocab import Stage
from longpole_analytics.alerts.event import Cause
from longpole_analytics.attribution import Cause as SliceCause
from longpole_analytics.attribution import causes_of, worst
from longpole_analytics.changes import Change, changes
from longpole_analytics.cohort import Cohort, cohort
from longpole_analytics.excess import account
from longpole_analytics.reasons import reasons
from longpole_analytics.requests import dimension_names
from longpole_analytics.slo.objectives import AGES, LATENCIES, SCORES, Objective
from longpole_analytics.slo.series import judged

NUM_TRACES: Final = 3
MAX_SLICES: Final = 3
_STRONG: Final = 2.0
_BAD: Final = "is_bad_ms"
_HALF: Final = 0.5


def explain(
    requests: pl.DataFrame, calls: pl.DataFrame, objective: Objective, since_ns: int
) -> Cause:
    """The likely cause of an objective's bad requests.

    Args:
        requests: the objective's requests, with the time of each stage, from well before
            ``since_ns``.
        calls: rows of the view ``calls``.
        objective: the promise.
        since_ns: where the burning window begins; what is earlier is the usual.
    """
    verdict = judged(requests, objective)
    is_bad = (verdict == False).fill_null(False)  # noqa: E712 - of a column
    known = requests.filter(verdict.is_not_null()).drop((*SCORES, *AGES), strict=False)
    window = pl.col("start_ns") >= since_ns
    recent = known.filter(window)
    bad = requests.filter(is_bad & (requests["start_ns"] >= since_ns))
    traces = tuple(bad.sort("e2e_ms", descending=True, nulls_last=True)["trace_id"])[:NUM_TRACES]
    metric, limit = objective.metric, objective.threshold
    if metric not in LATENCIES or metric not in recent.columns:
        metric, limit = _BAD, _HALF
        flags = is_bad.filter(verdict.is_not_null()).filter(known.select(window).to_series())
        recent = recent.with_columns(flags.cast(pl.Float64).alias(_BAD))
    measured = recent.filter(pl.col(metric).is_finite()).sort("trace_id")
    if not measured.height:
        return Cause(unknown="no bad request tells its time: they failed", traces=traces)
    found = cohort(measured, metric, objective_ms=limit)
    if not found.num_slow:
        return Cause(unknown="the bad requests failed: no stage is slow", traces=traces)
    told = _told(found, calls, is_latency=metric != _BAD)
    shape = _shape(known.filter(~window), recent) if metric != _BAD else None
    change = _change(known, metric, told.get("slices", ())) if metric != _BAD else None
    return Cause(
        **told,
        shape=shape,
        change=None if change is None else _change_text(change),
        changed_ns=None if change is None else change.at_ns,
    )


def _told(found: Cohort, calls: pl.DataFrame, *, is_latency: bool) -> dict[str, Any]:
    """Stage, slices, confidence, next step, and the traces to look at: of the first slice."""
    above = account(found)
    names = [name for name in dimension_names(found.requests) if name != _BAD]
    answer = causes_of(found, above, dimensions=names)
    cause = answer.causes[0] if answer.causes else None
    slices = tuple(_slice(each) for each in answer.causes[:MAX_SLICES])
    every = found.is_slow[found.is_slow]
    traces = (cause.exemplars if cause else worst(found, above, every))[:NUM_TRACES]
    if not is_latency:
        said = "" if slices else f"no slice explains it: {answer.reason}"
        unknown = f"bad by outcome, so no stage is slow{'; ' if said else ''}{said}"
        step = "look at the error class of the bad requests"
        return {
            "slices": slices,
            "unknown": unknown,
            "confidence": _confidence(cause),
            "next_step": step,
            "traces": traces,
        }
    if cause is not None:
        stage, share, excess_ms = cause.stage, cause.share_of_excess, _excess_ms(cause)
    else:
        size = above.of(every)
        stage = size.stages[0].stage
        share, excess_ms = size.part(stage), size.stages[0].excess_ms / found.num_slow
    inside = pl.lit(pl.Series(found.is_slow))
    where = cause.where if cause else {}
    if where:
        inside = pl.all_horizontal(pl.col(n).eq_missing(value) for n, value in where.items())
    sides = found.requests.filter(inside), found.requests.filter(~inside)
    _, step = reasons(*sides, calls, stage, where)
    return {
        "stage": stage.value,
        "share_of_excess": share,
        "excess_ms": excess_ms,
        "slices": slices,
        "confidence": _confidence(cause) if cause else "low",
        "unknown": _unknown(cause, stage, share, answer.reason),
        "next_step": step,
        "traces": traces,
    }


def _excess_ms(cause: SliceCause) -> float | None:
    """What the stage adds to a slow request of the slice, on average."""
    total = next((each.excess_ms for each in cause.stages if each.stage == cause.stage), None)
    return None if total is None else total / max(cause.num_slow, 1)


def _unknown(cause: SliceCause | None, stage: Stage, share: float, reason: str | None) -> str:
    told = []
    if cause is None:
        told.append(f"no slice explains it{f': {reason}' if reason else ''}")
    if stage == Stage.TTFT_OPAQUE:
        told.append(f"{100 * share:.0f} % of the excess is opaque: no engine spans")
    return "; ".join(told)


def _confidence(cause: SliceCause | None) -> str:
    if cause is None:
        return "none"
    is_strong = cause.ci95[0] >= _STRONG and cause.of_slow >= _HALF  # at like lengths
    return "high" if is_strong else "medium"


def _slice(cause: SliceCause) -> dict[str, Any]:
    where = dict(cause.where)
    return {
        "where": where,
        "route": cause.route,
        "of_bad": round(cause.of_slow, 4),
        "of_rest": round(cause.of_rest, 4),
        "rr": round(cause.risk_ratio, 2) if cause.risk_ratio < 1e6 else None,
    }


def _shape(usual: pl.DataFrame, recent: pl.DataFrame) -> str | None:
    """The shape of the burning window against what was before it; ``None`` if not known."""
    from longpole_analytics.shapes import ShapeRules, shapes_of

    found = shapes_of(usual, recent, (), ShapeRules(num_replicates=200))
    return found[0].name if found else None


def _change(
    requests: pl.DataFrame, metric: str, slices: tuple[dict[str, Any], ...]
) -> Change | None:
    """The change that moved most, one of the blamed slices first."""
    blamed = {pair for part in slices for pair in part["where"].items()}
    found = changes(requests, metric)
    return max(
        found,
        key=lambda each: (bool(blamed & set(each.where.items())), each.moved_ms),
        default=None,
    )


def _change_text(change: Change) -> str:
    parts = []
    for name, value in change.where.items():
        old = change.previous.get(name)
        parts.append(f"{name} {old} -> {value}" if old else f"{name}={value}")
    return ", ".join(parts)
