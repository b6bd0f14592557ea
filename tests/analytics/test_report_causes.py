"""What a report adds to a list of causes: how they did before, and what they cost at the tail."""

import polars as pl
import pytest

from longpole_analytics.attribution import CauseRules
from longpole_analytics.report.base import Earlier
from longpole_analytics.report.blame import blame
from longpole_analytics.report.sections.causes import _history as history
from longpole_analytics.requests import from_flat
from longpole_analytics.top import Slow, top

from .made_requests import made
from .week_of_spans import WEEK


def test_a_cause_is_new_again_back_or_unknown():
    fault = {"region": "r1", "prompt_version": "p2"}
    planted, other = top(made(4000, 1, planted=[fault])), top(made(4000, 2))
    thin = top(made(10, 3))
    (cause,) = [each for each in planted.causes if each.where == fault]
    for before, state, num_weeks in (
        ((other, other), "new", 1),
        ((planted, other), "again", 2),
        ((planted, planted), "again", 3),
        ((other, planted), "back", 1),
        ((None, planted), "unknown", 1),
        ((thin, planted), "unknown", 1),
    ):
        told = history(cause, tuple(Earlier(WEEK, each) for each in before))
        assert (told["state"], told["num_weeks"]) == (state, num_weeks)
        assert told["last_rank"] == (1 if state == "again" else None)


def test_the_p99_of_a_what_if_is_that_of_the_route_without_what_was_lost():
    """A tenth of the requests wait 4 s more in the queue, and nothing else is slow."""
    rows = [
        {
            "start_ns": k,
            "route": "r",
            "tenant": "a" if k % 10 == 0 else "b",
            "queue_ms": 4000.0 + k % 7 if k % 10 == 0 else float(k % 7),
            "prefill_ms": 100.0,
            "e2e_ms": (4100.0 if k % 10 == 0 else 100.0) + k % 7,
        }
        for k in range(20_000)
    ]
    requests = from_flat(pl.DataFrame(rows))
    found = top(requests, slow=Slow(objective_ms=1000.0))
    (cause,) = found.causes
    (own,) = blame(requests, found, CauseRules()).causes
    assert cause.where == {"tenant": "a"}
    assert (len(own.ids), own.num_route) == (2000, 20_000)
    assert own.p99_now_ms == 4106.0
    assert own.p99_then_ms == 106.0
    assert float(own.excess_ms.sum()) == pytest.approx(cause.excess_ms_total)
    assert own.extra_p99_ms == 4003.0  # the usual queue is 3 ms
