"""Speculation follows the model's own law: measured, and shown to notice when it does not."""

from collections import Counter
from collections.abc import Callable, Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from longpole_engine.sampling.sampler import Draw, Stream, law, pick, sample, uniform
from longpole_engine.speculative import verify as module
from longpole_engine.speculative.controller import Controller, cpu_cost
from longpole_engine.speculative.ngram import NgramIndex
from longpole_engine.speculative.verify import Regret, verify

VOCAB = 64
_FIXED = torch.Generator().manual_seed(5)
TARGET = torch.randn(VOCAB + 1, VOCAB, generator=_FIXED) * 2.5
"""Logits after each token; the last row begins."""
GUESS = TARGET * 0.5 + torch.randn(VOCAB + 1, VOCAB, generator=_FIXED) * 1.5


def pair(seed: int, draw: Draw, *, is_bonus_drafted: bool = False) -> tuple[int, int]:
    """Two tokens by drafts of one, as often as it takes."""
    tokens: list[int] = []
    while len(tokens) < 2:
        before = tokens[-1] if tokens else VOCAB
        now = draw._replace(seed=seed, position=len(tokens))
        guess = law(GUESS[before], now)
        draft = pick(guess, uniform(seed, now.position, Stream.DRAFT))
        last = (GUESS if is_bonus_drafted else TARGET)[draft]
        tokens += verify(torch.stack((TARGET[before], last)), [draft], now, [guess])
    return tokens[0], tokens[1]


def p_value(draw: Draw, num: int, **bug: bool) -> float:
    """How likely pairs as far from the joint law are, were they drawn from it."""
    first = law(TARGET[VOCAB], draw)
    joint = torch.stack([first[token] * law(TARGET[token], draw) for token in range(VOCAB)])
    found = Counter(pair(seed, draw, **bug) for seed in range(num))
    expected = joint.flatten() * num
    counts = torch.zeros(VOCAB * VOCAB, dtype=torch.float64)
    for (one, two), count in found.items():
        counts[one * VOCAB + two] = count
    if float(counts[expected == 0].sum()):
        return 0.0
    is_rare = expected < 5
    cells = torch.cat((expected[~is_rare], expected[is_rare].sum()[None]))
    seen = torch.cat((counts[~is_rare], counts[is_rare].sum()[None]))
    statistic = ((seen - cells) ** 2 / cells.clamp(min=1e-9)).sum()
    freedom = torch.tensor((len(cells) - 1) / 2, dtype=torch.float64)
    return float(torch.special.gammaincc(freedom, statistic / 2))


PLAIN = Draw(1.0, 1.0, 0, 0, 0)


@pytest.mark.parametrize(
    "draw", [PLAIN, Draw(0.7, 0.9, 0, 0, 0), Draw(1.3, 1.0, 12, 0, 0, min_p=0.05)]
)
def test_two_tokens_follow_the_joint_law_of_direct_sampling(draw: Draw) -> None:
    assert p_value(draw, 4000) > 1e-3


def test_without_the_residual_it_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "residual", lambda target, guess: target)
    assert p_value(PLAIN, 1500) < 1e-6


def test_with_the_ratio_upside_down_it_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "is_accepted", lambda target, guess, point: point * target < guess)
    assert p_value(PLAIN, 1500) < 1e-6


def test_with_the_last_token_from_the_draft_it_is_noticed() -> None:
    assert p_value(PLAIN, 1500, is_bonus_drafted=True) < 1e-6


@given(st.integers(0, 2**32), st.integers(1, 4), st.sampled_from([0.3, 1.0, 1.9]))
def test_a_draft_that_is_the_model_is_always_accepted(seed: int, num: int, t: float) -> None:
    draw = Draw(t, 0.95, 0, seed, 7)
    rows = TARGET[: num + 1]
    laws = [law(row, draw) for row in rows[:num]]
    drafts = [pick(guess, uniform(seed, 7 + at, Stream.DRAFT)) for at, guess in enumerate(laws)]
    assert verify(rows, drafts, draw, laws)[:num] == drafts


