"""Which requests are good, bad or say nothing, and in which minute they count."""

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longpole.errors import BadInput
from longpole_analytics.minutes import MINUTE_NS, SCALE
from longpole_analytics.requests import from_flat
from longpole_analytics.slo.check import check, document
from longpole_analytics.slo.objectives import Floor, Objective, default_rules
from longpole_analytics.slo.series import judged, minute_series

DAY = 1440


def slo(metric="ttft_ms", threshold=2000.0, **facts):
    given_ = {"target": 0.9, "period_min": DAY, "rules": default_rules(DAY)} | facts
    return Objective("x", metric, threshold=threshold, **given_)


def request(**facts):
    return from_flat(pl.DataFrame([{"start_ns": 0, **facts}]))


def verdict(objective, **facts):
    return judged(request(**facts), objective).to_list()[0]


class TestLatency:
    @pytest.mark.parametrize(
        "metric",
        ["ttft_ms", "ttfv_ms", "tpot_ms", "e2e_ms", "time_to_useful_ms", "time_to_accepted_ms"],
    )
    def test_up_to_the_threshold_is_good(self, metric):
        objective = slo(metric, 100.0)
        assert verdict(objective, **{metric: 100.0}) is True
        assert verdict(objective, **{metric: 100.1}) is False
        assert verdict(objective, **{metric: None}, route="a") is None
        assert verdict(objective, **{metric: float("nan")}) is None
        assert verdict(objective, route="a") is None

    @pytest.mark.parametrize(
        "failure",
        [{"outcome": "failed"}, {"error_type": "timeout"}, {"is_error": True},
         {"failure_class": "tool"}, {"stream_state": "error"}],
    )  # fmt: skip
    def test_a_failed_request_is_bad_whatever_it_measured(self, failure):
        assert verdict(slo(), ttft_ms=1.0, **failure) is False
        assert verdict(slo(), **failure) is False

    def test_a_retried_error_of_an_accepted_request_is_no_failure(self):
        assert verdict(slo(), ttft_ms=1.0, is_error=True, outcome="accepted") is True

    def test_what_was_rejected_never_got_accepted(self):
        objective = slo("time_to_accepted_ms")
        assert verdict(objective, outcome="rejected") is False
        assert verdict(slo(), outcome="rejected", ttft_ms=1.0) is True

    @pytest.mark.parametrize("state", ["closed_early", "abandoned"])
    def test_what_was_given_up_is_judged_by_what_is_known(self, state):
        facts = {"stream_state": state}
        assert verdict(slo(), ttft_ms=100.0, e2e_ms=9000.0, **facts) is True
        assert verdict(slo(), ttft_ms=None, e2e_ms=9000.0, **facts) is False
        assert verdict(slo(), ttft_ms=None, e2e_ms=500.0, **facts) is None
        assert verdict(slo("e2e_ms"), e2e_ms=500.0, **facts) is None
        assert verdict(slo("e2e_ms"), e2e_ms=9000.0, **facts) is False
        assert verdict(slo("e2e_ms"), e2e_ms=500.0, outcome="accepted", **facts) is True
        assert verdict(slo("tpot_ms", 50.0), e2e_ms=9000.0, **facts) is None

    def test_what_was_given_up_can_be_left_out_or_bad(self):
        facts = {"stream_state": "abandoned", "ttft_ms": 1.0}
        assert verdict(slo(cancelled="excluded"), **facts) is None
        assert verdict(slo(cancelled="bad"), **facts) is False


class TestOthers:
    def test_availability(self):
        objective = slo("availability", None)
        assert verdict(objective, route="a") is True
        assert verdict(objective, outcome="rejected") is True
        assert verdict(objective, error_type="x") is False
        assert verdict(objective, stream_state="abandoned") is None

    def test_accepted_counts_known_outcomes_alone(self):
        objective = slo("accepted", None)
        answers = [verdict(objective, outcome=o) for o in ("accepted", "rejected", "failed", None)]
        assert answers == [True, False, False, None]

    def test_quality_is_good_from_the_threshold_on_and_freshness_up_to_it(self):
        assert [verdict(slo("quality", 0.8), quality=q) for q in (0.8, 0.7, None)] == [
            True, False, None,
        ]  # fmt: skip
        assert [verdict(slo("freshness", 60.0), freshness=f) for f in (60, 61)] == [True, False]
        assert verdict(slo("quality", 0.8), quality="good") is None
        assert verdict(slo("quality", 0.8), route="a") is None

    def test_a_floor_is_judged_alike(self):
        assert verdict(Floor("accepted", 0.9), outcome="rejected") is False


