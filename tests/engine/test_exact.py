"""Invariant numerics: the same bits with every optimisation on or off."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from longpole_engine.config import (
    Batching,
    EngineConfig,
    KvFormat,
    Numerics,
    Policy,
    Preemption,
    Weights,
)
from longpole_engine.kv.store import KvStore, bytes_per_token
from longpole_engine.models.checkpoint import Checkpoint
from longpole_engine.runner import Rows, Runner

Drive = Callable[..., Any]

PROMPT = [(7 * i) % 500 + 3 for i in range(75)]
ANSWER = [(11 * i) % 500 + 3 for i in range(12)]
RUN = list(range(6))


def runner(model: Checkpoint, weights: Weights, kv_format: KvFormat = KvFormat.FP32) -> Runner:
    config = EngineConfig(
        weights=weights,
        numerics=Numerics.INVARIANT,
        kv_format=kv_format,
        max_model_tokens=256,
        kv_pages=64,
        num_threads=1,
    )
    return Runner(model, config)


@pytest.fixture(scope="module", params=list(Weights))
def exact(request: pytest.FixtureRequest, tiny_model: Checkpoint) -> Runner:
    return runner(tiny_model, request.param)


def logits(run: Runner, pages: list[int], sizes: list[int]) -> torch.Tensor:
    """Logits after every token: the prompt in pieces of these sizes, then the answer in steps."""
    found, start = [], 0
    for size in [*sizes, len(PROMPT)]:
        tokens = PROMPT[start : start + size]
        if tokens:
            found.append(run.prompt([Rows(pages, start, tokens, len(tokens))]))
            start += len(tokens)
    for at, token in enumerate(ANSWER, len(PROMPT)):
        found.append(run.decode([Rows(pages, at, [token], 1)]))
    return torch.cat(found)


def test_the_order_of_pages_leaves_no_trace(exact: Runner) -> None:
    expected = logits(exact, RUN, [])
    for seed in range(3):
        order = torch.randperm(64, generator=torch.Generator().manual_seed(seed)).tolist()
        assert torch.equal(logits(exact, order[:6], []), expected)


def test_the_size_of_a_prompts_pieces_leaves_no_trace(exact: Runner) -> None:
    expected = logits(exact, RUN, [])
    for size in (1, 2, 3, 7, 15, 16, 17, 31, 64, 74):
        assert torch.equal(logits(exact, RUN, [size] * (75 // size)), expected)


def test_company_leaves_no_trace(exact: Runner) -> None:
    """A row beside others, drafts among them, at any place of its batch."""
    expected = logits(exact, RUN, [])[len(PROMPT)]
    others = [list(range(8 + 6 * n, 14 + 6 * n)) for n in range(5)]
    for n, pages in enumerate(others):
        exact.prompt([Rows(pages, 0, PROMPT[: 9 * n + 5], 0)])
    beside = [Rows(pages, 9 * n + 5, ANSWER[: n + 1], n + 1) for n, pages in enumerate(others)]
    for at in range(6):
        rows = [*beside[:at], Rows(RUN, len(PROMPT), ANSWER[:1], 1), *beside[at:]]
        row = sum(part.num_logits for part in beside[:at])
        assert torch.equal(exact.decode(rows)[row], expected)


@pytest.mark.parametrize("kv_format", [KvFormat.BF16, KvFormat.INT8])
def test_smaller_formats_are_as_exact_and_close(
    tiny_model: Checkpoint, kv_format: KvFormat
) -> None:
    run = runner(tiny_model, Weights.FP32, kv_format)
    expected = logits(run, RUN, [])
    assert torch.equal(logits(run, RUN[::-1], [5, 20, 16]), expected)
    full = logits(runner(tiny_model, Weights.FP32), RUN, [])
    error = (expected - full).abs().mean() / full.abs().mean()
    assert 0 < error < 0.02


def test_int8_pages_hold_at_least_1_9_times_as_many_tokens_as_bf16_ones() -> None:
    sizes = {f: bytes_per_token(30, 3, 64, f) for f in KvFormat}
    assert sizes[KvFormat.BF16] / sizes[KvFormat.INT8] >= 1.88
    assert sizes[KvFormat.FP32] / sizes[KvFormat.INT8] >= 3.7
    for kv_format, size in sizes.items():
        assert KvStore(30, 3, 64, 1, kv_format).bytes_per_token == size


JOBS = [
    ([(31 * n + 7 * i) % 500 + 3 for i in range(20 + 13 * n)], {"seed": n, "temperature": n % 2})
    for n in range(7)
]


@pytest.fixture(scope="module")
def alone(drive: Drive) -> list[str]:
    """Each job by itself, nothing cached, nothing cut, room for all."""
    driver = drive(
        numerics=Numerics.INVARIANT, is_prefix_cached=False, is_chunked=False, max_num_seqs=1
    )
    return [
        driver.answer(prompt, max_tokens=30, is_eos_ignored=True, **params)[0]
        for prompt, params in JOBS
    ]


@settings(max_examples=12, deadline=None)
@given(
    budget=st.sampled_from([1, 3, 17, 64, 128]),
    is_chunked=st.booleans(),
    is_prefix_cached=st.booleans(),
    policy=st.sampled_from(Policy),
    batching=st.sampled_from(Batching),
    preemption=st.sampled_from(Preemption),
    kv_pages=st.sampled_from([16, 22, 64]),
)
def test_no_switch_changes_an_answer(
    drive: Drive,
    alone: list[str],
    budget: int,
    **switches: Any,
) -> None:
    driver = drive(numerics=Numerics.INVARIANT, max_step_tokens=budget, **switches)
    for _ in range(2):  # the second time on top of what is cached
        names = [
            driver.submit(prompt, max_tokens=30, is_eos_ignored=True, **params)
            for prompt, params in JOBS
        ]
        while driver.engine.step():
            driver.engine.kv.check()
        assert [driver.text(name) for name in names] == alone
    assert driver.engine.kv.pool.num_available == switches["kv_pages"]


@pytest.mark.parametrize("preemption", list(Preemption))
def test_a_pool_too_small_puts_requests_back_and_finishes_them(
    drive: Drive, alone: list[str], preemption: Preemption
) -> None:
    driver = drive(
        numerics=Numerics.INVARIANT, kv_pages=16, preemption=preemption, is_prefix_cached=False
    )
    names = [
        driver.submit(prompt, max_tokens=30, is_eos_ignored=True, **params)
        for prompt, params in JOBS
    ]
    driver.drain()
    records = [driver.records[name] for name in names]
    assert [driver.text(name) for name in names] == alone
    assert sum(record.num_preempted for record in records) > 0
    for record in records:
        record.timeline.close(record.timeline.received_ns + 10**12)
        stages = [phase.stage.value for phase in record.timeline.phases()]
        assert stages.count("queue") == 1 + record.num_preempted
        assert stages[-1] == "stream"


def test_an_exact_hit_equals_a_miss(drive: Drive) -> None:
    driver = drive(numerics=Numerics.INVARIANT)
    texts, cached = [], []
    for _ in range(2):
        text, record = driver.answer(PROMPT, temperature=1.0, seed=4, max_tokens=20)
        texts.append(text)
        cached.append(record.cached_tokens)
    assert texts[0] == texts[1]
    assert cached == [0, 64]


@pytest.mark.weights
def test_the_real_model_is_exact_too(smollm2: Checkpoint) -> None:
    run = runner(smollm2, Weights.INT4)
    assert torch.equal(logits(run, RUN[::-1], [7, 33]), logits(run, RUN, []))
