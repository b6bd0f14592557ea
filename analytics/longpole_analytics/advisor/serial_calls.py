"""Serial independent calls: steps that wait for each other though neither needs the other."""

from collections.abc import Sequence
from typing import Final

from longpole_analytics.advisor._population import Population
from longpole_analytics.advisor._serial import GRADES, candidate, patterns
from longpole_analytics.advisor._thresholds import AdvisorRules
from longpole_analytics.advisor.base import HIGH, Candidate, Rule, text

_KNOWN: Final = {
    "E1": "nothing is known of who needs whom, so ask first whether the later one reads what the "
    "earlier one returns",
    "E2": "other traces of the route have them side by side or the other way round",
    "E3": "one answer asked for all of them",
}


def _find(pop: Population, rules: AdvisorRules) -> Sequence[Candidate]:
    found = []
    for one in patterns(pop, rules):
        if not one.asked:
            names = ", ".join(text(name) for name in dict.fromkeys(one.names))
            found.append(
                candidate(
                    one,
                    GRADES.get(one.grade, HIGH),
                    f"steps run one after the other that may run side by side ({one.grade})",
                    f"start {names} together; {_KNOWN[one.grade]}.",
                )
            )
    return found


ADVICE: Final = Rule(35, "serial independent calls", _find)
