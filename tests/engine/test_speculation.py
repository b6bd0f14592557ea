"""Speculation inside the engine: the same answers in fewer steps."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from longpole.errors import UsageError
from longpole_engine.config import EngineConfig, Numerics, Preemption, Speculation, Weights
from longpole_engine.kv.pool import num_pages
from longpole_engine.models.checkpoint import Checkpoint
from longpole_engine.models.tiny import tiny
from longpole_engine.runner import Rows, Runner
from longpole_engine.sampling.penalties import Penalties
from longpole_engine.sampling.sampler import Draw, law

Drive = Callable[..., Any]

EXACT = Numerics.INVARIANT
JOBS: list[tuple[list[int], dict[str, Any]]] = [
    (
        [(7 * i + n) % (9 * n + 20) + 3 for i in range(20 + 9 * n)],
        {
            "seed": n,
            "temperature": (0.0, 0.0, 0.8)[n % 3],
            "penalties": Penalties(0.3, 0.2, 1.1, {40: 2.0}) if n > 3 else Penalties(),
        },
    )
    for n in range(6)
]
ENDLESS: dict[str, Any] = {"max_tokens": 40, "is_eos_ignored": True}


def answers(driver: Any) -> list[str]:
    names = [driver.submit(prompt, **ENDLESS, **params) for prompt, params in JOBS]
    while driver.engine.step():
        driver.engine.kv.check()
        for seq in driver.engine.ledger.running.values():  # nothing is kept for refused drafts
            assert len(driver.engine.kv.pages(seq.id)) == num_pages(seq.num_computed)
    assert driver.engine.num_failed_steps == 0
    return [driver.text(name) for name in names]


@pytest.fixture(scope="module")
def plain(drive: Drive) -> list[str]:
    return answers(drive(numerics=EXACT))


@pytest.mark.parametrize("num_drafts", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("kind", [Speculation.NGRAM, Speculation.SELF, Speculation.DRAFT])
def test_drafts_of_any_kind_and_length_change_no_answer(
    drive: Drive, plain: list[str], kind: Speculation, num_drafts: int
) -> None:
    driver = drive(
        draft=tiny(1),
        draft_model="tiny",
        numerics=EXACT,
        speculation=kind,
        num_drafts=num_drafts,
        is_draft_dynamic=False,
        exit_layers=1,
    )
    assert answers(driver) == plain
    records = driver.records.values()
    assert sum(record.num_drafted for record in records) > 0
    for record in records:
        assert 0 <= record.num_accepted <= record.num_drafted
        assert record.num_steps + record.num_accepted >= 40
        assert len(record.token_ns) == record.output_tokens == 40


@pytest.mark.parametrize("preemption", list(Preemption))
@pytest.mark.parametrize("kind", [Speculation.NGRAM, Speculation.DRAFT])
def test_drafts_change_no_answer_where_memory_is_short(
    drive: Drive, plain: list[str], kind: Speculation, preemption: Preemption
) -> None:
    driver = drive(
        draft=tiny(),
        draft_model="tiny",
        numerics=EXACT,
        speculation=kind,
        kv_pages=12,
        preemption=preemption,
        max_step_tokens=20,
    )
    assert answers(driver) == plain
    assert sum(record.num_preempted for record in driver.records.values()) > 0
    assert driver.engine.kv.pool.num_available == 12


@pytest.mark.parametrize("kind", [Speculation.SELF, Speculation.DRAFT])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_draft_that_is_the_model_is_always_accepted(
    drive: Drive, tiny_model: Checkpoint, kind: Speculation, temperature: float
) -> None:
    driver = drive(
        draft=tiny_model,
        draft_model="tiny",
        numerics=EXACT,
        speculation=kind,
        exit_layers=2,
        num_drafts=3,
        is_draft_dynamic=False,
    )
    for _ in range(2):  # on top of cached pages too
        _, record = driver.answer(range(40), temperature=temperature, seed=1, **ENDLESS)
        assert record.num_drafted == record.num_accepted == 29
        assert record.num_steps == 1 + 10


def test_a_copy_takes_fewer_steps_and_hostile_text_no_drafts(drive: Drive) -> None:
    driver = drive(speculation=Speculation.NGRAM)
    _, copy = driver.answer([5, 6], penalties=Penalties(bias={9: 100.0}), **ENDLESS)
    assert copy.num_steps <= 20
    assert copy.num_accepted == 40 - copy.num_steps
    _, noise = driver.answer([5, 6] * 20, temperature=2.0, seed=2, **ENDLESS)
    assert noise.num_drafted <= 24
    _, off = drive().answer([5, 6] * 20, **ENDLESS)
    assert (off.num_drafted, off.num_accepted, off.num_steps) == (0, 0, 40)


def contexts(runner: Runner, prompts: Sequence[list[int]]) -> torch.Tensor:
    pages = list(range(4))
    return torch.cat([runner.prompt([Rows(pages, 0, prompt, 1)]) for prompt in prompts])


def test_sampled_drafts_follow_the_models_joint_law(
    drive: Drive, small_model: Checkpoint, other_small_model: Checkpoint
) -> None:
    prompt, few = [5, 9, 30, 12, 7], {"temperature": 1.4, "top_k": 4}
    driver = drive(
        small_model,
        draft=other_small_model,
        draft_model="other",
        weights=Weights.FP32,
        speculation=Speculation.DRAFT,
        is_draft_dynamic=False,
        max_num_seqs=16,
        num_drafts=1,
        max_queue=1000,
    )
    names = [
        driver.submit(prompt, seed=100 * n, num_choices=16, best_of=16, max_tokens=3, **few)
        for n in range(100)
    ]
    driver.drain()
    found: Counter[str] = Counter(text for name in names for text in driver.texts(name))
    assert sum(driver.records[name].num_accepted for name in names) > 100
    config = EngineConfig(weights=Weights.FP32, max_model_tokens=64, kv_pages=4, num_threads=1)
    runner = Runner(small_model, config)
    expected: Counter[str] = Counter()
    layer: list[tuple[list[int], float]] = [([], 1.0)]
    for _ in range(3):
        rows = contexts(runner, [[*prompt, *tokens] for tokens, _ in layer])
        layer = [
            ([*tokens, token], share * float(chance))
            for (tokens, share), row in zip(layer, rows, strict=True)
            for token, chance in enumerate(law(row, Draw(1.4, 1.0, 4, 0, 0)))
            if chance > 0 and 2 not in tokens
        ]
    data = driver.engine.tokenizer.token_bytes
    for tokens, share in layer:
        text = b"".join(data(token) for token in tokens).decode("utf-8", "replace")
        expected[text] += share * 1600  # type: ignore[assignment]
    assert set(found) <= set(expected)
    statistic = sum((found[text] - num) ** 2 / num for text, num in expected.items())
    freedom = torch.tensor((len(expected) - 1) / 2)
    assert float(torch.special.gammaincc(freedom, torch.tensor(statistic / 2))) > 1e-3


LOSSY: dict[str, Any] = {
    "numerics": EXACT,
    "speculation": Speculation.SELF,
    "exit_layers": 1,
    "is_draft_dynamic": False,
    "regret_routes": ("draft-ok",),
}


@pytest.mark.parametrize(("budget", "num"), [(0.5, 8), (3.0, 8), (1000.0, 4)])
def test_what_an_approximate_answer_loses_stays_within_its_budget(
    drive: Drive, budget: float, num: int
) -> None:
    driver = drive(**LOSSY, regret_budget=budget, regret_exceptions=num)
    num_exceptions = 0
    for prompt, _ in JOBS:
        name = driver.submit(prompt, route="draft-ok", num_top=1, **ENDLESS)
        driver.drain()
        tokens = [one for chunk in driver.chunks[name] for one in chunk.logprobs]
        losses = [one.top[0].logprob - one.logprob for one in tokens]
        assert sum(losses) <= budget + 1e-6
        assert sum(loss > 0 for loss in losses) <= num
        num_exceptions += sum(loss > 0 for loss in losses)
    assert num_exceptions > 0


def test_a_budget_of_0_and_routes_not_listed_are_exact(drive: Drive, plain: list[str]) -> None:
    for route, budget in (("draft-ok", 0.0), ("other", 9.0), (None, 9.0)):
        driver = drive(**LOSSY, regret_budget=budget)
        names = [driver.submit(prompt, route=route, **ENDLESS, **params) for prompt, params in JOBS]
        driver.drain()
        assert [driver.text(name) for name in names] == plain


def test_what_does_not_go_together_is_refused(drive: Drive, small_model: Checkpoint) -> None:
    with pytest.raises(UsageError, match="draft_model"):
        EngineConfig(speculation=Speculation.DRAFT)
    with pytest.raises(UsageError, match="same tokens"):
        drive(small_model, draft=tiny(), draft_model="x", speculation=Speculation.DRAFT)
    for wrong in ({"num_drafts": 0}, {"regret_budget": float("nan")}, {"exit_layers": -1}):
        with pytest.raises(UsageError, match=next(iter(wrong))):
            EngineConfig(**wrong)  # type: ignore[arg-type]
