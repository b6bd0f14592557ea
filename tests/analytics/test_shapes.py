"""Shapes of populations: the given one, made-up ones, and what each rule must tell apart."""

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from tests.analytics.population_generator import (
    TRAPS,
    false_alarms,
    macro_f1,
    populations,
)

from longpole.errors import UsageError
from longpole_analytics.requests import from_flat
from longpole_analytics.shapes import ShapeRules, shapes_of
from longpole_analytics.shapes.base import NAMES

DATA = Path(__file__).parent / "data"
ONLY_CLIENT = ["slice_id", "period", "ttft_ms", "e2e_ms", "input_tokens", "output_tokens"]
FLOOR_F1 = 0.95


def judged(frame, by=("slice_id",), rules=None):
    requests = from_flat(frame)
    sides = (requests.filter(pl.col("period") == period) for period in ("0", "1"))
    return shapes_of(*sides, by, rules)


def names(shapes):
    return {shape.where["slice_id"]: shape.name for shape in shapes}


def scored(frame, labels):
    told = names(judged(frame))
    pairs = [(label, told[slice_id]) for slice_id, label in labels.items()]
    true, said = zip(*pairs, strict=True)
    return macro_f1(true, said), false_alarms(true, said)


def test_the_given_population_is_classified() -> None:
    rows = pl.read_csv(DATA / "populations_labels.csv")
    labels = {str(slice_id): label for slice_id, label, _ in rows.iter_rows()}
    f1, alarms = scored(pl.read_parquet(DATA / "populations.parquet"), labels)
    assert f1 >= FLOOR_F1
    assert alarms <= 1


@pytest.mark.parametrize("seed", range(5))
def test_made_up_populations_are_classified(seed: int) -> None:
    f1, alarms = scored(*populations(seed))
    assert f1 >= FLOOR_F1
    assert alarms <= 1


@pytest.mark.parametrize(
    "how", [{"n": (800, 1500)}, {"max_curve": 0.6}, {"n": (250, 250)}, {"n": (100, 250)}]
)
def test_other_sizes_and_a_bent_prefill_are_classified_too(how: dict[str, object]) -> None:
    f1, alarms = scored(*populations(11, **how))
    assert f1 >= FLOOR_F1
    assert alarms <= 1


@pytest.mark.parametrize("seed", [200, 201])
def test_longer_requests_of_unknown_length_are_no_slowness(seed: int) -> None:
    frame, labels = populations(seed)
    unknown = np.random.default_rng(seed).random((frame.height, frame.width)) < 0.2
    kept = ("slice_id", "period", "e2e_ms")
    holes = frame.with_columns(
        pl.when(pl.Series(unknown[:, place])).then(None).otherwise(pl.col(name)).alias(name)
        for place, name in enumerate(frame.columns)
        if name not in kept
    )
    f1, alarms = scored(holes, labels)
    assert f1 >= FLOOR_F1
    assert alarms <= 1


def test_halves_of_one_population_are_normal() -> None:
    frame, labels = populations(3, n=(400, 600))
    same = frame.filter(pl.col("period") == 0).with_columns(
        period=pl.int_range(pl.len()).over("slice_id") % 2
    )
    told = names(judged(same))
    assert sum(name != "normal" for name in told.values()) <= 0.05 * len(labels)


def test_without_flags_for_cold_starts_most_are_still_seen() -> None:
    for seed in (5, 200, 202):
        frame, labels = populations(seed)
        told = names(judged(frame.drop("cold")))
        cold = [told[key] for key, label in labels.items() if label == "high_ttft_cold_start"]
        assert cold.count("high_ttft_cold_start") >= len(cold) - 1


def test_what_a_client_alone_knows_still_tells_the_mix_and_the_model() -> None:
    frame, labels = populations(6)
    told = names(judged(frame.select(ONLY_CLIENT)))
    for key, label in labels.items():
        if label in TRAPS or label == "high_tpot":
            assert told[key] == label
        if label in ("high_ttft_queue", "high_ttft_prefill"):
            assert told[key] == "high_ttft_opaque"


def test_same_input_same_seed_same_bytes() -> None:
    frame, _ = populations(7, per_label=1)
    first, again = (json.dumps([s.document() for s in judged(frame)]) for _ in range(2))
    assert first == again
    mixed = frame.sample(fraction=1.0, shuffle=True, seed=3)
    assert [s.name for s in judged(mixed)] == [s.name for s in judged(frame)]


def test_every_verdict_carries_evidence_and_the_next_check() -> None:
    frame, labels = populations(8, per_label=1)
    for shape in judged(frame):
        document = shape.document()
        assert {"where", "shape", "sub_cause", "evidence", "next_check", "also"} < set(document)
        assert document["shape"] in NAMES
        assert document["evidence"]
        for row in document["evidence"]:
            assert row["n"] > 0
            assert (row["ci95"] is None) or row["ci95"][0] <= row["ratio"] <= row["ci95"][1]
        if labels[shape.where["slice_id"]] != "normal":
            assert document["next_check"]
            assert document["sub_cause"]
            assert document["evidence"][0]["current"] is not None


# --- single rules ---------------------------------------------------------------------------------
def calls(n=300, seed=0, **columns):
    """Requests of one kind; a column is an array, or a number for all."""
    random = np.random.default_rng(seed)
    noise = random.lognormal(0, 0.05, (3, n))
    base = {
        "input_tokens": random.integers(500, 3000, n),
        "output_tokens": random.integers(50, 400, n),
        "cached_tokens": np.zeros(n, dtype=np.int64),
        "queue_ms": 10 * noise[0],
        "network_ms": 20 * noise[1],
        "tpot_ms": 20 * noise[2],
        "tool_ms": 0.0,
        "retry_ms": 0.0,
        "client_ms": 20.0,
    }
    base["prefill_ms"] = 20 + 0.1 * base["input_tokens"] * noise[2]
    return base | columns


