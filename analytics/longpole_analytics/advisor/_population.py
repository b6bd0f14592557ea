"""What the rules look at: spans, calls and traces as tables, and the replay of all of them.

Every row of ``spans`` is a span and its number (``row``) is its place in all arrays; ``trace``
numbers the traces. A call that several spans tell of is one row of ``calls``, that of the
outermost one, with what the others know in addition.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from longpole.vocab import keys
from longpole_analytics.advisor._replay import Lengths, Replayer
from longpole_analytics.cost import priced
from longpole_analytics.prices import Prices
from longpole_analytics.span_loading import numbered, weights

MAX_DEPTH: Final = 32
"""Ancestors that are followed; a chain that long is a cycle or nobody's."""
_ATTRIBUTES: Final = {
    "used": keys.BRANCH_USED,
    "branch": keys.BRANCH_NAME,
    "branch_state": keys.BRANCH_STATE,
    "winner": keys.HEDGE_WINNER,
    "guess": keys.SPECULATION_STATE,
    "guess_ttl": keys.SPECULATION_TTL,
    "guess_age": keys.SPECULATION_AGE,
    "app_cache_kind": keys.APP_CACHE_KIND,
    "app_cache_hit": keys.APP_CACHE_HIT,
    "inputs": keys.INPUTS,
    "output_hash": keys.OUTPUT_HASH,
    "deadline": keys.DEADLINE,
    "deadline_remaining": keys.DEADLINE_REMAINING,
    "temperature": keys.REQUEST_TEMPERATURE,
    "connection_new": keys.CONNECTION_NEW,
    "connection_time": keys.CONNECTION_TIME,
    "attempt_offsets": keys.ATTEMPT_OFFSETS_US,
    "attempt_status": keys.ATTEMPT_STATUS,
    "retry_wait": keys.RETRY_WAIT,
    "chain": keys.PROMPT_CHAIN,
    "num_blocks": keys.PROMPT_NUM_BLOCKS,
    "key_id": keys.PROMPT_KEY_ID,
    "tool_retry_of": keys.TOOL_RETRY_OF,
    "data_source": keys.DATA_SOURCE_ID,
    "status_code": keys.HTTP_STATUS,
    "render_updates": keys.RENDER_NUM_UPDATES,
    "server_processing": keys.SERVER_PROCESSING,
}
_FLOATS: Final = (
    *("guess_ttl", "guess_age", "deadline", "deadline_remaining", "used_tokens", "temperature"),
    *("connection_time", "retry_wait", "num_blocks", "used_passages", "all_passages"),
    *("render_updates", "server_processing"),
)
_SEGMENT: Final = "segment_"
_INHERITED: Final = (
    *("input_tokens", "cached_input_tokens", "cache_write_tokens", "output_tokens"),
    *("reasoning_tokens", "prefill_ns", "engine_decode_ns", "queue_ns", "is_streamed", "ttft_ns"),
    *("finish_reason", "service_tier", "service_tier_requested", "provider", "response_model"),
    *("request_model", "prefix_hash", "prompt_version", "tokens_per_chunk", "is_cold_start"),
    *("num_chunks", "last_content_ns", "tpot_ms", "stream_state", "consumer_hold_ns"),
    *("cache_write_1h_tokens", "reported_cost_usd", "reported_currency"),
)
"""What a call knows from the spans below it that tell of the same call."""


PATIENT: Final = ("offline", "batch", "background")
"""Task classes in which nobody waits for an answer."""
_PATIENT_NAME: Final = r"(?i)(^|[^a-z])(batch|offline|nightly|backfill|cron|jobs?)([^a-z]|$)"
"""Words that say so in the name of a route whose class is not told."""


