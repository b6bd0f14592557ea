"""On top of Engine: the wait in the queue beside the time to first token."""

from typing import Final

from longpole.vocab import Stage
from longpole_dashboard.model import text
from longpole_dashboard.model.engine import EngineView
from longpole_dashboard.model.quantiles import Quantile
from longpole_dashboard.model.verdict_lines.base import Line, name, next_check, sized

_SMALL: Final = 0.1
"""Of the time to first token: a shorter wait in the queue is no reason for it."""


def of_engine(view: EngineView) -> Line:
    """The wait in the queue beside the time to first token of the model that waits longest.

    Both as the page has them: p95, or the largest where too few carry it, and the median.
    Quantiles are set side by side, not taken for parts of each other.
    """
    model = max(view.models, key=lambda each: (_tail(each.queue), _tail(each.ttft)))
    queue, first = model.queue[1], model.ttft[1]
    arrival = f"{_first_token(first)}{_median(model.ttft)}"
    said = name(model.name)
    if not queue.n and not first.n:
        n = sized(model.num_requests)
        return Line(
            f"No verdict: {said} tells neither its queue nor its time to first token ({n})."
        )
    if not queue.n:
        line = f"{said}: {arrival} ({_carried(first)}); the time in the queue is not sent."
        return Line(line)
    is_small = _tail(model.queue) <= _SMALL * _tail(model.ttft)
    wait = f"{_wait(queue, is_small=is_small)}{_median(model.queue)}"
    check = (
        "Next: Stages & slices says where the rest of the time goes."
        if is_small
        else next_check(Stage.QUEUE)
    )
    if not first.n:
        line = f"{said}: {wait} ({_carried(queue)}); the time to first token is not sent."
    elif first.n == queue.n:
        line = f"{said}: {wait}; {arrival} ({_carried(queue)})."
    else:
        line = f"{said}: {wait} ({_carried(queue)}); {arrival} ({_carried(first)})."
    return Line(line, (check,))


def _tail(pair: tuple[Quantile, Quantile]) -> float:
    return pair[1].tail or 0.0


def _median(pair: tuple[Quantile, Quantile]) -> str:
    return f", median {text.duration(pair[0].value)}" if pair[0].is_shown else ""


def _carried(found: Quantile) -> str:
    return f"n {text.count(found.n)}" + ("" if found.is_shown else ": no p95")


def _wait(queue: Quantile, *, is_small: bool) -> str:
    took = text.duration(queue.tail)
    if not queue.is_shown:
        return f"the longest wait in the queue was {took}"
    if is_small:
        return f"19 of 20 requests wait {took} or less in the queue"
    return f"one request in 20 waits {took} or longer in the queue"


def _first_token(first: Quantile) -> str:
    took = text.duration(first.tail)
    if first.is_shown:
        return f"p95 time to first token is {took}"
    return f"the slowest first token took {took}"
