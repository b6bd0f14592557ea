"""The sub-causes of a shape: every member of the family that bears on it is asked."""

from functools import cache

from longpole import family
from longpole_analytics.shapes._measures import Measures
from longpole_analytics.shapes.base import Finding, Refined, SubCause, TraceCase


@cache
def all_sub_causes() -> tuple[SubCause, ...]:
    """The sub-causes there are, by their order."""
    found = family.load("longpole_analytics.shapes._sub_causes", "SUB_CAUSE", SubCause)
    return tuple(each for _, each in sorted(found.items(), key=lambda e: (e[1].order, e[0])))


def sub_causes(measures: Measures, finding: Finding) -> list[Refined]:
    """What stands behind a shape that was found in a slice."""
    asked = (each.test(measures, finding) for each in all_sub_causes()
             if finding.name in each.shapes)  # fmt: skip
    return [found for found in asked if found is not None]


def sub_causes_of_trace(case: TraceCase, name: str) -> list[Refined]:
    """What stands behind the shape of one trace."""
    asked = (each.of_trace(case) for each in all_sub_causes() if name in each.shapes)
    return [found for found in asked if found is not None]
