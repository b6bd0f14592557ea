"""The document of a report, ``longpole.report/1``; the same inputs give the same document."""

from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from longpole.family import load
from longpole_analytics.report.base import Inputs, Part, Section
from longpole_analytics.report.weeks import Window, iso
from longpole_analytics.top import slow_text

SCHEMA: Final = "longpole.report/1"
SUMMARY: Final = "summary"


@cache
def sections() -> dict[str, Section]:
    """All sections by name, in their order."""
    found = load("longpole_analytics.report.sections", "SECTION", Section)
    return dict(sorted(found.items(), key=lambda pair: (pair[1].order, pair[0])))


def build(inputs: Inputs) -> dict[str, Any]:
    """The document: ``window``, ``filters``, then a part for each section by its name.

    Sections that have nothing to say are null, and not listed in ``sections``. They are built
    from the last to the first, so that the first can sum up the others.
    """
    parts: dict[str, Part] = {}
    for name, section in reversed(sections().items()):
        part = section.build(inputs, parts)
        if part is not None:
            parts[name] = part
    told = [
        {"name": name, "title": section.title, "command": section.command(inputs) or None}
        for name, section in sections().items()
        if name in parts
    ]
    return {
        "schema": SCHEMA,
        "project": inputs.project,
        "title": title(inputs.project, inputs.window),
        "window": _window(inputs),
        "filters": {
            "where": inputs.where,
            "metric": inputs.metric,
            "slow": slow_text(inputs.slow),
        },
        "dashboard": inputs.dashboard,
        "sections": told,
        **{name: parts.get(name) for name in sections()},
    }


def title(project: str, window: Window) -> str:
    """What a report is called."""
    of = "" if project == "default" else f" of {project}"
    when = window.week or f"{window.text(window.since_ns)} to {window.text(window.until_ns)}"
    return f"Latency report{of}, {when}"


def first_lines(document: Mapping[str, Any]) -> list[str]:
    """The report in a few sentences."""
    return list((document.get(SUMMARY) or {}).get("lines", ()))


def _window(inputs: Inputs) -> dict[str, Any]:
    window, kept_ns = inputs.window, inputs.kept_since_ns
    starts = inputs.requests["start_ns"]
    empty = [
        day.name
        for day in window.days()
        if not starts.is_between(day.since_ns, day.until_ns, closed="left").any()
    ]
    is_partial = kept_ns is not None and kept_ns > window.since_ns
    return {
        "week": window.week,
        "since": iso(window.since_ns),
        "until": iso(window.until_ns),
        "since_ns": window.since_ns,
        "until_ns": window.until_ns,
        "tz": window.tz,
        "text": f"{window.text(window.since_ns)} to {window.text(window.until_ns)}",
        "hours": (window.until_ns - window.since_ns) / 3.6e12,
        "num_traces": inputs.requests.height,
        "num_incomplete": inputs.num_incomplete,
        "kept_since": iso(kept_ns) if kept_ns is not None and is_partial else None,
        "is_partial": is_partial,
        "days_without_data": empty,
    }
