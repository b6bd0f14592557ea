"""Made-up tables of requests with planted causes, or with none."""

import numpy as np
import polars as pl

from longpole_analytics.requests import from_flat

SIZES = {"region": 3, "tenant": 40, "model": 3, "prompt_version": 4, "replica": 12, "app": 2}


def made(num, seed, *, planted=(), confounded=False, delay_ms=4000.0, share=0.5, routes=3):
    """Requests whose time grows with prompt and answer; in planted slices a share waits longer.

    Args:
        num: rows.
        seed: of all that is random.
        planted: slices, each a dict of column and value; they lose time in ``queue_ms``.
        confounded: tenant ``t0`` sends prompts five times as long.
        delay_ms: what is added.
        share: of the slice's requests that are delayed.
        routes: how many; ``r1`` is slower than ``r0`` by nature, and so on.
    """
    random = np.random.default_rng(seed)
    columns = {
        name: np.char.add(name[0], random.integers(0, size, num).astype(str))
        for name, size in SIZES.items()
    }
    route = random.integers(0, routes, num)
    inputs = np.exp(random.normal(7, 0.8, num))
    if confounded:
        inputs *= np.where(columns["tenant"] == "t0", 5.0, 1.0)
    outputs = np.exp(random.normal(5, 0.6, num))
    times = {
        "queue_ms": random.exponential(60, num),
        "prefill_ms": inputs / 4 * random.lognormal(0, 0.2, num),
        "later_decode_ms": outputs * 8 * random.lognormal(0, 0.2, num) * (1 + route),
    }
    for where in planted:
        inside = np.logical_and.reduce([columns[name] == value for name, value in where.items()])
        times["queue_ms"] += delay_ms * (inside & (random.random(num) < share))
    return from_flat(
        pl.DataFrame(
            {
                "start_ns": np.arange(num) * 1_000_000_000,
                "route": np.char.add("r", route.astype(str)),
                **columns,
                "input_tokens": inputs.astype(np.int64),
                "output_tokens": outputs.astype(np.int64),
                **times,
                "e2e_ms": sum(times.values()),
            }
        )
    )
