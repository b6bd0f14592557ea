"""Burn rates and the life of alerts: the vectors, a brute-force evaluator, budgets."""

from fractions import Fraction
from itertools import groupby

import numpy as np
import pytest

from longpole_analytics.slo.burn import budget, panel, reachable, window
from longpole_analytics.slo.check import standings
from longpole_analytics.slo.objectives import Rule, default_rules

from .slo_panels import (
    CASES,
    PERIOD,
    objective,
    one,
    random_case,
    series,
    statuses,
    stepped,
    unrolled,
)


def naive(good, bad, target, rule, min_bad):
    """Status and whether it is known, minute by minute, straight from the definition."""
    allowed = 1 - Fraction(str(target))
    factor = min(Fraction(str(rule.factor)), Fraction(1, 2) / allowed)
    met, known = [], []
    for i in range(len(good)):
        burns = []
        for length in (rule.long_min, rule.short_min):
            inside = range(max(0, i - length + 1), i + 1)
            num_bad = sum(bad[j] for j in inside)
            burns.append((num_bad, num_bad + sum(good[j] for j in inside)))
        known.append(all(total for _, total in burns))
        met.append(
            known[-1]
            and all(Fraction(part, total) / allowed > factor for part, total in burns)
            and burns[0][0] >= min_bad
        )
    told, status, since, until = [], "inactive", None, None
    for i, is_met in enumerate(met):
        if is_met and status == "inactive":
            status, since = "pending", i
        if status == "pending":
            if not is_met:
                status = "inactive"
            elif i - since >= rule.for_min:
                status = "firing"
        if status == "firing":
            if is_met:
                until = i + rule.keep_min
            elif i > until:
                status = "inactive"
        told.append(status)
    return told, known


@pytest.mark.parametrize(
    ("case", "expected"),
    [(case, expected) for case in CASES for expected in case["expect"]],
    ids=lambda value: value.get("name") or str(value["rule"]["long"]),
)
def test_vectors(case, expected):
    given = expected["rule"]
    rule = Rule(
        given["severity"], given["long"], given["short"], given["factor"],
        given["for_min"], given["keep_min"],
    )  # fmt: skip
    slo = objective(case["target"], [rule], case["min_bad"])
    minutes = one(slo, *unrolled(case["minutes"]))
    assert reachable(rule.factor, slo.budget) == pytest.approx(expected["factor_used"], rel=1e-6)
    runs = [[status, len(list(same))] for status, same in groupby(statuses(minutes, rule))]
    assert runs == expected["runs"]
    last = [
        window(minutes, 0, minutes.last_minute, length).burn(slo.budget)
        for length in (rule.long_min, rule.short_min)
    ]
    assert last == [
        None if b is None else pytest.approx(b, rel=1e-6) for b in expected["last_burn"]
    ]


@pytest.mark.parametrize("block", range(10))
def test_a_thousand_random_series_equal_brute_force_minute_by_minute(block):
    fired = 0
    for seed in range(block * 100, block * 100 + 100):
        target, rule, min_bad, good, bad = random_case(seed)
        minutes = one(objective(target, [rule], min_bad), good, bad)
        expected, known = naive(good, bad, target, rule, min_bad)
        assert statuses(minutes, rule) == expected, seed
        told = stepped(minutes, rule)
        assert [alert.status for alert in told] == expected, seed
        assert [alert.is_known for alert in told] == known, seed
        fired += "firing" in expected
    assert fired >= 20  # the series are no idle ones


def test_windows_at_the_edge_of_a_factor_do_not_depend_on_rounding():
    for bad in range(1, 200):
        rule = Rule("page", 2, 1, 1)
        minutes = one(objective(0.9, [rule], 0), [9 * bad], [bad])  # burn is 1 exactly
        assert statuses(minutes, rule) == ["inactive"]
        assert statuses(one(objective(0.9, [rule], 0), [9 * bad - 1], [bad]), rule) == ["firing"]


class TestLowTraffic:
    def test_one_bad_of_one_does_not_page(self):
        minutes = one(objective(0.999), [0] * 600, [0] * 300 + [1] + [0] * 299)
        for rule in minutes.objectives[0].rules:
            assert set(statuses(minutes, rule)) == {"inactive"}

    @pytest.mark.parametrize("target", [0.9, 0.95, 0.99, 0.999])
    def test_ninety_percent_bad_at_half_a_request_a_second_pages_and_keeps_paging(self, target):
        good, bad = [30] * 600 + [3] * 600, [0] * 600 + [27] * 600
        rule = default_rules(PERIOD)[0]
        told = statuses(one(objective(target), good, bad), rule)
        assert set(told[:600]) == {"inactive"}
        assert set(told[600 + rule.long_min :]) == {"firing"}

    def test_one_request_in_ten_minutes_that_all_fail_pages(self):
        bad = ([0] * 9 + [1]) * 60
        rule = default_rules(PERIOD)[1]  # the longer windows are for this
        told = statuses(one(objective(0.99), [0] * 600, bad), rule)
        assert set(told[40:]) == {"firing"}


