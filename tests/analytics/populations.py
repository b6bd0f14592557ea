"""Made-up populations: a shop with two routes, of which one loses its prompt cache half-way."""

import random

import polars as pl

FAULTY_ROUTE = "shop.question"


def shop(num_traces, *, seed=0, has_fault=True, prefill_ms=300.0, extra_input_tokens=12):
    """Rows of ``traces``, ``trace_stages`` and ``calls``; from the middle on the route runs v2."""
    source = random.Random(seed)
    traces, stages, calls = [], [], []
    for number in range(num_traces):
        route = FAULTY_ROUTE if number % 4 else "shop.order"
        is_new = route == FAULTY_ROUTE and number >= num_traces // 2
        is_slow = is_new and has_fault
        times = {
            "prefill": source.gauss(prefill_ms if is_slow else 60.0, 12.0),
            "queue": source.expovariate(1 / 20.0),
            "network": 10.0,
            "later_decode": source.gauss(200.0, 30.0),
            "other": 50.0,
        }
        ttft_ms = times["prefill"] + times["queue"] + times["network"]
        trace_id = f"{number:032x}"
        input_tokens = source.randint(380, 420) + extra_input_tokens * is_new
        traces.append(
            {
                "trace_id": trace_id,
                "start_ns": number * 1_000_000_000,
                "route": route,
                "route_version": None,
                "prompt_version": "v2" if is_new else "v1",
                "slo_class": "interactive",
                "wall_ms": sum(times.values()),
                "input_tokens": input_tokens,
                "output_tokens": source.randint(6, 28),
                "flags": [],
            }
        )
        stages += [
            {"trace_id": trace_id, "stage": stage, "critical_ms": value, "total_ms": value}
            for stage, value in times.items()
        ]
        calls.append(
            {
                "trace_id": trace_id,
                "span_id": f"{number:016x}",
                "start_ns": number * 1_000_000_000,
                "end_ns": number * 1_000_000_000 + int(1e6 * sum(times.values())),
                "provider": "local",
                "ttft_ms": ttft_ms,
                "ttfv_ms": ttft_ms,
                "tpot_ms": times["later_decode"] / 11,
                "num_chunks": 12,
                "tokens_per_chunk": 1.0,
                "num_attempts": 1,
                "stall_ms": 0.0,
                "chunk_gap_max_ms": 30.0,
                "error_type": None,
                "input_tokens": input_tokens,
                "cached_input_tokens": 0 if is_slow else 320,
                "output_tokens": 12,
                "cache_state": "miss" if is_slow else "hit",
                "prefix_hash": f"{number:x}" if is_slow else "same",
                "request_model": "small",
            }
        )
    schema = {"route_version": pl.String, "flags": pl.List(pl.String)}
    return (
        pl.DataFrame(traces, schema_overrides=schema),
        pl.DataFrame(stages),
        pl.DataFrame(calls, schema_overrides={"error_type": pl.String}),
    )
