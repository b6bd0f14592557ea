"""What runs of real engines showed the rules: causes that look like one another, told apart."""

import numpy as np
import polars as pl
import pytest

from longpole_analytics.requests import from_flat, from_views
from longpole_analytics.shapes import shapes_of
from longpole_analytics.shapes._fits import theil_sen

N = 120
STAGES = ("retry_ms", "queue_ms", "network_ms", "prefill_ms", "later_decode_ms", "tool_ms")


def side(seed, n=N, **columns):
    """Calls of a quiet engine; given columns replace or add to what is usual."""
    random = np.random.default_rng(seed)
    usual = {
        "input_tokens": random.integers(400, 600, n),
        "output_tokens": random.integers(8, 14, n),
        "queue_ms": random.gamma(2.0, 0.5, n),
        "network_ms": random.gamma(20.0, 0.5, n),
        "prefill_ms": random.gamma(40.0, 1.0, n),
        "later_decode_ms": random.gamma(40.0, 0.5, n),
        "tool_ms": np.zeros(n),
        "retry_ms": np.zeros(n),
        "in_flight": random.integers(1, 3, n).astype(float),
    }
    table = {**usual, **columns}
    table["ttft_ms"] = sum(table[name] for name in STAGES[:4])
    table["e2e_ms"] = sum(table[name] for name in STAGES)
    return from_flat(pl.DataFrame(table))


def shape(**columns):
    (found,) = shapes_of(side(1), side(2, **columns))
    return found


def random(seed=3):
    return np.random.default_rng(seed)


def test_a_slower_prompt_phase_is_not_taken_for_load_because_some_come_together() -> None:
    """Those who come together wait for one another's prompts: a little, and the prompt is why."""
    in_flight = random().integers(1, 4, N).astype(float)
    found = shape(
        in_flight=in_flight,
        prefill_ms=random().gamma(40.0, 4.0, N) + 40 * in_flight,
        queue_ms=random().gamma(2.0, 0.5, N) * in_flight**2,
    )
    assert (found.name, found.sub_cause) == ("high_ttft_prefill", "slow prefill")


def test_a_queue_that_follows_the_load_is_saturation_whatever_the_prompt_phase_does() -> None:
    in_flight = random().integers(4, 20, N).astype(float)
    found = shape(in_flight=in_flight, queue_ms=in_flight * random().gamma(20.0, 1.0, N))
    assert (found.name, found.sub_cause) == ("load_saturation", "queue saturation")


def test_decoding_that_slows_with_more_load_is_the_batch_and_no_queue() -> None:
    in_flight = random().integers(6, 12, N).astype(float)
    found = shape(
        in_flight=in_flight,
        later_decode_ms=40.0 * in_flight * random().lognormal(0, 0.05, N),
        prefill_ms=random().gamma(40.0, 1.0, N) + 2 * in_flight,
    )
    assert found.name == "load_saturation"
    assert found.sub_cause.startswith("batch policy")


def test_even_load_that_grew_by_itself_is_why_all_decode_slower() -> None:
    """Eight at a time, always: no request of either window met more than the others."""
    pace = 2.0 * random().lognormal(0, 0.1, N)
    found = shape(in_flight=np.full(N, 8.0), later_decode_ms=40.0 * pace)
    assert (found.name, found.sub_cause.split(":")[0]) == ("load_saturation", "batch policy")


def test_more_in_flight_because_each_takes_longer_is_no_load() -> None:
    """Little's law: slower decoding alone makes three times the time, and at most so many more."""
    pace = 8.0 * random().lognormal(0, 0.1, N)
    found = shape(in_flight=random().integers(2, 7, N).astype(float), later_decode_ms=40.0 * pace)
    assert found.name == "high_tpot"


def test_a_wait_for_retries_is_not_one_that_nothing_explains() -> None:
    """One attempt in eleven fails: the first token is late by what was tried before."""
    retried = np.arange(N) % 11 == 0
    found = shape(retry_ms=retried * random().gamma(40.0, 10.0, N))
    assert found.name == "bad_tail"
    assert found.sub_cause.startswith("retry storm")


