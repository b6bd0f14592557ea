"""Planning as a function of recorded states, and whole loads on a virtual clock."""

import subprocess
import sys
from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longpole_engine.config import Batching, Policy, Preemption
from longpole_engine.kv.pool import num_pages
from longpole_engine.scheduler import sim
from longpole_engine.scheduler.core import (
    ALONE_FACTOR,
    FAR_TOKENS,
    Limits,
    Piece,
    Running,
    State,
    StepPlan,
    Waiting,
    plan,
)
from longpole_engine.scheduler.ledger import Ledger, Step
from longpole_engine.scheduler.policies import MAX_DELAY_S, POLICIES, Claim
from longpole_engine.scheduler.sim import Arrival, Outcome, simulate

LIMITS = Limits(max_num_seqs=4, max_step_tokens=32)


def claim(arrived_s: float, num_left: int = 1, priority: int = 0, slo_s: float = 2.0) -> Claim:
    return Claim(arrived_s, priority, num_left, num_left * 0.01, slo_s)


def waiting(name: str, num_tokens: int, arrived_s: float = 0.0, **changes: object) -> Waiting:
    return Waiting(name, claim(arrived_s, num_tokens), num_tokens)._replace(**changes)


def running(name: str, num_tokens: int, num_computed: int, arrived_s: float = 0.0) -> Running:
    held = num_pages(num_computed)
    left = num_tokens - num_computed
    return Running(name, claim(arrived_s, left), num_tokens, num_computed, held, held)


def state(
    line: Sequence[Waiting] = (),
    at_work: Sequence[Running] = (),
    num_available: int = 100,
    limits: Limits = LIMITS,
    now_s: float = 10.0,
) -> State:
    return State(now_s, tuple(line), tuple(at_work), num_available, limits)


def test_one_budget_serves_decoding_first_then_prompts_under_way_then_new_ones() -> None:
    step = plan(
        state(
            [waiting("d", 9, 3), waiting("e", 30, 4)],
            [running("a", 20, 19, 0), running("b", 50, 30, 1)],
        )
    )
    assert step == StepPlan(
        admit=("d", "e"),
        prefill=(Piece("b", 20), Piece("d", 9), Piece("e", 2)),
        decode=(Piece("a", 1),),
    )


def test_without_chunks_a_prompt_runs_whole_beside_the_decoding_rows() -> None:
    step = plan(
        state(
            [waiting("b", 500), waiting("c", 5)],
            [running("a", 20, 19)],
            limits=LIMITS._replace(is_chunked=False),
        )
    )
    assert (step.prefill, step.decode) == ((Piece("b", 500),), (Piece("a", 1),))


def test_far_into_a_prompt_a_step_takes_fewer_tokens_while_streams_would_feel_it() -> None:
    limits = LIMITS._replace(max_step_tokens=201)
    stream = running("a", 20, 19)

    def piece(start: int, *beside: Running) -> int:
        at_work = [running("b", start + 1000, start)._replace(is_prompt=True), *beside]
        (found,) = plan(state((), at_work, num_available=1000, limits=limits)).prefill
        return found.num_tokens

    # 200 are left: 191 * (1 + 191 / 4096) = 199.9 and 99 * (2 + 99 / 4096) = 200.4
    assert [piece(0, stream), piece(FAR_TOKENS, stream)] == [191, 99]
    assert piece(FAR_TOKENS) == ALONE_FACTOR * 201


def test_cached_tokens_are_not_computed() -> None:
    step = plan(state([waiting("a", 40, num_cached=32, num_idle=2)], num_available=3))
    assert step.prefill == (Piece("a", 8),)
    assert plan(state([waiting("a", 40, num_cached=32, num_idle=2)], num_available=2)).admit == ()


def test_the_last_token_of_a_prompt_is_no_decoding_row() -> None:
    step = plan(state((), [running("a", 20, 19)._replace(is_prompt=True)]))
    assert (step.prefill, step.decode) == ((Piece("a", 1),), ())


def test_drafts_use_what_the_budget_and_the_pool_leave() -> None:
    seq = running("a", 20, 19)._replace(num_drafts=5)
    assert plan(state((), [seq])).decode == (Piece("a", 1, 5),)
    few = LIMITS._replace(max_step_tokens=3)
    assert plan(state((), [seq], limits=few)).decode == (Piece("a", 1, 2),)
    full = running("a", 31, 30)._replace(num_drafts=5)
    assert plan(state((), [full], num_available=0)).decode == (Piece("a", 1, 1),)