class TestMinutes:
    def test_a_request_counts_in_the_minute_it_began_in(self):
        table = from_flat(
            pl.DataFrame(
                {
                    "start_ns": [5 * MINUTE_NS - 1, 5 * MINUTE_NS, 6 * MINUTE_NS - 1, None],
                    "ttft_ms": [1.0, 9999.0, 1.0, 1.0],
                }
            )
        )
        found = minute_series(table, slo(), 4, 3)
        assert found.total_e6.tolist() == [SCALE, 2 * SCALE, 0]
        assert found.bad_e6.tolist() == [0, SCALE, 0]
        assert found.num_bad.tolist() == [0, 1, 0]
        outside = minute_series(table, slo(), 5, 1)
        assert outside.total_e6.tolist() == [2 * SCALE]

    def test_what_says_nothing_is_counted_apart(self):
        table = from_flat(pl.DataFrame({"start_ns": [0, 0, 0], "ttft_ms": [1.0, None, None]}))
        found = minute_series(table, slo(), 0, 1)
        assert (found.total_e6.tolist(), found.num_left_out) == ([SCALE], 2)

    def test_weights_count_as_many_but_prove_as_one(self):
        table = from_flat(
            pl.DataFrame({"start_ns": [0, 0], "ttft_ms": [1.0, 9999.0], "weight": [2.5, None]})
        )
        found = minute_series(table, slo(), 0, 1)
        assert (found.total_e6[0], found.bad_e6[0], found.num_bad[0]) == (3.5 * SCALE, SCALE, 1)

    @pytest.mark.parametrize("weight", [-1.0, float("inf")])
    def test_an_absurd_weight_is_refused(self, weight):
        table = from_flat(pl.DataFrame({"start_ns": [0], "ttft_ms": [1.0], "weight": [weight]}))
        with pytest.raises(BadInput, match="weight"):
            minute_series(table, slo(), 0, 1)

    @given(st.lists(st.tuples(st.integers(0, 20), st.none() | st.floats(0, 4000)), max_size=60))
    def test_equals_counting_one_by_one(self, rows):
        table = from_flat(
            pl.DataFrame(
                {"start_ns": [m * MINUTE_NS for m, _ in rows], "ttft_ms": [t for _, t in rows]},
                {"start_ns": pl.Int64, "ttft_ms": pl.Float64},
            )
        )
        found = minute_series(table, slo(), 3, 10)
        for place, minute in enumerate(range(3, 13)):
            known = [t for m, t in rows if m == minute and t is not None]
            assert found.total_e6[place] == len(known) * SCALE
            assert found.num_bad[place] == sum(t > 2000 for t in known)


class TestCheck:
    def test_a_metric_that_nobody_sends_is_no_data_not_perfect(self):
        table = from_flat(pl.DataFrame({"start_ns": [0] * 50, "e2e_ms": [1.0] * 50}))
        (found,) = check([slo("quality", 0.5)], lambda _: table, MINUTE_NS)
        assert (found.status, found.total, found.num_left_out) == ("no_data", 0, 50)
        told = document([found], MINUTE_NS)["slos"][0]
        assert told["budget"] == {
            "remaining": None, "exhausted_at": None, "reason": "no events", "burn_24h": None,
        }  # fmt: skip
        assert {(r["burn_long"], r["burn_short"], r["status"]) for r in told["rules"]} == {
            (None, None, "no_data")
        }

    def test_is_as_of_a_moment(self):
        starts = [m * MINUTE_NS for m in range(120) for _ in range(10)]
        times = [9999.0 if start >= 60 * MINUTE_NS else 1.0 for start in starts]
        table = from_flat(pl.DataFrame({"start_ns": starts, "ttft_ms": times}))
        (before,) = check([slo()], lambda _: table, 60 * MINUTE_NS)
        assert (before.status, before.bad, before.total) == ("inactive", 0, 600)
        (after,) = check([slo()], lambda _: table, 120 * MINUTE_NS)
        assert (after.status, after.bad, after.total) == ("firing", 600, 1200)
        (within,) = check([slo()], lambda _: table, 60 * MINUTE_NS + 1)
        assert (within.bad, within.total) == (10, 610)

    @pytest.mark.parametrize(
        ("outcomes", "target", "status"),
        [(["accepted"] * 9 + ["rejected"], 0.9, "met"), (["rejected"] * 5, 0.9, "missed"),
         (["rejected"], 0.9, "thin"), ([None], 0.9, "no_data")],
    )  # fmt: skip
    def test_floors_go_with_the_promise(self, outcomes, target, status):
        objective = slo(floors=(Floor("accepted", target),))
        table = from_flat(
            pl.DataFrame({"start_ns": [0] * len(outcomes), "ttft_ms": [1.0] * len(outcomes),
                          "outcome": pl.Series(outcomes, dtype=pl.String)})
        )  # fmt: skip
        (found,) = check([objective], lambda _: table, MINUTE_NS)
        assert [floor.status for floor in found.floors] == [status]
        assert found.is_breached == (status == "missed")
        assert found.is_thin == (status in ("thin", "no_data"))

    def test_nothing_promised_is_nothing_checked(self):
        assert check([], lambda _: pl.DataFrame(), 0) == []
