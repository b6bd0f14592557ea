"""The parts of a scorecard: censored quantiles, resamples, rates, pairs; and its verdicts."""

import itertools
import json
import math
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longpole.errors import BadInput
from longpole_analytics.scorecard import rates, resample
from longpole_analytics.scorecard.resample import Clusters, Sample, resampled
from longpole_analytics.scorecard.rules import CardRules, Plan
from longpole_analytics.scorecard.shift import hodges_lehmann
from longpole_analytics.scorecard.sides import Rate
from longpole_analytics.scorecard.survival import Times, pessimistic_quantile, quantile

from .scorecard_populations import FAST, card, plain, side

VECTORS = json.loads(
    (Path(__file__).parent / "data" / "censoring_queueing_fdr.json").read_text("utf-8")
)["km"]


def times(values, is_event=None, weight=None):
    values = np.array(values, np.float64)
    ended = np.ones(len(values), np.bool_) if is_event is None else np.array(is_event, np.bool_)
    return Times(values, ended, np.ones(len(values)) if weight is None else np.array(weight, float))


# --- censored quantiles -------------------------------------------------------------------------
@pytest.mark.parametrize("case", VECTORS, ids=range(len(VECTORS)))
def test_a_quantile_of_times_not_seen_to_end_is_kaplan_and_meiers(case):
    seen = times([o["t"] for o in case["obs"]], [o["finished"] for o in case["obs"]])
    for q, expected in case["expect"].items():
        assert quantile(seen, float(q)) == expected


@pytest.mark.parametrize("case", VECTORS, ids=range(len(VECTORS)))
def test_a_resample_in_which_each_is_drawn_once_gives_the_same(case):
    seen = times([o["t"] for o in case["obs"]], [o["finished"] for o in case["obs"]])
    n = len(case["obs"])
    sample = Sample.of(seen, np.arange(n, dtype=np.uint32))
    counts, total, found = np.ones((1, n), np.uint8), np.empty(1), np.empty((1, 3))
    shares = np.array([0.5, 0.9, 0.99])
    resample._weigh(counts, sample.cluster, sample.weight, total)
    resample._quantiles(
        counts, sample.value, sample.cluster, sample.weight, sample.stretches, total, shares, found
    )
    expected = [quantile(seen, q) for q in shares]
    assert [None if np.isinf(x) else x for x in found[0]] == expected


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(1, 9), st.booleans(), st.integers(0, 3)), min_size=1, max_size=60
    ),
    st.floats(0.01, 0.99),
)
def test_weights_are_as_good_as_repeated_rows(rows, q):
    values, ended, weight = zip(*rows, strict=True)
    repeated = [(v, e) for v, e, w in rows for _ in range(w)]
    expected = (
        quantile(times([v for v, _ in repeated], [e for _, e in repeated]), q) if repeated else None
    )
    assert quantile(times(values, ended, weight), q) == expected


def test_if_failures_never_end_they_count_as_the_longest():
    seen = times([1, 2, 3, 1], [True, True, True, False])
    assert quantile(seen, 0.75) == 3
    assert pessimistic_quantile(seen, 0.75) == 3
    assert pessimistic_quantile(seen, 0.8) is None
    assert pessimistic_quantile(times([], []), 0.5) is None


# --- resamples ----------------------------------------------------------------------------------
def test_draws_are_multinomial_and_the_same_for_any_number_of_chunks():
    clusters = Clusters(300, 100, 301)
    seen = times(np.arange(701, dtype=float))
    sample = Sample.of(seen, np.arange(701, dtype=np.uint32))
    sums = np.ones((400, 1)), np.ones((401, 1))
    long = resampled(([sample], [sample]), sums, clusters, (0.5,), 400, 7)
    short = resampled(([sample], [sample]), sums, clusters, (0.5,), 30, 7)
    assert np.array_equal(long[0][:, :, :30], short[0])
    # as many are drawn of each kind as there are
    assert (long[1][0] == 400).all()
    assert (long[1][1] == 401).all()
    counts = np.empty((500, 701), np.uint8)
    resample._draw(counts, 0, np.uint64(7), np.array(clusters))
    assert counts.mean(0).mean() == pytest.approx(1)
    assert counts.var() == pytest.approx(1 - 1 / 300, abs=0.02)
    assert abs(np.corrcoef(counts[:, 0], counts[:, 350])[0, 1]) < 0.2


