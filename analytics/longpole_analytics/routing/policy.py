"""Rules of routing: of each route the choices in order, of which the first that applies is made.

Nothing but the declared inputs decides, and nothing is drawn: equal rules and inputs choose the
same, so every recorded decision can be made again.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from hashlib import sha256
from typing import Final, NamedTuple

Scalar = str | int | float | bool
PROMOTED: Final = ("better", "equivalent")
"""Verdicts of ``longpole compare`` that carry a promotion by themselves."""


class Span(NamedTuple):
    """Numbers from ``min`` on and below ``below``; ``None`` is open."""

    min: float | None
    below: float | None

    def holds(self, value: object) -> bool:
        """Whether a value is a number in here."""
        number = _number(value)
        if number is None:
            return False
        return (self.min is None or number >= self.min) and (
            self.below is None or number < self.below
        )


class OneOf(NamedTuple):
    """Any of some values."""

    values: tuple[Scalar, ...]

    def holds(self, value: object) -> bool:
        """Whether a value is one of them; numbers and marks compare as such, else as text."""
        return any(_same(value, wanted) for wanted in self.values)


Condition = Span | OneOf


@dataclass(frozen=True)
class Choice:
    """What a request is sent to, when all conditions hold.

    Attributes:
        name: unique in its route.
        model: what is asked for.
        provider: whom; ``None`` leaves it to the caller.
        tier: service tier asked for.
        timeout_ms: after it the fallback is tried.
        fallback: name of another choice; ``None`` fails.
        when: conditions by input; none is for everything.
    """

    name: str
    model: str
    provider: str | None
    tier: str | None
    timeout_ms: int
    fallback: str | None
    when: Mapping[str, Condition]

    def applies(self, inputs: Mapping[str, object]) -> bool:
        """Whether all conditions hold; an input that is unknown meets none."""
        return all(
            name in inputs and inputs[name] is not None and condition.holds(inputs[name])
            for name, condition in self.when.items()
        )


@dataclass(frozen=True)
class Promotion:
    """Why a version of a route is in force.

    Attributes:
        version: of the route.
        date: ISO 8601 day.
        by: who decided.
        verdict: of the comparison that it rests on.
        card: where that is, or its hash.
        from_version: what was in force before.
        reason: needed where the verdict alone does not carry it.
    """

    version: str
    date: str
    by: str
    verdict: str
    card: str | None
    from_version: str | None
    reason: str | None


@dataclass(frozen=True)
class Route:
    """One route: its inputs, its choices in order, its promotions."""

    name: str
    version: str
    owner: str | None
    inputs: tuple[str, ...]
    choices: tuple[Choice, ...]
    promotions: tuple[Promotion, ...]

    def choose(self, inputs: Mapping[str, object]) -> Choice:
        """The choice for these inputs; others than the declared ones do not matter.

        The last choice has no condition, so there always is one.
        """
        known = {name: inputs.get(name) for name in self.inputs}
        return next(choice for choice in self.choices if choice.applies(known))

    def chain(self, choice: Choice) -> tuple[Choice, ...]:
        """The choice and what is tried after it."""
        by_name = {each.name: each for each in self.choices}
        found = [choice]
        while found[-1].fallback is not None:
            found.append(by_name[found[-1].fallback])
        return tuple(found)

    def longest_ms(self, choice: Choice) -> int:
        """The longest a request may take before it fails: all timeouts in turn."""
        return sum(each.timeout_ms for each in self.chain(choice))

    @property
    def digest(self) -> str:
        """A hash of everything that decides: equal rules have equal ones."""
        decides = {"inputs": sorted(self.inputs), "choices": [asdict(c) for c in self.choices]}
        return sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Policy:
    """All routes of a file, by name, and the file's own version."""

    version: str
    routes: Mapping[str, Route]


def warnings(policy: Policy) -> list[str]:
    """What can be read but is likely not meant, a sentence each."""
    told = []
    for route in policy.routes.values():
        if not any(each.version == route.version for each in route.promotions):
            told.append(f"{route.name}: version {route.version} has no promotion record")
        told += [
            f"{route.name}: choice '{choice.name}' has no fallback"
            for choice in route.choices
            if choice.fallback is None and choice.when
        ]
    return told


def changed_in_place(old: Policy, new: Policy) -> list[str]:
    """Routes whose rules changed though their version did not, a sentence each."""
    return [
        f"{name}: the rules changed ({old.routes[name].digest} to {route.digest}), "
        f"the version is still {route.version}"
        for name, route in new.routes.items()
        if name in old.routes
        and old.routes[name].version == route.version
        and old.routes[name].digest != route.digest
    ]


def _number(value: object) -> float | None:
    """A number, also one written as text; a mark is none."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    try:
        return float(value)
    except ValueError:
        return None


def _same(value: object, wanted: Scalar) -> bool:
    if isinstance(wanted, bool) or isinstance(value, bool):
        return str(value).lower() == str(wanted).lower()
    if isinstance(wanted, int | float):
        return _number(value) == float(wanted)
    return str(value) == wanted
