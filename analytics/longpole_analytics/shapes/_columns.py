"""One side of a slice as arrays: what is known of its requests, not a number where nothing is."""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from longpole_analytics.requests import FACTS, STAGE_TIMES

Floats = NDArray[np.float64]
Columns = dict[str, Floats]
TIMES: Final = (
    *STAGE_TIMES,
    "ttft_ms",
    "tpot_ms",
    "model_ms",
    "client_ms",
    "e2e_ms",
    "stall_ms",
    "tool_total_ms",
)
TTFT_STAGES: Final = (
    "queue_ms",
    "network_ms",
    "tokenize_ms",
    "prefill_ms",
    "first_decode_ms",
    "ttft_opaque_ms",
)
MAX_MS: Final = 1e12
MAX_NUMBER: Final = 1e19
USED: Final = (
    *TIMES,
    "start_ns",
    "input_tokens",
    "cached_input_tokens",
    "output_tokens",
    "num_tools",
    "num_turns",
    "num_attempts",
    "in_flight",
    "mean_in_flight",
    "tokens_per_chunk",
    "weight",
    "is_cold",
    "is_error",
    *FACTS,
)


class Group(NamedTuple):
    """The requests of a slice on both sides; of a slice of few, only how many there are.

    ``rows`` are the current requests as they came, for what is no number.
    """

    where: dict[str, str | None]
    sizes: tuple[int, int]
    base: Columns
    current: Columns
    rows: pl.DataFrame


class _Side(NamedTuple):
    """A side in the order of its slices, and where each of them lies."""

    frame: pl.DataFrame
    arrays: Columns
    rows: dict[tuple[str | None, ...], slice]

    def size(self, key: tuple[str | None, ...]) -> int:
        place = self.rows.get(key)
        return place.stop - place.start if place else 0

    def columns(self, key: tuple[str | None, ...]) -> Columns:
        place = self.rows[key]
        return derived({name: values[place] for name, values in self.arrays.items()})

    def requests(self, key: tuple[str | None, ...]) -> pl.DataFrame:
        place = self.rows.get(key, slice(0, 0))
        return self.frame[place]


def groups(
    baseline: pl.DataFrame, current: pl.DataFrame, by: Sequence[str], min_n: int
) -> list[Group]:
    """The slices by these columns, in the order of their values, unknown first.

    The columns of a slice that has fewer than ``min_n`` requests on a side are not made.
    """
    base, now = (_split(side, by) for side in (baseline, current))
    keys = sorted({*base.rows, *now.rows}, key=lambda key: [(v is not None, v or "") for v in key])
    found = []
    for key in keys:
        where = dict(zip(by, key, strict=True))
        sizes = base.size(key), now.size(key)
        sides = (base.columns(key), now.columns(key)) if min(sizes) >= min_n else ({}, {})
        found.append(Group(where, sizes, *sides, now.requests(key)))
    return found


def _split(side: pl.DataFrame, by: Sequence[str]) -> _Side:
    if not side.height:
        return _Side(side, {}, {})
    ordered = side.with_row_index("__row").sort(*by, "__row") if by else side
    unknown = np.full(side.height, np.nan)
    arrays = {
        name: ordered[name].cast(pl.Float64).fill_null(np.nan).to_numpy()
        if name in ordered.columns and ordered[name].count()
        else unknown
        for name in USED
    }
    if not by:
        return _Side(ordered, arrays, {(): slice(0, side.height)})
    sizes = ordered.group_by(by, maintain_order=True).len()
    ends = np.cumsum(sizes["len"].to_numpy()).tolist()
    rows = {
        key: slice(end - size, end)
        for key, end, size in zip(sizes.select(by).rows(), ends, sizes["len"], strict=True)
    }
    return _Side(ordered, arrays, rows)


def derived(columns: Columns) -> Columns:
    """The columns with those that follow from them.

    A negative time counts as unknown, and so does one beyond what any clock has measured.
    """
    found = dict(columns)
    for name, values in columns.items():
        low, high = (0.0, MAX_MS) if name in TIMES else (-MAX_NUMBER, MAX_NUMBER)
        wrong = (values < low) | (values > high)
        if wrong.any():
            found[name] = np.where(wrong, np.nan, values)
    found["uncached_tokens"] = found["input_tokens"] - found["cached_input_tokens"]
    if not np.isfinite(found["cached_input_tokens"]).any():
        found["uncached_tokens"] = found["input_tokens"]
    found["wait_ms"] = _sum(found, ("human_wait_ms", "validation_ms"))
    if not np.isfinite(found["client_ms"]).any():
        found["client_ms"] = _sum(found, ("stream_ms", "render_ms"))
    if not np.isfinite(found["ttft_ms"]).any():
        found["ttft_ms"] = _sum(found, TTFT_STAGES)
    if not np.isfinite(found["is_cold"]).any():
        cold = found["cold_start_ms"]
        found["is_cold"] = np.where(np.isfinite(cold), cold > 0, np.nan)
    if not np.isfinite(found["in_flight"]).any():
        running = _in_flight(found["start_ns"], found["e2e_ms"])
        found["in_flight"] = found["mean_in_flight"] = running
    tokens = np.where(found["output_tokens"] > 1, found["output_tokens"] - 1, np.nan)
    found["steps"] = tokens
    drafted = np.where(found["num_drafted_tokens"] > 0, found["num_drafted_tokens"], np.nan)
    found["acceptance"] = found["num_accepted_tokens"] / drafted
    if not np.isfinite(found["tpot_ms"]).any():
        known = [found[name] for name in ("tool_ms", "retry_ms", "retrieval_ms", "wait_ms")]
        between = found["later_decode_ms"]
        if not np.isfinite(between).any() and not any(np.isfinite(k).any() for k in known):
            between = found["e2e_ms"] - found["ttft_ms"]
        found["tpot_ms"] = np.where(between >= 0, between / tokens, np.nan)
    return found


def _sum(columns: Columns, names: Sequence[str]) -> Floats:
    """The sum of what is known; unknown where nothing is."""
    parts = np.stack([columns[name] for name in names])
    total: Floats = np.where(np.isfinite(parts).any(axis=0), np.nansum(parts, axis=0), np.nan)
    return total


def _in_flight(start_ns: Floats, e2e_ms: Floats) -> Floats:
    """Requests of the slice that ran at each one's start, itself included."""
    end_ns = start_ns + e2e_ms * 1e6
    known = np.isfinite(end_ns)
    if not known.any():
        return np.full(len(start_ns), np.nan)
    begun = np.searchsorted(np.sort(start_ns[known]), start_ns, side="right")
    ended = np.searchsorted(np.sort(end_ns[known]), start_ns, side="right")
    found: Floats = np.where(known, begun - ended, np.nan)
    return found


def mean(values: Floats) -> float:
    """The mean of what is known; 0 of nothing."""
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else 0.0


def share(marks: Floats) -> float | None:
    """The share of known marks that are set; ``None`` of nothing."""
    known = marks[np.isfinite(marks)]
    return float((known > 0).mean()) if len(known) else None
