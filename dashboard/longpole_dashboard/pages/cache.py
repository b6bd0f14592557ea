"""Cache: tokens, time and money that caches saved, and why prompts missed."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import streamlit as st

from longpole_dashboard import data, widgets
from longpole_dashboard.choices import admit, write
from longpole_dashboard.components.table import Cell, Column, Row, table
from longpole_dashboard.model import text
from longpole_dashboard.model.cache import NO_COUNTS, CacheView, cache, usd
from longpole_dashboard.model.verdict_lines.cache import of_cache
from longpole_dashboard.model.window import Bounds
from longpole_dashboard.pages.base import Page
from longpole_dashboard.widgets import Selection

CAUSE: Final = "cause"
MAX_ROWS: Final = 50
_WORDS: Final = {
    "ineligible": "too short, or the model has no cache",
    "first_seen": "nothing before had this prefix",
    "template_edit": "the prompt version is new",
    "tool_order": "the same tools in another order",
    "tool_set": "other tools",
    "volatile_prefix": "a stable segment changes from call to call",
    "concurrent_write": "the earlier call was not ready",
    "ttl_expired": "not asked for within its life",
    "routing_scatter": "the earlier calls went elsewhere",
    "evicted_or_unknown": "evicted, or not known",
}

_Row = Mapping[str, Any]


def draw(selected: Selection, held: Bounds) -> None:
    """The page for the calls of the bar's workflows."""
    st.title("Cache")
    st.fragment(_content, run_every=selected.refresh_s)(selected)


def _content(selected: Selection) -> None:
    filters = data.filters(selected)
    shown = data.ask(cache, filters)
    widgets.muted(
        f"{selected.clock.stretch(filters.start_ns, filters.end_ns)} · "
        f"{text.counted(shown.num_calls, 'call')}"
    )
    admit(shown.scope.limits())
    if shown.sampled is not None:
        widgets.muted(shown.sampled)
    if not shown.num_calls and not shown.document["answer_caches"]:
        widgets.note("No model call here: widen the range, or drop a condition.")
        return
    if shown.num_known:
        widgets.note(*of_cache(shown).parts)
        _prompts(shown)
    else:
        widgets.note(
            NO_COUNTS,
            "grey",
            "So no hit rate, saving or miss can be told; unknown is not taken for a miss.",
        )
    _answers(shown.document["answer_caches"])
    _money(shown.document)
    widgets.reproduce(shown.command)


# --- caches of prompts --------------------------------------------------------------------------
def _prompts(shown: CacheView) -> None:
    heads = shown.heads()
    for column, head in zip(st.columns(len(heads)), heads, strict=True):
        with column.container(border=True, height="stretch"):
            st.metric(head.label, head.value)
            widgets.muted(head.basis)
    if shown.num_known < shown.num_calls:
        rest = text.counted(shown.num_calls - shown.num_known, "call")
        widgets.muted(f"{rest} do not say what came from a cache, and count nowhere here.")
    document = shown.document
    _misses(document["misses"])
    _slices(document["hits"]["slices"])
    _speeds(document["speed"])
    _ideal(document["achievable"])
    _writes(document["wasted_writes"])
    _keys([key for key in document["hot_keys"] if key["is_hot"]])


def _misses(misses: Sequence[_Row]) -> None:
    st.subheader("Why prompts missed")
    if not misses:
        widgets.muted("No prompt missed what it could have read.")
        return
    most = max(row["lost_tokens"] for row in misses) or 1
    rows = [
        Row(
            (
                Cell(row["cause"].replace("_", " ")),
                Cell(_WORDS[row["cause"]]),
                Cell(text.count(row["num_misses"])),
                Cell(text.count(row["lost_tokens"]), bar_ratio=row["lost_tokens"] / most),
                Cell(usd(row["lost_usd"])),
                Cell(_place(row)),
            ),
            row["cause"],
            f"cache?{CAUSE}={row['cause']}",
        )
        for row in misses
    ]
    opened = _table(
        "misses by cause",
        ("cause", "what it means", "#misses", "#tokens lost", "#money lost", "differs"),
        rows,
    )
    widgets.muted(*(f"{row['cause'].replace('_', ' ')}: {row['edit']}." for row in misses))
    if opened is not None:
        write(**{CAUSE: opened})
    chosen = st.query_params.get(CAUSE)
    own = next((row for row in misses if row["cause"] == chosen), None)
    if own is None:
        widgets.muted("Open a cause to see workflows of it.")
    else:
        _traces(own)