def test_the_last_in_line_makes_room_and_the_first_goes_on() -> None:
    step = plan(
        state(
            [waiting("d", 5, 4)],
            [running("a", 17, 16, 0), running("b", 17, 16, 1), running("c", 33, 32, 2)],
            num_available=1,
        )
    )
    assert step == StepPlan(preempt=("c",), decode=(Piece("a", 1), Piece("b", 1)))


def test_a_page_with_other_owners_costs_a_copy() -> None:
    seq = running("a", 20, 19)._replace(needs_copy=True)
    assert plan(state((), [seq], num_available=1)).decode == (Piece("a", 1),)
    older = running("b", 5, 4, -1.0)
    assert plan(state((), [older, seq], num_available=0)).preempt == ("a",)


def test_nobody_passes_a_request_that_does_not_fit_yet() -> None:
    line = [waiting("big", 200, 0), waiting("small", 4, 1)]
    assert plan(state(line, [running("a", 9, 8)], num_available=10)).admit == ()


def test_a_static_batch_waits_for_its_slowest() -> None:
    limits = LIMITS._replace(batching=Batching.STATIC)
    line = [waiting(name, 20, at) for at, name in enumerate("abcde")]
    first = plan(state(line, limits=limits))
    assert first.admit == ("a", "b", "c", "d")
    assert first.prefill == tuple(Piece(name, 20) for name in "abcd")
    assert plan(state(line, [running("z", 9, 8)], limits=limits)).admit == ()


def test_a_deadline_in_the_queue_expires() -> None:
    line = [waiting("a", 5, deadline_s=9.0), waiting("b", 5, deadline_s=11.0)]
    step = plan(state(line))
    assert (step.expire, step.admit) == (("a",), ("b",))


def order(policy: Policy, line: Sequence[Claim], now_s: float = 10.0) -> list[int]:
    entries = [Waiting(str(number), one, one.num_left) for number, one in enumerate(line)]
    limits = Limits(len(line), 10**6, policy)
    return [int(name) for name in plan(state(entries, limits=limits, now_s=now_s)).admit]


def test_each_policy_orders_a_recorded_line_its_own_way() -> None:
    line = [
        claim(9.0, 90, priority=2),
        claim(9.1, 10, priority=1, slo_s=5.0),
        claim(9.2, 50, priority=0, slo_s=1.35),
        claim(9.3, 5, priority=0, slo_s=0.1),  # too late to meet its target
    ]
    assert order(Policy.FCFS, line) == [0, 1, 2, 3]
    assert order(Policy.PRIORITY, line) == [2, 3, 1, 0]
    assert order(Policy.SHORTEST, line) == [1, 3, 2, 0]
    assert order(Policy.SLO, line) == [2, 0, 1, 3]


claims = st.builds(
    Claim,
    st.floats(0, 1000),
    st.integers(0, 100),
    st.integers(1, 100_000),
    st.floats(0, 1000),
    st.none() | st.floats(0, 1000),
)


@settings(max_examples=50)
@given(st.sampled_from(Policy), claims, claims, st.floats(0, 3000))
def test_nobody_is_passed_by_one_who_comes_a_minute_later(
    policy: Policy, one: Claim, other: Claim, now_s: float
) -> None:
    due = POLICIES[policy]
    later = other._replace(arrived_s=one.arrived_s + MAX_DELAY_S + 1e-3 + other.arrived_s)
    assert due(one, now_s) < due(later, now_s)


loads = st.lists(
    st.builds(
        Arrival,
        st.floats(0, 2),
        st.lists(st.integers(0, 1), min_size=1, max_size=90).map(tuple),
        st.integers(1, 40),
        st.integers(0, 3),
        st.none() | st.floats(0.1, 3),
        st.none(),
        st.sampled_from([None, "x"]),
        st.just(""),
    ),
    min_size=1,
    max_size=14,
)


@settings(max_examples=50, deadline=None)
@given(
    loads,
    st.integers(9, 16),
    st.sampled_from(Policy),
    st.sampled_from(Batching),
    st.sampled_from(Preemption),
    st.booleans(),
    st.integers(1, 64),
)
def test_any_load_ends_in_the_smallest_pool_and_leaves_it_clean(
    load: list[Arrival],
    size: int,
    policy: Policy,
    batching: Batching,
    preemption: Preemption,
    is_chunked: bool,
    budget: int,
) -> None:
    kv = sim.pages(size, num_cached=4)
    limits = Limits(4, budget, policy, batching, is_chunked)

    def watch(ledger: Ledger, step: Step) -> None:
        kv.check()
        assert not step.is_empty
        assert len(ledger.running) <= 4
        if is_chunked:
            num_prompt = sum(piece.num_tokens for _, piece in step.prefill)
            assert num_prompt <= budget * (1 if step.decode else ALONE_FACTOR)

    done = simulate(load, limits, kv=kv, preemption=preemption, watch=watch)
    assert all(outcome.finished_s is not None for outcome in done)
    assert kv.pool.num_available == size


