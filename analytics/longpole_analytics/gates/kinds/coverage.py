"""Enough of what was slow or failed must have a stage, a slice and a versioned route."""

from longpole_analytics.gates.base import Data, Finding, Gate, Options
from longpole_analytics.top import top
from longpole_analytics.wording import percent

MIN_TRACES = 20
"""Slow or failed requests, fewer of which say nothing."""


def _run(options: Options, data: Data) -> Finding:
    cover = top(data.requests(options["where"]), cause_rules=data.cause_rules()).coverage
    nums = {
        "attributed": cover.num_all,
        "stage": cover.num_stage,
        "slice": cover.num_slice,
        "route": cover.num_route,
    }
    of = options["of"]
    found = cover.told(nums[of])
    least = options["min_share"]
    details = {
        "of": of,
        "share": found.value,
        "ci95": [found.low, found.high],
        "min_share": least,
        "reasons": [reason._asdict() for reason in cover.reasons],
    }
    n = cover.num_traces
    if found.value is None or found.high is None or n < MIN_TRACES:
        text = f"{n} slow or failed requests are too few to tell"
        return Finding("undecided", text, n, n_needed=MIN_TRACES, details=details)
    said = f"{percent(found.value)} of {n} slow or failed requests have their {of}"
    text = f"{said}, at least {percent(least)} wanted"
    if found.value >= least:
        return Finding("pass", text, n, details=details)
    why = f"; {cover.reasons[0].reason}" if cover.reasons else ""
    if found.high < least:
        return Finding("fail", text + why, n, is_certain=True, details=details)
    return Finding("undecided", text + why, n, details=details)


GATE = Gate(
    {"min_share": 0.8, "of": ("attributed", "stage", "slice", "route"), "where": None}, _run
)
