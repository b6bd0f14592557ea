"""What a rule of the advisor is, and what it says before anything is replayed."""

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np
import polars as pl

from longpole_analytics.advisor._population import Population
from longpole_analytics.advisor._replay import Change
from longpole_analytics.advisor._thresholds import AdvisorRules
from longpole_analytics.measures import Share
from longpole_analytics.weighted import median_of, quantile, totals, weights_of
from longpole_analytics.wording import printable

HIGH: Final = "high"
MEDIUM: Final = "medium"
LOW: Final = "low"
WALL: Final = "e2e_ms"
FIRST_CONTENT: Final = "time_to_first_content_ms"
"""What the user waits for where an answer could be shown while it is made."""


class Fact(NamedTuple):
    """One number behind an advice: of ``n`` calls, steps or traces. Unknown is ``None``."""

    metric: str
    value: float | None
    n: int
    low: float | None = None
    high: float | None = None

    def document(self) -> dict[str, Any]:
        """As ``longpole.advise/1`` has it."""
        ci95 = None if self.low is None or self.high is None else [self.low, self.high]
        return {"metric": self.metric, "value": self.value, "n": self.n, "ci95": ci95}


@dataclass(frozen=True)
class Candidate:
    """What a rule found.

    Attributes:
        where: the slice by column; ``route`` is always there, ``None`` without one.
        title: what is wrong, one sentence.
        change: what to do, exactly.
        verify: the command that shows whether it helped.
        evidence: the numbers, the decisive one first.
        touched: traces (numbers) that show it.
        replayed: what would be different in them.
        usd: money it would save in these traces; ``None`` is unknown.
        confidence: ``high``, ``medium``, ``low``.
        metric: the time that gets shorter, :data:`WALL` or :data:`FIRST_CONTENT`.
        is_load: worth telling even if nobody waits less: it saves work or money.
    """

    where: Mapping[str, str | None]
    title: str
    change: str
    verify: str
    evidence: Sequence[Fact]
    touched: np.ndarray[Any, Any]
    replayed: Change = field(default_factory=Change)
    usd: float | None = None
    confidence: str = MEDIUM
    metric: str = WALL
    is_load: bool = False


@dataclass(frozen=True)
class Rule:
    """A rule of the advisor.

    Attributes:
        order: at equal saving the lower comes first.
        title: what it looks for.
        find: what it finds in a population; nothing where it cannot see what it needs.
    """

    order: int
    title: str
    find: Callable[[Population, AdvisorRules], Sequence[Candidate]]


def of(metric: str, found: Share) -> Fact:
    """A share as a fact."""
    return Fact(metric, found.value, found.n, found.low, found.high)


def money(rows: pl.DataFrame, column: str = "cost_usd") -> float | None:
    """The sum of some costs over all requests that came; ``None`` where none is known."""
    known = rows.drop_nulls(column)
    return float(totals(known, pl.col(column))[0]) if known.height else None


def milliseconds(rows: pl.DataFrame) -> float:
    """The sum of the lengths of some steps over all requests that came."""
    return float(totals(rows, pl.col("length_ns"))[0]) / 1e6


def numbers(rows: pl.DataFrame, column: str) -> Any:
    """A column as floats, unknown as not a number."""
    return rows[column].cast(pl.Float64).fill_null(float("nan")).to_numpy()


def median(values: Any, rows: pl.DataFrame) -> float:
    """The middle of what is known, by what its rows stand for; not a number of nothing."""
    known = ~np.isnan(values)
    return median_of(values[known], weights_of(rows)[known])


def lowest(rows: pl.DataFrame, column: str, q: float) -> float:
    """The element of nearest rank of a column without unknowns, by what rows stand for."""
    ordered = rows.sort(column)
    found = quantile(numbers(ordered, column), weights_of(ordered), q)
    return float("nan") if found is None else found.value