@dataclass(frozen=True)
class Population:
    """Traces, ready for the rules.

    Attributes:
        table: rows of the view ``spans``, in the order of ``row``.
        spans: ``row``, ``trace``, ``parent`` (a row), ``id`` (text), the columns of the record, the
            attributes that rules read, and what the trees say (``is_node``, ``is_sound``,
            ``own_ns``, ``length_ns``).
        calls: the model calls of sound traces, with ``first_ns``, ``decode_ns``, ``e2e_ms``,
            ``model``, ``segment_*`` hashes, costs, and ``branch_row`` / ``guess_row``, the step
            around it.
        traces: ``trace``, ``trace_id``, ``route``, ``slo_class``, ``outcome``, ``wall_ms``,
            ``model_share`` of the wall time, ``is_sound``, ``is_patient`` (nobody waits), and
            ``weight``, how many traces it stands for; its spans and calls have it, too.
        replayer: what answers what changes would save.
        prices: the table in force.
        memo: what two rules share is kept here.
    """

    table: pa.Table
    spans: pl.DataFrame
    calls: pl.DataFrame
    traces: pl.DataFrame
    replayer: Replayer
    prices: Prices
    memo: dict[str, Any] = field(default_factory=dict)

    @property
    def steps(self) -> pl.DataFrame:
        """The finished spans of sound traces that are in a tree, those in calls left out."""
        if "steps" not in self.memo:
            kept = pl.col("is_node") & pl.col("end_ns").is_not_null() & ~pl.col("is_model_call")
            self.memo["steps"] = self.spans.filter(kept & pl.col("is_sound"))
        found: pl.DataFrame = self.memo["steps"]
        return found

    def told_used(self, rows: pl.DataFrame, *names: str) -> pl.DataFrame:
        """Those whose workflow says what its outcome used, with ``is_used``.

        Args:
            rows: spans; one is named by its id or by one of its names.
            names: columns with its names.
        """
        said = self.spans.filter(pl.col("used").is_not_null())
        said = said.group_by("trace").agg(said="used").with_columns(pl.col("said").list.join(" "))
        told = rows.join(said, on="trace", how="inner", maintain_order="left")
        is_named = [
            (pl.col("said") == pl.col(name))
            | pl.col("said").str.contains(pl.format('"{}"', name), literal=True)
            for name in ("id", *names)
        ]
        return told.with_columns(is_used=pl.any_horizontal(is_named).fill_null(False))

    def route_of(self, route: str | None) -> pl.DataFrame:
        """The sound traces of a route; ``None`` is of those without one."""
        sound = self.traces.filter("is_sound")
        return sound.filter(pl.col("route").eq_missing(pl.lit(route, pl.String)))


def population(
    table: pa.Table, prices: Prices, *, is_compiled: bool | None = None
) -> Population | None:
    """The tables of some spans; ``None`` where there are none to tell of.

    Args:
        table: rows of the view ``spans``; those without ids or a start are left out.
        prices: the table in force.
        is_compiled: whether the compiled replay is used; default is by size.

    Raises:
        BadInput: an id that is none.
    """
    for name in ("trace_id", "span_id", "start_ns"):
        if name not in table.column_names:
            return None
        if table[name].null_count:
            table = table.filter(table[name].is_valid())
    if not table.num_rows:
        return None
    table = table.combine_chunks()
    plain = numbered(table)
    spans = _spans(plain, table)
    trace = spans["trace"].to_numpy().astype(np.int64)
    replayer = Replayer(plain, trace, is_compiled=is_compiled)
    found = replayer.lengths
    spans = spans.with_columns(
        is_node=pl.Series(found.is_node),
        own_ns=pl.Series(found.own_ns),
        first_ns=pl.Series(found.first_ns),
        decode_ns=pl.Series(found.decode_ns),
        length_ns=pl.max_horizontal(pl.col("end_ns") - pl.col("start_ns"), 0),
    )
    traces = _traces(spans, table, found)
    first = spans.unique("trace", keep="first", maintain_order=True).sort("trace")
    weight = weights(plain, first["trace_hi"].to_numpy(), first["trace_lo"].to_numpy())
    stood = pl.lit(1.0) if weight is None else pl.Series(weight)
    traces = traces.with_columns(weight=stood)
    place = spans["trace"].cast(pl.UInt32)
    spans = spans.with_columns(
        is_sound=traces["is_sound"].gather(place),
        weight=traces["weight"].gather(place),
        route=pl.coalesce(pl.col("route"), traces["route"].gather(place)),
    )
    calls = _calls(spans, prices).filter("is_sound")
    return Population(table, spans, calls, traces, replayer, prices)


def _spans(plain: pa.Table, table: pa.Table) -> pl.DataFrame:
    found: Any = pl.from_arrow(plain)
    ids = found.select("trace_hi", "trace_lo").unique(maintain_order=True)
    ids = ids.with_columns(trace=pl.int_range(pl.len(), dtype=pl.Int64))
    spans: pl.DataFrame = (
        found.join(ids, on=["trace_hi", "trace_lo"], how="left", maintain_order="left")
        .with_columns(
            pl.int_range(pl.len(), dtype=pl.Int64).alias("row"),
            pl.Series("id", table["span_id"].to_pylist(), dtype=pl.String),
        )
        .hstack(attributes_of(table))
    )
    above = spans.select("trace", span_id="span_id", parent="row").unique(
        ["trace", "span_id"], keep="first", maintain_order=True
    )
    return spans.join(
        above, left_on=["trace", "parent_id"], right_on=["trace", "span_id"], how="left",
        maintain_order="left",
    )  # fmt: skip


