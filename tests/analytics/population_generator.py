"""Made-up requests in two periods with one cause a slice, and the right answer for each.

After the description of ``populations.parquet``: a stage model of a request (retrieval, tools,
queue, prefill, network, decoding, client) whose levels, lengths, noise and number differ from
slice to slice. ``strength`` in [0, 1] says how strong the cause is.
"""

import numpy as np
import polars as pl

LABELS = (
    "normal",
    "mix_longer_inputs",
    "mix_longer_outputs",
    "high_ttft_queue",
    "high_ttft_prefill",
    "high_ttft_cold_start",
    "high_ttft_retrieval",
    "high_tpot",
    "bad_tail",
    "client_slow",
    "workflow_slow_serial_tools",
    "workflow_slow_retries",
    "load_saturation",
    "cache_hit_no_speedup",
)
TRAPS = LABELS[:3]


def populations(seed, per_label=4, *, n=(200, 600), min_strength=0.0, max_curve=0.0):
    """A flat table of requests with ``slice_id`` and ``period``, and the label of each slice.

    ``max_curve`` is how much longer prefill may take at three times the usual input than a line
    says, as a share.
    """
    random = np.random.default_rng(seed)
    frames, labels = [], {}
    for label in LABELS:
        for _ in range(per_label):
            slice_id = len(labels)
            labels[str(slice_id)] = label
            strength = random.uniform(min_strength, 1.0)
            usual = _usual(random, label) | {"curve": random.uniform(0.0, max_curve)}
            for period in (0, 1):
                cause = label if period else "normal"
                size = int(random.integers(n[0], n[1] + 1))
                rows = _requests(random, usual, size, cause, strength)
                frames.append(
                    pl.DataFrame(rows).with_columns(
                        pl.lit(slice_id).alias("slice_id"), pl.lit(period).alias("period")
                    )
                )
    return pl.concat(frames), labels


def _usual(random, label):
    """What a slice is like when nothing is wrong."""
    hits = random.uniform(0.4, 0.75) if label == "cache_hit_no_speedup" else random.uniform(0, 0.7)
    return {
        "input": random.uniform(600, 6000),
        "input_spread": random.uniform(0.4, 0.9),
        "output": random.uniform(60, 400),
        "output_spread": random.uniform(0.4, 0.8),
        "hits": hits,
        "in_flight": random.uniform(2.0, 8.0),
        "load_spread": random.uniform(0.3, 0.5),
        "queue": random.uniform(2.0, 5.0),
        "prefill": random.uniform(0.08, 0.35),
        "prefill_noise": random.uniform(0.06, 0.2),
        "network": random.uniform(15, 120),
        "tpot": random.uniform(9, 50),
        "tpot_noise": random.uniform(0.03, 0.1),
        "batch": random.uniform(0.015, 0.03),
        "cold": random.uniform(0.0, 0.006),
        "cold_ms": random.uniform(2500, 5000),
        "retrieval": random.choice((0.0, random.uniform(60, 150))),
        "retrieves": random.uniform(0.5, 1.0),
        "tools": random.choice((0.0, 0.5, 1.0, 2.0)),
        "tool_ms": random.uniform(200, 300),
        "retries": random.uniform(0.0, 0.02),
    }


