"""The sentence on top of the Overview: what is slow, where, for whom, and what to do."""

from dataclasses import dataclass
from typing import Final, Literal

import polars as pl

from longpole_analytics.finding import Finding, find
from longpole_analytics.wording import quantile_name, where_text
from longpole_collector.stores.base import Reader
from longpole_dashboard.model import text
from longpole_dashboard.model.window import IN_WINDOW, Filters
from longpole_dashboard.theme import look

METRIC: Final = "ttft_ms"
MAX_TRACES: Final = 5_000
"""The finding rests on at most so many of the window's newest workflows, and on
``MAX_CALLS`` of their calls: what one query of a store may return."""
MAX_CALLS: Final = 100_000

_CHOSEN: Final = f"FROM traces WHERE {IN_WINDOW} ORDER BY start_ns DESC LIMIT {MAX_TRACES}"
_QUERIES: Final = (
    f"SELECT * {_CHOSEN}",
    f"SELECT * FROM trace_stages WHERE trace_id IN (SELECT trace_id {_CHOSEN})",  # noqa: S608
    f"SELECT * FROM calls WHERE trace_id IN (SELECT trace_id {_CHOSEN}) LIMIT {MAX_CALLS}",  # noqa: S608
)
"""Traces, stages and calls, written with our own constants only."""


@dataclass(frozen=True)
class Verdict:
    """A sentence, the facts behind it, and whether it says that something is wrong.

    ``exemplar`` is a trace that shows it; ``None`` when there is no finding.
    """

    line: str
    facts: tuple[str, ...] = ()
    tone: Literal["worse", "grey"] = "grey"
    exemplar: str | None = None


def verdict(filters: Filters, objective_ms: float | None, reader: Reader) -> Verdict:
    """The finding for these filters and, if any, this TTFT objective; says when there is none."""
    traces, stages, calls = (_frame(reader, query, filters) for query in _QUERIES)
    found = find(traces, stages, calls, objective_ms=objective_ms, metric=METRIC)
    if found is None:
        return Verdict(
            "No finding: no route has 20 workflows with a TTFT and a slow one among them here."
        )
    return told(found)


def told(found: Finding) -> Verdict:
    """A finding in words."""
    name = quantile_name(found.quantile)
    quantile = f"{name} TTFT {text.duration(found.value_ms)}"
    route = found.route or "workflows without a route"
    stage = look(found.stage).label
    share = text.percent(found.share_of_excess, 0)
    base = f"{text.count(found.num_slow)} of {text.counted(found.num_traces, 'workflow')}"
    if found.objective_ms is None:
        head, base = f"{route}: {quantile}", f"{base} above it"
    else:
        limit = text.duration(found.objective_ms)
        head, base = f"{route}: {base} over the TTFT objective of {limit}", quantile
    if found.cause is None:
        line = f"{head}; {stage} holds {share} of the excess; no slice explains the slow ones."
    else:
        of_slow, of_rest = (text.percent(s, 0) for s in (found.cause.of_slow, found.cause.of_rest))
        line = (
            f"{head}; {stage} holds {share} of the excess; {where_text(found.where)} is "
            f"{of_slow} of the slow, {of_rest} of the others."
        )
    saved = f" ({name} down {text.duration(found.what_if_ms)} at most)" if found.what_if_ms else ""
    return Verdict(
        line,
        (*found.why, f"Next: {found.do}{saved}", base),
        "worse" if found.cause else "grey",
        found.exemplars[0] if found.exemplars else None,
    )


def _frame(reader: Reader, query: str, filters: Filters) -> pl.DataFrame:
    frame = pl.from_arrow(reader.sql(query, filters.params))
    assert isinstance(frame, pl.DataFrame)  # noqa: S101 - a table gives a frame
    return frame
