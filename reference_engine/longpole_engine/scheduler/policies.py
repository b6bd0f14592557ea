"""Whose turn it is: each policy gives a request the time at which it is due.

The earliest due goes first. No due time lies further from a request's arrival than a constant, so
once that long has passed nobody who comes later is served before it: no policy starves anyone.
Pure functions.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from longpole_engine.config import Policy

AGEING_S: Final = 2.0
"""A step of priority is worth so much waiting."""

SECONDS_PER_TOKEN: Final = 0.01
"""A prompt's token is worth so much waiting (shortest prompt first)."""

MAX_DELAY_S: Final = 60.0
"""Nobody is put off by more than this, whatever the policy."""

DEFAULT_SLO_S: Final = 2.0
"""Target for the first token of a request that names none."""


class Claim(NamedTuple):
    """What a policy looks at.

    ``priority`` 0 is the most urgent. ``num_left`` counts the prompt's tokens that are still to be
    computed, ``prefill_s`` the seconds they are expected to take. ``slo_s`` is the target for the
    first token, ``None`` for the default.
    """

    arrived_s: float
    priority: int
    num_left: int
    prefill_s: float
    slo_s: float | None


def first_come(claim: Claim, now_s: float) -> float:
    """In order of arrival."""
    return claim.arrived_s


def priority(claim: Claim, now_s: float) -> float:
    """The more urgent first; waiting makes up for a step of priority."""
    return claim.arrived_s + min(MAX_DELAY_S, max(0, claim.priority) * AGEING_S)


def shortest_prompt(claim: Claim, now_s: float) -> float:
    """The least left to compute first; waiting makes up for length."""
    return claim.arrived_s + min(MAX_DELAY_S, claim.num_left * SECONDS_PER_TOKEN)


def deadline_slack(claim: Claim, now_s: float) -> float:
    """The one that must start soonest to meet its target first.

    Those that can meet it no more go behind those that can: serving them first would only make
    others miss theirs.
    """
    slo_s = DEFAULT_SLO_S if claim.slo_s is None else claim.slo_s
    latest_start_s = claim.arrived_s + slo_s - claim.prefill_s
    if latest_start_s >= now_s:
        return claim.arrived_s + min(MAX_DELAY_S, max(0.0, latest_start_s - claim.arrived_s))
    return claim.arrived_s + MAX_DELAY_S


POLICIES: Final[dict[Policy, Callable[[Claim, float], float]]] = {
    Policy.FCFS: first_come,
    Policy.PRIORITY: priority,
    Policy.SHORTEST: shortest_prompt,
    Policy.SLO: deadline_slack,
}
