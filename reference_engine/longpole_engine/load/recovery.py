"""When requests are again what they were. Pure."""

from collections.abc import Sequence
from math import inf
from statistics import median
from typing import Final, NamedTuple

from longpole_engine.load.run import Sent

WINDOW: Final = 8
_WORSE: Final = 1.5


class Calm(NamedTuple):
    """Medians of calm times, from when requests were due, in milliseconds."""

    ttft_ms: float
    e2e_ms: float


def calm(sent: Sequence[Sent]) -> Calm | None:
    """Of the requests that were answered; ``None`` if none was."""
    known = [took for each in sent if (took := _took(each)) is not None]
    if not known:
        return None
    return Calm(median(took.ttft_ms for took in known), median(took.e2e_ms for took in known))


def _took(each: Sent) -> Calm | None:
    if not each.answer.is_whole:
        return None
    found = each.answer.call.times()
    if found.ttft_ns is None:
        return None
    return Calm((found.ttft_ns + each.lag_ns) / 1e6, (found.e2e_ns + each.lag_ns) / 1e6)


def recovered(sent: Sequence[Sent], at_ns: int, before: Calm | None) -> int | None:
    """When requests were well again: the due time of the first after the last bad one.

    A request is bad if it failed, or its first token or its end took over half more than in calm
    times. Eight in a row by due time are bad together if one of them failed or most are bad; the
    last bad one is that of the last such eight.

    Args:
        sent: requests that ended since the incident, in order of their due times.
        at_ns: of the incident; the answer if none are bad together.
        before: what calm times are; ``None`` if that is unknown.

    Returns:
        ``None`` if the last eight are bad, or nothing can be said.
    """
    if before is None or not sent:
        return None
    size = min(WINDOW, len(sent))
    slower = [_slower(each, before) for each in sent]
    last_bad = None
    for begin in range(len(sent) - size + 1):
        window = slower[begin : begin + size]
        if inf in window or median(window) > _WORSE:
            last_bad = begin
    if last_bad is None:
        return at_ns
    if last_bad == len(sent) - size:
        return None
    last = max(at for at in range(last_bad, last_bad + size) if slower[at] > _WORSE)
    return max(at_ns, sent[last + 1].due_ns) if last + 1 < len(sent) else None


def _slower(each: Sent, before: Calm) -> float:
    """How many times as long it took; a failure takes for ever."""
    took = _took(each)
    if took is None:
        return inf
    return max(took.ttft_ms / before.ttft_ms, took.e2e_ms / before.e2e_ms)
