"""Shapes of the requests of a source, with why prompts missed the cache where that is asked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import polars as pl

from longpole_analytics.shapes import shapes_of

if TYPE_CHECKING:
    from longpole_analytics.cache.rules import CacheRules
    from longpole_analytics.loading import Source
    from longpole_analytics.shapes import Shape, ShapeRules
    from longpole_collector.stores.base import Reader


def judged(
    sides: tuple[pl.DataFrame, pl.DataFrame],
    source: Source,
    by: Sequence[str] = (),
    rules: ShapeRules | None = None,
    cache_rules: CacheRules | None = None,
) -> list[Shape]:
    """As :func:`longpole_analytics.shapes.shapes_of`, with the reason of a lost prompt cache.

    The prompts' hashes are read only where a slice has lost its cache: that is slow.

    Args:
        sides: tables of requests, what is usual and what is judged.
        source: where they are from.
        by: dimensions to slice by.
        rules: thresholds.
        cache_rules: thresholds of the cache; default those of ``longpole.toml``.
    """
    from longpole_analytics.loading import flat_table, opened
    from longpole_analytics.shapes._sub_causes.lost_prefix import with_causes
    from longpole_analytics.shapes.high_ttft import CACHE_LOST

    found = shapes_of(*sides, by, rules)
    is_lost = any((shape.sub_cause or "").startswith(CACHE_LOST) for shape in found)
    if not is_lost or flat_table(source.files) is not None:
        return found
    reader = opened(source)
    try:
        causes = _causes(reader, sides, cache_rules)
    finally:
        reader.close()
    base, current = (with_causes(side, causes) for side in sides)
    return shapes_of(base, current, by, rules)


def _causes(
    reader: Reader, sides: tuple[pl.DataFrame, pl.DataFrame], rules: CacheRules | None
) -> pl.DataFrame:
    """Each trace's ``cause``: of its call that lost the most tokens."""
    from longpole_analytics.cache.loading import calls_of
    from longpole_analytics.cache.misses import miss_causes
    from longpole_analytics.cache.rules import configured_rules

    known = [side["start_ns"].drop_nulls() for side in sides]
    starts = pl.concat(known)
    if starts.is_empty():
        return pl.DataFrame(schema={"trace_id": pl.String, "cause": pl.String})
    since_ns, until_ns = int(starts.min()), int(starts.max()) + 1  # type: ignore[arg-type]
    calls = calls_of(reader, since_ns=since_ns, until_ns=until_ns).calls
    if "replica" not in calls.columns:
        places = [side.select("trace_id", "replica") for side in sides if "replica" in side.columns]
        if places:
            where = pl.concat(places).unique("trace_id")
            calls = calls.join(where, on="trace_id", how="left", maintain_order="left")
    misses = miss_causes(calls, rules or configured_rules())
    named = misses.with_columns(trace_id=calls["trace_id"].gather(misses["row"]))
    most = named.sort("lost_tokens", "row", descending=[True, False])
    return most.unique("trace_id", keep="first", maintain_order=True).select("trace_id", "cause")
