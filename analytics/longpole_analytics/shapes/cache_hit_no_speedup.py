"""Cache hit, no speed-up: cached tokens do not shorten the wait by what they should.

A hit is compared with what a miss of the same prompt length takes: by the line through the
window's own misses, or the baseline's line where it has too few. The slope of that line times the
cached tokens is what the hit should have saved.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from longpole_analytics.shapes._columns import Columns, Floats, mean
from longpole_analytics.shapes._fits import Line, line
from longpole_analytics.shapes._measures import Measures
from longpole_analytics.shapes.base import Evidence, Finding, Rule
from longpole_analytics.stats import rank_interval

CHECK: Final = (
    "check that hits reach the instance that holds the prefix, and where the cached part ends"
)
LOW_REUSE: Final = 0.2


def test(measures: Measures, found: tuple[Finding, ...]) -> Finding | None:
    """Hits that save less than a tenth of what they should."""
    m = measures
    name = "prefill_ms" if m.is_told("prefill_ms") else "ttft_ms"
    side = m.current
    missed = _of_misses(side, name, m)
    fitted = missed or m.lines[name]
    hits = (side["cached_input_tokens"] > 0) & (side["is_cold"] != 1) & np.isfinite(side[name])
    if missed is None:  # how long a prompt takes that nobody paid for, no line tells
        hits &= side["input_tokens"] <= _longest(m.base["uncached_tokens"])
    if hits.sum() < m.rules.min_hits or fitted is None or fitted.slope <= 0:
        return None
    cached = side["cached_input_tokens"][hits]
    saved = fitted.at(side["input_tokens"][hits]) - side[name][hits]
    due = fitted.slope * cached
    gains = np.sort((saved / due)[np.isfinite(saved)])
    if len(gains) < m.rules.min_hits:
        return None
    low_rank, high_rank = rank_interval(len(gains), 0.5)
    low, high = (float(gains[(r or 1) - 1]) for r in (low_rank, high_rank))
    gain = float(np.median(gains))
    # The line is an estimate too: the middle may miss the limit by as much again.
    if low >= m.rules.max_cache_gain or gain >= 2 * m.rules.max_cache_gain:
        return None
    if high >= 0.5:  # too wide to tell anything
        return None
    lacking = mean(due - saved)
    if missed is None and name == "ttft_ms":  # what all wait for now is not the cache's to save
        lacking = min(lacking, mean(due))
    reuse = mean(cached / np.maximum(side["input_tokens"][hits], 1.0))
    return Finding(
        "cache_hit_no_speedup",
        _cause(m, reuse),
        _excess(m, lacking * _share(side, name, hits)),
        (
            Evidence("cache_saving_ms", 0.5, *_middles(saved, due), gain, (low, high), len(gains)),
            Evidence("cached_share_of_hits", None, reuse, None, None, None, len(gains)),
            *(t.evidence() for t in (*m.test("prefill_adjusted_ms"), *m.test("ttft_ms"))),
        ),
        CHECK,
    )


def _share(side: Columns, name: str, hits: NDArray[np.bool_]) -> float:
    """Of the requests of which all that matters is known, those that are hits."""
    known = np.isfinite(side["cached_input_tokens"] + side["input_tokens"] + side[name])
    return float((hits & known).sum() / known.sum())


def _longest(tokens: Floats) -> float:
    known = tokens[np.isfinite(tokens)]
    return float(known.max()) if len(known) else 0.0


def _excess(m: Measures, missing: float) -> float:
    """Mean milliseconds of a request; no more than hits lack where that is the smaller part."""
    grown = max(m.excess("ttft_ms"), m.excess("prefill_ms"), 0.0)
    return grown if missing >= m.rules.queue_share * grown else max(missing, 0.0)


def _middles(saved: Floats, due: Floats) -> tuple[float, float]:
    """What hits saved and what they should have, in the median."""
    return float(np.nanmedian(saved)), float(np.nanmedian(due))


def _of_misses(side: Columns, name: str, m: Measures) -> Line | None:
    misses = (side["cached_input_tokens"] == 0) & (side["is_cold"] != 1)
    known: Floats = side[name][misses]
    if np.isfinite(known).sum() < m.rules.min_hits:
        return None
    return line(side["input_tokens"][misses], known)


def _cause(m: Measures, reuse: float) -> str:
    if reuse < LOW_REUSE:
        return "little of the prompt is reused"
    wait = mean(m.current["queue_ms"]) + mean(m.current["network_ms"])
    if wait >= 0.5 * mean(m.current["ttft_ms"]) > 0:
        return "queue and network make the wait"
    return "hits take as long as misses of their length"


RULE = Rule(order=35, needs=("ttft_ms", "prefill_ms"), test=test)
