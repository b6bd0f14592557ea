"""On top of Stages & slices: where the time of the slice that takes most goes."""

import math
from collections.abc import Mapping

from longpole_analytics.slice_labels import OTHER
from longpole_analytics.stage_slices import Part, StageMean, StageSlice
from longpole_dashboard.model import text
from longpole_dashboard.model.stages import DEFAULT_METRIC, StagesView, metric_name, slice_name
from longpole_dashboard.model.verdict_lines.base import Line, name, next_check, sized
from longpole_dashboard.theme import look


def of_stages(shown: StagesView) -> Line:
    """Which stage holds most of the time of the slice that takes most; of its slowest tenth, too.

    That is said apart where it is another stage.
    """
    found = () if shown.stages is None else shown.stages.slices
    known = [each for each in found if each.parts[0].stages]
    if not known:
        return Line(
            f"No verdict: no workflow here tells its {metric_name(shown.metric)} and its stages."
        )
    named = [each for each in known if OTHER not in each.where.values()]
    weights = _weights(shown)
    each = max(named or known, key=lambda slice_: _time(slice_, weights))
    whole, *tails = each.parts
    first = _largest(whole)
    line = (
        f"{_slice(each)}: {look(first.stage).label} holds {text.percent(first.share)} of the time "
        f"({_took(whole, first, shown.metric)}, {sized(whole.n)})"
    )
    last, tail = first, tails[0] if tails else None
    if tail is not None and tail.stages and _largest(tail).stage != first.stage:
        last = _largest(tail)
        of = "" if shown.metric == DEFAULT_METRIC else f" of {metric_name(shown.metric)}"
        line += (
            f"; above its p90{of} it is {look(last.stage).label}, {text.percent(last.share)} "
            f"({_took(tail, last, shown.metric)}, n {text.count(tail.n)})"
        )
    return Line(f"{line}.", (next_check(last.stage),))


def _weights(shown: StagesView) -> Mapping[tuple[str | None, ...], float]:
    """How many workflows one that is read stands for, by slice."""
    found = () if shown.quantiles is None else shown.quantiles.slices
    return {tuple(each.where.values()): each.weight / each.n for each in found if each.n}


def _time(each: StageSlice, weights: Mapping[tuple[str | None, ...], float]) -> float:
    """All time of a slice on the critical path, ms."""
    weight = weights.get(tuple(each.where.values()), 1.0)
    return weight * each.parts[0].n * math.fsum(stage.mean_ms for stage in each.parts[0].stages)


def _largest(part: Part) -> StageMean:
    return max(part.stages, key=lambda stage: stage.mean_ms)


def _took(part: Part, stage: StageMean, metric: str) -> str:
    """``452 ms of 930 ms on average``; the whole only where it is the mean that the page shows."""
    took = text.duration(stage.mean_ms)
    whole = text.duration(math.fsum(each.mean_ms for each in part.stages))
    is_shown = metric == DEFAULT_METRIC and whole == text.duration(part.mean)
    return f"{took} of {whole} on average" if is_shown else f"{took} on average"


def _slice(each: StageSlice) -> str:
    """A slice as the subject of a sentence: a route by its name alone."""
    told = []
    for by, value in each.where.items():
        if value is None or value == OTHER:
            told.append(f"{by} {slice_name(value)}")
        else:
            told.append(value if by == "route" else f"{by}={value}")
    return name(", ".join(told) or "all")