def test_each_resample_is_what_counting_by_hand_gives():
    random = np.random.default_rng(3)
    n, num = 400, 120
    seen = times(random.integers(1, 50, n), random.random(n) < 0.8, random.random(n) * 3)
    cluster = random.integers(0, num, n).astype(np.uint32)
    sample = Sample.of(seen, cluster)
    found, _ = resampled(
        ([sample], [sample]), (np.ones((num, 1)), np.ones((num, 1))), Clusters(0, num, 0),
        (0.5, 0.95), 40, 1,
    )  # fmt: skip
    counts = np.empty((40, num), np.uint8)
    resample._draw(counts, 0, np.uint64(1), np.array([0, num, 0]))
    for row, drawn in enumerate(counts):
        again = times(seen.value, seen.is_event, seen.weight * drawn[cluster])
        for k, q in enumerate((0.5, 0.95)):
            value = found[0, 0, row, k]
            assert (None if np.isinf(value) else value) == quantile(again, q)


# --- rates and pairs ----------------------------------------------------------------------------
def rated(hits, n, cluster=None):
    is_so = np.arange(n) < hits
    own = np.arange(n) if cluster is None else cluster
    rate = Rate(is_so, np.ones(n, np.bool_))
    return rates.share(rate, np.ones(n), own.astype(np.uint32), 2 * n)


def test_a_difference_of_rates_is_newcombes():
    # Newcombe 1998, table II: 56/70 against 48/80, 9/10 against 3/10, 10/10 against 0/10
    for first, n1, second, n2, low, high in (
        (56, 70, 48, 80, 0.0524, 0.3339),
        (9, 10, 3, 10, 0.1705, 0.8090),
        (10, 10, 0, 10, 0.6075, 1.0),
    ):
        ours = rated(first, n1)._replace(worth=float(n1))
        theirs = rated(second, n2)._replace(worth=float(n2), deviation=np.zeros(2 * n1))
        found = rates.difference(theirs, ours, 0.05)
        assert found[1:] == pytest.approx((low, high), abs=2e-4)


def test_requests_of_a_session_that_fail_together_count_once():
    apart = rated(20, 200)
    together = rated(20, 200, np.arange(200) // 20)
    assert apart.worth == pytest.approx(199)
    assert together.worth < 12
    none = rated(0, 200, np.arange(200) // 20)
    assert none.like(together).worth < 12


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(-20, 20), min_size=1, max_size=25))
def test_the_shift_is_the_median_of_all_means_of_two(values):
    means = [(a + b) / 2 for a, b in itertools.combinations_with_replacement(values, 2)]
    found, ends = hodges_lehmann(np.array(values, float))
    assert found == pytest.approx(float(np.median(means)), abs=1e-9)
    if ends is not None:
        assert min(means) <= ends[0] <= found + 1e-9
        assert found - 1e-9 <= ends[1] <= max(means)


# --- verdicts -----------------------------------------------------------------------------------
BASE = side(4000, 1)


@pytest.mark.parametrize(
    ("speed", "verdict"), [(0.8, "better"), (1.0, "equivalent"), (1.25, "worse")]
)
def test_the_verdict_is_what_was_done_to_the_candidate(speed, verdict):
    found = card(BASE, side(4000, 2, speed=speed), Plan(quantile=0.5))
    assert found.target["verdict"] == verdict
    assert found.target["ratio"] == pytest.approx(speed, abs=0.05)
    low, high = found.target["ci95"]
    assert low < found.target["ratio"] < high


def test_swapping_the_sides_turns_the_verdict_round():
    fast = side(4000, 2, speed=0.7)
    there, back = card(BASE, fast).target, card(fast, BASE).target
    assert (there["verdict"], back["verdict"]) == ("better", "worse")
    assert there["ratio"] == pytest.approx(1 / back["ratio"])
    assert there["ci95"] == pytest.approx([1 / end for end in reversed(back["ci95"])], rel=0.05)


def test_the_unit_of_time_does_not_matter():
    cand = side(1000, 2, speed=0.9)
    times_of = [name for name in cand.columns if name.endswith("_ms")]
    wide = [f.with_columns(pl.col(times_of) * 1000) for f in (BASE, cand)]
    ours, theirs = card(BASE, cand), card(*wide)
    assert ours.verdict == theirs.verdict
    assert ours.target["ci95"] == pytest.approx(theirs.target["ci95"])


