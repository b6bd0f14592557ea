"""Floors as promises of their own, so that a watch tells of one that is not held."""

from collections.abc import Sequence
from typing import Final

from longpole_analytics.slo.objectives import Floor, Objective

SEPARATOR: Final = "/"
"""Between an objective's id and its floor's name; no id that is written has it."""


def with_floors(objectives: Sequence[Objective]) -> tuple[Objective, ...]:
    """The objectives, each followed by its floors over the same requests, under the same rules.

    A floor is named after its objective and its metric, as ``chat/accepted`` or
    ``chat/quality-0.7``. Of two about the same, the higher one counts.
    """
    found: dict[str, Objective] = {}
    for objective in objectives:
        found[objective.id] = objective
        for floor in sorted(objective.floors, key=lambda each: each.target):
            promise = _promise(objective, floor)
            found[promise.id] = promise
    return tuple(found.values())


def promise_of(name: str) -> str:
    """The id of the objective that a promise belongs to: itself, or what it is a floor of."""
    return name.partition(SEPARATOR)[0]


def _promise(objective: Objective, floor: Floor) -> Objective:
    limit = "" if floor.threshold is None else f"-{floor.threshold:g}"
    return Objective(
        f"{objective.id}{SEPARATOR}{floor.metric}{limit}",
        floor.metric,
        floor.target,
        floor.threshold,
        objective.period_min,
        where=objective.where,
        task_class=objective.task_class,
        owner=objective.owner,
        runbook=objective.runbook,
        description=f"a floor of {objective.id}: {objective.text}",
        min_bad=objective.min_bad,
        rules=objective.rules,
    )
