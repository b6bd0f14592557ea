"""The week in five lines: promises, time lost, biggest cause, biggest change, one thing to do."""

from collections.abc import Mapping
from typing import Any

from longpole.vocab import Stage
from longpole_analytics.advice import NEXT_CHECK
from longpole_analytics.report.base import Inputs, Listed, Part, Piece, Section
from longpole_analytics.report.sections._words import (
    change_ms,
    count,
    hours,
    route_text,
    share,
    slice_text,
)
from longpole_analytics.report.sections.changes import what


def _build(inputs: Inputs, parts: Mapping[str, Part]) -> Part | None:
    causes, slos = parts.get("causes"), parts.get("slos")
    if not inputs.requests.height:
        said = ["No request began in this time, so there is nothing to report."]
        return {"is_quiet": True, "has_data": False, "lines": [*said, *_partial(inputs)]}
    missed = slos["num_missed"] if slos else 0
    first = causes["causes"][0] if causes and causes["causes"] else None
    change = _biggest(parts.get("changes"))
    is_slower = change is not None and change[1]["moved_ms"] > 0
    is_quiet = not missed and first is None and not is_slower
    lines = [
        _promises(slos),
        _time(causes, slos),
        _cause(first, causes),
        _change(change, inputs, first, causes),
        _do(first, missed, change if is_slower else None),
    ]
    return {"is_quiet": is_quiet, "has_data": True, "lines": [*lines, *_partial(inputs)]}


def _promises(slos: Part | None) -> str:
    if slos is None:
        return "No promise is written down: add [slo.NAME] to longpole.toml."
    missed = [row["id"] for row in slos["slos"] if row["verdict"] == "missed"]
    named = f" ({', '.join(missed[:5])})" if missed else ""
    unknown = f", {slos['num_unknown']} with too few events" if slos["num_unknown"] else ""
    return f"Promises: {slos['num_met']} met, {slos['num_missed']} missed{named}{unknown}."


def _time(causes: Part | None, slos: Part | None) -> str:
    lost = hours((causes or {"lost_ms": 0.0})["lost_ms"] / 3.6e6)
    said = f"slow requests lost {lost} against comparable ones"
    if slos is None or slos["slow_hours"] is None:
        return f"Slow time: {said}."
    return f"Slow time: {hours(slos['slow_hours'])} above the objectives; {said}."


def _cause(first: dict[str, Any] | None, causes: Part | None) -> str:
    if first is None:
        return f"Biggest cause: none found: {causes['reason'] if causes else 'no requests'}."
    where = slice_text(first)
    return (
        f"Biggest cause: {first['stage']} with {where} on {route_text(first)}: "
        f"{share(first['share_of_slow'])} of the slow requests, "
        f"{hours(first['excess_ms_total'] / 3.6e6)} lost."
    )


def _biggest(changes: Part | None) -> tuple[dict[str, Any], dict[str, Any]] | None:
    pairs = [
        (change, moved)
        for change in (changes or {"changes": []})["changes"]
        for moved in change["stages"]
    ]
    return max(pairs, key=lambda pair: abs(pair[1]["moved_ms"]), default=None)


def _change(
    change: tuple[dict[str, Any], dict[str, Any]] | None,
    inputs: Inputs,
    first: dict[str, Any] | None,
    causes: Part | None,
) -> str:
    if change is not None:
        told, moved = change
        return (
            f"Biggest change: {what(told)} moved {moved['stage']} by "
            f"{change_ms(moved['moved_ms'])} at {told['at_text']}."
        )
    if first is not None and first["history"]["state"] in ("new", "back"):
        return f"Biggest change: the first cause is {first['history']['state']} this time."
    if causes and causes["gone"]:
        gone = causes["gone"][0]
        return f"Biggest change: {gone['stage']} with {slice_text(gone)} is no cause any more."
    if inputs.before is None:
        return "Biggest change: nothing is kept of the week before to compare with."
    return "Biggest change: none: no version, model or engine moved a stage."


def _do(
    first: dict[str, Any] | None,
    missed: int,
    change: tuple[dict[str, Any], dict[str, Any]] | None,
) -> str:
    if first is not None:
        return f"Do first: {first['next_step']}."
    if change is not None:
        told, moved = change
        return f"Do first: look at {what(told)}: {NEXT_CHECK[Stage(moved['stage'])]}."
    if missed:
        return "Do first: look at the missed promises; no slice explains the slow requests."
    return "Nothing to do: a quiet week."


def _partial(inputs: Inputs) -> list[str]:
    kept = inputs.kept_since_ns
    if kept is None or kept <= inputs.window.since_ns:
        return []
    num = count(inputs.requests.height)
    since = inputs.window.text(kept)
    return [f"Data begin only on {since}: {num} requests stand for a part of this time."]


def _show(part: Part) -> list[Piece]:
    return [Listed(tuple(part["lines"]))]


SECTION = Section(1, "In five lines", _build, _show, lambda _: "")