def test_several_stages_that_grew_explain_a_wait_together() -> None:
    """No stage makes half of it, and yet nothing of it is unexplained: the largest is named."""
    found = shape(
        queue_ms=random(4).gamma(40.0, 0.5, N),
        network_ms=random(5).gamma(40.0, 0.5, N),
        prefill_ms=random(6).gamma(50.0, 1.0, N),
    )
    assert found.name == "high_ttft_queue"


def test_a_wait_that_nobody_tells_is_neither_the_load_it_makes_nor_the_caches() -> None:
    """A provider's neighbours: all wait, hits too, and the longer some wait the more are there."""

    def hosted(seed: int, wait_ms: np.ndarray, in_flight: np.ndarray) -> pl.DataFrame:
        draw = np.random.default_rng(seed)
        tokens = draw.integers(400, 600, N)
        cached = np.where(draw.random(N) < 0.8, 300, 0)
        ttft = 0.02 * (tokens - cached) + draw.gamma(20.0, 0.1, N) + wait_ms
        decode = draw.gamma(40.0, 0.5, N)
        return from_flat(
            pl.DataFrame(
                {
                    "input_tokens": tokens,
                    "cached_input_tokens": cached,
                    "output_tokens": 12,
                    "ttft_ms": ttft,
                    "later_decode_ms": decode,
                    "e2e_ms": ttft + decode,
                    "in_flight": in_flight,
                }
            )
        )

    usual = random(7).integers(1, 3, N).astype(float)
    many = random(8).integers(1, 8, N).astype(float)
    (found,) = shapes_of(
        hosted(1, np.zeros(N), usual), hosted(2, 40 * many * random(9).lognormal(0, 0.3, N), many)
    )
    assert found.name == "high_ttft_opaque"


def test_an_engine_that_tells_only_preemptions_that_were_is_understood() -> None:
    in_flight = random().integers(1, 9, N).astype(float)
    some = [3 if each > 4 else None for each in in_flight]
    columns = {"in_flight": in_flight, "num_steps": np.full(N, 40)}
    base = side(1, **columns)
    now = side(
        2, queue_ms=in_flight * random().gamma(20.0, 1.0, N), num_preemptions=some, **columns
    )
    (found,) = shapes_of(base, now)
    assert found.name == "load_saturation"
    assert "requests are preempted" in found.sub_cause
    untold = side(1, in_flight=in_flight), now.drop("num_steps")
    assert "preempted" not in shapes_of(*untold)[0].sub_cause


def test_what_cold_requests_wait_for_is_their_start_and_not_the_network() -> None:
    cold = np.arange(N) % 6 == 0
    found = shape(
        is_cold=[True if each else None for each in cold],
        network_ms=random().gamma(20.0, 0.5, N) + 800 * cold,
    )
    assert found.name == "high_ttft_cold_start"
    (share,) = (row for row in found.evidence if row.metric == "cold_share")
    assert (share.current, share.baseline) == (pytest.approx(1 / 6), 0.0)


def test_a_longer_way_of_warm_requests_is_the_network() -> None:
    assert shape(network_ms=random().gamma(20.0, 0.5, N) + 400).sub_cause == "network"


@pytest.mark.parametrize(
    ("total", "cause"), [(300.0, "the same tools, one after another"), (900.0, "slower tools")]
)
def test_tools_in_a_row_and_slow_tools_are_told_apart_by_their_sum(total, cause) -> None:
    base = side(1, tool_ms=np.full(N, 100.0), tool_total_ms=np.full(N, 300.0))
    now = side(2, tool_ms=np.full(N, 300.0), tool_total_ms=np.full(N, total))
    (found,) = shapes_of(base, now)
    assert found.name == "workflow_slow_serial_tools"
    assert found.sub_cause.startswith(cause)


