"""The ranked causes of a population: by route or another dimension, with coverage and changes."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import polars as pl

from longpole.errors import UsageError
from longpole_analytics.attribution import Attribution, Cause, CauseRules, causes_of
from longpole_analytics.changes import Change, ChangeRules, changes
from longpole_analytics.cohort import cohort
from longpole_analytics.coverage import Coverage, coverage, together
from longpole_analytics.excess import account
from longpole_analytics.requests import STAGE_TIMES, TIMES, dimension_names

ROUTE: Final = "route"
MAX_GROUPS: Final = 100
"""Groups of ``by`` that are looked at, those with most requests."""
METRICS: Final = (*TIMES, *STAGE_TIMES)
_QUANTILE: Final = re.compile(r"p(\d{1,2}(?:\.\d+)?)")


class Slow(NamedTuple):
    """What is slow: above a number of milliseconds, else above a quantile of its own route."""

    quantile: float = 0.95
    objective_ms: float | None = None


@dataclass(frozen=True)
class Top:
    """The causes of a population, most excess time first.

    ``reason`` says why there are none; ``None`` if there are some. ``is_examined`` is false where
    there was too little to look at.
    """

    metric: str
    slow: Slow
    start_ns: int | None
    end_ns: int | None
    num_traces: int
    num_slow: int
    causes: tuple[Cause, ...]
    coverage: Coverage
    changes: tuple[Change, ...]
    reason: str | None
    is_examined: bool


def top(
    requests: pl.DataFrame,
    metric: str = "e2e_ms",
    *,
    slow: Slow | None = None,
    by: Sequence[str] = (),
    cause_rules: CauseRules | None = None,
    change_rules: ChangeRules | None = None,
) -> Top:
    """The causes of slow requests, how much they cover, and the changes that moved a stage.

    Args:
        requests: a table of ``longpole_analytics.requests``.
        metric: one of its times.
        slow: what is slow.
        by: dimensions; each group is looked at apart.
        cause_rules: what a slice must show to be blamed.
        change_rules: what is a change.

    Raises:
        UsageError: no such metric or dimension.
    """
    _check(requests, metric, by)
    slow = slow or Slow()
    rules = cause_rules or CauseRules()
    parts = [
        (group, *_examined(rows, metric, slow, rules)) for group, rows in _groups(requests, by)
    ]
    causes = [_within(cause, group) for group, answer, _ in parts for cause in answer.causes]
    reasons = [answer.reason for _, answer, _ in parts if answer.reason is not None]
    start_ns, end_ns = requests["start_ns"].min(), requests["start_ns"].max()
    return Top(
        metric=metric,
        slow=slow,
        start_ns=start_ns if isinstance(start_ns, int) else None,
        end_ns=end_ns if isinstance(end_ns, int) else None,
        num_traces=requests.height,
        num_slow=sum(answer.num_slow for _, answer, _ in parts),
        causes=tuple(sorted(causes, key=lambda cause: -cause.excess_ms_total)),
        coverage=together([covered for _, _, covered in parts]),
        changes=changes(requests, metric, rules=change_rules),
        reason=None if causes else (reasons or ["no traces"])[0],
        is_examined=any(answer.is_examined for _, answer, _ in parts),
    )


def _check(requests: pl.DataFrame, metric: str, by: Sequence[str]) -> None:
    if metric not in METRICS:
        raise UsageError(f"no metric '{metric}': use {', '.join(METRICS)}")
    known = dimension_names(requests)
    for name in by:
        if name not in known:
            there = ", ".join(known) or "none"
            raise UsageError(f"no dimension '{name}' to group by: there are {there}")


def _examined(
    rows: pl.DataFrame, metric: str, slow: Slow, rules: CauseRules
) -> tuple[Attribution, Coverage]:
    """The causes of one group, and what they cover."""
    found = cohort(
        rows,
        metric,
        objective_ms=slow.objective_ms,
        slow_quantile=slow.quantile,
        rules=rules.strata,
    )
    above = account(found)
    answer = causes_of(found, above, rules=rules)
    return answer, coverage(rows, found, above, answer)


def document(found: Top) -> dict[str, Any]:
    """The same for scripts: schema ``longpole.top/1``."""
    cover = found.coverage
    return {
        "schema": "longpole.top/1",
        "window": {
            "start_ns": found.start_ns,
            "end_ns": found.end_ns,
            "metric": found.metric,
            "slow": slow_text(found.slow),
            "num_traces": found.num_traces,
            "num_slow": found.num_slow,
        },
        "causes": [_cause(rank, cause) for rank, cause in enumerate(found.causes, start=1)],
        "coverage": {
            "num_traces": cover.num_traces,
            "attributed": cover.share(cover.num_all),
            "stage": cover.share(cover.num_stage),
            "slice": cover.share(cover.num_slice),
            "route": cover.share(cover.num_route),
            "reasons": [reason._asdict() for reason in cover.reasons],
            "no_cause": found.reason,
        },
        "changes": [_change(change) for change in found.changes],
    }


def slow_of(text: str) -> Slow:
    """What an option says: a quantile as ``p95``, or milliseconds as ``1500``.

    Raises:
        UsageError: it is neither.
    """
    quantile = _QUANTILE.fullmatch(text)
    if quantile and float(quantile[1]) > 0:
        return Slow(float(quantile[1]) / 100)
    try:
        objective_ms = float(text.removesuffix("ms"))
    except ValueError:
        objective_ms = -1.0
    if not 0 <= objective_ms < float("inf"):
        raise UsageError(f"--slow '{text}': write a quantile as p95, or milliseconds as 1500")
    return Slow(objective_ms=objective_ms)


def slow_text(slow: Slow) -> str:
    """What is slow, as it is given: ``p95``, or milliseconds."""
    return f"p{100 * slow.quantile:g}" if slow.objective_ms is None else f"{slow.objective_ms:g}"


def _groups(
    requests: pl.DataFrame, by: Sequence[str]
) -> list[tuple[dict[str, str | None], pl.DataFrame]]:
    if not by:
        return [({}, requests)]
    sizes = requests.group_by(by).len().sort(["len", *by], descending=[True, *[False] * len(by)])
    chosen = sizes.head(MAX_GROUPS).drop("len").with_row_index("group")
    placed = requests.join(chosen, on=list(by), nulls_equal=True, maintain_order="left")
    parts = placed.partition_by("group", as_dict=True, include_key=False)
    return [(dict(zip(by, row[1:], strict=True)), parts[(row[0],)]) for row in chosen.iter_rows()]


def _within(cause: Cause, group: dict[str, str | None]) -> Cause:
    """The cause with the group that it was found in."""
    where = {name: value for name, value in group.items() if name != ROUTE and value is not None}
    return replace(cause, where={**where, **cause.where}, route=group.get(ROUTE) or cause.route)


def _cause(rank: int, cause: Cause) -> dict[str, Any]:
    return {
        "rank": rank,
        "stage": cause.stage.value,
        "where": cause.where,
        "route": cause.route,
        "num_traces": cause.num_traces,
        "num_slow": cause.num_slow,
        "share_of_slow": cause.of_slow,
        "share_of_rest": cause.of_rest,
        "risk_ratio": cause.risk_ratio,
        "ci95": list(cause.ci95),
        "crude_risk_ratio": cause.crude_risk_ratio,
        "is_confounded": cause.is_confounded,
        "attributable_fraction": cause.attributable,
        "excess_ms_total": cause.excess_ms_total,
        "excess_ms_p50": cause.excess_ms_p50,
        "share_of_excess": cause.share_of_excess,
        "stages": [
            {"stage": stage.value, "excess_ms": excess_ms} for stage, excess_ms in cause.stages
        ],
        "exemplars": list(cause.exemplars),
    }


def _change(change: Change) -> dict[str, Any]:
    return {
        "route": change.route,
        "where": change.where,
        "previous": change.previous,
        "at_ns": change.at_ns,
        "share_before": change.share_before,
        "share_after": change.share_after,
        "num_before": change.num_before,
        "num_after": change.num_after,
        "stages": [
            {
                "stage": moved.stage.value,
                "before_ms": moved.before_ms,
                "moved_ms": moved.moved_ms,
                "ci95": list(moved.ci95),
            }
            for moved in change.stages
        ],
    }