def attributes_of(table: pa.Table) -> pl.DataFrame:
    """The attributes that rules read, a column each, null where a span has none.

    Args:
        table: rows with ``attributes``, a map; without it all are null.
    """
    wanted = dict(_ATTRIBUTES)
    texts: dict[str, pl.Series] = {}
    if "attributes" in table.column_names and pa.types.is_map(table["attributes"].type):
        column = table["attributes"].combine_chunks()
        if isinstance(column, pa.ChunkedArray):
            column = column.chunk(0) if column.num_chunks else pa.array([], column.type)
        texts = _unpacked(column)
    missing = pl.Series([None] * table.num_rows, dtype=pl.String)
    named = {name: texts.get(key, missing).alias(name) for name, key in wanted.items()}
    for key, values in texts.items():
        if key.startswith(keys.PROMPT_SEGMENT_PREFIX):
            name, _, what = key.removeprefix(keys.PROMPT_SEGMENT_PREFIX).rpartition(".")
            named[f"{_SEGMENT}{name}_{what}"] = values.alias(f"{_SEGMENT}{name}_{what}")
    named |= _outcome_facts(texts, missing)
    numbers = [name for name in named if name in _FLOATS or name.endswith("_length")]
    frame = pl.DataFrame(list(named.values()))
    return frame.with_columns(pl.col(numbers).cast(pl.Float64, strict=False).fill_nan(None))


MAX_SEGMENTS: Final = 64
"""Different attribute names of prompt segments, or facts of outcomes, that are read."""
_FACTS: Final = {
    "used_tokens": re.compile(r"(?=.*used)(?=.*token).*"),
    "used_passages": re.compile(r"(?=.*(?:used|cited))(?=.*(?:passage|document|chunk|source)).*"),
    "all_passages": re.compile(r"(?=.*retrieved)(?!.*(?:used|cited)).*|num_(?:passages|documents)"),
}
"""What applications may say of an outcome (``run.accept(used_tokens=...)``), by name."""


def _outcome_facts(texts: Mapping[str, pl.Series], missing: pl.Series) -> dict[str, pl.Series]:
    """What outcomes say of tokens and passages, by our name; the first fact that is called so."""
    found = {}
    for name, pattern in _FACTS.items():
        key = next(
            (
                key
                for key in sorted(texts)
                if key.startswith(keys.OUTCOME_FACT_PREFIX)
                and pattern.fullmatch(key.removeprefix(keys.OUTCOME_FACT_PREFIX).lower())
            ),
            None,
        )
        found[name] = (missing if key is None else texts[key]).alias(name)
    return found


def _unpacked(column: Any) -> dict[str, pl.Series]:
    """By attribute name that is read, its values by span."""
    codes = column.keys.dictionary_encode()
    names: list[str] = codes.dictionary.to_pylist()
    wanted = set(_ATTRIBUTES.values())
    for prefix in (keys.PROMPT_SEGMENT_PREFIX, keys.OUTCOME_FACT_PREFIX):
        wanted.update(sorted(n for n in names if n and n.startswith(prefix))[:MAX_SEGMENTS])
    offsets = np.asarray(column.offsets)
    counts = np.diff(offsets)
    owners = np.repeat(np.arange(len(column)), counts)
    first = int(offsets[0]) if len(offsets) else 0
    indices = codes.indices.to_numpy(zero_copy_only=False)[first : first + len(owners)]
    found = {}
    for code, name in enumerate(names):
        if name not in wanted:
            continue
        places = np.flatnonzero(indices == code)
        values: Any = pl.from_arrow(column.items.take(pa.array(places + first)))
        rows = pl.DataFrame({"row": owners[places], "value": values.cast(pl.String)}).unique("row")
        every = pl.DataFrame({"row": np.arange(len(column))})
        found[name] = every.join(rows, on="row", how="left", maintain_order="left")["value"]
    return found


