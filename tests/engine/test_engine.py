from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from longpole.errors import UsageError
from longpole.vocab import Stage
from longpole_engine.config import EngineConfig, Numerics, Weights
from longpole_engine.models.checkpoint import Checkpoint
from longpole_engine.text.tokenizer import Tokenizer
from longpole_engine.types import FinishReason, QueueFull

Drive = Callable[..., Any]

SHARED = list(range(100, 164))


def test_a_request_ends_at_its_length_with_all_stages_entered(drive: Drive) -> None:
    driver = drive()
    _, record = driver.answer([5, 6, 7], max_tokens=5, is_eos_ignored=True)
    assert record.finish_reason == "length"
    assert (record.output_tokens, record.num_steps, record.num_decode_steps) == (5, 5, 4)
    record.timeline.close(record.timeline.received_ns + 10**12)
    assert [phase.stage for phase in record.timeline.phases()] == [
        Stage.ADMISSION,
        Stage.QUEUE,
        Stage.PREFILL,
        Stage.FIRST_DECODE,
        Stage.LATER_DECODE,
        Stage.STREAM,
    ]


@settings(max_examples=15, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(1, 40), st.integers(1, 12), st.integers(0, 3)),
        min_size=1,
        max_size=9,
    )
)
def test_company_in_the_batch_changes_no_answer(
    drive: Drive, jobs: list[tuple[int, int, int]]
) -> None:
    """Seats fill and empty; each request still answers as it does alone."""
    together = drive(numerics=Numerics.INVARIANT)
    alone = drive(numerics=Numerics.INVARIANT, is_prefix_cached=False)
    names = []
    for number, (length, max_tokens, delay) in enumerate(jobs):
        prompt = [(7 * number + i) % 500 + 3 for i in range(length)]
        params = {"max_tokens": max_tokens, "seed": number, "temperature": number % 2}
        names.append((together.submit(prompt, **params), prompt, params))
        for _ in range(delay):
            together.engine.step()
    together.drain()
    for name, prompt, params in names:
        text, record = alone.answer(prompt, **params)
        assert together.text(name) == text
        assert together.records[name].finish_reason == record.finish_reason


def test_a_cached_prefix_changes_the_work_and_not_the_answer(drive: Drive) -> None:
    driver = drive()
    prompt = [*SHARED, 7, 8, 9]
    cold, first = driver.answer(prompt)
    warm, second = driver.answer(prompt)
    _, other = driver.answer([*SHARED[:40], 1, 2, 3, 4, 5, 6, 7, 8, 9])
    uncached, never = drive(is_prefix_cached=False).answer(prompt)
    assert cold == warm == uncached
    assert [r.cached_tokens for r in (first, second, other, never)] == [0, 64, 32, 0]
    assert [r.cache_state for r in (first, second, other, never)] == [
        "miss",
        "hit",
        "partial",
        "ineligible",
    ]
    assert driver.answer([1] * 16)[1].cache_state == "ineligible"


def test_batch_mates_are_counted(drive: Drive) -> None:
    driver = drive()
    names = [driver.submit([n + 3], max_tokens=4, is_eos_ignored=True) for n in range(2)]
    driver.drain()
    first, second = (driver.records[name] for name in names)
    assert (first.decode_rows, first.num_decode_steps) == (2 + 2 + 2, 3)
    assert (second.decode_rows, second.num_decode_steps) == (2 + 2 + 2, 3)


def test_a_stop_string_ends_an_answer_before_it(drive: Drive) -> None:
    driver = drive()
    free, _ = driver.answer([5, 6, 7], max_tokens=30, is_eos_ignored=True)
    stop = free[4:7]
    cut, record = driver.answer([5, 6, 7], max_tokens=30, stop=(stop,))
    assert cut == free[: free.index(stop)]
    assert record.finish_reason == "stop"


