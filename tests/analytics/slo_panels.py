"""Panels of made-up minutes, and what the alerts over them do."""

import json
import random
from pathlib import Path

import numpy as np

from longpole_analytics.minutes import SCALE
from longpole_analytics.slo.burn import condition, panel
from longpole_analytics.slo.lifecycle import STATUSES, Alert, history, step
from longpole_analytics.slo.objectives import Objective, Rule, default_rules
from longpole_analytics.slo.series import Series

CASES = json.loads((Path(__file__).parent / "data" / "burn_rate.json").read_text())["cases"]
PERIOD = 30 * 1440


def objective(target=0.99, rules=None, min_bad=3, period=PERIOD, name="x"):
    rules = default_rules(period) if rules is None else tuple(rules)
    return Objective(name, "availability", target, None, period, min_bad=min_bad, rules=rules)


def series(good, bad, first=0):
    good, bad = np.asarray(good, np.int64), np.asarray(bad, np.int64)
    return Series(first, bad * SCALE, (good + bad) * SCALE, bad, 0)


def one(slo, good, bad, first=0):
    return panel([slo], [series(good, bad, first)])


def unrolled(runs):
    rows = [(run["good"], run["bad"]) for run in runs for _ in range(run["minutes"])]
    return [good for good, _ in rows], [bad for _, bad in rows]


def statuses(minutes, rule, row=0):
    found = condition(minutes, row, rule, minutes.first_minute, minutes.last_minute)
    return [STATUSES[code] for code in history(found, rule).codes]


def stepped(minutes, rule, row=0):
    found = condition(minutes, row, rule, minutes.first_minute, minutes.last_minute)
    alert, told = Alert(), []
    for is_met, is_known in zip(found.is_met.tolist(), found.is_known.tolist(), strict=True):
        alert = step(alert, is_met, is_known, rule)
        told.append(alert)
    return told


def random_case(seed):
    """A series of calm, noisy and silent stretches, often right at a rule's edge."""
    dice = random.Random(seed)
    target = dice.choice([0.5, 0.9, 0.95, 0.97, 0.99, 0.995, 0.999])
    long = dice.randint(2, 90)
    rule = Rule(
        dice.choice(["page", "ticket"]), long, dice.randint(1, long - 1),
        dice.choice([14.4, 6, 3, 1, 0.5, 10]), dice.choice([0, 0, 1, 3]), dice.choice([0, 0, 2, 7]),
    )  # fmt: skip
    good, bad = [], []
    while len(good) < 150:
        size = dice.choice([0, 1, 2, 10, 100])
        share = dice.choice([0, 0, 1 - target, rule.factor * (1 - target), 0.5, 0.9, 1])
        for _ in range(dice.randint(1, 30)):
            b = round(size * min(share, 1)) if dice.random() < 0.7 else dice.randint(0, size)
            good.append(size - b)
            bad.append(b)
    return target, rule, dice.choice([0, 1, 3, 5]), good, bad
