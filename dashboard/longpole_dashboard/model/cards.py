"""The five numbers at the top of the Overview, each with its samples and its comparison."""

from dataclasses import dataclass
from math import sqrt
from typing import Any, Final, Literal, NamedTuple

import polars as pl

from longpole_collector.stores.base import Reader
from longpole_dashboard.model import quantiles, rolled, text
from longpole_dashboard.model.quantiles import P50, P99, Change, Quantile
from longpole_dashboard.model.window import Filters, View

Tone = Literal["better", "worse", "grey"]

_Z95: Final = 1.96
MIN_COMPARED: Final = 20
"""A share is compared with a period of at least so many known outcomes."""


@dataclass(frozen=True)
class Card:
    """One number as the page shows it.

    Attributes:
        label: what it is, e.g. ``p99 TTFT``; ``max TTFT`` when the sample is too small for it.
        value: the number with its unit; a dash when unknown.
        samples: what it rests on, e.g. ``n = 1,234 calls``.
        interval: its 95 % interval, or why there is none.
        metric: what the map of Explore shows of it.
        change: against what it is compared with, e.g. ``+11 %``; ``None`` when there is no such
            or too little in either.
        tone: grey while the intervals of the two periods touch.
    """

    label: str
    value: str
    samples: str
    interval: str
    metric: str
    change: str | None = None
    tone: Tone = "grey"


class Outcomes(NamedTuple):
    """How many workflows a period has, of how many the outcome is known, how many are accepted."""

    num_traces: int
    num_known: int
    num_accepted: int


OUTCOMES: Final = (
    "count(*) AS num_traces, count(outcome) AS num_known, "
    "count(*) FILTER (outcome = 'accepted') AS num_accepted"
)
"""What to SELECT from traces for :class:`Outcomes`."""


class _Measured(NamedTuple):
    """What the cards show of one period: the quantiles of :data:`_LATENCIES`, and outcomes."""

    latencies: tuple[Quantile, ...]
    outcomes: Outcomes


def cards(
    filters: Filters, outcomes: Outcomes, reader: Reader, counted: pl.DataFrame | None = None
) -> tuple[Card, ...]:
    """p50 TTFT, p99 TTFT, p50 TPOT, p99 workflow time and accepted share; always five.

    Args:
        filters: which, and what they are compared with.
        outcomes: theirs.
        reader: the store.
        counted: what ``rolled.counted`` has of it: latencies are to within 1 % then, also of
            what they are compared with.
    """
    past, before = filters.baseline, None
    now = _Measured(_latencies(filters, reader, counted), outcomes)
    if past is not None:
        rows = None if counted is None else rolled.whole(past, reader)
        then = Outcomes(**_row(_OUTCOMES, past, reader, "traces"))
        before = _Measured(_latencies(past, reader, rows), then)
    found = [
        _latency_card(
            title, metric, now.latencies[place], before.latencies[place] if before else None
        )
        for place, (title, metric, _, _) in enumerate(_LATENCIES)
    ]
    return (*found, _accepted_card(now.outcomes, before.outcomes if before else None))


_LATENCIES: Final = (
    ("p50 TTFT", "ttft_ms", "ttft_ms", P50),
    ("p99 TTFT", "ttft_ms", "ttft_ms", P99),
    ("p50 TPOT, per token", "tpot_ms", "tpot_ms", P50),
    ("p99 workflow", "e2e_ms", "wall_ms", P99),
)
"""Title, metric of Explore, column, quantile."""

_CALLS = f"""
WITH lists AS (
    SELECT {quantiles.sorted_list("ttft_ms", "ttft")}, {quantiles.sorted_list("tpot_ms", "tpot")}
    FROM calls WHERE {{condition}})
SELECT {quantiles.columns("ttft", P50, P99)}, {quantiles.columns("tpot", P50)} FROM lists
"""  # noqa: S608 - our own constants only

