"""What a scorecard costs, and how often it tells a difference where there is none.

Two sides of 100,000 calls, several to a session, with failures and with prices, all quantiles, by
2,000 resamples; compiling is not counted. Then the halves of one population, 400 times, drawn by
session, some with strong sessions, some small. Then halves that grow and are looked at five times,
each look declared: a run is wrong if any of its looks is. Wall time.

    python -m benchmarks.analytics.scorecard [--calls 100000] [--runs 400] [--peeked 100]
"""

from __future__ import annotations

import argparse
import sys
import time

import numpy as np
import polars as pl

from longpole_analytics.requests import from_flat
from longpole_analytics.scorecard.card import scorecard
from longpole_analytics.scorecard.rules import CardRules, Plan

NEED_S = 10.0
NEED_FALSE = 0.05
SIZES = ((80, 1, 0.0), (600, 1, 0.0), (1000, 5, 0.4), (4000, 4, 0.2))
"""Requests, requests a session, and how much sessions differ."""
LOOKS = 5


def population(num: int, seed: int, per_session: int = 4, spread: float = 0.2) -> pl.DataFrame:
    """Requests whose time grows with prompt and answer; one in a hundred times out."""
    random = np.random.default_rng(seed)
    session = np.arange(num) // per_session
    factor = np.exp(random.normal(0, spread, session[-1] + 1))[session]
    inputs = np.exp(random.normal(7, 0.6, num)).astype(np.int64)
    outputs = np.exp(random.normal(5, 0.5, num)).astype(np.int64) + 2
    ttft = (80 + inputs / 10) * random.lognormal(0, 0.3, num) * factor
    pace = 10 * random.lognormal(0, 0.2, num)
    has_failed = random.random(num) < 0.01
    accepted = np.where(random.random(num) < 0.9, "accepted", "rejected")
    flat = pl.DataFrame(
        {
            "start_ns": np.arange(num) * 10**9,
            "session_id": np.char.add(f"{seed}-", session.astype(str)),
            "input_tokens": inputs,
            "output_tokens": outputs,
            "ttft_ms": ttft,
            "ttfv_ms": ttft + 5,
            "tpot_ms": pace,
            "chunk_gap_max_ms": 5 * pace,
            "e2e_ms": ttft + pace * (outputs - 1),
            "outcome": np.where(has_failed, "failed", accepted),
            "failure_class": np.where(has_failed, "timeout", ""),
        }
    ).with_columns(pl.col("failure_class").replace("", None))
    cost = inputs * 1e-6 + outputs * 4e-6
    return from_flat(flat).with_columns(cost_usd=pl.Series(cost))


def false_verdicts(runs: int) -> int:
    """How many of the runs tell two halves of one population apart."""
    found = 0
    for run in range(runs):
        num, per_session, spread = SIZES[run % len(SIZES)]
        whole = population(num, 1000 + run, per_session, spread)
        names = whole["session_id"].unique(maintain_order=True)
        half = names.sample(len(names) // 2, seed=run)
        is_base = whole["session_id"].is_in(half.implode())
        card = scorecard(whole.filter(is_base), whole.filter(~is_base), None, CardRules())
        found += card.verdict in ("better", "worse")
    return found


def false_peeks(runs: int) -> int:
    """How many of the runs tell two halves apart at any of :data:`LOOKS` declared looks."""
    found = 0
    for run in range(runs):
        whole = population(1500, 5000 + run)
        names = whole["session_id"].unique(maintain_order=True)
        half = names.sample(len(names) // 2, seed=run)
        is_base = whole["session_id"].is_in(half.implode())
        sides = whole.filter(is_base), whole.filter(~is_base)
        found += any(
            scorecard(
                *(side.head(side.height * look // LOOKS) for side in sides), Plan(look=look)
            ).verdict
            in ("better", "worse")
            for look in range(1, LOOKS + 1)
        )
    return found


def main() -> int:
    """Print the table; 1 if a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=100_000)
    parser.add_argument("--runs", type=int, default=400)
    parser.add_argument("--peeked", type=int, default=100)
    asked = parser.parse_args()
    small = population(1000, 0)
    scorecard(small, small, None, CardRules(num_resamples=25))
    base, cand = population(asked.calls, 1), population(asked.calls, 2)
    begun = time.perf_counter()
    card = scorecard(base, cand)
    took = time.perf_counter() - begun
    print(f"{'scorecard of 2 x ' + format(asked.calls, ','):46}{took:10.2f} s   need < {NEED_S:g}")
    print(f"{'verdict':46}{card.verdict:>10}")
    begun = time.perf_counter()
    share = false_verdicts(asked.runs) / max(asked.runs, 1)
    print(
        f"{f'false verdicts of {asked.runs} halves':46}{share:10.2%}     need <= {NEED_FALSE:.0%}"
    )
    print(f"{'a run':46}{(time.perf_counter() - begun) / max(asked.runs, 1) * 1e3:10.0f} ms")
    peeked = false_peeks(asked.peeked) / max(asked.peeked, 1)
    print(
        f"{f'false verdicts of {asked.peeked} x {LOOKS} looks':46}{peeked:10.2%}"
        f"     need <= {NEED_FALSE:.0%}"
    )
    return int(took >= NEED_S or max(share, peeked) > NEED_FALSE)


if __name__ == "__main__":
    sys.exit(main())