def _requests(random, usual, n, cause, strength):
    """One side of a slice."""
    longer_in = 2.0 + 2.0 * strength if cause == "mix_longer_inputs" else 1.0
    longer_out = 2.0 + 1.5 * strength if cause == "mix_longer_outputs" else 1.0
    inputs = usual["input"] * longer_in * random.lognormal(0, usual["input_spread"], n)
    inputs = np.maximum(inputs, 30).round()
    outputs = usual["output"] * longer_out * random.lognormal(0, usual["output_spread"], n)
    outputs = np.maximum(outputs, 2).round()
    hits = random.random(n) < (1.0 if cause == "cache_hit_no_speedup" else usual["hits"])
    cached = np.where(hits, inputs * random.uniform(0.4, 0.95, n) // 128 * 128, 0)
    busier = 2.2 + 1.3 * strength if cause == "load_saturation" else 1.0
    shape = 1 / usual["load_spread"] ** 2
    in_flight = np.maximum(random.gamma(shape, usual["in_flight"] * busier / shape, n), 1.0)
    paid = inputs - cached
    slower = 1.7 + 1.5 * strength if cause == "high_ttft_prefill" else 1.0
    if cause == "cache_hit_no_speedup":
        paid = inputs
    cold = random.random(n) < (
        0.3 + 0.3 * strength if cause == "high_ttft_cold_start" else usual["cold"]
    )
    noise = random.lognormal(0, usual["prefill_noise"], n)
    bend = 1 + usual["curve"] * paid / (3 * usual["input"])
    prefill = (15 + usual["prefill"] * slower * paid * bend) * noise
    prefill = prefill + cold * usual["cold_ms"] * random.lognormal(0, 0.25, n)
    per_load = usual["queue"] * (1.0 + 0.6 * strength if cause == "load_saturation" else 1.0)
    crowd = in_flight / usual["in_flight"] if cause == "load_saturation" else 1.0
    queue = in_flight * crowd * per_load * random.exponential(1.0, n)
    if cause == "high_ttft_queue":
        queue = queue + random.gamma(2.5, (250 + 350 * strength) / 2.5, n)
    tpot = usual["tpot"] * (1 + usual["batch"] * (in_flight - usual["in_flight"]))
    tpot = tpot * random.lognormal(0, usual["tpot_noise"], n)
    if cause == "load_saturation":
        tpot = tpot * (1.1 + 0.15 * strength)
    if cause == "high_tpot":
        tpot = tpot * (1.5 + 0.8 * strength)
    tail = random.random(n) < (0.035 + 0.04 * strength if cause == "bad_tail" else 0.0)
    tpot = np.where(tail, tpot * random.uniform(2.0, 2.8, n), tpot)
    prefill = np.where(tail, prefill * random.uniform(2.0, 4.0, n), prefill)
    return _finished(
        random,
        usual,
        cause,
        strength,
        inputs,
        cached,
        outputs,
        in_flight,
        cold,
        queue,
        prefill,
        tpot,
    )


def _finished(
    random, usual, cause, strength, inputs, cached, outputs, in_flight, cold, queue, prefill, tpot
):
    n = len(inputs)
    network = usual["network"] * random.lognormal(0, 0.25, n)
    ttft = queue + prefill + network + tpot
    decode = tpot * (outputs - 1)
    does = usual["retrieval"] > 0
    retrieval = (random.random(n) < usual["retrieves"]) * does * usual["retrieval"]
    retrieval = retrieval * random.lognormal(0, 0.4, n)
    if cause == "high_ttft_retrieval":
        retrieval = retrieval + (500 + 800 * strength) * random.lognormal(0, 0.3, n)
    tools = random.poisson(usual["tools"] + (3 + 3 * strength) * (cause == LABELS[10]), n)
    tool = tools * usual["tool_ms"] * random.lognormal(0, 0.25, n)
    retried = random.random(n) < (
        0.4 + 0.2 * strength if cause == "workflow_slow_retries" else usual["retries"]
    )
    retry = retried * (1500 + 1500 * strength) * random.lognormal(0, 0.3, n)
    client = 25 * random.lognormal(0, 0.3, n)
    if cause == "client_slow":
        client = client + (500 + 700 * strength) * random.lognormal(0, 0.4, n)
    validation = 30 * random.lognormal(0, 0.3, n)
    return {
        "input_tokens": inputs.astype(np.int64),
        "cached_tokens": cached.astype(np.int64),
        "output_tokens": outputs.astype(np.int64),
        "in_flight": in_flight,
        "cold": cold,
        "queue_ms": queue,
        "prefill_ms": prefill,
        "network_ms": network,
        "ttft_ms": ttft,
        "decode_ms": decode,
        "model_ms": ttft + decode,
        "retrieval_ms": retrieval,
        "tools": tools,
        "tool_ms": tool,
        "validation_ms": validation,
        "retry_ms": retry,
        "client_ms": client,
        "e2e_ms": ttft + decode + retrieval + tool + validation + retry + client,
    }


def macro_f1(true, told):
    """The mean over labels of the harmonic mean of precision and recall."""
    scores = []
    for label in sorted(set(true)):
        hits = sum(t == label == s for t, s in zip(true, told, strict=True))
        wrong = sum((t == label) != (s == label) for t, s in zip(true, told, strict=True))
        scores.append(2 * hits / (2 * hits + wrong) if hits else 0.0)
    return sum(scores) / len(scores)


def false_alarms(true, told):
    """Slices without a cause that got another name."""
    return sum(t in TRAPS and s != t for t, s in zip(true, told, strict=True))