def finished(columns):
    """A table with the sums that follow."""
    found = {name: np.broadcast_to(np.asarray(v), (300,)) for name, v in columns.items()}
    ttft = found["queue_ms"] + found["network_ms"] + found["prefill_ms"]
    found.setdefault("ttft_ms", ttft)
    found["decode_ms"] = found["tpot_ms"] * (found["output_tokens"] - 1)
    parts = ("decode_ms", "tool_ms", "retry_ms", "client_ms")
    found.setdefault("e2e_ms", found["ttft_ms"] + sum(found[part] for part in parts))
    return pl.DataFrame({name: np.array(values) for name, values in found.items()})


def shape(current, base=None, rules=None):
    sides = [from_flat(finished(side)) for side in (base or calls(), current)]
    (found,) = shapes_of(*sides, (), rules)
    return found


def test_a_lost_prompt_cache_is_slow_prefill_and_no_longer_input() -> None:
    base, now = calls(), calls(seed=1)
    base["cached_tokens"] = base["input_tokens"] * 8 // 10
    base["prefill_ms"] = 20 + 0.3 * (base["input_tokens"] - base["cached_tokens"])
    now["prefill_ms"] = 20 + 0.3 * now["input_tokens"]
    found = shape(now, base)
    assert (found.name, found.sub_cause.split(";")[0]) == ("high_ttft_prefill", "prompt cache lost")


def test_a_buffering_proxy_is_the_clients_side() -> None:
    now = calls(seed=1)
    whole = 50 + 20 * now["output_tokens"]
    now |= {"ttft_ms": whole, "tpot_ms": 0.2, "tokens_per_chunk": 40.0, "queue_ms": 10.0}
    found = shape(now, calls() | {"tokens_per_chunk": 1.0})
    assert (found.name, found.sub_cause) == ("client_slow", "proxy buffering")


def test_a_slow_network_is_the_clients_side() -> None:
    found = shape(calls(seed=1, network_ms=900.0))
    assert (found.name, found.sub_cause) == ("client_slow", "network")


def test_retries_of_few_are_a_tail_and_of_many_a_slow_workflow() -> None:
    retried = np.arange(300)
    few = shape(calls(seed=1, retry_ms=np.where(retried % 16 == 0, 20_000.0, 0.0)))
    assert (few.name, few.sub_cause) == ("bad_tail", "retry storm")
    many = shape(calls(seed=1, retry_ms=np.where(retried % 3 == 0, 20_000.0, 0.0)))
    assert many.name == "workflow_slow_retries"


def test_waiting_for_a_person_and_slower_tools_are_told_apart() -> None:
    waits = shape(calls(seed=1, human_wait_ms=9_000.0), calls(human_wait_ms=10.0))
    assert (waits.name, waits.sub_cause) == ("workflow_slow_wait", "a person's answer")
    tools = {"tool_ms": 400.0, "tools": 2}
    found = shape(calls(seed=1, tool_ms=3000.0, tools=2), calls(**tools))
    assert (found.name, found.sub_cause) == ("workflow_slow_serial_tools", "slower tools")
    more = shape(calls(seed=1, tool_ms=3000.0, tools=9), calls(**tools))
    assert more.sub_cause == "more tools one after another"


def test_slow_decoding_with_load_is_contention_unless_there_is_more_load() -> None:
    random = np.random.default_rng(4)
    load = random.gamma(4.0, 2.0, 300) + 1
    base = calls(in_flight=load, tpot_ms=20 * random.lognormal(0, 0.05, 300))
    now = calls(seed=1, in_flight=load, tpot_ms=30 + 2 * load)
    found = shape(now, base)
    assert (found.name, found.sub_cause.split(";")[0]) == ("high_tpot", "contention")
    crowded = calls(seed=1, in_flight=3 * load, tpot_ms=20 + 2 * load)
    found = shape(crowded, base)
    assert found.name == "load_saturation"
    assert found.sub_cause.startswith("batch policy")


def test_stalls_are_named() -> None:
    slow = calls(seed=1, tpot_ms=60.0)
    slow["stall_ms"] = 40.0 * slow["output_tokens"]
    found = shape(slow, calls(stall_ms=0.0))
    assert (found.name, found.sub_cause) == ("high_tpot", "stalls")


def test_only_a_longer_whole_is_opaque_and_not_normal() -> None:
    sides = [
        from_flat(pl.DataFrame({"e2e_ms": level * np.random.default_rng(1).lognormal(0, 0.1, 300)}))
        for level in (1000.0, 2000.0)
    ]
    (found,) = shapes_of(*sides)
    assert (found.name, found.sub_cause) == ("high_ttft_opaque", "no stage explains it")


def test_a_faster_side_is_normal() -> None:
    assert shape(calls(), calls(seed=1, tpot_ms=60.0)).name == "normal"


def test_thresholds_are_configuration() -> None:
    now = calls(seed=1)
    now["tpot_ms"] = now["tpot_ms"] * 1.5
    assert shape(now).name == "high_tpot"
    assert shape(now, rules=ShapeRules(min_ratio=2.0)).name == "normal"
    with pytest.raises(UsageError, match="num_replicates"):
        ShapeRules(num_replicates=5)


def test_weights_count() -> None:
    half = np.arange(300) % 2 == 0
    slow = calls(seed=1, tpot_ms=np.where(half, 60.0, 20.0))
    assert shape(slow | {"weight": np.where(half, 1.0, 9.0)}).name != "high_tpot"
    assert shape(slow | {"weight": np.where(half, 9.0, 1.0)}).name == "high_tpot"
