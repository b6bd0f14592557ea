"""Why requests were slow: stage, slice and versioned route, ranked by the time they lost."""

from collections.abc import Mapping
from typing import Any, Final

import polars as pl

from longpole_analytics.attribution import Cause
from longpole_analytics.reasons import reasons
from longpole_analytics.report.base import (
    Cell,
    Earlier,
    Inputs,
    Part,
    Piece,
    Rows,
    Section,
    Text,
)
from longpole_analytics.report.blame import Own
from longpole_analytics.report.commands_text import top_command
from longpole_analytics.report.sections._words import (
    change_ms,
    count,
    ms,
    route_text,
    share,
    slice_text,
)
from longpole_analytics.top import Top, document

NUM_LINKS: Final = 3
MAX_SIDE: Final = 20_000
"""Requests of a slice, and beside it, that facts for the next step are taken from: the latest."""
ASSUMPTION: Final = "at most: its slow requests in the stage as long as comparable ones"


def _build(inputs: Inputs, _: Mapping[str, Part]) -> Part | None:
    if not inputs.requests.height:
        return None
    told = document(inputs.top)["causes"]
    rows = [
        {
            **row,
            "route_versions": list(own.versions),
            "extra_ms_p50": row["excess_ms_p50"],
            "extra_ms_p99": own.extra_p99_ms,
            "history": _history(cause, inputs.earlier),
            "what_if": _what_if(own),
            "next_step": _step(inputs, cause),
            "owner": _owner(inputs, cause),
            "links": [_link(inputs, each) for each in cause.exemplars[:NUM_LINKS]],
        }
        for cause, row, own in zip(inputs.top.causes, told, inputs.blame.causes, strict=True)
    ]
    return {
        "num_traces": inputs.top.num_traces,
        "num_slow": inputs.top.num_slow,
        "lost_ms": inputs.blame.lost_ms,
        "causes": rows,
        "gone": _gone(inputs),
        "reason": inputs.top.reason,
    }


def key(cause: Cause) -> tuple[Any, ...]:
    """What makes a cause the same from week to week."""
    return cause.stage.value, cause.route, tuple(sorted(cause.where.items()))


def _history(cause: Cause, earlier: tuple[Earlier, ...]) -> dict[str, Any]:
    """How a cause did before: ``new``, ``again`` (the week before too), ``back`` or ``unknown``.

    ``num_weeks`` are those in a row up to now. Unknown is what cannot be: nothing is kept of the
    week before, or too little to find a cause in.
    """
    ranks = [_rank(cause, each.top) for each in earlier]
    before = ranks[0] if ranks else None
    in_row = 1 + next((n for n, rank in enumerate(ranks) if rank is None), len(ranks))
    is_known = bool(earlier) and earlier[0].top is not None and earlier[0].top.is_examined
    if before is not None:
        state = "again"
    elif not is_known:
        state = "unknown"
    else:
        state = "back" if any(rank is not None for rank in ranks) else "new"
    return {"state": state, "last_rank": before, "num_weeks": in_row}


def _rank(cause: Cause, top: Top | None) -> int | None:
    if top is None:
        return None
    found = [key(each) for each in top.causes]
    return found.index(key(cause)) + 1 if key(cause) in found else None


def _gone(inputs: Inputs) -> list[dict[str, Any]]:
    """Causes of the week before that are none any more."""
    before = inputs.earlier[0].top if inputs.earlier else None
    if before is None or not inputs.top.is_examined:
        return []
    now = {key(cause) for cause in inputs.top.causes}
    told = document(before)["causes"]
    return [
        {name: row[name] for name in ("rank", "stage", "where", "route", "excess_ms_total")}
        for cause, row in zip(before.causes, told, strict=True)
        if key(cause) not in now
    ]


def _what_if(own: Own) -> dict[str, Any]:
    now, then = own.p99_now_ms, own.p99_then_ms
    saved = None if now is None or then is None else now - then
    return {
        "quantile": 0.99,
        "n": own.num_route,
        "current_ms": now,
        "replayed_ms": then,
        "saved_ms": saved,
        "assumption": ASSUMPTION,
    }


