"""How long it takes to make an answer, where a call does not show it itself."""

from typing import Any, Final

import numpy as np
import polars as pl

from longpole_analytics.advisor._population import Population
from longpole_analytics.advisor.base import HIGH, LOW, MEDIUM, median, numbers, slope

MIN_SEEN: Final = 20
ASSUMED_SHARE: Final = 0.5
"""Of a call with a long answer, the part in which it is made, where nothing shows it."""
CONFIDENCE: Final = {"engine": HIGH, "streams": HIGH, "growth": MEDIUM, "assumed": LOW}


def making_ns(pop: Population, calls: pl.DataFrame, plain: pl.DataFrame) -> tuple[Any, str]:
    """Of calls that show their answers at once: how long each was being made after its start.

    Told by the engine; else by the pace of calls of the same model that stream; else by how much
    longer calls with more output take; else a share of the call is assumed. Also says which.

    Args:
        pop: the population.
        calls: of one model.
        plain: the calls whose streams are sound.
    """
    told = numbers(calls, "engine_decode_ns")
    if np.isfinite(told).mean() > 0.5:
        return np.nan_to_num(told), "engine"
    tokens = numbers(calls, "output_tokens")
    model = calls["model"][0]
    alike = plain.filter(pl.col("model").eq_missing(pl.lit(model, pl.String)))
    paces = numbers(alike, "tpot_ms")
    if np.isfinite(paces).sum() >= MIN_SEEN:
        return np.nan_to_num(tokens - 1).clip(min=0) * median(paces, alike) * 1e6, "streams"
    length = numbers(calls, "length_ns")
    found = slope(tokens, length)
    if found is None:
        return ASSUMED_SHARE * length, "assumed"
    return np.nan_to_num(tokens - 1).clip(min=0) * found, "growth"