@given(
    st.integers(0, 2**32),
    st.lists(st.integers(0, VOCAB - 1), max_size=4),
    st.sampled_from([0.0, 0.4, 1.0]),
)
def test_certain_drafts_change_no_token(seed: int, drafts: list[int], t: float) -> None:
    """The tokens are those drawn one by one."""
    draw = Draw(t, 1.0, 0, seed, 3)
    rows = TARGET[: len(drafts) + 1]
    tokens = verify(rows, drafts, draw)
    direct = sample(rows, [draw._replace(position=3 + at) for at in range(len(rows))])
    assert tokens == direct[: len(tokens)]
    assert tokens[:-1] == drafts[: len(tokens) - 1]
    assert len(tokens) == len(rows) or tokens[-1] != drafts[len(tokens) - 1]


@given(
    st.lists(st.floats(0, 5), max_size=40),
    st.floats(0, 10),
    st.integers(0, 6),
)
def test_regret_stays_within_both_bounds(losses: list[float], budget: float, num: int) -> None:
    regret = Regret(budget, num)
    allowed = [loss for loss in losses if regret.allows(loss)]
    assert sum(allowed) == pytest.approx(regret.spent)
    assert regret.spent <= budget
    assert len(allowed) == regret.num_exceptions <= num
    assert not (allowed and budget == 0)


def test_an_impossible_draft_is_never_let_through() -> None:
    row = torch.tensor([[1.0, -torch.inf], [0.0, 0.0]])
    for temperature in (0.0, 1.0):
        draw = Draw(temperature, 1.0, 0, 1, 0)
        assert verify(row, [1], draw, regret=Regret(1e9, 10)) == [0]


def steps(pace: Controller, num_rows: int, accept: Callable[[int], int], num: int) -> list[int]:
    lengths = []
    for _ in range(num):
        length = pace.num_drafts(num_rows)
        pace.observe(length or 1, accept(length or 1))  # at 0 a look-up is still compared
        lengths.append(length)
    return lengths


def test_the_draft_length_falls_to_0_on_hostile_text_and_recovers_on_a_copy() -> None:
    pace = Controller(3)
    assert pace.num_drafts(1) > 0
    assert 0 in steps(pace, 1, lambda _: 0, 8)
    assert set(steps(pace, 1, lambda _: 0, 100)) == {0}
    assert steps(pace, 1, lambda num: num, 8)[-1] == 3
    assert max(steps(Controller(16), 1, lambda num: num, 50)) == 3  # on this kind of machine


def test_a_model_that_drafts_is_tried_again_now_and_then() -> None:
    pace = Controller(3, draft_cost=0.3)
    lengths = []
    for _ in range(200):
        length = pace.num_drafts(1)
        lengths.append(length)
        if length:
            pace.observe(length, 0)
    assert 5 < sum(length > 0 for length in lengths[20:]) < 20


def test_the_draft_length_shrinks_as_the_batch_grows() -> None:
    def length(num_rows: int) -> int:
        pace = Controller(3)
        pace.observe(3, 2)
        return pace.num_drafts(num_rows)

    lengths = [length(num_rows) for num_rows in range(1, 17)]
    assert lengths == sorted(lengths, reverse=True)
    assert (lengths[0], lengths[-1]) == (3, 0)
    assert [cpu_cost(rows) for rows in range(1, 20)] == sorted(map(cpu_cost, range(1, 20)))


def reference(tokens: Sequence[int], num: int) -> list[int]:
    """The same by searching backwards."""
    for size in (3, 2):
        for end in range(len(tokens) - 1, size - 1, -1):
            if size < len(tokens) and tokens[end - size : end] == tokens[-size:]:
                copied = list(tokens)
                for at in range(end, end + num):
                    copied.append(copied[at])
                return copied[len(tokens) :]
    return []


@given(st.lists(st.integers(0, 3), max_size=60), st.integers(1, 5))
def test_lookups_find_what_followed_last_time(tokens: list[int], num: int) -> None:
    index = NgramIndex()
    for length in range(len(tokens) + 1):
        if length % 3 == 0 or length == len(tokens):  # it grows by several at a time
            assert index.propose(tokens[:length], num) == reference(tokens[:length], num)
