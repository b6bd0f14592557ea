"""What a recipe is: two sides that differ in one cause, and what the diagnosis should say.

A side says which engines answer, what the application does and what load comes. Rates are parts of
what the machine was measured to carry in the same run, so a recipe holds on a slow machine too.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final

from longpole_dashboard.lab.labels import LABELS
from longpole_engine.load.proxy import Fault

NUM_REQUESTS: Final = 75
"""A side's requests: from 72 on a p95 has an interval."""


class Prefix(StrEnum):
    """How the prompts begin."""

    STABLE = "stable"
    """Tools and instructions, always the same."""
    TIMESTAMP = "timestamp"
    """The time of day stands before the instructions."""
    SHUFFLED_TOOLS = "shuffled_tools"
    """The same tools, in another order each time."""
    EDITED = "edited"
    """The instructions change every few requests, with a new version each time."""
    OWN = "own"
    """Every session has its own document behind the instructions."""


class Routing(StrEnum):
    """How requests are spread over the replicas."""

    ROUND_ROBIN = "round_robin"
    AFFINITY = "affinity"
    """By the beginning of the prompt."""
    HOME = "home"
    """Prompts whose beginning came before go to the last one, others to the first."""


@dataclass(frozen=True)
class Door:
    """What stands between the application and the engines.

    Attributes:
        faults: share of the requests that meets a fault.
        is_even: faults are spread evenly, not by chance.
        retry_after_s: what a refusal asks for.
        delay_s: the way to the engines takes so much longer.
        odd_delay_s: the way to the last of them alone.
        routing: who answers.
        prefix_life_s: the provider forgets a prefix so long after its last use; 0 is never.
        idle_s: an instance is stopped when it was idle for so long, and started by the next
            request, which waits for it; 0 is never.
        place_s: what it takes to find a place for an instance before it starts.
    """

    faults: Mapping[Fault, float] = field(default_factory=dict)
    is_even: bool = False
    retry_after_s: float = 0.3
    delay_s: float = 0.0
    odd_delay_s: float = 0.0
    routing: Routing = Routing.ROUND_ROBIN
    prefix_life_s: float = 0.0
    idle_s: float = 0.0
    place_s: float = 0.6


@dataclass(frozen=True)
class Replicas:
    """The engines.

    Attributes:
        settings: fields of ``EngineConfig`` that are not as in every engine of the lab.
        num_engines: how many there are.
        is_hosted: nobody sees inside: they send no spans.
        neighbour: another customer's requests that are always in the engine; the last replica's
            only, where there are several.
        neighbour_tokens: prompt and answer of such a request.
    """

    settings: Mapping[str, Any] = field(default_factory=dict)
    num_engines: int = 1
    is_hosted: bool = False
    neighbour: int = 0
    neighbour_tokens: tuple[int, int] = (16, 200)


@dataclass(frozen=True)
class App:
    """The application; times in seconds, drawn within a third around what is given.

    Attributes:
        retrieval_s: search before the call.
        tools_s: each tool before the call.
        is_serial: tools run one after another, not side by side.
        slow_tools: share of the requests whose first tool takes ``slow_factor`` times as long.
        slow_factor: see there.
        approval_s: a person's answer after the call.
        read_pause_s: the application pauses after each chunk.
        instructions: words of the instructions.
        question: words of the question.
        question_spread: they are drawn evenly within such a part around it.
        answer: tokens of the answer.
        long_answers: share of the requests whose answer is ``long_factor`` times as long.
        long_factor: see there.
        temperature: of sampling.
        prefix: how prompts begin.
        fresh: share of the requests that share no beginning with any other.
        retries: of the client.
    """

    retrieval_s: float = 0.0
    tools_s: tuple[float, ...] = ()
    is_serial: bool = False
    slow_tools: float = 0.0
    slow_factor: float = 8.0
    approval_s: float = 0.0
    read_pause_s: float = 0.0
    instructions: int = 60
    question: int = 12
    question_spread: float = 0.33
    answer: int = 8
    long_answers: float = 0.0
    long_factor: float = 8.0
    temperature: float = 0.0
    prefix: Prefix = Prefix.STABLE
    fresh: float = 0.0
    retries: int = 2


@dataclass(frozen=True)
class Load:
    """When requests come.

    Attributes:
        of_capacity: rate as a part of what the engines were measured to carry.
        max_per_s: and at most this rate.
        cv2: squared coefficient of variation of the gaps.
        group: so many come at once.
        is_ramp: groups grow from one to that number, and again.
        turns: requests of a session, one after another.
        think_s: between two of them.
        pause_every: so many of them, then
        pause_s: a longer pause.
        num: requests of a side.
    """

    of_capacity: float = 0.4
    max_per_s: float = 16.0
    cv2: float = 1.0
    group: int = 1
    is_ramp: bool = False
    turns: int = 1
    think_s: float = 0.0
    pause_every: int = 0
    pause_s: float = 0.0
    num: int = NUM_REQUESTS


@dataclass(frozen=True)
class Side:
    """One side of a recipe."""

    app: App = App()
    load: Load = Load()
    door: Door = Door()
    replicas: Replicas = Replicas()

    def but(self, **changes: Any) -> "Side":
        """The side with some fields of its parts changed, by their names.

        Raises:
            KeyError: no part has such a field.
        """
        found = self
        for name, value in changes.items():
            part = _PART[name]
            found = replace(found, **{part: replace(getattr(found, part), **{name: value})})
        return found


_PART: Final = {
    name: part
    for part, kind in (("app", App), ("load", Load), ("door", Door), ("replicas", Replicas))
    for name in kind.__dataclass_fields__
}


@dataclass(frozen=True)
class Truth:
    """What the diagnosis should say: a name of the closed set, and a label of ``LABELS``."""

    shape: str
    sub_cause: str

    def __post_init__(self) -> None:
        if self.sub_cause not in LABELS:
            raise ValueError(f"no sub-cause '{self.sub_cause}'")


@dataclass(frozen=True)
class Recipe:
    """One entry of the catalogue.

    Attributes:
        name: what ``longpole lab run`` calls it.
        text: what happens, one sentence.
        truth: what should be said of it.
        baseline: as usual.
        shape: with the cause.
    """

    name: str
    text: str
    truth: Truth
    baseline: Side
    shape: Side