def _step(inputs: Inputs, cause: Cause) -> str:
    inside = pl.all_horizontal(pl.col(n).eq_missing(value) for n, value in cause.where.items())
    every = inputs.requests
    if cause.route is not None and "route" in every.columns:
        every = every.filter(pl.col("route") == cause.route)
    sides = every.filter(inside).tail(MAX_SIDE), every.filter(~inside).tail(MAX_SIDE)
    calls = inputs.calls if "trace_id" in inputs.calls.columns else every.clear()
    return reasons(*sides, calls, cause.stage, cause.where)[1]


def _owner(inputs: Inputs, cause: Cause) -> str | None:
    """Who owns the stage's budget on the route; else the objective that its traces miss."""
    owners = [
        budget.owner
        for budget in sorted(inputs.budgets, key=lambda each: each.state is not None)
        if budget.stage == cause.stage.value and cause.route in (budget.route, None)
    ]
    exemplars = pl.Series(cause.exemplars, dtype=pl.String)
    owners += [
        standing.objective.owner
        for standing in inputs.standings
        if inputs.about[standing.objective.id]["trace_id"].is_in(exemplars.implode()).any()
    ]
    return next((owner for owner in owners if owner), None)


def _link(inputs: Inputs, trace_id: str) -> dict[str, str | None]:
    url = f"{inputs.dashboard}/trace?trace={trace_id}" if inputs.dashboard else None
    return {"trace_id": trace_id, "url": url}


# --- pieces -------------------------------------------------------------------------------------
def _show(part: Part) -> list[Piece]:
    slow = f"{count(part['num_slow'])} of {count(part['num_traces'])} requests were slow."
    if not part["causes"]:
        return [Text(f"{slow} No cause: {part['reason']}."), *_gone_text(part)]
    heads = (
        *("", "stage", "slice", "route", "slow traces", "share", "risk ratio (95 %)", "in all"),
        *("extra p50", "extra p99", "before", "p99 then", "owner"),
    )
    rows = tuple(
        (
            str(row["rank"]),
            row["stage"],
            slice_text(row),
            route_text(row),
            f"{count(row['num_slow'])} of {count(row['num_traces'])}",
            share(row["share_of_slow"]),
            _ratio(row),
            ms(row["excess_ms_total"]),
            ms(row["extra_ms_p50"]),
            ms(row["extra_ms_p99"], "too few"),
            _before(row["history"]),
            _then(row["what_if"]),
            row["owner"] or "-",
        )
        for row in part["causes"]
    )
    pieces: list[Piece] = [Text(slow), Rows(heads, rows, frozenset((4, 5, 6, 7, 8, 9, 11)))]
    links = tuple(
        (
            str(row["rank"]),
            row["next_step"],
            *(Cell(link["trace_id"][:16], link["url"]) for link in row["links"]),
            *([""] * (NUM_LINKS - len(row["links"]))),
        )
        for row in part["causes"]
    )
    pieces.append(Rows(("", "next step", "traces", "", ""), links))
    pieces.append(Text("An association, no proof: compare a few of these traces with others."))
    return [*pieces, *_gone_text(part)]


def _ratio(row: dict[str, Any]) -> str:
    low, high = row["ci95"]
    return f"{row['risk_ratio']:.3g} ({low:.3g} to {high:.3g})"


def _before(history: dict[str, Any]) -> str:
    if history["state"] == "again":
        return f"#{history['last_rank']}, {history['num_weeks']} weeks"
    return str(history["state"])


def _then(what_if: dict[str, Any]) -> str:
    saved = what_if["saved_ms"]
    if saved is None:
        return "too few"
    return f"{ms(what_if['replayed_ms'])} ({change_ms(-saved)})"


def _gone_text(part: Part) -> list[Piece]:
    return [
        Text(
            f"Gone: {row['stage']}, {slice_text(row)}, {row['route'] or '(several)'}: "
            f"#{row['rank']} the week before, {ms(row['excess_ms_total'])} in all."
        )
        for row in part["gone"]
    ]


SECTION = Section(3, "Causes, by the time they cost", _build, _show, top_command)
