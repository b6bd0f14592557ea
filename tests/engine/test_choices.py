"""Several answers to one prompt: choices, the best, beams; and what is said of each token."""

import math
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
import torch

from longpole.errors import BadInput
from longpole_engine.config import EngineConfig, Numerics, Preemption, Speculation, Weights
from longpole_engine.kv.pool import num_pages
from longpole_engine.models.checkpoint import Checkpoint
from longpole_engine.runner import Rows, Runner
from longpole_engine.sampling.penalties import Penalties

Drive = Callable[..., Any]

PROMPT = [(5 * i) % 60 + 3 for i in range(70)]
EXACT: dict[str, Any] = {"numerics": Numerics.INVARIANT, "max_num_seqs": 8}
SAMPLED: dict[str, Any] = {"temperature": 1.0, "max_tokens": 20, "is_eos_ignored": True}


def settle(driver: Any) -> None:
    while driver.engine.step():
        driver.engine.kv.check()
    assert driver.engine.num_failed_steps == 0
    assert driver.engine.kv.pool.num_available == driver.engine.kv.pool.num_pages


@pytest.mark.parametrize("speculation", [Speculation.OFF, Speculation.NGRAM])
def test_eight_choices_equal_eight_single_requests(drive: Drive, speculation: Speculation) -> None:
    driver = drive(**EXACT, speculation=speculation)
    name = driver.submit(PROMPT, seed=30, num_choices=8, best_of=8, **SAMPLED)
    settle(driver)
    alone = drive(**EXACT)
    singles = [alone.answer(PROMPT, seed=30 + n, **SAMPLED)[0] for n in range(8)]
    assert driver.texts(name) == singles
    assert driver.records[name].output_tokens == 8 * 20


@pytest.mark.parametrize("preemption", list(Preemption))
def test_choices_put_back_for_want_of_memory_answer_the_same(
    drive: Drive, preemption: Preemption
) -> None:
    expected = drive(**EXACT)
    wanted = expected.submit(PROMPT, seed=3, num_choices=8, best_of=8, **SAMPLED)
    expected.drain()
    driver = drive(**EXACT, kv_pages=12, preemption=preemption)
    name = driver.submit(PROMPT, seed=3, num_choices=8, best_of=8, **SAMPLED)
    other = driver.submit(PROMPT[:50], seed=3, **SAMPLED)
    settle(driver)
    assert driver.texts(name) == expected.texts(wanted)
    assert driver.text(other)
    assert driver.records[name].num_preempted > 0


def test_the_pages_of_a_shared_prompt_are_counted_once(drive: Drive) -> None:
    driver = drive(**EXACT, is_prefix_cached=False)
    pool = driver.engine.kv.pool
    driver.submit(PROMPT, seed=1, num_choices=8, best_of=8, **SAMPLED)
    driver.engine.step()
    assert pool.num_pages - pool.num_available == num_pages(len(PROMPT))
    driver.engine.step()
    whole = len(PROMPT) // 16
    assert pool.num_pages - pool.num_available == whole + 8
    driver.drain()


def test_seats_are_kept_for_all_choices(drive: Drive) -> None:
    driver = drive(max_num_seqs=4)
    for n in range(5):
        driver.submit(PROMPT[:20], seed=n, num_choices=3, best_of=3, **SAMPLED)
    while driver.engine.step():
        assert driver.engine.num_running <= 4
    with pytest.raises(BadInput, match="at most 4"):
        driver.submit(PROMPT, num_choices=5, best_of=5)


def test_the_best_of_several_are_the_likeliest_per_token(drive: Drive) -> None:
    driver = drive(**EXACT)
    every = driver.submit(PROMPT, seed=2, num_choices=8, best_of=8, num_top=0, **SAMPLED)
    best = driver.submit(PROMPT, seed=2, num_choices=3, best_of=8, num_top=0, **SAMPLED)
    settle(driver)
    means: dict[int, list[float]] = {}
    for chunk in driver.chunks[every]:
        means.setdefault(chunk.choice, []).extend(one.logprob for one in chunk.logprobs)
    ranked = sorted(means, key=lambda choice: -math.fsum(means[choice]))[:3]
    texts = driver.texts(every)
    assert driver.texts(best) == [texts[choice] for choice in ranked]
    assert len(driver.chunks[best]) == 3
    assert driver.records[best].output_tokens == 160


def test_an_aborted_request_leaves_with_all_its_choices(drive: Drive) -> None:
    driver = drive(**EXACT)
    for beams in (False, True):
        name = driver.submit(
            PROMPT, num_choices=6, best_of=6, is_beam=beams, **{**SAMPLED, "max_tokens": 100}
        )
        for _ in range(5):
            driver.engine.step()
        driver.engine.abort(name)
        settle(driver)
        assert not any(chunk.finish for chunk in driver.chunks[name])


class Oracle:
    """Log-probabilities of continuations, each computed from nothing."""

    def __init__(self, model: Checkpoint) -> None:
        config = EngineConfig(
            weights=Weights.FP32,
            numerics=Numerics.INVARIANT,
            max_model_tokens=64,
            kv_pages=4,
            num_threads=1,
        )
        self._runner = Runner(model, config)

    def logs(self, tokens: list[int]) -> list[float]:
        rows = self._runner.prompt([Rows(list(range(4)), 0, tokens, 1)])
        found: list[float] = rows[0].double().log_softmax(0).tolist()
        return found


def text_of(driver: Any, tokens: tuple[int, ...]) -> str:
    data = b"".join(driver.engine.tokenizer.token_bytes(token) for token in tokens)
    return data.decode("utf-8", "replace")


def beam_driver(drive: Drive, model: Checkpoint, **changes: Any) -> Any:
    options = {"weights": Weights.FP32, "numerics": Numerics.INVARIANT, **changes}
    return drive(model, **options)


