"""The requests of a comparison, from wherever they are: with costs, quality, sessions and gaps.

Like :mod:`longpole_analytics.loading`, it opens things; what it returns is a table of requests with
more columns. Whatever the root of a trace tells and nobody else reads is a column too, so that a
candidate can be named by any attribute.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import polars as pl

from longpole.errors import BadInput, UsageError
from longpole.vocab import keys
from longpole_analytics.cost import priced
from longpole_analytics.loading import (
    Source,
    all_rows,
    flat_table,
    opened,
    select,
    view_rows,
    window,
)
from longpole_analytics.requests import from_flat, from_views

if TYPE_CHECKING:
    from longpole_analytics.prices import Prices
    from longpole_collector.stores.base import Reader, Value

Part = tuple[Source, str | None, tuple[int | None, int | None] | None]
"""Where, which condition, and which time range of its own."""
_FILE: Final = re.compile(r"[^'\"=<>]+\.(parquet|csv|jsonl?|pb|gz|zst)", re.IGNORECASE)
_NUMBERS: Final = (
    "cost_usd",
    "quality",
    "reasoning_tokens",
    "chunk_gap_p50_ms",
    "chunk_gap_p99_ms",
    "intended_start_ns",
)
_QUALITY: Final = ("quality", "quality_score", "score")
_TEXTS: Final = ("conversation_id", "cost_problem")
_MODELS: Final = ("request_model", "response_model")
_FOREIGN: Final = re.compile(r"cost_(?!usd$|per_)([a-z]{3})")
_MAX_ATTRIBUTES: Final = 100
_ROUTE: Final = f"{keys.ROUTE}."
_SHORT: Final = {
    "session.id": "session_id",
    "user.id": "user_id",
    "enduser.id": "user_id",
    keys.ROUTE_CHOSEN: "route_chosen",
    keys.ROUTE_POLICY_VERSION: "policy_version",
}


def part_of(word: str, source: Source, now_ns: int) -> Part:
    """What a word means: a place, a time range, or a condition.

    Args:
        word: a file, a folder, an address, a range as ``14d..7d``, or SQL.
        source: where what the word does not say is read.
        now_ns: what a range counts from, Unix epoch nanoseconds.

    Raises:
        BadInput: a file that is not there.
        UsageError: a range that ends before it begins, or no time.
    """
    if re.match(r"https?://", word):
        return replace(source, url=word, db=None, files=()), None, None
    path = Path(word)
    try:
        is_file, is_folder = path.is_file(), path.is_dir()
    except (OSError, ValueError):
        is_file = is_folder = False
    if is_file:
        return Source(files=(path,)), None, None
    if is_folder:
        return replace(source, db=path, url=None, files=()), None, None
    if _FILE.fullmatch(word):
        raise BadInput(f"{word}: no such file")
    if ".." in word and not re.search(r"['\"=<>]", word):
        begin, _, end = word.partition("..")
        since_ns = window(begin.strip(), None, now_ns)[0] if begin.strip() else None
        until_ns = window(end.strip(), None, now_ns)[0] if end.strip() else None
        if since_ns is not None and until_ns is not None and since_ns >= until_ns:
            raise UsageError(f"time range '{word}' ends before it begins")
        return source, None, (since_ns, until_ns)
    return source, word, None


def load_compared(
    source: Source,
    prices: Prices,
    *,
    where: str | None = None,
    since_ns: int | None = None,
    until_ns: int | None = None,
) -> pl.DataFrame:
    """The requests that began in [since, until) and meet a condition.

    Args:
        source: a flat table of requests, trace files, a folder or an address.
        prices: what costs that nobody told are reckoned from.
        where: an SQL condition over the columns.
        since_ns: Unix epoch nanoseconds; ``None`` is from the beginning.
        until_ns: likewise, to the end.

    Raises:
        BadInput: a file or the condition cannot be read, costs are not in US dollars.
        Unreachable: no data there.
        UsageError: options that contradict each other.
    """
    flat = flat_table(source.files)
    if flat is not None:
        found = _from_flat(flat, prices)
        if (since_ns, until_ns) != (None, None) and not found["start_ns"].count():
            raise BadInput(f"{source.files[0]}: no column start_ns, so no time range")
        return select(found, where, since_ns, until_ns)
    reader = opened(source)
    try:
        return compared_of(reader, prices, where=where, since_ns=since_ns, until_ns=until_ns)
    finally:
        reader.close()


def compared_of(
    reader: Reader,
    prices: Prices,
    *,
    where: str | None = None,
    since_ns: int | None = None,
    until_ns: int | None = None,
) -> pl.DataFrame:
    """As :func:`load_compared`, of a store that is open and stays so."""
    views = ("traces", "trace_stages", "calls")
    traces, stages, calls = (view_rows(reader, v, since_ns, until_ns) for v in views)
    told = _attributes(reader, "parent_id IS NULL", "%", since_ns, until_ns)
    routed = _attributes(reader, "is_model_call", f"{_ROUTE}%", since_ns, until_ns)
    requests = from_views(traces, stages, calls)
    more = _of_calls(priced(calls, prices))
    requests = _joined(requests, more)
    requests = _joined(requests, _wide(pl.concat([routed, told])))
    return select(_numbers(requests), where)


def load_call_costs(
    source: Source,
    prices: Prices,
    *,
    where: str | None = None,
    since_ns: int | None = None,
    until_ns: int | None = None,
) -> pl.DataFrame:
    """The calls, as of the view, with what each cost; a flat table's rows count as calls.

    Args, and what is raised: as of :func:`load_compared`.
    """
    flat = flat_table(source.files)
    if flat is not None:
        _only_dollars(flat)
        return select(_costed(flat, prices), where, since_ns, until_ns)
    reader = opened(source)
    try:
        calls = view_rows(reader, "calls", since_ns, until_ns)
    finally:
        reader.close()
    return select(priced(calls, prices), where)


def _from_flat(flat: pl.DataFrame, prices: Prices) -> pl.DataFrame:
    """A flat table with what it tells of costs, quality, sessions and gaps."""
    _only_dollars(flat)
    quality = next((name for name in _QUALITY if name in flat.columns), None)
    if quality not in (None, "quality"):
        flat = flat.with_columns(quality=pl.col(str(quality)))
    flat = _costed(flat, prices)
    requests = from_flat(flat)
    names = [name for name in (*_NUMBERS, *_TEXTS) if name in flat.columns]
    return _numbers(requests.drop(names, strict=False).hstack(flat.select(names)))


def _costed(flat: pl.DataFrame, prices: Prices) -> pl.DataFrame:
    """A flat table with costs, if it has none and tells what they are reckoned from."""
    if "request_model" not in flat.columns and "model" in flat.columns:
        flat = flat.with_columns(request_model=pl.col("model"))
    can_price = {"input_tokens", "output_tokens"} <= set(flat.columns) and any(
        name in flat.columns for name in _MODELS
    )
    if "cost_usd" in flat.columns or not (can_price or "reported_cost_usd" in flat.columns):
        return flat
    try:
        costs = priced(flat, prices).select("cost_usd", "cost_problem")
    except pl.exceptions.PolarsError as error:
        first = str(error).splitlines()[0]
        raise BadInput(f"costs cannot be reckoned: {first}") from error
    return flat.with_columns(costs)


def _numbers(requests: pl.DataFrame) -> pl.DataFrame:
    """The further columns of numbers as such; what is no number is unknown."""
    names = [name for name in _NUMBERS if name in requests.columns]
    return requests.with_columns(
        pl.col(names).cast(pl.Float64, strict=False).fill_nan(None)
    ) if names else requests  # fmt: skip


def _only_dollars(flat: pl.DataFrame) -> None:
    """Refuse money in another currency: it cannot be compared, and would look as if it could."""
    for name in ("currency", "cost_currency", "reported_currency"):
        if name in flat.columns:
            said = flat[name].cast(pl.String).drop_nulls().str.to_uppercase().unique()
            others = sorted(set(said) - {"USD"})
            if others:
                raise BadInput(
                    f"costs are in {', '.join(others)} (column {name}): convert them to US "
                    "dollars, or leave the column and the costs out"
                )
    foreign = [name for name in flat.columns if _FOREIGN.fullmatch(name)]
    if foreign and "cost_usd" not in flat.columns:
        raise BadInput(f"costs are not in US dollars (column {foreign[0]}): give cost_usd")


def _of_calls(costs: pl.DataFrame) -> pl.DataFrame:
    """By trace: costs and thoughts of all calls, the slowest gaps, the session."""
    whole = [
        pl.when(pl.col(name).null_count() == 0).then(pl.col(name).sum()).alias(name)
        for name in ("cost_usd", "reasoning_tokens")
    ]
    return costs.group_by("trace_id").agg(
        *whole,
        pl.col("chunk_gap_p50_ms", "chunk_gap_p99_ms").max(),
        pl.col("cost_problem").drop_nulls().first(),
        pl.when(pl.col("conversation_id").drop_nulls().n_unique() == 1)
        .then(pl.col("conversation_id").drop_nulls().first())
        .alias("conversation_id"),
    )


def _attributes(
    reader: Reader, which: str, like: str, since_ns: int | None, until_ns: int | None
) -> pl.DataFrame:
    """Each attribute of some spans that nobody else reads: trace, name, value."""
    conditions = [which]
    given: list[Value] = []
    for sign, at_ns in ((">=", since_ns), ("<", until_ns)):
        if at_ns is not None:
            conditions.append(f"start_ns {sign} ?")
            given.append(at_ns)
    listed = (
        "SELECT trace_id, start_ns, span_id, unnest(map_keys(attributes)) AS name, "  # noqa: S608
        "unnest(map_values(attributes)) AS value "
        f"FROM spans WHERE {' AND '.join(conditions)}"
    )
    found = all_rows(
        reader,
        f"SELECT * FROM ({listed})",  # noqa: S608 - ours
        [f"name LIKE '{like}'"],
        given,
        ("start_ns", "span_id", "name"),
    )
    return pl.DataFrame(found)


def _wide(attributes: pl.DataFrame) -> pl.DataFrame:
    """A column for each attribute, the most frequent ones; facts and inputs by short names."""
    name = pl.col("name")
    for prefix in (keys.OUTCOME_FACT_PREFIX, keys.ROUTE_INPUT_PREFIX):
        name = name.str.strip_prefix(prefix)
    named = attributes.with_columns(name.replace(_SHORT))
    counts = named["name"].value_counts().sort(["count", "name"], descending=[True, False])
    kept = counts["name"].head(_MAX_ATTRIBUTES).to_list()
    whole = named.filter(pl.col("name").is_in(kept)).unique(
        ["trace_id", "name"], keep="first", maintain_order=True
    )
    wide = whole.pivot("name", on_columns=sorted(kept), index="trace_id", values="value") if (
        kept
    ) else attributes.select("trace_id").unique()  # fmt: skip
    quality = next((name for name in _QUALITY if name in wide.columns), None)
    return wide if quality in (None, "quality") else wide.with_columns(
        quality=pl.col(str(quality))
    )  # fmt: skip


def _joined(requests: pl.DataFrame, more: pl.DataFrame) -> pl.DataFrame:
    """The requests with the further columns that they do not have."""
    new = [name for name in more.columns if name not in requests.columns]
    if not new:
        return requests
    return requests.join(
        more.select("trace_id", *new), on="trace_id", how="left", maintain_order="left"
    )
