"""What changed: deploys, prompts, models and engines that moved a stage, before and after."""

from collections.abc import Mapping
from typing import Any

from longpole_analytics.report.base import Inputs, Part, Piece, Rows, Section
from longpole_analytics.report.commands_text import top_command
from longpole_analytics.report.sections._words import change_ms, count, ms, share
from longpole_analytics.report.weeks import iso
from longpole_analytics.top import document


def _build(inputs: Inputs, _: Mapping[str, Part]) -> Part | None:
    found = document(inputs.top)["changes"]
    if not found:
        return None
    window = inputs.window
    return {
        "changes": [
            {**change, "at": iso(change["at_ns"]), "at_text": window.text(change["at_ns"])}
            for change in found
        ]
    }


def what(change: Mapping[str, Any]) -> str:
    """A change as text: ``prompt_version v41 -> v42``."""
    return ", ".join(
        f"{name} {change['previous'].get(name) or '(none)'} -> {value}"
        for name, value in change["where"].items()
    )


def _show(part: Part) -> list[Piece]:
    rows = tuple(
        (
            change["at_text"],
            what(change),
            change["route"] or "(several)",
            moved["stage"],
            ms(moved["before_ms"]),
            ms(moved["before_ms"] + moved["moved_ms"]),
            f"{change_ms(moved['moved_ms'])} ({_ends(moved['ci95'])})",
            f"{share(change['share_before'])} -> {share(change['share_after'])}",
            count(change["num_before"] + change["num_after"]),
        )
        for change in part["changes"]
        for moved in change["stages"]
    )
    heads = (
        *("when", "what", "route", "stage", "p50 before", "p50 after", "moved (95 %)"),
        *("of requests", "n"),
    )
    return [Rows(heads, rows, frozenset((4, 5, 6, 7, 8)))]


def _ends(ends: list[float]) -> str:
    return f"{change_ms(ends[0])} to {change_ms(ends[1])}"


SECTION = Section(6, "What changed", _build, _show, top_command)
