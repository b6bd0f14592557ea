"""The verdict on every slice of a run: measure all, correct for all tests, then ask the rules."""

from collections.abc import Collection, Sequence
from functools import cache

import numpy as np
import polars as pl

from longpole import family
from longpole_analytics.shapes._columns import Group, groups
from longpole_analytics.shapes._measures import Key, Measures, measure
from longpole_analytics.shapes._patterns import patterns
from longpole_analytics.shapes._refine import sub_causes
from longpole_analytics.shapes.base import NORMAL, Evidence, Finding, Rule, Shape, ShapeRules
from longpole_analytics.stats import benjamini_hochberg


@cache
def all_rules() -> tuple[Rule, ...]:
    """The rules there are, by their order."""
    found = family.load("longpole_analytics.shapes", "RULE", Rule)
    return tuple(rule for _, rule in sorted(found.items(), key=lambda item: (item[1].order, item)))


def shapes_of(
    baseline: pl.DataFrame,
    current: pl.DataFrame,
    by: Sequence[str] = (),
    rules: ShapeRules | None = None,
) -> list[Shape]:
    """The shape of every slice, by the slices' values; one for all requests without columns.

    Args:
        baseline: a table of requests, what is usual.
        current: a table of requests, what is judged.
        by: dimensions to slice by.
        rules: thresholds.
    """
    limits = rules or ShapeRules()
    # Data may hold anything; what comes of it is not a number, and that is unknown.
    with np.errstate(all="ignore"):
        return _judged(groups(baseline, current, by, limits.min_n(0.5)), limits)


def _judged(slices: Sequence[Group], limits: ShapeRules) -> list[Shape]:
    need = limits.min_n(0.5)
    measured = {
        place: measure(group, limits)
        for place, group in enumerate(slices)
        if min(group.sizes) >= need
    }
    _correct(measured.values(), limits)
    return [
        _verdict(measured[place], group) if place in measured else _too_few(group, need)
        for place, group in enumerate(slices)
    ]


def _correct(measured: Collection[Measures], rules: ShapeRules) -> None:
    """Keep the discoveries among all tests of the run (Benjamini-Hochberg)."""
    keys: list[tuple[Measures, Key]] = [(m, key) for m in measured for key in m.tests]
    p_values = [m.tests[key].p_value for m, key in keys]
    for index in benjamini_hochberg(p_values, rules.false_discovery_rate):
        m, key = keys[index]
        m.discoveries.add(key)


def _verdict(m: Measures, group: Group) -> Shape:
    found: tuple[Finding, ...] = ()
    can_tell = False
    for rule in all_rules():
        if not any((name, 0.5) in m.tests for name in rule.needs):
            continue
        can_tell = True
        finding = rule.test(m, found)
        if finding is not None:
            found = (*found, finding)
    if not can_tell:
        return _too_few(group, m.rules.min_n(0.5))
    if not found:
        rows = tuple(t.evidence() for t in (*m.test("e2e_adjusted_ms"), *m.test("ttft_ms")))
        return Shape(m.where, NORMAL, None, rows, None)
    # Sorting is stable: of equal ones the earlier rule's stays first.
    first, *others = sorted(found, key=lambda finding: -round(finding.excess_ms, 6))
    more = patterns(m, first)
    refined = sub_causes(m, first)
    words = (first.sub_cause, *(each.text for each in refined), *(text for text, _ in more))
    checks = [each.next_check for each in refined if each.next_check is not None]
    return Shape(
        m.where,
        first.name,
        "; ".join(dict.fromkeys(words)),
        (
            *first.evidence,
            *(row for each in refined for row in each.evidence),
            *(row for _, row in more),
        ),
        checks[0] if checks else first.next_check,
        tuple(others),
        first.excess_ms,
    )


def _too_few(group: Group, need: int) -> Shape:
    before, now = group.sizes
    row = Evidence("requests", None, float(now), float(before), None, None, min(group.sizes))
    why = f"too few samples: {now} requests now, {before} before"
    if min(group.sizes) >= need:
        why += ", and too few times in them"
    return Shape(group.where, None, why, (row,), f"compare at least {need} requests on each side")
