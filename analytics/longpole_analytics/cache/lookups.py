"""Caches of whole answers, exact or semantic, in the words of the prompt cache."""

import math
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
import polars as pl

from longpole.vocab import keys
from longpole_analytics.measures import Share
from longpole_analytics.weighted import num_of, totals, weighted_share, weights_of

_COLUMNS: Final[Mapping[str, pl.DataType]] = {
    "start_ns": pl.Int64(),
    "name": pl.String(),
    "kind": pl.String(),
    "route": pl.String(),
    "is_hit": pl.Boolean(),
    "is_stale": pl.Boolean(),
    "saved_ms": pl.Float64(),
    "source_version": pl.String(),
    "weight": pl.Float64(),
}
_TRUTH: Final = {"true": True, "false": False}


class Lookups(NamedTuple):
    """One cache of answers.

    Attributes:
        name: what it is called.
        kind: ``exact`` or ``semantic``; ``None`` is unknown.
        num_requests: looks into it.
        hits: share of hits among those whose result is known.
        stale: share of stale ones among the hits of which that is known.
        saved_ms: sum of what hits said they saved; ``None`` if none did.
        num_saved_known: how many said so.
        invalidation_delay_ms: longest time that an old version was served after a newer one was
            first seen; ``None`` if none was.
    """

    name: str
    kind: str | None
    num_requests: float
    hits: Share
    stale: Share
    saved_ms: float | None
    num_saved_known: float
    invalidation_delay_ms: float | None


def table_of(steps: pl.DataFrame, attributes: Sequence[Mapping[str, str]]) -> pl.DataFrame:
    """Looks into caches from spans and their attributes.

    Args:
        steps: the spans: ``start_ns``, ``name``, ``route``, and ``weight`` where it is known.
        attributes: theirs.
    """
    rows = [
        {
            "kind": given.get(keys.APP_CACHE_KIND),
            "is_hit": _TRUTH.get(given.get(keys.APP_CACHE_HIT, "").lower()),
            "is_stale": _TRUTH.get(given.get(keys.APP_CACHE_STALE, "").lower()),
            "saved_ms": _milliseconds(given.get(keys.APP_CACHE_SAVED)),
            "source_version": given.get(keys.APP_CACHE_SOURCE_VERSION),
        }
        for given in attributes
    ]
    own = ("kind", "is_hit", "is_stale", "saved_ms", "source_version")
    told = pl.DataFrame(rows, {name: _COLUMNS[name] for name in own})
    known = [name for name in ("start_ns", "name", "route", "weight") if name in steps.columns]
    return pl.concat([steps.select(known), told], how="horizontal")


def answer_caches(lookups: pl.DataFrame) -> list[Lookups]:
    """What each cache of answers did, the most asked first.

    A hit whose staleness nobody said is stale if a version of its source was seen before it that
    first appeared later than its own. Where traces were sampled numbers, sums and shares are of
    all looks that came; what was seen before is what was kept.

    Args:
        lookups: a row a look: ``start_ns``, ``name``, ``kind``, ``is_hit``, ``is_stale``,
            ``saved_ms``, ``source_version``, ``weight``; what is missing is unknown.
    """
    table = lookups.with_columns(
        pl.lit(None, kind).alias(name)
        for name, kind in _COLUMNS.items()
        if name not in lookups.columns
    ).with_columns(pl.col("name").fill_null("unknown"))
    groups = table.sort("start_ns", nulls_last=True).group_by("name", "kind", maintain_order=True)
    found = [
        _cache(str(name), None if kind is None else str(kind), group)
        for (name, kind), group in groups
    ]
    return sorted(found, key=lambda each: (-each.num_requests, each.name, each.kind or ""))


def _cache(name: str, kind: str | None, group: pl.DataFrame) -> Lookups:
    known = group.drop_nulls("is_hit")
    hits = known.filter("is_hit")
    stale, delays = _stale(group)
    told = hits.filter(pl.Series([each is not None for each in stale], dtype=pl.Boolean))
    is_stale = np.array([each for each in stale if each is not None], np.bool_)
    saved = hits.drop_nulls("saved_ms")
    (total,) = totals(saved, pl.col("saved_ms"))
    return Lookups(
        name=name,
        kind=kind,
        num_requests=num_of(weights_of(group)),
        hits=weighted_share(known["is_hit"].to_numpy(), weights_of(known)),
        stale=weighted_share(is_stale, weights_of(told)),
        saved_ms=float(total) if saved.height else None,
        num_saved_known=num_of(weights_of(saved)),
        invalidation_delay_ms=max(delays, default=None),
    )


def _stale(group: pl.DataFrame) -> tuple[list[bool | None], list[float]]:
    """Of each hit whether it was stale, and how long after the newer version was first seen."""
    first: dict[str, int | None] = {}
    newest: str | None = None
    marks: list[bool | None] = []
    delays: list[float] = []
    for start, is_hit, said, version in group.select(
        "start_ns", "is_hit", "is_stale", "source_version"
    ).iter_rows():
        if version is not None and version not in first:
            first[version], newest = start, version
        if not is_hit:
            continue
        is_old = None if version is None else version != newest
        marks.append(said if said is not None else is_old)
        newer = first.get(newest) if newest is not None and is_old else None
        if marks[-1] and start is not None and newer is not None:
            delays.append((start - newer) / 1e6)
    return marks, delays


def _milliseconds(seconds: str | None) -> float | None:
    try:
        found = None if seconds is None else float(seconds) * 1000
    except ValueError:
        return None
    return found if found is not None and math.isfinite(found) else None
