"""How it was reckoned: what the words mean, over which time, of how many."""

from collections.abc import Mapping

from longpole_analytics.report.base import Inputs, Part, Piece, Section, Text
from longpole_analytics.report.sections._words import count
from longpole_analytics.report.weeks import iso
from longpole_analytics.top import slow_text


def _build(inputs: Inputs, _: Mapping[str, Part]) -> Part | None:
    window = inputs.window
    slow = slow_text(inputs.slow)
    limit = f"{slow} of its route" if inputs.slow.objective_ms is None else f"{slow} ms"
    earlier = [each for each in inputs.earlier if each.top is not None]
    return {
        "definitions": [
            f"A request is one complete trace that began in the window; slow is {inputs.metric} "
            f"above {limit}.",
            "Times of stages are those on the critical path; they add up to the request's time.",
            "Lost time is what a slow request took above the median of comparable ones: same "
            "route, like prompt and answer lengths.",
            "A quantile is the element of nearest rank, and is shown where at least ten requests "
            "lie above it. A risk ratio is adjusted for route and lengths; intervals are 95 %.",
            "A promise is looked at over its own period up to the end of the window.",
            "The p99 of a what-if holds if everything else stays equal, and is the best case: "
            "`longpole whatif` replays the traces.",
        ],
        "windows": [
            {"since": iso(each.since_ns), "until": iso(each.until_ns), "num_traces": num}
            for each, num in (
                (window, inputs.requests.height),
                *((each.window, each.top.num_traces) for each in earlier if each.top),
            )
        ],
        "weights": "every request counts once"
        if not inputs.requests["weight"].count()
        else "a sampled request counts as many as it stands for",
    }


def _show(part: Part) -> list[Piece]:
    windows = ", ".join(
        f"{each['since']} to {each['until']} (n = {count(each['num_traces'])})"
        for each in part["windows"]
    )
    return [
        *(Text(line) for line in part["definitions"]),
        Text(f"Windows, UTC: {windows}; {part['weights']}."),
    ]


SECTION = Section(9, "Method", _build, _show, lambda _: "")