def _place(row: _Row) -> str:
    parts = [
        row["segment"] and f"segment {row['segment']}",
        row["block"] and f"block {row['block']}",
    ]
    return ", ".join(part for part in parts if part) or text.UNKNOWN


def _traces(row: _Row) -> None:
    cause = row["cause"].replace("_", " ")
    ids = row["trace_ids"]
    if not ids:
        widgets.muted(f"The calls of {cause} do not say their workflow.")
        return
    rows = [Row((Cell(each),), each, f"trace?trace={each}") for each in ids]
    title = f"workflows that lost most by {cause}"
    opened = _table(title, (title,), rows)
    if opened is not None:
        widgets.go("trace", trace=opened)


def _slices(slices: Sequence[_Row]) -> None:
    names = [name for name in ("route", "prompt_version", "model_key") if name in slices[0]]
    is_odd = any(row["num_contradictory"] for row in slices)
    rows = [
        Row(
            (
                *(Cell(row[name] or "(unknown)") for name in names),
                Cell(text.count(row["num_calls"])),
                Cell(text.percent(row["hit_rate_tokens"]), bar_ratio=row["hit_rate_tokens"]),
                Cell(text.percent(row["hit_rate_requests"])),
                Cell(text.count(row["cached_tokens"]) if row["num_known"] else text.UNKNOWN),
                Cell(usd(row["saved_usd"])),
                *([Cell(text.count(row["num_contradictory"]))] if is_odd else []),
            )
        )
        for row in slices[:MAX_ROWS]
    ]
    heads = ("#calls", "#input from it", "#calls with a hit", "#tokens read", "#money saved")
    st.subheader("By route, prompt and model")
    titles = [name.replace("_", " ").removesuffix(" key") for name in names]
    odd = ["#more read than there was"] if is_odd else []
    _table("hits by slice", (*titles, *heads, *odd), rows)
    _more(slices)


def _speeds(speeds: Sequence[_Row]) -> None:
    st.subheader("Time saved: a hit rate alone is none")
    if not speeds:
        widgets.muted("No model has hits.")
        return
    rows = [
        Row(
            (
                Cell(row["model"], muted=row["service_tier"] or ""),
                Cell(row["service"] or text.UNKNOWN),
                Cell(row["metric"].removesuffix("_ms")),
                Cell(text.count(row["num_hits"])),
                Cell(text.count(row["num_misses"])),
                _estimate(row["by_model"]),
                _estimate(row["by_matching"]),
                Cell(row["verdict"] or "too few to say", muted=row["reason"] or ""),
            )
        )
        for row in speeds[:MAX_ROWS]
    ]
    heads = ("model", "service", "measured", "#hits", "#misses", "#a hit, by a line")
    _table("time saved", (*heads, "#a hit, by matched pairs", "verdict"), rows)
    widgets.muted("Both in the median, with their 95 % intervals; claimed only where they agree.")


def _estimate(found: _Row | None) -> Cell:
    if found is None:
        return Cell(text.UNKNOWN)
    return Cell(text.duration(found["ms"]), muted=text.span_of(found["low_ms"], found["high_ms"]))


def _ideal(rows: Sequence[_Row]) -> None:
    if not rows:
        return
    st.subheader("An ideal cache")
    made = [
        Row(
            (
                Cell(f"{row['ttl_s']:,g} s"),
                Cell(text.count(row["num_calls"])),
                Cell(text.percent(row["hit_token_share"])),
                Cell(text.percent(row["observed_token_share"])),
                Cell(text.count(row["gap_tokens"])),
            )
        )
        for row in rows
    ]
    heads = ("#calls", "#would read", "#read", "#tokens between")
    _table("ideal cache", ("a prefix lives", *heads), made)