def test_the_end_token_ends_an_answer_unless_ignored(drive: Drive) -> None:
    driver = drive()
    sampled = {"temperature": 2.0, "max_tokens": 200}
    seed, record = next(
        (seed, record)
        for seed in range(50)
        if (record := driver.answer([5], seed=seed, **sampled)[1]).finish_reason == "stop"
    )
    short, _ = driver.answer([5], seed=seed, **sampled)
    full, ignored = driver.answer([5], seed=seed, is_eos_ignored=True, **sampled)
    assert record.output_tokens < ignored.output_tokens == 200
    assert full.startswith(short.rstrip("\ufffd"))


def test_an_answer_ends_where_the_context_ends(drive: Drive) -> None:
    driver = drive(max_model_tokens=32)
    _, record = driver.answer([9] * 20, max_tokens=1000, is_eos_ignored=True)
    assert record.output_tokens == 12
    assert record.finish_reason == "length"


def test_a_full_queue_refuses_and_recovers(drive: Drive) -> None:
    driver = drive(max_queue=2)
    names = [driver.submit([5], max_tokens=2) for _ in range(2)]
    with pytest.raises(QueueFull, match="2 requests are waiting"):
        driver.submit([5])
    driver.drain()
    names.append(driver.submit([5], max_tokens=2))
    driver.drain()
    assert all(driver.chunks[name][-1].finish for name in names)


def test_an_abort_frees_the_slot_at_the_next_step(drive: Drive) -> None:
    driver = drive(max_num_seqs=2)
    expected, _ = driver.answer([8, 8], max_tokens=12, is_eos_ignored=True)
    names = [driver.submit([8, 8], max_tokens=12, is_eos_ignored=True) for _ in range(4)]
    for _ in range(3):
        driver.engine.step()
    driver.engine.abort(names[0])  # running, in the first slot
    driver.engine.abort(names[3])  # waiting
    driver.engine.abort("nobody")
    driver.drain()
    assert [driver.text(names[n]) for n in (1, 2)] == [expected] * 2
    for n in (0, 3):
        assert all(chunk.finish is None for chunk in driver.chunks[names[n]])


def test_a_failed_step_fails_its_requests_and_not_the_engine(
    drive: Drive, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    driver = drive()
    expected, _ = driver.answer([5, 6])
    name = driver.submit([5, 6])

    def broken(*_: object) -> torch.Tensor:
        raise RuntimeError("planted")

    with monkeypatch.context() as patch:
        patch.setattr(driver.engine._runner, "decode", broken)
        driver.drain()
    assert driver.chunks[name][-1].finish is FinishReason.ERROR
    assert driver.records[name].error_type == "engine_error"
    assert driver.engine.num_failed_steps == 1
    assert "planted" in caplog.text
    assert driver.answer([5, 6])[0] == expected


def test_the_same_seed_gives_the_same_answer(drive: Drive) -> None:
    driver = drive()
    answers = [
        driver.answer([5], temperature=1.0, seed=seed, max_tokens=20)[0] for seed in (1, 1, 2)
    ]
    assert answers[0] == answers[1] != answers[2]
    free = {driver.answer([5], temperature=1.0, max_tokens=20)[0] for _ in range(4)}
    assert len(free) > 1


@pytest.mark.parametrize("change", [{"max_num_seqs": 0}, {"max_step_tokens": 0}])
def test_a_bad_configuration_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        EngineConfig(**change)  # type: ignore[arg-type]


@pytest.mark.weights
@pytest.mark.parametrize("weights", [Weights.INT4, Weights.FP32])
def test_smollm2_answers_right_and_alike_with_a_cached_prefix(
    drive: Drive, smollm2: Checkpoint, weights: Weights
) -> None:
    driver = drive(smollm2, weights=weights, prefix_cache_mb=64)
    prompt = Tokenizer(smollm2.text.tokenizer_json).encode(
        "<|im_start|>system\nYou are a careful assistant. Answer in one short sentence and "
        "stay with the facts.<|im_end|>\n<|im_start|>user\nWhat is the capital of France?"
        "<|im_end|>\n<|im_start|>assistant\n"
    )
    miss, first = driver.answer(prompt, max_tokens=16)
    hit, second = driver.answer(prompt, max_tokens=16)
    assert "Paris" in miss
    assert miss == hit
    assert (first.cached_tokens, second.cached_tokens) == (0, (len(prompt) - 1) // 16 * 16)