@pytest.mark.parametrize("num", [2, 30, 400])
def test_a_population_against_itself_is_never_better_or_worse(num):
    own = side(num, 5)
    found = card(own, own)
    assert found.verdict in ("equivalent", "inconclusive")
    assert found.verdict == "inconclusive" or num == 400
    assert "overlap" in {flag.name for flag in found.flags}


def test_equal_input_gives_an_equal_document():
    cand = side(500, 2)
    assert card(BASE, cand).document() == card(BASE, cand).document()
    json.dumps(card(BASE, cand).document(), allow_nan=False)


def test_halves_of_one_population_are_rarely_told_apart():
    false = 0
    for seed in range(24):
        whole = side(240, 100 + seed)
        mask = pl.Series(np.random.default_rng(seed).permutation(240) < 120)
        found = card(whole.filter(mask), whole.filter(~mask), None, CardRules(num_resamples=100))
        false += found.verdict in ("better", "worse")
    # at 5 % more than 4 of 24 are seen once in 150 times
    assert false <= 4


def test_as_many_requests_as_it_says_decide():
    few, cand = side(150, 1), side(150, 2, speed=0.85)
    found = card(few, cand, Plan(quantile=0.5))
    assert found.verdict == "inconclusive"
    assert found.n_needed is not None
    assert found.n_needed > 150
    n = int(found.n_needed * 1.5)
    again = card(
        side(n, 1, accepted=0.95), side(n, 2, speed=0.85, accepted=0.95), Plan(quantile=0.5)
    )
    assert again.target["verdict"] == "better"


def test_too_few_say_how_many_carry_the_quantile():
    found = card(plain([1.0] * 5), plain([1.0] * 5), Plan(quantile=0.95))
    assert found.verdict == "inconclusive"
    assert found.n_needed is not None
    assert found.n_needed >= 72
    assert "too few samples" in found.reasons[0]
    assert {row.reason for row in found.metrics} == {"too_few"}


def test_many_requests_of_few_sessions_are_few():
    base, cand = (side(1000, seed).with_columns(session_id=pl.lit(f"{seed}")) for seed in (1, 2))
    assert card(base, cand).verdict == "inconclusive"


def test_sessions_that_differ_widen_the_interval():
    random = np.random.default_rng(1)
    factor = np.repeat(random.lognormal(0, 0.5, 200), 10)
    spread = []
    for per_session in (1, 10):
        frames = []
        for seed in (1, 2):
            base = side(2000, seed)
            frames.append(
                base.with_columns(
                    e2e_ms=base["e2e_ms"] * random.permutation(factor.reshape(200, 10)).ravel(),
                    session_id=pl.int_range(2000) // per_session,
                ).with_columns(session_id=pl.format("{} {}", pl.lit(seed), "session_id"))
            )
        low, high = card(*frames, Plan(quantile=0.5)).target["ci95"]
        spread.append(math.log(high / low))
    assert spread[1] > 1.5 * spread[0]


def test_a_later_look_is_stricter_and_all_looks_together_add_up():
    cand = side(2000, 2, speed=0.9)
    widths = []
    for look in (None, 1, 2, 20):
        low, high = card(BASE, cand, Plan(quantile=0.5, look=look)).target["ci95"]
        widths.append(math.log(high / low))
    assert widths == sorted(widths)
    assert widths[0] < widths[-1]
    assert sum(Plan(look=k).alpha for k in range(1, 10_000)) == pytest.approx(0.05, abs=1e-4)


@pytest.mark.parametrize(
    "plan", [Plan(target="nope"), Plan(quantile=1.0), Plan(cluster="nope"), Plan(pair_by="nope")]
)
def test_a_plan_that_cannot_be_is_refused(plan):
    with pytest.raises(BadInput):
        card(side(50, 1), side(50, 2), plan)


def test_a_weight_stands_for_as_many_requests():
    random = np.random.default_rng(1)
    values = random.lognormal(6, 0.4, 400)
    weight = random.integers(1, 4, 400).astype(float)
    weighted = card(plain(values, weight=weight), plain(values * 0.7, weight=weight), rules=FAST)
    repeated = np.repeat(values, weight.astype(int))
    plainly = card(plain(repeated), plain(repeated * 0.7), rules=FAST)
    assert weighted.target["ratio"] == pytest.approx(0.7)
    for ours, theirs in zip(weighted.metrics, plainly.metrics, strict=True):
        assert (ours.base, ours.cand) == (theirs.base, theirs.cand)
