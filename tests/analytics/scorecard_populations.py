"""Made-up requests for comparisons: times that grow with lengths, failures, outcomes, prices."""

import numpy as np
import polars as pl

from longpole_analytics.requests import from_flat
from longpole_analytics.scorecard.card import scorecard
from longpole_analytics.scorecard.rules import CardRules, Plan

FAST = CardRules(num_resamples=200)


def flat(num, seed, *, speed=1.0, failing=0.01, accepted=0.9, longer=1.0, prompts=1.0, cost=1.0):
    """A flat table of requests, each of a session of its own.

    Args:
        num: rows.
        seed: of all that is random.
        speed: factor of all times.
        failing: share that times out after 5 s.
        accepted: share of the others that is accepted.
        longer: factor of the answers' lengths.
        prompts: factor of the prompts' lengths.
        cost: factor of the costs.
    """
    random = np.random.default_rng(seed)
    inputs = (np.exp(random.normal(7, 0.5, num)) * prompts).astype(np.int64)
    outputs = (np.exp(random.normal(5, 0.4, num)) * longer).astype(np.int64) + 2
    ttft = (80 + inputs / 10) * random.lognormal(0, 0.2, num) * speed
    pace = 10 * random.lognormal(0, 0.1, num) * speed
    failed = random.random(num) < failing
    told = np.where(random.random(num) < accepted, "accepted", "rejected")
    return pl.DataFrame(
        {
            "trace_id": np.char.add(f"{seed}-", np.arange(num).astype(str)),
            "start_ns": np.arange(num) * 10**9,
            "session_id": np.char.add(f"{seed}-", np.arange(num).astype(str)),
            "route": np.full(num, "rag"),
            "model": np.full(num, f"m{seed}"),
            "input_tokens": inputs,
            "output_tokens": outputs,
            "ttft_ms": np.where(failed, np.nan, ttft),
            "tpot_ms": np.where(failed, np.nan, pace),
            "e2e_ms": np.where(failed, 5000.0, ttft + pace * (outputs - 1)),
            "outcome": np.where(failed, "failed", told),
            "error_type": np.where(failed, "APITimeoutError", ""),
            "cost_usd": cost * (inputs * 1e-6 + outputs * 4e-6),
        }
    ).with_columns(pl.col("error_type").replace("", None))


def side(num, seed, **what):
    """The same as a table of requests."""
    table = flat(num, seed, **what)
    return from_flat(table).with_columns(table["cost_usd"])


def card(base, cand, plan=None, rules=FAST):
    """The card of two sides, by few resamples."""
    return scorecard(base, cand, plan or Plan(), rules)


def plain(times_ms, **columns):
    """Requests of which only the time is known."""
    return from_flat(pl.DataFrame({"e2e_ms": times_ms, **columns}))