class TestFactors:
    def test_default_rules_of_thirty_days_are_the_workbooks(self):
        assert [(rule.severity, rule.long_min, rule.short_min, rule.factor)
                for rule in default_rules(PERIOD)] == [
            ("page", 60, 5, 14.4), ("page", 360, 30, 6), ("ticket", 1440, 120, 3),
            ("ticket", 4320, 360, 1),
        ]  # fmt: skip

    def test_other_periods_scale_and_leave_out_what_is_longer_than_they_are(self):
        week = default_rules(7 * 1440)
        assert [rule.factor for rule in week] == [3.36, 1.4, 0.7, pytest.approx(7 / 30)]
        assert [rule.long_min for rule in default_rules(1440)] == [60, 360, 1440]

    @pytest.mark.parametrize("target", [0.9, 0.95, 0.5])
    def test_a_factor_is_always_within_reach(self, target):
        slo = objective(target)
        for rule in slo.rules:
            assert reachable(rule.factor, slo.budget) * slo.budget <= 0.5
            assert "firing" in statuses(one(slo, [0] * 10, [100] * 10), rule)


class TestNoData:
    def test_is_no_promise_kept(self):
        minutes = one(objective(), [0] * 30, [0] * 30)
        (found,) = standings(minutes, 29)
        assert found.status == "no_data"
        assert {rule.status for rule in found.rules} == {"no_data"}
        assert (found.budget.remaining, found.budget.exhausted_at) == (None, None)
        assert found.is_thin
        assert not found.is_breached

    def test_a_week_of_silence_ends_what_fired_and_is_told(self):
        slo = objective(0.99, [Rule("page", 60, 5, 14.4, 0, 30)])
        minutes = one(slo, [0] * 10_140, [10] * 60 + [0] * 10_080)
        told = [alert.shown for alert in stepped(minutes, slo.rules[0])]
        runs = [(shown, len(list(same))) for shown, same in groupby(told)]
        assert runs == [("firing", 60 + 4 + 30), ("no_data", 10_080 - 34)]


class TestBudget:
    def test_spent_and_left(self):
        minutes = one(objective(0.99), [99] * 100, [1] * 100)
        left = budget(minutes, 0, 99)
        assert left.remaining == pytest.approx(0)
        assert left.burn_24h == pytest.approx(1)

    def test_forecast_is_what_is_left_of_the_period_over_the_burn(self):
        good, bad = np.full(PERIOD, 100), np.zeros(PERIOD, np.int64)
        bad[-1440:] = 4
        minutes = one(objective(0.99), good - bad, bad)
        left = budget(minutes, 0, PERIOD - 1)
        assert left.burn_24h == pytest.approx(4)
        assert left.remaining == pytest.approx(1 - 4 / 30)
        expected = PERIOD + (1 - 4 / 30) * PERIOD / 4
        assert left.exhausted_at == pytest.approx(expected, abs=1)

    def test_forecast_follows_the_traffic(self):
        good, bad = np.full(PERIOD, 100), np.zeros(PERIOD, np.int64)
        good[-1440:], bad[-1440:] = 192, 8
        minutes = one(objective(0.99), good, bad)
        left = budget(minutes, 0, PERIOD - 1)
        allowed = 0.01 * (100 * (PERIOD - 1440) + 200 * 1440) - 8 * 1440
        assert left.exhausted_at == pytest.approx(PERIOD + allowed / 8, abs=1)

    def test_a_young_service_is_not_taken_for_a_quiet_one(self):
        good, bad = np.zeros(PERIOD, np.int64), np.zeros(PERIOD, np.int64)
        good[-4000:] = 100
        bad[-1440:] = 2
        minutes = one(objective(0.99), good - bad, bad)
        left = budget(minutes, 0, PERIOD - 1)
        assert left.exhausted_at == pytest.approx(PERIOD + left.remaining * PERIOD / 2, abs=1)

    def test_no_forecast_without_need_or_evidence(self):
        calm = budget(one(objective(0.9), [95] * 100, [5] * 100), 0, 99)
        assert (calm.exhausted_at, calm.reason) == (None, "burn (24h) is not above 1")
        good, bad = [1] * 30_000, [0] * 29_990 + [1] * 2 + [0] * 8
        good[-1440:] = [0] * 1440
        few = budget(one(objective(0.99), good, bad), 0, 29_999)
        assert (few.exhausted_at, few.reason) == (None, "not enough events")

    def test_used_up_tells_since_when(self):
        bad = [0] * 500 + [50] * 10 + [0] * 490
        left = budget(one(objective(0.99), [10] * 1000, bad), 0, 999)
        allowed = (10_000 + 500) * 0.01
        assert left.remaining == pytest.approx(1 - 500 / allowed)
        assert left.exhausted_at == 500 + 3  # 105 of them in three minutes

    def test_old_minutes_leave_the_period(self):
        slo = objective(0.99, period=120, rules=[Rule("page", 60, 5, 14.4)])
        minutes = one(slo, [10] * 240, [10] * 60 + [0] * 180)
        assert budget(minutes, 0, 178).remaining < 1
        assert budget(minutes, 0, 179).remaining == 1


def test_a_status_of_the_whole_is_the_worst_of_its_rules():
    slo = objective(0.99, [Rule("page", 60, 5, 14.4, 5), Rule("ticket", 60, 5, 3)])
    (found,) = standings(one(slo, [5] * 20, [0] * 18 + [20] * 2), 19)
    assert [rule.status for rule in found.rules] == ["pending", "firing"]
    assert found.status == "firing"
    assert found.is_breached


def test_one_bad_of_one_is_too_thin_to_break_a_promise():
    (found,) = standings(one(objective(0.99), [0] * 10, [0] * 9 + [1]), 9)
    assert found.budget.remaining < 0
    assert not found.is_breached
    assert found.is_thin


def test_a_panel_needs_series_of_the_same_minutes():
    with pytest.raises(ValueError, match="same minutes"):
        panel([], [])
    with pytest.raises(ValueError, match="same minutes"):
        panel([objective()] * 2, [series([1], [0]), series([1, 1], [0, 0])])
