"""The story of a request closes on its wall time and says who delayed it."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longpole.vocab import Stage
from longpole_engine.scheduler.core import Piece, StepPlan
from longpole_engine.telemetry.events import RequestRecord, Timeline, now_ns
from longpole_engine.telemetry.steps import NUM_STEPS, Part, StepLog
from longpole_engine.telemetry.story import Story, delays, document, tell

Drive = Callable[..., Any]


def told(driver: Any, name: str) -> Story:
    record = driver.records[name]
    record.timeline.close(now_ns())
    return tell(name, record, driver.engine.steps)


def check(driver: Any, name: str, story: Story) -> None:
    """What holds for every story."""
    phases = driver.records[name].timeline.phases()
    assert story.moments[0].start_ns == phases[0].start_ns
    assert story.moments[-1].end_ns == phases[-1].end_ns
    assert all(a.end_ns == b.start_ns for a, b in pairwise(story.moments))
    for phase in phases:
        inside = [m for m in story.moments if m.stage is phase.stage]
        assert sum(m.end_ns - m.start_ns for m in inside) == sum(
            p.end_ns - p.start_ns for p in phases if p.stage is phase.stage
        )
    waits = [m for m in story.moments if m.what.startswith("wait_")]
    assert all(m.mates and name not in dict(m.mates) for m in waits)
    assert sum(story.delayed_by.values()) == sum(m.end_ns - m.start_ns for m in waits)
    assert list(story.delayed_by.values()) == sorted(story.delayed_by.values(), reverse=True)
    told_alone = delays(name, driver.records[name], driver.engine.steps)
    assert list(told_alone.items()) == list(story.delayed_by.items())


@settings(max_examples=12, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(1, 60), st.integers(1, 10), st.integers(0, 3)),
        min_size=1,
        max_size=7,
    ),
    st.sampled_from([0, 10]),
)
def test_the_moments_tile_every_request(
    drive: Drive, jobs: list[tuple[int, int, int]], kv_pages: int
) -> None:
    driver = drive(max_step_tokens=8, kv_pages=kv_pages, is_prefix_cached=False)
    for number, (length, num, delay) in enumerate(jobs):
        prompt = [(7 * number + i) % 500 + 3 for i in range(length)]
        driver.submit(prompt, max_tokens=num, is_eos_ignored=True)
        for _ in range(delay):
            driver.engine.step()
    driver.drain()
    for name, record in driver.records.items():
        story = told(driver, name)
        check(driver, name, story)
        assert len(story.preempted) == record.num_preempted
        if record.num_preempted == 0 and record.error_type is None:
            chunks = [m for m in story.moments if m.what == "prefill_chunk"]
            assert sum(m.num_tokens for m in chunks) == record.input_tokens or (
                record.input_tokens is None
            )
            assert len(chunks) + sum(m.what == "decode" for m in story.moments) == record.num_steps


def test_a_prompt_in_chunks_delays_the_stream_beside_it_and_is_named(drive: Drive) -> None:
    driver = drive(max_step_tokens=8)
    stream = driver.submit([5, 6], max_tokens=20, is_eos_ignored=True)
    for _ in range(3):
        driver.engine.step()
    long = driver.submit(list(range(10, 50)), max_tokens=2, is_eos_ignored=True)
    driver.drain()
    story = told(driver, stream)
    assert list(story.delayed_by) == [long]
    waits = [m for m in story.moments if m.what == "wait_prefill"]
    assert {m.mates for m in waits if m.mates} >= {((long, 7),)}
    assert all(m.stage is Stage.LATER_DECODE for m in waits)
    other = told(driver, long)
    chunks = [m for m in other.moments if m.what == "prefill_chunk"]
    assert [m.num_tokens for m in chunks] == [7, 7, 7, 7, 7, 5]
    assert len({m.step for m in chunks}) == len(chunks)
    assert {m.what for m in other.moments} >= {
        "admission",
        "cache_lookup",
        "prefill_chunk",
        "sample",
        "detokenise",
        "flush",
        "decode",
        "stream",
    }
    # Each names the other in the steps they share.
    shared = {m.step for m in other.moments if m.what == "decode" and dict(m.mates).get(stream)}
    mine = {m.step for m in story.moments if m.what == "decode" and dict(m.mates).get(long)}
    assert shared == mine != set()


def test_who_waits_in_line_is_told_who_held_the_seats(drive: Drive) -> None:
    driver = drive(max_num_seqs=1)
    first = driver.submit([5], max_tokens=12, is_eos_ignored=True)
    second = driver.submit([6], max_tokens=2, is_eos_ignored=True)
    driver.drain()
    story = told(driver, second)
    assert list(story.delayed_by) == [first]
    queue = [m for m in story.moments if m.what == "wait_queue"]
    assert {m.stage for m in queue} == {Stage.QUEUE}
    assert len({m.step for m in queue}) >= 11


def test_a_pre_emption_says_its_cause_and_what_it_cost(drive: Drive) -> None:
    driver = drive(kv_pages=6, is_prefix_cached=False)
    for number in range(3):
        driver.submit([number + 3] * 10, max_tokens=38, is_eos_ignored=True)
    driver.drain()
    stories = {name: told(driver, name) for name in driver.records}
    preempted = [(name, one) for name, story in stories.items() for one in story.preempted]
    assert preempted
    for name, one in preempted:
        assert one.cause == "kv_pages"
        assert one.made_room_for
        assert name not in one.made_room_for
        assert one.lost_ns > 0
    shown = document("x", stories[preempted[0][0]])
    assert shown["preempted"][0]["cause"] == "kv_pages"
    assert sum(m["ms"] for m in shown["moments"]) == pytest.approx(shown["wall_ms"], abs=1e-3)


def test_an_open_request_has_no_story_and_an_old_one_keeps_its_stages() -> None:
    log = StepLog()
    record = RequestRecord(Timeline(1_000))
    assert tell("a", record, log).moments == []
    assert delays("a", record, log) == {}
    record.timeline.begin(Stage.QUEUE, 2_000)
    record.timeline.close(5_000)
    moments = tell("a", record, log).moments
    assert [(m.stage, m.what) for m in moments] == [
        (Stage.ADMISSION, "admission"),
        (Stage.QUEUE, "between_steps"),
    ]


def test_the_log_of_steps_is_bounded_and_finds_by_time() -> None:
    log = StepLog()
    plan = StepPlan(decode=(Piece("a", 1, 2),))
    start_ns = now_ns()
    for number in range(NUM_STEPS + 50):
        log.begin(now_ns())
        log.mark(Part.DECODE)
        log.end(number, plan, 0, 1)
    steps = log.between(start_ns, now_ns())
    assert [step.id for step in steps] == list(range(50, NUM_STEPS + 50))
    assert steps[0].num_tokens == 3
    middle = steps[100]
    assert middle in log.between(middle.start_ns, middle.end_ns)
    assert log.between(0, 1) == []
