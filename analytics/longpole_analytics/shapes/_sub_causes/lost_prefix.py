"""Why the cached beginning of prompts was lost, where it is known of the misses."""

from typing import Final

import numpy as np
import polars as pl

from longpole_analytics.shapes._measures import Measures
from longpole_analytics.shapes.base import Evidence, Finding, Refined, SubCause, TraceCase
from longpole_analytics.shapes.high_ttft import CACHE_LOST

COLUMN: Final = "miss_cause"
"""Dimension of a table of requests: why the prompt missed, see
:mod:`longpole_analytics.cache.misses`."""
METRIC: Final = "misses_for_this_reason"
LEAST: Final = 0.5
"""Of the misses, that have one reason; a first call of its kind is none."""
TEXTS: Final = {
    "volatile_prefix": "what stands in front changes from call to call",
    "tool_order": "the tools in another order",
    "tool_set": "other tools",
    "template_edit": "the prompt was edited",
    "ttl_expired": "the prefix had expired",
    "routing_scatter": "the prefix lies at another replica",
    "concurrent_write": "calls at once, before the first had written the prefix",
    "evicted_or_unknown": "the cache dropped it early",
}
CHECKS: Final = {
    "volatile_prefix": "move what changes from call to call to the end of the prompt",
    "tool_order": "sort the tool definitions, by name for example, before each call",
    "tool_set": "send one fixed list of tools on the route; choose among them with tool_choice",
    "template_edit": "release prompt versions less often, and append what is new",
    "ttl_expired": "pay for a longer life of the prefix, or send a call before it expires",
    "routing_scatter": "route by the prefix's hash, or set the provider's cache key",
    "concurrent_write": "send one call first and the others after its first token",
    "evicted_or_unknown": "ask the provider, or look at the engine's eviction count",
}


def test(m: Measures, finding: Finding) -> Refined | None:
    """The reason that most of the current misses have."""
    if not finding.sub_cause.startswith(CACHE_LOST) or COLUMN not in m.rows.columns:
        return None
    causes = m.rows[COLUMN].drop_nulls()
    causes = causes.filter(causes.is_in(list(TEXTS)))
    if not len(causes):
        return None
    counts = causes.value_counts(sort=True).sort("count", COLUMN, descending=[True, False])
    cause, num = counts.row(0)
    if num < LEAST * len(causes):
        return None
    row = Evidence(METRIC, None, num / len(causes), None, None, None, len(causes))
    return Refined(TEXTS[cause], (row,), CHECKS[cause])


def of_trace(case: TraceCase) -> Refined | None:
    """The trace's own reason, if its prompt read less from the cache than like requests do."""
    cause = case.facts.get(COLUMN)
    usual, own = case.others("cached_input_tokens"), case.number("cached_input_tokens")
    if cause not in TEXTS or own is None or not len(usual) or own >= float(np.median(usual)):
        return None
    row = Evidence(
        "cached_input_tokens", None, own, float(np.median(usual)), None, None, len(usual)
    )
    return Refined(TEXTS[str(cause)], (row,), CHECKS[str(cause)])


def with_causes(requests: pl.DataFrame, causes: pl.DataFrame) -> pl.DataFrame:
    """A table of requests with the dimension ``miss_cause``.

    Args:
        requests: the table.
        causes: ``trace_id`` and ``cause``, once a trace.
    """
    named = causes.select("trace_id", pl.col("cause").alias(COLUMN))
    kept = requests.drop(COLUMN, strict=False)
    return kept.join(named, on="trace_id", how="left", maintain_order="left")


SUB_CAUSE = SubCause(8, ("high_ttft_prefill",), test, of_trace)