def test_beams_as_wide_as_the_vocabulary_find_the_best_pairs(
    drive: Drive, small_model: Checkpoint
) -> None:
    driver = beam_driver(drive, small_model, max_num_seqs=64, max_model_tokens=64)
    prompt = PROMPT[:9]
    name = driver.submit(
        prompt, num_choices=10, best_of=64, is_beam=True, max_tokens=2, is_eos_ignored=True
    )
    settle(driver)
    oracle = Oracle(small_model)
    first = oracle.logs(prompt)
    second = [oracle.logs([*prompt, token]) for token in range(64)]
    pairs = sorted(
        product(range(64), repeat=2), key=lambda pair: -(first[pair[0]] + second[pair[0]][pair[1]])
    )
    assert driver.texts(name) == [text_of(driver, pair) for pair in pairs[:10]]


def search(
    oracle: Oracle, prompt: list[int], width: int, num: int, eos: int | None
) -> list[tuple[int, ...]]:
    """Beam search on its textbook's page: no cache, no early end."""
    live: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
    ended: list[tuple[float, tuple[int, ...]]] = []
    for length in range(1, num + 1):
        grown = sorted(
            (
                (score + log, (*tokens, token))
                for score, tokens in live
                for token, log in enumerate(oracle.logs([*prompt, *tokens]))
            ),
            reverse=True,
        )
        is_over = [tokens[-1] == eos or length == num for _, tokens in grown]
        ended += [beam for beam, over in zip(grown[:width], is_over, strict=False) if over]
        live = [beam for beam, over in zip(grown, is_over, strict=True) if not over][:width]
    return [tokens for _, tokens in sorted(ended, key=lambda one: -one[0] / len(one[1]))[:width]]


@pytest.mark.parametrize(("width", "eos"), [(1, None), (4, None), (4, 2), (7, 2)])
def test_narrow_beams_equal_a_search_by_hand(
    drive: Drive, small_model: Checkpoint, width: int, eos: int | None
) -> None:
    prompt = PROMPT[:7]
    driver = beam_driver(drive, small_model, max_num_seqs=8)
    name = driver.submit(
        prompt,
        num_choices=width,
        best_of=width,
        is_beam=True,
        max_tokens=5,
        is_eos_ignored=eos is None,
    )
    settle(driver)
    expected = search(Oracle(small_model), prompt, width, 5, eos)
    assert driver.texts(name) == [text_of(driver, tokens) for tokens in expected]


@pytest.mark.parametrize("preemption", list(Preemption))
def test_searches_that_crowd_each_other_out_all_end_alike(
    drive: Drive, small_model: Checkpoint, preemption: Preemption
) -> None:
    request = {"num_choices": 4, "best_of": 4, "is_beam": True, "max_tokens": 30}
    roomy = beam_driver(drive, small_model, max_num_seqs=16)
    wanted = [roomy.submit(PROMPT[n : n + 20], **request) for n in range(4)]
    settle(roomy)
    tight = beam_driver(drive, small_model, max_num_seqs=16, kv_pages=20, preemption=preemption)
    names = [tight.submit(PROMPT[n : n + 20], **request) for n in range(4)]
    other = tight.submit(PROMPT[9:46], max_tokens=40, is_eos_ignored=True)
    settle(tight)
    assert tight.records[other].output_tokens == 40
    assert sum(tight.records[name].num_preempted for name in names) > 0
    assert [tight.texts(name) for name in names] == [roomy.texts(name) for name in wanted]
    with pytest.raises(BadInput, match="do not fit"):
        tight.submit(PROMPT, num_choices=8, best_of=8, is_beam=True, max_tokens=60)


def test_logprobs_are_the_models_and_cover_the_text(drive: Drive, small_model: Checkpoint) -> None:
    driver = beam_driver(drive, small_model)
    prompt = PROMPT[:7]
    name = driver.submit(prompt, temperature=0.7, seed=1, num_top=3, max_tokens=6)
    driver.drain()
    tokens = [one for chunk in driver.chunks[name] for one in chunk.logprobs]
    assert b"".join(one.data for one in tokens).decode("utf-8", "replace") == driver.text(name)
    oracle, context = Oracle(small_model), list(prompt)
    for one in tokens:
        logs = torch.tensor(oracle.logs(context))
        assert one.logprob == pytest.approx(float(logs[one.token]), abs=1e-6)
        assert [other.token for other in one.top] == logs.topk(3).indices.tolist()
        context.append(one.token)


def test_tokens_of_a_stop_string_are_not_told(drive: Drive) -> None:
    driver = drive()
    free, _ = driver.answer([5, 6, 7], max_tokens=30, is_eos_ignored=True)
    stop = next(free[at : at + 3] for at in range(5, 20) if "\ufffd" not in free[at : at + 3])
    name = driver.submit([5, 6, 7], max_tokens=30, stop=(stop,), num_top=0)
    driver.drain()
    told = b"".join(one.data for chunk in driver.chunks[name] for one in chunk.logprobs)
    assert driver.text(name) == free[: free.index(stop)]
    assert driver.text(name).startswith(told.decode("utf-8", "replace"))


def test_penalties_and_bias_do_what_they_say() -> None:
    row = torch.tensor([2.0, -1.0, 0.5, 3.0])
    changed = row.clone()
    Penalties(0.5, 0.25, 2.0, {3: -1.5}).apply(changed, [1], [0, 0])
    assert changed.tolist() == [2.0 / 2 - 2 * 0.5 - 0.25, -1.0 * 2, 0.5, 3.0 - 1.5]
    same = row.clone()
    assert Penalties().is_neutral
    Penalties().apply(same, [1], [0])
    assert torch.equal(same, row)
