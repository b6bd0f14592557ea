"""Quantiles computed by the store: nearest rank, with their interval and sample size.

A quantile is the element of rank ``ceil(q n)`` of the sorted values, never an interpolation. Its
95 % interval is the pair of order statistics that the normal approximation to the binomial gives
(Conover, Practical Nonparametric Statistics, 3rd ed., section 3.2); it is only shown where
``n (1 - q) >= 10``, where that approximation holds.
"""

from collections.abc import Mapping
from math import ceil
from typing import Any, Final, NamedTuple

from longpole_analytics import stats

P50: Final = 500
P99: Final = 990
"""Quantiles are named per mille, so that ranks are exact integers."""

_Z95: Final = 1.96


class Quantile(NamedTuple):
    """One quantile of ``n`` values; all ``None`` when there is no value.

    ``low`` and ``high`` are ``None`` where the interval reaches past the sample. Where not all
    were kept ``n`` is how many the ``kept`` values stand for, and ``value`` is ``None`` where
    those do not carry it.
    """

    per_mille: int
    n: float
    value: float | None
    low: float | None
    high: float | None
    max: float | None
    kept: int | None = None

    @property
    def is_shown(self) -> bool:
        """Whether there are enough values to show it: ``n (1 - q) >= 10``."""
        return self.value is not None and stats.is_shown(ceil(self.n), self.per_mille / 1000)

    @property
    def tail(self) -> float | None:
        """What may be shown: the quantile, or the maximum where it may not."""
        return self.value if self.is_shown else self.max


class Change(NamedTuple):
    """Relative change against an earlier sample; ``is_decided`` when the intervals are apart."""

    ratio: float
    is_decided: bool


def sorted_list(column: str, name: str) -> str:
    """SQL: the sorted known values of ``column`` as a list called ``name``."""
    return f"list_sort(list({column}) FILTER ({column} IS NOT NULL)) AS {name}"


def columns(name: str, *per_milles: int) -> str:
    """SQL: what :func:`read` needs, from a list made by :func:`sorted_list`."""
    n = f"coalesce(len({name}), 0)"
    parts = [f"{n} AS {name}_n", f"{name}[{n}] AS {name}_max"]
    for q in per_milles:
        spread = f"{_Z95} * sqrt({n} * {q} * {1000 - q} / 1e6)"
        low = f"CAST(greatest(0, floor({n} * {q} / 1e3 - {spread})) AS BIGINT)"
        high = f"CAST(ceil({n} * {q} / 1e3 + {spread}) AS BIGINT) + 1"
        parts.append(f"{name}[({n} * {q} + 999) // 1000] AS {name}_{q}")
        parts.append(f"{name}[{low}] AS {name}_{q}_low")
        parts.append(f"{name}[{high}] AS {name}_{q}_high")
    return ", ".join(parts)


def read(row: Mapping[str, Any] | None, name: str, per_mille: int) -> Quantile:
    """The quantile from a row of :func:`columns`; no row means no values."""
    if row is None:
        return Quantile(per_mille, 0, None, None, None, None)
    key = f"{name}_{per_mille}"
    return Quantile(
        per_mille,
        row[f"{name}_n"] or 0,
        row[key],
        row[f"{key}_low"],
        row[f"{key}_high"],
        row[f"{name}_max"],
    )


def change(now: Quantile, before: Quantile) -> Change | None:
    """How a quantile moved; ``None`` unless both may be shown and the earlier is positive.

    Decided when the 95 % intervals do not touch: a conservative test, so a change shown in
    colour is one that the samples carry.
    """
    if not (now.is_shown and before.is_shown) or now.value is None or not before.value:
        return None
    is_decided = (now.low is not None and before.high is not None and now.low > before.high) or (
        now.high is not None and before.low is not None and now.high < before.low
    )
    return Change(now.value / before.value - 1, is_decided)
