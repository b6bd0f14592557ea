"""Work done ahead is rarely used: it takes time, tokens and places in the queue for nothing."""

from typing import Final

import numpy as np

from longpole_analytics.measures import Share, share
from longpole_analytics.shapes._measures import Measures
from longpole_analytics.shapes.base import Evidence, Finding, Floats, Refined, SubCause, TraceCase

TEXT: Final = "work done ahead is rarely used"
CHECK: Final = "guess only where the next step is likely, or stop guessing"
METRIC: Final = "used_guesses_share"


def test(m: Measures, finding: Finding) -> Refined | None:
    """The share of guesses that are used is surely below what pays."""
    now, before = (
        _used(side["num_guesses"], side["num_used_guesses"]) for side in (m.current, m.base)
    )
    if now.high is None or now.high >= m.rules.least_guesses:
        return None
    return Refined(TEXT, (_row(now, before.value),), CHECK)


def of_trace(case: TraceCase) -> Refined | None:
    """None of the trace's guesses was used, as of like requests too few are."""
    own, used = case.number("num_guesses"), case.number("num_used_guesses")
    if not own or used:
        return None
    if not {"num_guesses", "num_used_guesses"} <= set(case.like.columns):
        return None
    known = case.like.drop_nulls(["num_guesses", "num_used_guesses"])
    usual = _used(known["num_guesses"].to_numpy(), known["num_used_guesses"].to_numpy())
    if usual.high is None or usual.high >= case.rules.least_guesses:
        return None
    return Refined(TEXT, (_row(share(0, int(own)), usual.value),), CHECK)


def _used(guesses: Floats, used: Floats) -> Share:
    known = np.isfinite(guesses) & np.isfinite(used)
    return share(int(used[known].sum()), int(guesses[known].sum()))


def _row(now: Share, before: float | None) -> Evidence:
    return Evidence(METRIC, None, now.value, before, None, None, now.n)


SUB_CAUSE = SubCause(
    50,
    ("high_tpot", "load_saturation", "high_ttft_queue", "workflow_slow_serial_tools", "bad_tail"),
    test,
    of_trace,
)
