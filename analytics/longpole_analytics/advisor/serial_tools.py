"""Parallel tool calls run in series: one answer asked for several, and they wait for each other."""

from collections.abc import Sequence
from typing import Final

from longpole_analytics.advisor._population import Population
from longpole_analytics.advisor._serial import candidate, patterns
from longpole_analytics.advisor._thresholds import AdvisorRules
from longpole_analytics.advisor.base import HIGH, MEDIUM, Candidate, Rule, text


def _find(pop: Population, rules: AdvisorRules) -> Sequence[Candidate]:
    found = []
    for one in patterns(pop, rules):
        if one.asked:
            names = ", ".join(text(name) for name in dict.fromkeys(one.names))
            found.append(
                candidate(
                    one,
                    HIGH if one.grade == "E3" else MEDIUM,
                    "tool calls that one answer asked for run one after the other",
                    f"start {names} together (asyncio.gather, a TaskGroup, or "
                    "longpole.context_executor) and send their results back in one turn.",
                )
            )
    return found


ADVICE: Final = Rule(30, "parallel tool calls run in series", _find)
