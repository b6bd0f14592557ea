"""The five numbers at the top of the Overview, each with its samples and its comparison."""

from dataclasses import dataclass
from math import sqrt
from typing import Any, Final, Literal, NamedTuple

import polars as pl

from longpole_analytics.stats import Share
from longpole_analytics.weighted import num_of, weighted_share
from longpole_collector.stores.base import Reader
from longpole_dashboard.model import quantiles, rolled, sampled, text
from longpole_dashboard.model.quantiles import P50, P99, Change, Quantile
from longpole_dashboard.model.sampled import SIZE, Size, size_of
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
    """Of how many workflows that are there the outcome is known, and how many are accepted."""

    num_known: int
    num_accepted: int


OUTCOMES: Final = (
    "count(outcome) AS num_known, count(*) FILTER (outcome = 'accepted') AS num_accepted"
)
"""What to SELECT from traces for :class:`Outcomes`."""


class Kept(NamedTuple):
    """Rows of a sampled window, of :mod:`longpole_dashboard.model.sampled`.

    ``calls`` is ``None`` where what is counted by the minute tells of all calls.
    """

    workflows: pl.DataFrame
    calls: pl.DataFrame | None


class Period(NamedTuple):
    """What a window has.

    Attributes:
        size: how much.
        outcomes: of its workflows.
        counted: what ``rolled`` has of it: latencies are to within 1 % then; ``None`` where they
            are read from calls.
        kept: its rows, where not all were kept.
    """

    size: Size
    outcomes: Outcomes
    counted: pl.DataFrame | None
    kept: Kept | None


class _Accepted(NamedTuple):
    """Of how many workflows the outcome is known, and of how many not; the accepted share.

    ``kept`` is how many tell it, where not all were kept.
    """

    num_known: float
    num_unknown: float
    share: Share
    kept: int | None = None


class _Measured(NamedTuple):
    """What the cards show of one period: the quantiles of :data:`_LATENCIES`, and outcomes."""

    latencies: tuple[Quantile, ...]
    accepted: _Accepted


def period(
    filters: Filters, size: Size, outcomes: Outcomes, counted: pl.DataFrame | None, reader: Reader
) -> Period:
    """What there is of a window, with the rows of a sampled one; see :class:`Period`."""
    if not size.is_sampled:
        return Period(size, outcomes, counted, None)
    calls = sampled.calls(filters, reader) if counted is None else None
    return Period(size, outcomes, counted, Kept(sampled.workflows(filters, reader), calls))


def cards(filters: Filters, now: Period, reader: Reader) -> tuple[Card, ...]:
    """p50 TTFT, p99 TTFT, p50 TPOT, p99 workflow time and accepted share; always five.

    Args:
        filters: which, and what they are compared with.
        now: what there is of them.
        reader: the store.
    """
    past, before = filters.baseline, None
    shown = _measured(filters, now, reader)
    if past is not None:
        before = _measured(past, _past(past, now, reader), reader)
    found = [
        _latency_card(
            title, metric, shown.latencies[place], before.latencies[place] if before else None
        )
        for place, (title, metric, _, _) in enumerate(_LATENCIES)
    ]
    return (*found, _accepted_card(shown.accepted, before.accepted if before else None))


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

_PAST = f"SELECT {OUTCOMES}, {SIZE} FROM traces WHERE {{condition}}"  # noqa: S608 - ours


def _past(filters: Filters, now: Period, reader: Reader) -> Period:
    """What there is of the window before; counts where those tell of the one that is shown."""
    row = _row(_PAST, filters, reader, "traces")
    size, outcomes = size_of(row), Outcomes(*(row[name] for name in Outcomes._fields))
    if size.is_sampled:
        counted = rolled.counted(filters, size, reader)
    else:
        counted = None if now.counted is None else rolled.whole(filters, reader)
    return period(filters, size, outcomes, counted, reader)


def _measured(filters: Filters, of: Period, reader: Reader) -> _Measured:
    return _Measured(_latencies(filters, of, reader), _accepted(of))


def _latencies(filters: Filters, of: Period, reader: Reader) -> tuple[Quantile, ...]:
    if of.counted is not None:
        found = rolled.measured(of.counted)
        return tuple(rolled.quantile(found.get(column), q) for _, _, column, q in _LATENCIES)
    if of.kept is not None and of.kept.calls is not None:
        kept = of.kept.calls, of.kept.workflows
        return tuple(
            sampled.quantile(kept[column == "wall_ms"], column, q) for _, _, column, q in _LATENCIES
        )
    calls, walls = (_row(_CALLS, filters, reader, "calls"), _row(_WALLS, filters, reader, "traces"))
    return tuple(
        quantiles.read(walls if column == "wall_ms" else calls, column.removesuffix("_ms"), q)
        for _, _, column, q in _LATENCIES
    )


def _row(query: str, filters: Filters, reader: Reader, view: View) -> dict[str, Any]:
    asked = query.format(condition=filters.on(view))
    row: dict[str, Any] = reader.sql(asked, filters.params).to_pylist()[0]
    return row


def _accepted(of: Period) -> _Accepted:
    if of.kept is not None:
        rows = of.kept.workflows
        is_known = pl.col("outcome").is_not_null()
        told, untold = rows.filter(is_known), rows.filter(~is_known)
        known, unknown = (num_of(each["weight"].to_numpy()) for each in (told, untold))
        is_accepted = (told["outcome"] == "accepted").to_numpy()
        share = weighted_share(is_accepted, told["weight"].to_numpy())
        return _Accepted(known, unknown, share, share.n)
    num, accepted = of.outcomes
    share = Share(accepted, num, None, None, None)
    if num:
        share = Share(accepted, num, accepted / num, *wilson(accepted, num))
    return _Accepted(num, of.size.num_kept - num, share)


def _latency_card(title: str, metric: str, now: Quantile, before: Quantile | None) -> Card:
    noun = "workflow" if metric == "e2e_ms" else "call"
    samples = f"n = {text.counted(now.n, noun)}{_told_by(now.kept)}"
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


def _told_by(kept: int | None) -> str:
    """How many stand for those that came, where not all were kept."""
    return "" if kept is None else f", told by {text.count(kept)}"


def _accepted_card(now: _Accepted, before: _Accepted | None) -> Card:
    share = now.share
    samples = f"n = {text.count(now.num_known)} with an outcome{_told_by(now.kept)}"
    if share.value is None or share.low is None or share.high is None:
        return Card("accepted", text.UNKNOWN, samples, "no outcome was recorded", "e2e_ms")
    interval = f"95 %: {100 * share.low:.1f} to {100 * share.high:.1f} %"
    if now.num_unknown:
        interval += f", {text.count(now.num_unknown)} unknown"
    change: str | None = None
    tone: Tone = "grey"
    past = None if before is None else before.share
    if past is not None and past.n >= MIN_COMPARED and past.value is not None:
        points = 100 * (share.value - past.value)
        change = f"{points:+.1f} points"
        if share.low > (past.high or 0.0) or share.high < (past.low or 0.0):
            tone = "better" if points > 0 else "worse"
    return Card("accepted", text.percent(share.value), samples, interval, "e2e_ms", change, tone)


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
