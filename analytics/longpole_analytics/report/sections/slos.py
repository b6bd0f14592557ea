"""Which promises were kept: budget left, burn, good share, and a week before."""

from collections.abc import Mapping
from typing import Any

import polars as pl

from longpole_analytics.report.base import Inputs, Part, Piece, Rows, Section, Text
from longpole_analytics.report.commands_text import command
from longpole_analytics.report.sections._words import count, hours, share
from longpole_analytics.slo.check import Standing, document
from longpole_analytics.slo.objectives import LATENCIES
from longpole_analytics.slo.series import judged

PER_TOKEN = "tpot_ms"  # noqa: S105 - a metric: what nobody waits for as a whole


def _build(inputs: Inputs, _: Mapping[str, Part]) -> Part | None:
    if not inputs.standings and not inputs.broken:
        return None
    told = document(inputs.standings, inputs.window.until_ns)
    before = {each.objective.id: each for each in inputs.standings_before}
    rows = []
    for standing, row in zip(inputs.standings, told["slos"], strict=True):
        was = before.get(standing.objective.id)
        rows.append(
            {
                **row,
                "verdict": _verdict(standing),
                "good_share": _good(standing),
                "before": None
                if was is None
                else {
                    "good_share": _good(was),
                    "remaining": was.budget.remaining,
                    "verdict": _verdict(was),
                },
            }
        )
    rows.sort(key=lambda row: _left(row["budget"]["remaining"]))
    verdicts = [row["verdict"] for row in rows]
    return {
        "at": told["at"],
        "num_met": verdicts.count("met"),
        "num_missed": verdicts.count("missed"),
        "num_unknown": len(verdicts) - verdicts.count("met") - verdicts.count("missed"),
        "slow_hours": slow_hours(inputs),
        "slos": rows,
        "broken": [{"id": name, "reason": why} for name, why in inputs.broken.items()],
    }


def slow_hours(inputs: Inputs) -> float | None:
    """Hours that requests took above their latency objectives, each by the one it misses most.

    Time per token is no wait, and what failed has none. ``None`` without such an objective.
    """
    late: list[pl.DataFrame] = []
    for standing in inputs.standings:
        objective = standing.objective
        if objective.metric not in LATENCIES or objective.metric == PER_TOKEN:
            continue
        own = inputs.about[objective.id]
        bad = (judged(own, objective) == False).fill_null(False)  # noqa: E712 - of a column
        above = (pl.col(objective.metric) - objective.threshold).alias("above_ms")
        late.append(own.filter(bad).select("trace_id", above, "weight"))
    if not late:
        return None
    worst = (
        pl.concat(late)
        .filter(pl.col("above_ms").is_finite() & (pl.col("above_ms") > 0))
        .group_by("trace_id")
        .agg(pl.col("above_ms").max(), pl.col("weight").first().fill_null(1.0))
    )
    return float((worst["above_ms"] * worst["weight"]).sum()) / 3.6e6


THIN = "not enough events"


def _verdict(standing: Standing) -> str:
    if standing.is_breached:
        return "missed"
    return THIN if standing.is_thin else "met"


def _good(standing: Standing) -> float | None:
    """``None`` where no or too few requests came to judge by: never 100 % of next to nothing."""
    if not standing.total or _verdict(standing) == THIN:
        return None
    return 1 - standing.bad / standing.total


def _left(remaining: float | None) -> tuple[bool, float]:
    return remaining is None, remaining or 0.0


def _show(part: Part) -> list[Piece]:
    heads = (
        *("objective", "promise", "", "good", "budget left", "burn (24 h)", "bad", "of"),
        *("the week before", "owner"),
    )
    rows = [
        (
            row["id"],
            row["objective"],
            row["verdict"],
            _exact(row["good_share"]),
            share(row["budget"]["remaining"]),
            "-" if row["budget"]["burn_24h"] is None else f"{row['budget']['burn_24h']:.3g}x",
            count(row["events"]["bad"]),
            count(row["events"]["total"]),
            _before(row["before"]),
            row["owner"] or "-",
        )
        for row in part["slos"]
    ]
    pieces: list[Piece] = [Rows(heads, tuple(rows), frozenset((3, 4, 5, 6, 7)))]
    if part["slow_hours"] is not None:
        waited = hours(part["slow_hours"])
        pieces.append(Text(f"Above their objectives, requests took {waited} in all."))
    pieces += [Text(f"{each['id']} cannot be asked: {each['reason']}") for each in part["broken"]]
    return pieces


def _exact(good: float | None) -> str:
    return THIN if good is None else f"{100 * good:.4g} %"


def _before(was: dict[str, Any] | None) -> str:
    if was is None or was["good_share"] is None:
        return "no data"
    return f"{_exact(was['good_share'])} good, {share(was['remaining'])} left"


def _command(inputs: Inputs) -> str:
    if not inputs.standings:
        return ""
    named = ["--config", inputs.config] if inputs.config else []
    return command(inputs, "slo check", *named, is_windowed=False)


SECTION = Section(2, "Promises", _build, _show, _command)
