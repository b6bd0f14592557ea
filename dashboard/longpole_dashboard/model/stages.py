"""What the page of stages and slices shows: where the time of each slice goes, and how much."""

from dataclasses import dataclass
from typing import Final

import polars as pl

from longpole_analytics.loading import requests_of
from longpole_analytics.requests import OUTCOME_TIMES, dimension_names
from longpole_analytics.slice_labels import DERIVED, OTHER, TIMES
from longpole_analytics.slices import Slices, slices
from longpole_analytics.stage_slices import StageSlices, stage_slices
from longpole_analytics.top import METRICS
from longpole_collector.stores.base import Reader
from longpole_dashboard.model.scope import Scope, scope
from longpole_dashboard.model.window import Filters
from longpole_dashboard.theme import LOOKS, look

DEFAULT_METRIC: Final = "e2e_ms"
_NUMBERS: Final = (
    *("input_tokens", "cached_input_tokens", "uncached_input_tokens", "output_tokens"),
    *("num_turns", "num_tools", "num_attempts", "in_flight"),
)
_MARKS: Final = ("cache_state", "is_cold", "is_error")
_FIRST: Final = ("route", "prompt_version", "request_model", "service", "root_name")
"""What is split by first, the first of them that has two values."""
LENGTH: Final = "input_tokens"
_CACHES: Final = ("cache_state", "cached_input_tokens")
"""What stands across from the length, the first that was sent."""


@dataclass(frozen=True)
class Grid:
    """A metric by prompt length (rows) and the state of the cache (columns)."""

    cache: str
    cells: Slices
    command: str


@dataclass(frozen=True)
class StagesView:
    """Everything on the page; ``num_requests`` 0 means there is nothing to slice.

    Attributes:
        scope: what was loaded.
        num_requests: complete workflows that meet the filters.
        by: the dimension that is split by.
        metric: what is measured.
        dimensions: what may be split by.
        metrics: what may be measured.
        not_sent: dimensions of which no workflow has a value.
        quantiles: by slice.
        stages: by slice, in the same order.
        command: what gives both.
        grid: ``None`` where prompt lengths, or all that tells of caches, were not sent.
    """

    scope: Scope
    num_requests: int
    by: str = ""
    metric: str = DEFAULT_METRIC
    dimensions: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()
    not_sent: tuple[str, ...] = ()
    quantiles: Slices | None = None
    stages: StageSlices | None = None
    command: str = ""
    grid: Grid | None = None


def stages(
    filters: Filters, by: str | None, metric: str | None, tz: str, reader: Reader
) -> StagesView:
    """The page's content.

    Args:
        filters: of the bar.
        by: what to split by; ``None``, or what was not sent, is the first that tells two apart.
        metric: what to measure; ``None``, or what was not sent, is the whole time.
        tz: the time zone whose days and hours are meant.
        reader: the store.
    """
    chosen = scope(filters, reader)
    found = requests_of(
        reader, where=chosen.where, since_ns=chosen.since_ns, until_ns=chosen.until_ns
    )
    if found.is_empty():
        return StagesView(chosen, 0)
    sent, not_sent = _dimensions(found)
    metrics = tuple(name for name in (*METRICS, *OUTCOME_TIMES) if found[name].count())
    by = by if by in sent else _first(found, sent)
    metric = metric if metric in metrics else DEFAULT_METRIC
    options = ("--by", by, "--metric", metric, *(("--tz", tz) if by in TIMES else ()))
    return StagesView(
        chosen,
        found.height,
        by,
        metric,
        sent,
        metrics,
        not_sent,
        slices(found, [by], metric, tz=tz),
        stage_slices(found, [by], metric, tz=tz),
        chosen.command("slices", *options, "--stages"),
        _grid(found, sent, metric, chosen),
    )


def _dimensions(found: pl.DataFrame) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What requests can be split by, and what could be had it been sent."""
    sent, not_sent = list[str](), list[str]()
    for name in (*dimension_names(found), *_MARKS, *_NUMBERS):
        columns = DERIVED.get(name, (name,))
        is_sent = all(found[column].count() for column in columns)
        (sent if is_sent else not_sent).append(name)
    return (*sent, *TIMES), tuple(not_sent)


def _first(found: pl.DataFrame, sent: tuple[str, ...]) -> str:
    known = [name for name in _FIRST if name in sent]
    several = [name for name in known if found[name].n_unique() > 1]
    return next(iter([*several, *known, "day"]))


def _grid(found: pl.DataFrame, sent: tuple[str, ...], metric: str, chosen: Scope) -> Grid | None:
    cache = next((name for name in _CACHES if name in sent), None)
    if cache is None or LENGTH not in sent:
        return None
    command = chosen.command("slices", "--by", f"{LENGTH},{cache}", "--metric", metric)
    return Grid(cache, slices(found, [LENGTH, cache], metric), command)


_METRICS: Final = {
    "e2e_ms": "whole workflow",
    "ttft_ms": "TTFT",
    "ttfv_ms": "time to first visible",
    "tpot_ms": "TPOT, per token",
    "model_ms": "model call",
    "client_ms": "client",
    "stall_ms": "stalls",
    "chunk_gap_p50_ms": "p50 gap",
    "chunk_gap_p99_ms": "p99 gap",
    "chunk_gap_max_ms": "longest gap",
    "e2e_at_equal_length_ms": "workflow at an equal length",
    "time_to_useful_ms": "time to useful",
    "time_to_accepted_ms": "time to accepted",
}


def metric_name(metric: str) -> str:
    """What a page calls a metric; of a stage's time, the stage."""
    stage = metric.removesuffix("_ms")
    return _METRICS.get(metric) or (f"stage {look(stage).label}" if stage in LOOKS else metric)


def slice_name(value: str | None) -> str:
    """What a page calls a slice's value."""
    if value is None:
        return "(unknown)"
    return "(all others)" if value == OTHER else value