def _traces(spans: pl.DataFrame, table: pa.Table, found: Lengths) -> pl.DataFrame:
    """The traces by number, with what their spans state."""
    stated = ("route", "route_version", "slo_class", "outcome", "time_to_accepted_ns")
    columns = ["trace", "row", "start_ns", *stated, "prompt_version"]
    by = (
        spans.select(*columns, is_below=pl.col("parent_id").is_not_null())
        .sort("is_below", "start_ns", maintain_order=True)
        .group_by("trace")
        .agg(
            *(pl.col(name).drop_nulls().first() for name in (*stated, "prompt_version")),
            first_row=pl.col("row").min(),
            start_ns=pl.col("start_ns").min(),
        )
        .sort("trace")
    )
    ids = pc.take(table["trace_id"], pa.array(by["first_row"].to_numpy()))
    is_model = pl.col("is_model_call").fill_null(False) & pl.col("is_node")
    model = (
        spans.filter(is_model)
        .group_by("trace")
        .agg(model_ms=_union_ms())
    )  # fmt: skip
    return (
        by.with_columns(
            trace_id=pl.Series(ids.to_pylist(), dtype=pl.String),
            wall_ms=pl.Series(found.wall_ns) / 1e6,
            is_sound=pl.Series(found.is_sound),
        )
        .join(model, on="trace", how="left", maintain_order="left")
        .with_columns(
            model_share=pl.when(pl.col("wall_ms") > 0)
            .then(pl.col("model_ms").fill_null(0.0) / pl.col("wall_ms"))
            .clip(0.0, 1.0),
            is_patient=pl.col("slo_class").is_in(PATIENT)
            | (
                pl.col("slo_class").is_null()
                & pl.col("route").fill_null("").str.contains(_PATIENT_NAME)
            ),
        )
    )


def _union_ms() -> pl.Expr:
    """The time in which any span of a group ran, ms."""
    start = pl.col("start_ns").sort_by("start_ns")
    end = pl.col("end_ns").sort_by("start_ns").fill_null(0)
    before = end.cum_max().shift(1).fill_null(0)
    return pl.max_horizontal(end - pl.max_horizontal(start, before), 0).sum() / 1e6


def _calls(spans: pl.DataFrame, prices: Prices) -> pl.DataFrame:
    """The calls that are in a tree, each once."""
    is_call = pl.col("is_model_call").fill_null(False)
    told = spans.filter(is_call)
    owners = nearest(spans, told["row"], spans.filter(is_call & pl.col("is_node"))["row"])
    extra = [n for n in told.columns if n.startswith(_SEGMENT)]
    extra += ["chain", "num_blocks", "key_id", "output_hash", "inputs", "temperature"]
    inherited = [*_INHERITED, *extra]
    known = (
        told.select("row", *inherited)
        .with_columns(owner=owners)
        .drop_nulls("owner")
        .sort((pl.col("row") != pl.col("owner")), maintain_order=True)
        .group_by("owner")
        .agg(pl.col(name).drop_nulls().first() for name in inherited)
    )
    calls = (
        spans.filter(is_call & pl.col("is_node") & pl.col("end_ns").is_not_null())
        .drop(inherited)
        .join(known, left_on="row", right_on="owner", how="left", maintain_order="left")
        .with_columns(
            e2e_ms=pl.col("length_ns") / 1e6,
            model=pl.coalesce("response_model", "request_model"),
            branch_row=_around(spans, is_call, "branch"),
            guess_row=_around(spans, is_call, "guess"),
        )
    )
    return priced(calls, prices)


def _around(spans: pl.DataFrame, is_call: pl.Expr, name: str) -> pl.Series:
    """By call, the row of the nearest span at or above it that has an attribute."""
    rows = spans.filter(is_call & pl.col("is_node") & pl.col("end_ns").is_not_null())["row"]
    return nearest(spans, rows, spans.filter(pl.col(name).is_not_null())["row"])


def nearest(spans: pl.DataFrame, rows: pl.Series, wanted: pl.Series) -> pl.Series:
    """By row, the nearest one at or above it that is wanted; null without one."""
    parent = spans["parent"].fill_null(-1).to_numpy()
    is_wanted = np.zeros(spans.height, np.bool_)
    is_wanted[wanted.to_numpy()] = True
    at = rows.to_numpy().astype(np.int64)
    found = np.full(len(at), -1, np.int64)
    for _ in range(MAX_DEPTH):
        here = (at >= 0) & (found < 0)
        hit = here.copy()
        hit[here] = is_wanted[at[here]]
        found[hit] = at[hit]
        going = here & ~hit
        if not going.any():
            break
        at = np.where(going, parent[at], -1)
    return pl.Series(found).replace(-1, None)