def _writes(rows: Sequence[_Row]) -> None:
    if not rows:
        return
    st.subheader("Writes that nobody read")
    made = [
        Row(
            (
                Cell(row["route"] or "(unknown)"),
                Cell(row["prompt_version"] or "(unknown)"),
                Cell(text.count(row["num_writes"])),
                Cell(text.count(row["num_wasted"])),
                Cell(text.percent(row["wasted_share"])),
                Cell(usd(row["wasted_usd"])),
            )
        )
        for row in rows[:MAX_ROWS]
    ]
    heads = ("#writes", "#wasted", "#of the tokens", "#money lost")
    _table("wasted writes", ("route", "prompt version", *heads), made)
    _more(rows)


def _keys(rows: Sequence[_Row]) -> None:
    if not rows:
        return
    st.subheader("Keys too busy for one place")
    made = [
        Row(
            (
                Cell(str(row["cache_key"])),
                Cell(row["model_key"] or "(unknown)"),
                Cell(text.count(row["per_minute_max"])),
                Cell(text.percent(row["hit_rate_busy"])),
                Cell(text.percent(row["hit_rate_calm"])),
            )
        )
        for row in rows[:MAX_ROWS]
    ]
    heads = ("#calls a minute", "#hits when busy", "#hits when calm")
    _table("busy keys", ("key", "model", *heads), made)


# --- the rest -----------------------------------------------------------------------------------
def _answers(caches: Sequence[_Row]) -> None:
    if not caches:
        return
    st.subheader("Caches of whole answers")
    rows = [
        Row(
            (
                Cell(row["name"] or "(unknown)"),
                Cell(row["kind"] or "unknown"),
                _share(row["hits"]),
                _share(row["stale"]),
            )
        )
        for row in caches[:MAX_ROWS]
    ]
    _table("answer caches", ("cache", "kind", "#hits", "#stale hits"), rows)


def _share(found: _Row) -> Cell:
    ends = ""
    if found["low"] is not None and found["high"] is not None:
        ends = f"{100 * found['low']:.1f} to {100 * found['high']:.1f} %, "
    return Cell(text.percent(found["value"]), muted=f"{ends}n {text.count(found['n'])}")


def _money(document: _Row) -> None:
    """What calls cost, what was wasted, and which have no price."""
    cost, wasted = document["cost"]["all"], document["cost"]["wasted"]
    if cost is None:
        return
    st.subheader("What calls cost")
    widgets.facts(
        [
            ("all calls", usd(cost["cost_usd"])),
            ("per accepted outcome", usd(cost["cost_per_accepted_usd"])),
            ("without a price", f"{text.count(cost['num_unpriced'])} calls"),
            ("prices", document["prices"]["version"]),
        ]
    )
    if wasted:
        rows = [
            Row(
                (
                    Cell(row["waste"].replace("_", " ")),
                    Cell(text.count(row["num_calls"])),
                    Cell(usd(row["cost_usd"])),
                    Cell(text.percent(row["share_of_cost"])),
                )
            )
            for row in wasted
        ]
        _table("wasted calls", ("wasted on", "#calls", "#cost", "#of all cost"), rows)
    unpriced = document["prices"]["unpriced"]
    if unpriced:
        rows = [
            Row(
                (
                    Cell(row["provider"] or "(unknown)"),
                    Cell(row["request_model"] or "(unknown)"),
                    Cell((row["cost_problem"] or "unknown").replace("_", " ")),
                    Cell(text.count(row["num_calls"])),
                )
            )
            for row in unpriced[:MAX_ROWS]
        ]
        _table("calls without a price", ("provider", "model", "why no price", "#calls"), rows)
        _more(unpriced)


def _table(name: str, heads: Sequence[str], rows: Sequence[Row]) -> str | None:
    """A table; a title that begins with ``#`` is of a column of numbers."""
    columns = [Column(head.removeprefix("#"), head.startswith("#")) for head in heads]
    return table(name, columns, rows)


def _more(rows: Sequence[_Row]) -> None:
    if len(rows) > MAX_ROWS:
        widgets.muted(f"{text.count(len(rows) - MAX_ROWS)} more: the command has them.")


PAGE = Page("Cache", ":material/memory_alt:", 60, draw)
