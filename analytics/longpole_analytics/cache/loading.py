"""The calls of a source with what is known of their prompts, and its looks into answer caches."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import polars as pl

from longpole.vocab import keys
from longpole_analytics.cache.lookups import table_of
from longpole_analytics.cache.prompts import KEYS, columns_of
from longpole_analytics.loading import Source, all_rows, flat_table, opened, select, view_rows

if TYPE_CHECKING:
    from longpole_collector.stores.base import Reader

_COLUMNS: Final = (
    "trace_id, span_id, parent_id, start_ns, name, route, is_model_call, weight, attributes"
)


_LOOKS: Final = frozenset((keys.APP_CACHE_KIND, keys.APP_CACHE_HIT))
_STATES: Final = frozenset((keys.BRANCH_STATE, keys.SPECULATION_STATE))


def _has(names: Collection[str], prefix: str | None = None) -> str:
    """Whether a span has one of some attributes, in SQL that reads its attributes once."""
    listed = ", ".join(f"'{name}'" for name in sorted(names))
    starts = f" OR starts_with(k, '{prefix}')" if prefix else ""
    return f"len(list_filter(map_keys(attributes), lambda k: k IN ({listed}){starts})) > 0"


_IS_STATE: Final = _has(_STATES)
_IS_TOLD: Final = _has({*_LOOKS, *_STATES, keys.CACHE_WRITE_1H_TOKENS})
_IS_TOLD_OF_PROMPTS: Final = _has({*_LOOKS, *_STATES, *KEYS}, keys.PROMPT_SEGMENT_PREFIX)
"""A span that tells something that is wanted: in most applications few do, and reading is slow."""


_TREE: Final = ("trace_id", "span_id", "parent_id", "start_ns")
_HOUR_NS: Final = 3600 * 10**9


class Calls(NamedTuple):
    """Calls, looks into answer caches, and the outcome of each workflow (``None``: not known)."""

    calls: pl.DataFrame
    lookups: pl.DataFrame
    outcomes: pl.DataFrame | None


def load_calls(
    source: Source,
    *,
    where: str | None = None,
    since_ns: int | None = None,
    until_ns: int | None = None,
) -> Calls:
    """The calls that began in [since, until) and meet a condition.

    Args:
        source: a flat table of calls (one Parquet or CSV file without spans), trace files, a
            folder or an address.
        where: an SQL condition over the calls' columns.
        since_ns: Unix epoch nanoseconds; ``None`` is from the beginning.
        until_ns: likewise, to the end.

    Raises:
        BadInput: a file or the condition cannot be read.
        Unreachable: no data there.
        UsageError: options that contradict each other.
    """
    flat = flat_table(source.files)
    if flat is not None:
        chosen = select(flat, where, since_ns, until_ns)
        return Calls(chosen, pl.DataFrame(schema={"start_ns": pl.Int64}), None)
    reader = opened(source)
    try:
        return calls_of(reader, where=where, since_ns=since_ns, until_ns=until_ns)
    finally:
        reader.close()


def calls_of(
    reader: Reader,
    *,
    where: str | None = None,
    since_ns: int | None = None,
    until_ns: int | None = None,
    has_prompts: bool = True,
) -> Calls:
    """As :func:`load_calls`, of a store that is open and stays so.

    Without prompts nothing is known of why one missed, but all of what caches save and cost.
    """
    calls = view_rows(reader, "calls", since_ns, until_ns).sort("start_ns", "span_id").rechunk()
    outcomes = view_rows(reader, "traces", since_ns, until_ns).select("trace_id", "outcome")
    around = _around(calls)
    told = _spans(reader, _COLUMNS, _IS_TOLD_OF_PROMPTS if has_prompts else _IS_TOLD, around)
    attributes = [_plain(each) for each in told["attributes"].to_list()]
    is_look, is_state = (
        pl.Series([not names.isdisjoint(each) for each in attributes], dtype=pl.Boolean)
        for names in (_LOOKS, _STATES)
    )
    steps, states = told.filter(is_look), told.filter(is_state)
    looks = [each for each, is_one in zip(attributes, is_look, strict=True) if is_one]
    facts = told.select("trace_id", "span_id").hstack(columns_of(attributes))
    facts = facts.filter(told["is_model_call"])
    ids = set(calls["span_id"])
    known, tree = steps.select(_TREE), states
    if not ids.issuperset(facts["span_id"]):
        model_calls = _spans(reader, ", ".join(_TREE), "is_model_call", around)
        known = pl.concat([model_calls, known]).sort("start_ns", "span_id", maintain_order=True)
    if states.height:
        marked = f"(SELECT trace_id FROM spans WHERE {_IS_STATE} AND start_ns BETWEEN ? AND ?)"  # noqa: S608 - ours
        tree = _spans(reader, ", ".join(_TREE), f"trace_id IN {marked}", (*around, *around))
    at = ["trace_id", "span_id"]
    calls = _with(calls, _of_calls(facts, known, ids), at)
    calls = calls.join(_states(states, tree), on=at, how="left", maintain_order="left")
    return Calls(select(calls, where), table_of(steps, looks), outcomes)


def _with(calls: pl.DataFrame, facts: pl.DataFrame, at: list[str]) -> pl.DataFrame:
    """The calls with further facts; of what both tell the calls know better."""
    found = calls.join(facts, on=at, how="left", maintain_order="left", suffix="__told")
    both = [name for name in found.columns if f"{name}__told" in found.columns]
    better = [pl.coalesce(name, f"{name}__told").alias(name) for name in both]
    return found.with_columns(better).drop(f"{name}__told" for name in both)


def _of_calls(facts: pl.DataFrame, told: pl.DataFrame, calls: set[str]) -> pl.DataFrame:
    """What is known of prompts, by call.

    A call that several spans tell of has the id of the outermost one, and the keyed hashes stand
    on the innermost.
    """
    parents = dict(told.select("span_id", "parent_id").iter_rows())
    owners = []
    for span_id in facts["span_id"]:
        at, passed = span_id, set[str]()
        while at not in calls and at in parents and at not in passed:
            passed.add(at)
            at = parents[at]
        owners.append(at if at in calls else None)
    owned = facts.with_columns(owner=pl.Series(owners, dtype=pl.String)).drop_nulls("owner")
    return (
        owned.drop("span_id")
        .rename({"owner": "span_id"})
        .group_by("trace_id", "span_id", maintain_order=True)
        .agg(pl.all().drop_nulls().first())
    )


def _around(calls: pl.DataFrame) -> tuple[int, int]:
    """The calls' time and an hour on either side: steps around them begin earlier."""
    if calls.is_empty():
        return 0, -1
    starts = calls["start_ns"]
    return int(starts.min()) - _HOUR_NS, int(starts.max()) + _HOUR_NS  # type: ignore[arg-type]


