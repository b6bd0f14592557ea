"""The requests of a side, drawn from a seed: the same seed gives the same requests."""

from collections.abc import Iterator
from itertools import count, islice, repeat
from random import Random
from typing import Final, NamedTuple

from longpole_dashboard.lab.recipe import App, Prefix, Side
from longpole_engine.load.arrivals import gamma_gaps

_SPREAD: Final = 0.33
"""Times and lengths are drawn evenly within such a part around what the recipe gives."""
EDIT_EVERY: Final = 3
"""Requests between two edits of the instructions."""


class Ask(NamedTuple):
    """One request: what the application does for it. Times in seconds, lengths in words or tokens.

    ``prefix`` names what its prompt begins with, ``version`` the instructions' version.
    """

    retrieval_s: float
    tools_s: tuple[float, ...]
    approval_s: float
    question: int
    answer: int
    unique: int
    prefix: str
    version: str


class Visit(NamedTuple):
    """A user: when the first request is due, in mean gaps after the block's start, and all asks."""

    due: float
    asks: tuple[Ask, ...]


def visits(side: Side, seed: str, num: int) -> list[Visit]:
    """The visits that make ``num`` requests, in order of time.

    Args:
        side: what is drawn.
        seed: of everything that is drawn.
        num: requests of all visits together.
    """
    random = Random(seed)  # noqa: S311 - draws a workload, guards nothing
    load = side.load
    num_visits = max(1, num // load.turns)
    times = islice(_grouped(side) if load.group > 1 else _spread(side, random), num_visits)
    found = []
    for number, due in enumerate(times):
        asks = tuple(
            _ask(side.app, random, number * load.turns + turn, f"{seed} {number}")
            for turn in range(min(load.turns, num))
        )
        found.append(Visit(due, asks))
    return found


def _spread(side: Side, random: Random) -> Iterator[float]:
    load = side.load
    due = 0.0
    for gap in gamma_gaps(1.0, load.cv2, random.randrange(1 << 30)):
        yield due
        due += gap * load.turns


def _grouped(side: Side) -> Iterator[float]:
    """As many mean gaps pass as requests came, so that the rate is the same."""
    load = side.load
    due = 0.0
    for number in count():
        size = number % load.group + 1 if load.is_ramp else load.group
        yield from repeat(due, size)
        due += size


def _ask(app: App, random: Random, number: int, visit: str) -> Ask:
    tools = [_around(random, tool_s) for tool_s in app.tools_s]
    if tools and _is_picked(number, app.slow_tools):
        tools[0] *= app.slow_factor
    answer = max(2, round(_around(random, app.answer)))
    if _is_picked(number, app.long_answers):
        answer = round(answer * app.long_factor)
    is_fresh = _is_picked(number, app.fresh)
    prefix = "shared"
    if app.prefix is Prefix.OWN:
        prefix = visit
    elif app.prefix is Prefix.EDITED:
        prefix = f"edit {visit.rpartition(' ')[0]} {number // EDIT_EVERY}"
    if is_fresh:
        prefix = f"fresh {visit} {number}"
    return Ask(
        retrieval_s=_around(random, app.retrieval_s),
        tools_s=tuple(tools),
        approval_s=_around(random, app.approval_s),
        question=max(1, round(_around(random, app.question, app.question_spread))),
        answer=answer,
        unique=random.randrange(1 << 30),
        prefix=prefix,
        version={Prefix.EDITED: prefix, Prefix.TIMESTAMP: "v2"}.get(app.prefix, "v1"),
    )


def _around(random: Random, value: float, spread: float = _SPREAD) -> float:
    return value * random.uniform(1 - spread, 1 + spread)


def _is_picked(number: int, share: float) -> bool:
    """Whether this one is of a share that is spread evenly: no run has more of it by chance."""
    return int((number + 1) * share) > int(number * share)