def slope(x: Any, y: Any, *, num_bins: int = 12) -> float | None:
    """How much y grows with x, in the median over bins of x; ``None`` if it does not surely.

    Medians of bins of equal counts, then the median of their pairwise slopes (Theil-Sen: Sen,
    JASA 63, 1968), so that a few slow calls decide nothing.
    """
    known = ~(np.isnan(x) | np.isnan(y))
    x, y = x[known], y[known]
    if len(x) < 3 * num_bins or np.ptp(x) == 0:
        return None
    order = np.argsort(x, kind="stable")
    groups = np.array_split(order, num_bins)
    xs = np.array([np.median(x[group]) for group in groups])
    ys = np.array([np.median(y[group]) for group in groups])
    first, second = np.triu_indices(num_bins, 1)
    apart = xs[second] > xs[first]
    if apart.sum() < num_bins:
        return _between_two(x, y)
    found = (ys[second] - ys[first])[apart] / (xs[second] - xs[first])[apart]
    middle = float(np.median(found))
    return middle if middle > 0 and float(np.mean(found > 0)) >= 0.7 else None


def _between_two(x: Any, y: Any) -> float | None:
    """The slope where x has only a few values: between its lower and its upper half."""
    middle = (float(x.min()) + float(x.max())) / 2
    low, high = x <= middle, x > middle
    if min(low.sum(), high.sum()) < 10:
        return None
    found = (np.median(y[high]) - np.median(y[low])) / (np.median(x[high]) - np.median(x[low]))
    return float(found) if found > 0 else None


def text(value: str | None) -> str:
    """A name inside a sentence, without what moves a cursor, and not too long."""
    cleaned = printable(value or "(none)")
    return cleaned if len(cleaned) <= 80 else f"{cleaned[:77]}..."


MAX_GROUPS: Final = 200
"""Kinds of calls or steps that a rule looks at, those with most time first."""


def groups(
    rows: pl.DataFrame, by: Sequence[str], at_least: int
) -> Iterator[tuple[dict[str, str | None], pl.DataFrame]]:
    """The kinds of calls or steps that are many enough, those with most time first.

    Args:
        rows: with ``length_ns``.
        by: columns of text.
        at_least: fewer rows are no kind.
    """
    if rows.is_empty():
        return
    kinds = (
        rows.group_by(by, maintain_order=True)
        .agg(pl.len().alias("n"), pl.col("length_ns").sum().alias("time"))
        .filter(pl.col("n") >= at_least)
        .sort("time", *by, descending=[True, *[False] * len(by)], nulls_last=True)
        .head(MAX_GROUPS)
        .with_columns(__kind=pl.int_range(pl.len(), dtype=pl.Int64))
    )
    kept = rows.join(kinds.select(*by, "__kind"), on=by, how="inner", nulls_equal=True)
    parts = kept.sort("__kind", "start_ns", "row").partition_by("__kind", as_dict=True)
    for key in kinds.to_dicts():
        yield {name: key[name] for name in by}, parts[key["__kind"],].drop("__kind")


def named(where: Mapping[str, str | None]) -> str:
    """A kind of call or step inside a sentence."""
    found = [f"{name} {text(value)}" for name, value in where.items() if value is not None]
    return ", ".join(found) or "requests without a route"


def ask(columns: str, source: str, *conditions: str, by_all: bool = False, more: str = "") -> str:
    """The command that answers a question in SQL.

    Args:
        columns: what is selected.
        source: a view.
        *conditions: all of them hold.
        by_all: whether the columns that count nothing are slices.
        more: what follows.
    """
    rest = " GROUP BY ALL ORDER BY ALL" if by_all else more
    sql = f"SELECT {columns} FROM {source} WHERE {' AND '.join(conditions)}{rest}"  # noqa: S608 - a command for a person
    plain = printable(sql)
    is_simple = not set(plain) & set('"$`\\!')
    return "longpole query " + (f'"{plain}"' if is_simple else shlex.quote(plain))


MODEL: Final = "coalesce(response_model, request_model)"
"""The model that answered, in SQL over calls."""


def same(name: str, value: str | None) -> str:
    """A condition in SQL: a column has this text, or none."""
    if value is None:
        return f"{name} IS NULL"
    return "{} = '{}'".format(name, value.replace("'", "''"))


def condition(where: Mapping[str, str | None]) -> str:
    """A slice as a condition in SQL over calls, spans and traces alike."""
    return " AND ".join(same(n, v) for n, v in where.items() if n == "route") or "true"