_WALLS = f"""
WITH lists AS (
    SELECT {quantiles.sorted_list("wall_ms", "wall")} FROM traces WHERE {{condition}})
SELECT {quantiles.columns("wall", P99)} FROM lists
"""  # noqa: S608 - our own constants only

_OUTCOMES = f"SELECT {OUTCOMES} FROM traces WHERE {{condition}}"  # noqa: S608 - ours


def _latencies(
    filters: Filters, reader: Reader, counted: pl.DataFrame | None
) -> tuple[Quantile, ...]:
    if counted is not None:
        found = rolled.measured(counted)
        return tuple(rolled.quantile(found.get(column), q) for _, _, column, q in _LATENCIES)
    calls, walls = (_row(_CALLS, filters, reader, "calls"), _row(_WALLS, filters, reader, "traces"))
    return tuple(
        quantiles.read(walls if column == "wall_ms" else calls, column.removesuffix("_ms"), q)
        for _, _, column, q in _LATENCIES
    )


def _row(query: str, filters: Filters, reader: Reader, view: View) -> dict[str, Any]:
    asked = query.format(condition=filters.on(view))
    row: dict[str, Any] = reader.sql(asked, filters.params).to_pylist()[0]
    return row


def _latency_card(title: str, metric: str, now: Quantile, before: Quantile | None) -> Card:
    noun = "workflow" if metric == "e2e_ms" else "call"
    samples = f"n = {text.counted(now.n, noun)}"
    if now.max is None:
        return Card(title, text.UNKNOWN, samples, "none measured", metric)
    if not now.is_shown:
        name = title.partition(" ")[0]
        biggest = title.replace(name, "max", 1)
        return Card(biggest, text.duration(now.max), samples, f"{name} (n too small)", metric)
    interval = ""
    if now.low is not None and now.high is not None:
        interval = f"95 %: {text.span_of(now.low, now.high)}"
    moved = None if before is None else quantiles.change(now, before)
    change, tone = _moved(moved)
    return Card(title, text.duration(now.value), samples, interval, metric, change, tone)


def _accepted_card(now: Outcomes, before: Outcomes | None) -> Card:
    known, accepted = now.num_known, now.num_accepted
    samples = f"n = {text.count(known)} with an outcome"
    if not known:
        return Card("accepted", text.UNKNOWN, samples, "no outcome was recorded", "e2e_ms")
    low, high = wilson(accepted, known)
    interval = f"95 %: {100 * low:.1f} to {100 * high:.1f} %"
    unknown = now.num_traces - known
    if unknown:
        interval += f", {text.count(unknown)} unknown"
    change: str | None = None
    tone: Tone = "grey"
    if before is not None and before.num_known >= MIN_COMPARED:
        past = wilson(before.num_accepted, before.num_known)
        points = 100 * (accepted / known - before.num_accepted / before.num_known)
        change = f"{points:+.1f} points"
        if low > past[1] or high < past[0]:
            tone = "better" if points > 0 else "worse"
    value = text.percent(accepted / known)
    return Card("accepted", value, samples, interval, "e2e_ms", change, tone)


def _moved(moved: Change | None) -> tuple[str | None, Tone]:
    if moved is None:
        return None, "grey"
    shown = f"{100 * moved.ratio:+.0f} %"
    if not moved.is_decided:
        return shown, "grey"
    return shown, "better" if moved.ratio < 0 else "worse"


def wilson(successes: int, n: int) -> tuple[float, float]:
    """95 % interval of a share, Wilson's score interval (JASA 22, 1927); ``n`` must be positive."""
    p, z2 = successes / n, _Z95 * _Z95
    centre = (p + z2 / (2 * n)) / (1 + z2 / n)
    half = _Z95 * sqrt(p * (1 - p) / n + z2 / (4 * n * n)) / (1 + z2 / n)
    return max(0.0, centre - half), min(1.0, centre + half)
