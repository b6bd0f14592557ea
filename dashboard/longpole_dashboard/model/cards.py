"""The five numbers at the top of the Overview, each with its samples and its comparison."""

from dataclasses import dataclass
from math import sqrt
from typing import Any, Final, Literal

from longpole_collector.stores.base import Reader, Value
from longpole_dashboard.model import quantiles, text
from longpole_dashboard.model.quantiles import P50, P99, Change, Quantile
from longpole_dashboard.model.window import IN_WINDOW, Filters

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
        change: against the previous period, e.g. ``+11 %``; ``None`` when there is no such period
            or too little in either.
        tone: grey while the intervals of the two periods touch.
    """

    label: str
    value: str
    samples: str
    interval: str
    change: str | None = None
    tone: Tone = "grey"


def cards(filters: Filters, reader: Reader) -> tuple[Card, ...]:
    """p50 TTFT, p99 TTFT, p50 TPOT, p99 workflow time and accepted share; always five."""
    calls_now, calls_before = _periods(filters, reader, _CALLS)
    traces_now, traces_before = _periods(filters, reader, _TRACES)
    found = [
        _latency_card(title, noun, quantiles.read(now, name, q), _before(before, name, q))
        for title, noun, name, q, now, before in (
            ("p50 TTFT", "call", "ttft", P50, calls_now, calls_before),
            ("p99 TTFT", "call", "ttft", P99, calls_now, calls_before),
            ("p50 TPOT, per token", "call", "tpot", P50, calls_now, calls_before),
            ("p99 workflow", "workflow", "wall", P99, traces_now, traces_before),
        )
    ]
    return (*found, _accepted_card(traces_now, traces_before))


_PERIOD = f"(start_ns >= $now) AS is_now FROM {{view}} WHERE {IN_WINDOW}"

_CALLS = f"""
WITH lists AS (
    SELECT is_now, {quantiles.sorted_list("ttft_ms", "ttft")},
           {quantiles.sorted_list("tpot_ms", "tpot")}
    FROM (SELECT ttft_ms, tpot_ms, {_PERIOD.format(view="calls")}) GROUP BY is_now)
SELECT is_now, {quantiles.columns("ttft", P50, P99)}, {quantiles.columns("tpot", P50)} FROM lists
"""  # noqa: S608 - our own constants only

_TRACES = f"""
WITH lists AS (
    SELECT is_now, {quantiles.sorted_list("wall_ms", "wall")}, count(*) AS num_traces,
           count(outcome) AS num_known, count(*) FILTER (outcome = 'accepted') AS num_accepted
    FROM (SELECT wall_ms, outcome, {_PERIOD.format(view="traces")}) GROUP BY is_now)
SELECT is_now, num_traces, num_known, num_accepted, {quantiles.columns("wall", P99)} FROM lists
"""  # noqa: S608 - our own constants only

_Row = dict[str, Any] | None


def _periods(filters: Filters, reader: Reader, query: str) -> tuple[_Row, _Row]:
    params: dict[str, Value] = {**filters.params, "now": filters.start_ns}
    if filters.previous_ns is not None:
        params["start"] = filters.previous_ns
    rows = {row["is_now"]: row for row in reader.sql(query, params).to_pylist()}
    return rows.get(True), rows.get(False)


def _before(row: _Row, name: str, per_mille: int) -> Quantile | None:
    return None if row is None else quantiles.read(row, name, per_mille)


def _latency_card(title: str, noun: str, now: Quantile, before: Quantile | None) -> Card:
    samples = f"n = {text.counted(now.n, noun)}"
    if now.max is None:
        return Card(title, text.UNKNOWN, samples, "none measured")
    if not now.is_shown:
        name = title.partition(" ")[0]
        biggest = title.replace(name, "max", 1)
        return Card(biggest, text.duration(now.max), samples, f"{name} (n too small)")
    interval = ""
    if now.low is not None and now.high is not None:
        interval = f"95 %: {text.span_of(now.low, now.high)}"
    moved = None if before is None else quantiles.change(now, before)
    change, tone = _moved(moved)
    return Card(title, text.duration(now.value), samples, interval, change, tone)


def _accepted_card(now: _Row, before: _Row) -> Card:
    known, accepted = (now["num_known"], now["num_accepted"]) if now else (0, 0)
    unknown = now["num_traces"] - known if now else 0
    samples = f"n = {text.count(known)} with an outcome"
    if not known:
        return Card("accepted", text.UNKNOWN, samples, "no outcome was recorded")
    low, high = wilson(accepted, known)
    interval = f"95 %: {100 * low:.1f} to {100 * high:.1f} %"
    if unknown:
        interval += f", {text.count(unknown)} unknown"
    change: str | None = None
    tone: Tone = "grey"
    if before and before["num_known"] >= MIN_COMPARED:
        past = wilson(before["num_accepted"], before["num_known"])
        points = 100 * (accepted / known - before["num_accepted"] / before["num_known"])
        change = f"{points:+.1f} points"
        if low > past[1] or high < past[0]:
            tone = "better" if points > 0 else "worse"
    return Card("accepted", text.percent(accepted / known), samples, interval, change, tone)


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
