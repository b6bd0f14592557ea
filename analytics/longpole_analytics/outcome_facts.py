"""What only the outcome of a workflow tells: how good it was, how old what it rests on was.

An application says so with its outcome: ``run.accept(quality=0.93, freshness=3600)``. In a flat
table they are columns; in a store they stand in attributes of the workflow's span.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import polars as pl

from longpole.vocab import keys
from longpole_analytics.slo.objectives import AGES, SCORES, Objective

if TYPE_CHECKING:
    from longpole_collector.stores.base import Reader, Value

FACTS: Final = (*SCORES, *AGES)
PAGE_ROWS: Final = 50_000
_SLACK_NS: Final = 24 * 3600 * 10**9
"""A workflow within another one begins so much later at most."""


def outcome_facts(objectives: Sequence[Objective]) -> tuple[str, ...]:
    """Those of :data:`FACTS` that objectives or their floors are about."""
    named = {objective.metric for objective in objectives}
    named |= {floor.metric for objective in objectives for floor in objective.floors}
    return tuple(name for name in FACTS if name in named)


def with_outcome_facts(
    requests: pl.DataFrame, reader: "Reader", names: Sequence[str]
) -> pl.DataFrame:
    """The requests of a store with a column for each name, null where a workflow does not say.

    Of workflows within one another the outermost that says counts.

    Args:
        requests: a table of :mod:`longpole_analytics.requests`.
        reader: the store.
        names: of :data:`FACTS`.

    Raises:
        LongpoleError: the store cannot be asked.
    """
    starts = requests["start_ns"].drop_nulls()
    if not names or starts.is_empty():
        return requests
    first, last = int(starts.min()), int(starts.max())  # type: ignore[arg-type]
    told = _told(reader, names, [first, last + _SLACK_NS])
    kept = requests.drop(name for name in names if name in requests.columns)
    return kept.join(told, on="trace_id", how="left", maintain_order="left")


def _told(reader: "Reader", names: Sequence[str], around: Sequence["Value"]) -> pl.DataFrame:
    said = {name: f"attributes['{keys.OUTCOME_FACT_PREFIX}{name}']" for name in names}
    values = ", ".join(
        f"arg_min(TRY_CAST({attribute} AS DOUBLE), start_ns) AS {name}"
        for name, attribute in said.items()
    )
    is_any = " OR ".join(f"{attribute} IS NOT NULL" for attribute in said.values())
    query = (
        f"SELECT trace_id, {values} FROM spans WHERE start_ns BETWEEN ? AND ? AND ({is_any}) "  # noqa: S608 - ours
        f"AND trace_id > ? GROUP BY trace_id ORDER BY trace_id LIMIT {PAGE_ROWS}"
    )
    pages: list[pl.DataFrame] = []
    after = ""
    while True:
        page = pl.DataFrame(reader.sql(query, [*around, after]))
        pages.append(page)
        if page.height < PAGE_ROWS:
            return pl.concat(pages)
        after = page["trace_id"][-1]
