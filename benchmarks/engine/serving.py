"""What paging, caching, chunking and batching are worth, and what planning costs."""

from __future__ import annotations

import time
from collections.abc import Callable
from random import Random
from statistics import median, quantiles

import torch
from benchmarks.bars import Bar
from benchmarks.engine.bench import Bench
from benchmarks.engine.driver import Driver, words
from torch import Tensor
from torch.nn import functional

from longpole_engine.config import Batching, EngineConfig, Numerics
from longpole_engine.runner import Rows, Runner
from longpole_engine.telemetry.events import now_ns
from longpole_engine.telemetry.steps import Part

Timed = Callable[[], float]


def paged(bench: Bench) -> list[Bar]:
    """Decode step of 8 sequences of 512 tokens on scattered pages, over the same on plain runs."""
    config = EngineConfig(
        max_num_seqs=8,
        max_model_tokens=1024,
        is_prefix_cached=False,
        num_threads=bench.threads,
        num_decode_threads=bench.threads,
    )
    runner = Runner(bench.model, config)
    order = list(range(512))
    Random(1).shuffle(order)  # noqa: S311 - only has to be the same each time
    tables = [order[64 * row : 64 * row + 64] for row in range(8)]
    runner.prompt([Rows(table, 0, words(1, 512), 0) for table in tables])
    plain = _Plain(bench, 8, 600)

    def step_paged() -> float:
        begun = time.perf_counter()
        for at in range(512, 528):
            runner.decode([Rows(table, at, [5], 1) for table in tables])
        return time.perf_counter() - begun

    def step_plain() -> float:
        begun = time.perf_counter()
        for at in range(512, 528):
            plain.end = at + 1
            _decode(runner, [5] * 8, at, plain)
        return time.perf_counter() - begun

    first, second = _in_turns(bench, step_paged, step_plain)
    sides: dict[str, float | str] = {"paged_ms": first / 16e-3, "contiguous_ms": second / 16e-3}
    return [Bar("paged / contiguous", first / second, "x", "<=", 1.25, sides)]


class _Plain:
    """Attention over one dense tensor a layer: all sequences of one length."""

    def __init__(self, bench: Bench, rows: int, num_tokens: int) -> None:
        c = bench.model.config
        self._kv = torch.randn(c.num_layers, rows, num_tokens, 2, c.num_kv_heads, c.head_dim)
        self.end = 0

    def __call__(self, layer: int, q: Tensor, kv: Tensor) -> Tensor:
        mine = self._kv[layer]
        mine[:, self.end - 1] = kv
        keys, values = mine[:, : self.end].permute(2, 0, 3, 1, 4).unbind()
        q = q.view(q.shape[0], kv.shape[2], -1, q.shape[2])
        return functional.scaled_dot_product_attention(q, keys, values).flatten(1)


@torch.inference_mode()
def _decode(runner: Runner, tokens: list[int], at: int, attention: _Plain) -> None:
    model = runner._model
    positions = torch.full((len(tokens),), at)
    model.logits(model.decode(torch.tensor(tokens), positions, attention))


def prefix(bench: Bench) -> list[Bar]:
    """Time to first token of 512 shared tokens and 32 new ones, over that of 544 new ones."""
    driver = Driver(bench.model, bench.threads)
    shared = words(1, 512)
    driver.submit([*shared, 7], 1)
    driver.drain()
    hits, misses = [], []
    for number in range(2, 2 + max(3, bench.rounds)):
        for found, prompt in (
            (misses, words(100 + number, 544)),
            (hits, [*shared, *words(200 + number, 32)]),
        ):
            name = driver.submit(prompt, 1)
            driver.drain()
            found.append(driver.ttft_s(name))
    hit, miss = median(hits), median(misses)
    sides: dict[str, float | str] = {"hit_ms": hit * 1e3, "miss_ms": miss * 1e3}
    return [Bar("ttft hit / miss", hit / miss, "x", "<=", 0.15, sides)]


