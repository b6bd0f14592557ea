"""Alerts that survive restarts, late data, and clocks that jump."""

import random
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from longpole.errors import BadInput
from longpole_analytics.minutes import SCALE
from longpole_analytics.slo.burn import budget, window
from longpole_analytics.slo.lifecycle import LATE_MIN, advance, alert_key, loads
from longpole_analytics.slo.objectives import Rule

from .slo_panels import CASES, objective, one, random_case, statuses, stepped, unrolled


class TestRestart:
    def test_at_each_minute_gives_the_same_states(self):
        good, bad = unrolled(next(c for c in CASES if c["name"] == "flap_damped")["minutes"])
        rules = [Rule("page", 60, 5, 14.4, 2, 10), Rule("ticket", 90, 30, 6)]
        slo = objective(0.999, rules, 0)
        minutes = one(slo, good, bad, first=1000)
        kept = None
        for minute in range(1000, 1000 + len(good)):
            # nothing survives but the text, and no later minute is known
            seen = minute - 999
            now = one(slo, good[:seen], bad[:seen], first=1000)
            kept = loads(advance(kept, now, minute).dumps())
            for rule in rules:
                expected = statuses(minutes, rule)[minute - 1000]
                assert kept.alerts[alert_key(slo, rule)][-1].status == expected

    @pytest.mark.parametrize("seed", range(40))
    def test_with_pauses_gives_the_same_states(self, seed):
        target, rule, min_bad, good, bad = random_case(seed)
        slo = objective(target, [rule], min_bad)
        minutes = one(slo, good, bad)
        expected = stepped(minutes, rule)
        dice, minute, kept = random.Random(seed), 0, None
        while minute < len(good):
            kept = loads(advance(kept, minutes, minute).dumps())
            assert kept.alerts[alert_key(slo, rule)][-1] == expected[minute]
            minute += dice.choice([1, 1, 2, 9, 25])

    def test_a_broken_state_is_refused(self):
        for text in (
            "",
            "[]",
            '{"version": 2}',
            '{"version": 1, "minute": 1, "alerts": {"a": [["on", 1, 1, 1]]}}',
        ):
            with pytest.raises(BadInput, match="state of the alerts"):
                loads(text)


class TestLateData:
    RULE = Rule("page", 60, 5, 14.4)

    def told(self, kept, slo):
        return [alert.status for alert in kept.alerts[alert_key(slo, self.RULE)]]

    def test_of_the_last_minutes_counts(self):
        slo = objective(0.99, [self.RULE])
        good = [10] * 30
        kept = advance(None, one(slo, good, [0] * 30), 29)
        late = [0] * (30 - LATE_MIN) + [10] * LATE_MIN
        kept = advance(kept, one(slo, [*good, 10], [*late, 0]), 30)
        assert self.told(kept, slo) == statuses(one(slo, [*good, 10], [*late, 0]), self.RULE)[20:]
        assert self.told(kept, slo)[-1] == "firing"

    def test_never_unfires_what_fired(self):
        slo = objective(0.99, [self.RULE])
        bad = [0] * 25 + [5] * 5
        kept = advance(None, one(slo, [1] * 30, bad), 29)
        assert self.told(kept, slo)[-1] == "firing"
        healed = one(slo, [10_000] * 31, [*bad, 0])
        kept = advance(kept, healed, 30)
        assert self.told(kept, slo)[-2] == "firing"
        assert self.told(kept, slo)[-1] == "inactive"


class TestClock:
    def test_a_jump_back_changes_nothing_and_a_jump_ahead_is_caught_up(self):
        rule = Rule("page", 60, 5, 14.4, 2, 3)
        slo = objective(0.99, [rule])
        good, bad = [5] * 200, [0] * 100 + [5] * 20 + [0] * 80
        minutes = one(slo, good, bad)
        kept = advance(None, minutes, 110)
        assert advance(kept, minutes, 50) is kept
        ahead = advance(kept, minutes, 170)
        assert ahead.alerts[alert_key(slo, rule)][-1] == stepped(minutes, rule)[170]

    @pytest.mark.parametrize("day", ["2026-03-29", "2026-10-25"])
    def test_a_week_over_a_change_of_daylight_saving_has_as_many_minutes_as_any(self, day):
        berlin = ZoneInfo("Europe/Berlin")
        change = datetime.fromisoformat(day).replace(tzinfo=berlin)
        since, until = change - timedelta(days=3), change + timedelta(days=4)
        first, end = int(since.timestamp()) // 60, int(until.timestamp()) // 60
        assert end - first in (7 * 1440 - 60, 7 * 1440 + 60)  # by the wall clock it has not
        slo = objective(0.99, period=7 * 1440)
        length = 8 * 1440
        good = np.full(length, 10)
        bad = np.zeros(length, np.int64)
        bad[-3000:-2000] = 3
        shifted = one(slo, good, bad, first=end - length)
        plain = one(slo, good, bad)
        assert budget(shifted, 0, end - 1).remaining == budget(plain, 0, length - 1).remaining
        assert window(shifted, 0, end - 1, 7 * 1440).total_e6 == (7 * 1440 * 10 + 3000) * SCALE
        for rule in slo.rules:
            assert statuses(shifted, rule) == statuses(plain, rule)