def _spans(reader: Reader, columns: str, condition: str, given: tuple[int, ...]) -> pl.DataFrame:
    """Spans that meet a condition and began in a stretch of time, in order of time."""
    conditions = [condition, "start_ns BETWEEN ? AND ?"]
    query = f"SELECT {columns} FROM spans"  # noqa: S608 - ours
    found = pl.from_arrow(all_rows(reader, query, conditions, given, ("start_ns", "span_id")))
    assert isinstance(found, pl.DataFrame)  # noqa: S101 - a table is a frame
    return found.sort("start_ns", "span_id", maintain_order=True)


def _states(states: pl.DataFrame, tree: pl.DataFrame) -> pl.DataFrame:
    """What became of the branch or guess that each span is part of, the nearest one that says."""
    said: dict[tuple[str, str], Mapping[str, str]] = {}
    for trace_id, span_id, given in states.select("trace_id", "span_id", "attributes").iter_rows():
        said[trace_id, span_id] = _plain(given)
    parents = {(trace, span): up for trace, span, up in tree.select(_TREE[:3]).iter_rows()}
    rows = []
    for trace_id, span_id in parents:
        found: list[str | None] = []
        for key in (keys.BRANCH_STATE, keys.SPECULATION_STATE):
            at, passed = (trace_id, span_id), set[tuple[str, str]]()
            while at in parents and at not in passed and key not in said.get(at, {}):
                passed.add(at)
                at = (trace_id, parents[at])
            found.append(said.get(at, {}).get(key))
        if any(found):
            rows.append((trace_id, span_id, *found))
    names = ("trace_id", "span_id", "branch_state", "speculation_state")
    return pl.DataFrame(rows, dict.fromkeys(names, pl.String()), orient="row")


def _plain(given: Any) -> Mapping[str, str]:
    """A map of attributes, in whatever form the store hands it over."""
    if isinstance(given, str):
        given = json.loads(given)
    if isinstance(given, Mapping):
        return {str(key): str(value) for key, value in given.items()}
    return {each["key"]: each["value"] for each in given or ()}
