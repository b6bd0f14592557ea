import math
from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from longpole_engine.sampling.sampler import Draw, sample, uniform

LOGITS = torch.tensor([2.0, 1.0, 0.5, 0.0, -1.0, -2.0, -0.5, 1.5])
NUM_DRAWS = 4000


def counts(draw: Draw, num: int = NUM_DRAWS) -> Counter[int]:
    rows = LOGITS.expand(num, -1)
    return Counter(sample(rows, [draw._replace(position=i) for i in range(num)]))


def chi_square(found: Counter[int], expected: torch.Tensor) -> float:
    total = sum(found.values())
    shares: list[float] = expected.tolist()
    return sum((found[i] - total * p) ** 2 / (total * p) for i, p in enumerate(shares) if p > 0)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.7])
def test_draws_follow_the_softmax_at_their_temperature(temperature: float) -> None:
    found = counts(Draw(temperature, 1.0, 0, 11, 0))
    # 24.32 is the 99.9 % point of chi-square with 7 degrees of freedom
    assert chi_square(found, torch.softmax(LOGITS / temperature, 0)) < 24.32


def test_draws_by_seed_follow_the_same_law_as_draws_by_position() -> None:
    rows = LOGITS.expand(NUM_DRAWS, -1)
    found = Counter(sample(rows, [Draw(1.0, 1.0, 0, seed, 3) for seed in range(NUM_DRAWS)]))
    assert chi_square(found, torch.softmax(LOGITS, 0)) < 24.32


def test_a_wrong_law_is_noticed() -> None:
    found = counts(Draw(1.0, 1.0, 0, 11, 0))
    assert chi_square(found, torch.softmax(LOGITS / 1.3, 0)) > 24.32


def test_top_k_keeps_the_k_likeliest_and_their_ratios() -> None:
    found = counts(Draw(1.0, 1.0, 3, 5, 0))
    kept = torch.full_like(LOGITS, -math.inf)
    kept[[0, 7, 1]] = LOGITS[[0, 7, 1]]
    assert set(found) == {0, 7, 1}
    assert chi_square(found, torch.softmax(kept, 0)) < 13.82


def test_top_p_keeps_the_smallest_head_that_reaches_p() -> None:
    ordered = torch.softmax(LOGITS, 0).sort(descending=True)
    cumulative = ordered.values.cumsum(0)
    for top_p in (0.05, 0.5, 0.8, 0.95):
        num_kept = int((cumulative < top_p).sum()) + 1
        found = counts(Draw(1.0, top_p, 0, 5, 0), 800)
        assert set(found) <= set(ordered.indices[:num_kept].tolist())


def test_greedy_takes_the_first_of_the_largest() -> None:
    rows = torch.tensor([[0.0, 3.0, 3.0], [9.0, 1.0, 2.0]])
    assert sample(rows, [Draw(0.0, 1.0, 0, 0, 0)] * 2) == [1, 0]


@given(st.floats(1e-12, 2), st.integers(-(2**63), 2**63 - 1), st.integers(0, 9000))
def test_any_temperature_seed_and_position_gives_a_token(t: float, seed: int, at: int) -> None:
    row = torch.tensor([[1e4, -1e4, 0.0, 1e4]])
    assert sample(row, [Draw(t, 1.0, 0, seed, at)])[0] in {0, 3}


@given(st.integers(-(2**63), 2**63 - 1), st.integers(0, 9000))
def test_a_draw_depends_on_seed_and_position_alone(seed: int, at: int) -> None:
    draw = Draw(1.0, 0.9, 0, seed, at)
    other = Draw(0.7, 1.0, 2, seed + 1, at)
    alone = sample(LOGITS[None], [draw])
    beside = sample(LOGITS.expand(3, -1), [other, draw, other])
    assert alone[0] == beside[1]
    assert 0 <= uniform(seed, at) < 1
