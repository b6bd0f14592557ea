"""What theory says of a wait in a queue.

M/M/k by Erlang C; G/G/1 by Kingman (Mathematical Proceedings of the Cambridge Philosophical Society
57, 1961); G/G/k by Allen and Cunneen (Allen, Probability, Statistics and Queueing Theory, 1990). An
engine that batches continuously shares its processor, and its service time depends on the batch:
for it these are a rough guess. Times are in one unit of the caller's, rates in its reciprocal.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from longpole.errors import BadInput

Floats = npt.NDArray[np.float64]


class Wait(NamedTuple):
    """Share of requests that wait, and the mean wait of all of them."""

    p_wait: float
    mean: float


def utilisation(rate: float, service: float, servers: int = 1) -> float:
    """rho: the share of the servers' time that is busy; 1 and more cannot last."""
    return rate * service / servers


def mmk(rate: float, service: float, servers: int = 1) -> Wait | None:
    """The wait in M/M/k (one server: M/M/1); ``None`` when the queue grows without end.

    Raises:
        BadInput: a rate or time below zero, or no server.
    """
    if rate < 0 or service < 0 or servers < 1:
        raise BadInput("a queue needs a rate and a service time of 0 or more, and a server")
    load = rate * service
    if load >= servers:
        return None
    blocked = 1.0
    for k in range(1, servers + 1):  # Erlang B, by its recurrence: no factorials
        blocked = load * blocked / (k + load * blocked)
    p_wait = blocked / (1 - load / servers * (1 - blocked))
    return Wait(p_wait, p_wait * service / (servers - load))


def allen_cunneen(
    rate: float, service: float, servers: int, ca2: float, cs2: float
) -> float | None:
    """The mean wait in G/G/k, about: that of M/M/k by the mean of both variations.

    Args:
        rate: arrivals per time.
        service: mean service time.
        servers: how many.
        ca2: squared coefficient of variation of the times between arrivals.
        cs2: that of service times.
    """
    found = mmk(rate, service, servers)
    return None if found is None else found.mean * (ca2 + cs2) / 2


def kingman(rho: float, service: float, ca2: float, cs2: float) -> float | None:
    """The mean wait in G/G/1, about; ``None`` for a load of 1 and more."""
    return None if rho >= 1 else rho / (1 - rho) * (ca2 + cs2) / 2 * service


def variation2(values: Floats) -> float | None:
    """Squared coefficient of variation; ``None`` below two values or of a mean of 0."""
    known = values[np.isfinite(values)]
    if len(known) < 2 or known.mean() == 0:
        return None
    return float(known.var() / known.mean() ** 2)
