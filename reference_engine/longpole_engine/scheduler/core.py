"""What the next step does: a pure function of what waits and what runs.

First come, first served. Every running request decodes in every step; one waiting request a step
gets its prompt run when a slot is free, so those already running stall for one prompt at most.
"""

from typing import NamedTuple


class State(NamedTuple):
    """Ids of waiting requests in order of arrival, of running ones, and the number of slots."""

    waiting: tuple[str, ...]
    running: tuple[str, ...]
    num_slots: int


class StepPlan(NamedTuple):
    """Requests whose prompts run in this step, and requests that each decode one token."""

    prefill: tuple[str, ...]
    decode: tuple[str, ...]


def plan(state: State) -> StepPlan:
    """The next step; both parts are empty when nothing is to do."""
    has_slot = len(state.running) < state.num_slots
    return StepPlan(state.waiting[:1] if has_slot else (), state.running)