def burst(seed: int, rate: float, num: int = 150) -> list[Arrival]:
    """Mixed prompts at random times, with targets that fit their lengths."""
    random = Random(seed)
    at_s, made = 0.0, []
    for number in range(num):
        at_s += random.expovariate(rate)
        length = random.choice((16, 32, 64, 600))
        prompt = tuple(1000 * number + i for i in range(length))
        made.append(Arrival(at_s, prompt, 8, slo_s=0.3 + length * 0.006))
    return made


def attained(outcomes: list[Outcome]) -> float:
    kept = [o.ttft_s is not None and o.ttft_s <= (o.arrival.slo_s or 0) for o in outcomes]
    return sum(kept) / len(kept)


def run(policy: Policy, load: list[Arrival], **changes: object) -> list[Outcome]:
    limits = Limits(8, 128, policy)._replace(**changes)  # type: ignore[arg-type]
    return simulate(load, limits, kv=sim.pages(1000))


def test_deadline_slack_keeps_more_promises_than_order_of_arrival() -> None:
    load = burst(3, rate=2.2)
    assert attained(run(Policy.SLO, load)) >= 1.2 * attained(run(Policy.FCFS, load))


def test_short_prompts_wait_less_when_they_go_first() -> None:
    load = burst(4, rate=2.2)

    def mean_ttft(policy: Policy) -> float:
        times = [o.ttft_s or 0 for o in run(policy, load) if len(o.arrival.prompt) < 100]
        return sum(times) / len(times)

    assert mean_ttft(Policy.SHORTEST) < mean_ttft(Policy.FCFS)


def test_continuous_batching_beats_static_on_uneven_lengths() -> None:
    load = [Arrival(0.0, (number,) * 20, 400 if number % 8 == 0 else 50) for number in range(32)]

    def span(batching: Batching) -> float:
        return max(o.finished_s or 0 for o in run(Policy.FCFS, load, batching=batching))

    assert span(Batching.STATIC) >= 1.5 * span(Batching.CONTINUOUS)


def test_a_full_queue_refuses_and_a_deadline_expires() -> None:
    load = [Arrival(0.0, (1,) * 50, 100) for _ in range(12)]
    late = Arrival(0.0, (2,), 5, deadline_s=0.5)
    done = simulate([*load, late], Limits(2, 64), kv=sim.pages(100), max_queue=8)
    assert sum(outcome.is_refused for outcome in done) == 5
    done = simulate([*load, late], Limits(2, 64), kv=sim.pages(100))
    assert done[-1].finished_s is None
    assert all(outcome.finished_s for outcome in done[:-1])


@pytest.mark.parametrize("module", ["scheduler.core", "scheduler.sim", "kv.manager"])
def test_planning_needs_no_torch(module: str) -> None:
    code = f"import sys, longpole_engine.{module}; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_core_needs_no_tokenizer_reader_or_server() -> None:
    code = """
import sys
for name in ("gguf", "tokenizers", "safetensors", "jinja2", "fastapi", "pydantic"):
    sys.modules[name] = None
import longpole_engine.runner, longpole_engine.engine, longpole_engine.models.loader
from longpole_engine.sampling import sampler
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_when_all_who_run_wait_for_one_in_line_the_last_makes_room() -> None:
    """Beams advance together: some hold pages while another of theirs has none."""
    idle = tuple(Running(str(n), Claim(float(n), 0, 0, 0.0, None), 40, 40, 3, 3) for n in range(2))
    missing = Waiting("missing", Claim(0.0, 0, 40, 0.1, None), 40)
    todo = plan(State(9.0, (missing,), idle, 2, Limits(8, 64)))
    assert todo.preempt == ("1",)
    assert todo == todo._replace(admit=(), decode=(), prefill=())
    assert plan(State(9.0, (missing,), idle[:1], 5, Limits(8, 64))).admit == ("missing",)
    assert not any(plan(State(9.0, (), idle, 2, Limits(8, 64))))


def test_seats_are_counted_for_all_who_will_sit() -> None:
    several = Waiting("a", Claim(0.0, 0, 20, 0.1, None), 20, num_seats=3)
    one = Waiting("b", Claim(1.0, 0, 20, 0.1, None), 20)
    assert plan(State(9.0, (several, one), (), 99, Limits(3, 64))).admit == ("a",)
    assert plan(State(9.0, (several, one), (), 99, Limits(4, 64))).admit == ("a", "b")