def chunks(bench: Bench) -> list[Bar]:
    """What four running streams feel when a prompt of 2,048 tokens arrives."""
    found: dict[bool, tuple[float, float]] = {}
    for is_chunked in (True, False):
        driver = Driver(bench.model, bench.threads, is_chunked=is_chunked)
        streams = [driver.submit(words(number, 40), 60) for number in range(4)]
        for _ in range(20):
            driver.engine.step()
        long = driver.submit(words(9, 2048), 4)
        driver.drain()
        gaps = [
            after - before
            for name in streams
            for before, after in zip(driver.times[name], driver.times[name][1:], strict=False)
        ]
        found[is_chunked] = quantiles(gaps, n=100)[98], driver.ttft_s(long)
    (on, ttft_on), (off, ttft_off) = found[True], found[False]
    gaps_ms: dict[str, float | str] = {"on_p99_ms": on * 1e3, "off_p99_ms": off * 1e3}
    firsts: dict[str, float | str] = {"on_ttft_s": ttft_on, "off_ttft_s": ttft_off}
    return [
        Bar("itl p99 chunked / whole", on / off, "x", "<=", 0.15, gaps_ms),
        Bar("long ttft chunked / whole", ttft_on / ttft_off, "x", "<=", 1.2, firsts),
    ]


def batching(bench: Bench) -> list[Bar]:
    """Three times seven answers of 50 tokens and one of 400: continuous over static."""
    spans: dict[Batching, float] = {}
    texts: dict[Batching, list[str]] = {}
    for kind in Batching:
        driver = Driver(bench.model, bench.threads, batching=kind, numerics=Numerics.FAST)
        for number in range(24):
            driver.submit(words(number, 16), 400 if number % 8 == 0 else 50)
        spans[kind] = driver.drain()
        texts[kind] = list(driver.texts.values())
    num_tokens = 3 * (7 * 50 + 400)
    pairs = zip(texts[Batching.STATIC], texts[Batching.CONTINUOUS], strict=True)
    sides: dict[str, float | str] = {
        f"{kind.value}_tokens_s": num_tokens / span for kind, span in spans.items()
    }
    sides["answers_that_differ"] = sum(one != other for one, other in pairs)
    gain = spans[Batching.STATIC] / spans[Batching.CONTINUOUS]
    return [Bar("continuous / static", gain, "x", ">=", 1.5, sides)]


def share(bench: Bench) -> list[Bar]:
    """Part of a step that is neither the model's nor the sampler's, at 8 sequences."""
    driver = Driver(bench.model, bench.threads)
    for number in range(8):
        driver.submit(words(number, 64), 120)
    for _ in range(10):
        driver.engine.step()
    begun_ns = now_ns()
    total = driver.drain()
    inside_ns = 0
    for step in driver.engine.steps.between(begun_ns, now_ns()):
        starts_ns = [step.start_ns, *(mark.end_ns for mark in step.marks)]
        for start_ns, mark in zip(starts_ns, step.marks, strict=False):
            if mark.part in (Part.PREFILL, Part.DECODE, Part.SAMPLE):
                inside_ns += mark.end_ns - start_ns
    sides: dict[str, float | str] = {"total_s": total, "model_and_sampler_s": inside_ns / 1e9}
    return [Bar("scheduler share of a step", 1 - inside_ns / 1e9 / total, "x", "<=", 0.05, sides)]


def invariant(bench: Bench) -> list[Bar]:
    """What exactness costs: fast over invariant numerics."""
    made = {
        numerics: Driver(bench.model, bench.threads, numerics=numerics, is_prefix_cached=False)
        for numerics in Numerics
    }

    def decode(driver: Driver) -> Timed:
        def run() -> float:
            for number in range(4):
                driver.submit(words(number, 8), 40)
            driver.engine.step()
            return driver.drain()

        return run

    def prefill(driver: Driver) -> Timed:
        def run() -> float:
            driver.submit(words(1, 256), 1)
            return driver.drain()

        return run

    bars = []
    for name, job, need in (("decode", decode, 0.8), ("prefill", prefill, 0.55)):
        fast, exact = _in_turns(bench, job(made[Numerics.FAST]), job(made[Numerics.INVARIANT]))
        sides: dict[str, float | str] = {"fast_s": fast, "invariant_s": exact}
        bars.append(Bar(f"{name} fast / invariant", fast / exact, "x", ">=", need, sides))
    return bars


def _in_turns(bench: Bench, first: Timed, second: Timed) -> tuple[float, float]:
    """Best of both, taken in turns."""
    pairs = [(first(), second()) for _ in range(bench.rounds)]
    return min(one for one, _ in pairs), min(two for _, two in pairs)