def test_a_few_answers_that_are_far_longer_are_a_tail_of_mixed_lengths() -> None:
    long = np.where(np.arange(N) % 11 == 0, 12, 1)
    found = shape(
        output_tokens=random().integers(8, 14, N) * long,
        later_decode_ms=random().gamma(40.0, 0.5, N) * long,
    )
    assert (found.name, found.sub_cause) == ("bad_tail", "mixed lengths")


def test_hits_of_a_short_prefix_do_not_explain_a_long_queue() -> None:
    """What the hits fail to save is a few milliseconds; the queue is half a second."""
    cached = {"cached_tokens": np.full(N, 320), "input_tokens": random(7).integers(360, 420, N)}
    base = side(1, prefill_ms=5 + 0.05 * cached["input_tokens"], **cached)
    now = side(
        2,
        prefill_ms=15 + 0.05 * cached["input_tokens"],
        queue_ms=random().gamma(50.0, 10.0, N),
        **cached,
    )
    (found,) = shapes_of(base, now)
    assert (found.name, found.sub_cause.split(";")[0]) == ("high_ttft_queue", "queue")


def test_a_slope_is_told_by_pairs_that_lie_apart() -> None:
    """Nine tenths of the points are hits: among them there is noise and no slope."""
    noise = random()
    x = np.concatenate((noise.uniform(20, 30, 90), noise.uniform(600, 640, 10)))
    y = 5 + 0.1 * x + noise.normal(0, 3, 100)
    assert theil_sen(x, y) == pytest.approx(0.1, rel=0.1)


def test_the_views_tell_what_all_tools_took_together() -> None:
    traces = pl.DataFrame({"trace_id": ["a"], "start_ns": [1], "wall_ms": [500.0], "flags": [[]]},
                          schema_overrides={"flags": pl.List(pl.String)})  # fmt: skip
    stages = pl.DataFrame(
        {"trace_id": ["a"], "stage": ["tool"], "critical_ms": [100.0], "total_ms": [300.0]}
    )
    calls = pl.DataFrame(
        schema={
            **dict.fromkeys(("trace_id", "provider", "request_model", "error_type"), pl.String),
            **dict.fromkeys(("start_ns", "end_ns", "num_chunks", "num_attempts"), pl.Int64),
            **dict.fromkeys(("input_tokens", "cached_input_tokens", "output_tokens"), pl.Int64),
            **dict.fromkeys(("ttft_ms", "ttfv_ms", "tpot_ms", "stall_ms"), pl.Float64),
            **dict.fromkeys(("chunk_gap_max_ms", "tokens_per_chunk"), pl.Float64),
        }
    )
    found = from_views(traces, stages, calls)
    assert found["tool_ms"].to_list() == [100.0]
    assert found["tool_total_ms"].to_list() == [300.0]


def test_longer_prompts_of_hits_alone_are_a_mix_and_not_hits_without_use() -> None:
    """Every prompt finds the same beginning: no line tells what the long ones would have cost."""
    tokens = random(7).integers(360, 420, N)
    base = side(1, input_tokens=tokens, cached_tokens=np.full(N, 320),
                prefill_ms=3 + 0.1 * (tokens - 320))  # fmt: skip
    long = tokens + random(8).integers(400, 800, N)
    now = side(2, input_tokens=long, cached_tokens=np.full(N, 320),
               prefill_ms=3 + 0.1 * (long - 320))  # fmt: skip
    (found,) = shapes_of(base, now)
    assert (found.name, found.sub_cause) == ("mix_longer_inputs", "inputs grew")


def test_a_tool_that_is_slow_for_one_in_eleven_is_its_tail_though_no_quantile_is_sure() -> None:
    slow = np.where(np.arange(110) % 11 == 5, 8.0, 1.0)
    base = side(1, n=110, tool_ms=random(4).uniform(80, 160, 110))
    now = side(2, n=110, tool_ms=random(5).uniform(80, 160, 110) * slow)
    (found,) = shapes_of(base, now)
    assert (found.name, found.sub_cause.split(";")[0]) == ("bad_tail", "tool tail")
