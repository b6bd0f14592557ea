"""What the generator promises, by arithmetic: on a clock of its own, where nothing is by chance."""

import asyncio
import json
import selectors
import sys
from collections.abc import Callable, Iterator
from itertools import accumulate, islice
from pathlib import Path
from typing import Any

import pytest

from longpole.call import Kind, StreamState, Usage
from longpole_engine.load import client as client_module
from longpole_engine.load import run as run_module
from longpole_engine.load.alarm import Alarm
from longpole_engine.load.arrivals import (
    Closed,
    Session,
    Turn,
    gamma_gaps,
    parse,
    recorded,
    squared_cv,
)
from longpole_engine.load.client import Answer, Behaviour, Failure
from longpole_engine.load.run import Plan, Run
from longpole_engine.load.summary import summary

STALL_S = 2.0
RATE = 100
SECONDS = 20


class _Timeless(selectors.BaseSelector):
    """Waits by moving the clock; no file is ever ready."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._inner = selectors.DefaultSelector()

    def select(self, timeout: float | None = None) -> list[Any]:
        ready = self._inner.select(0)
        if not ready:
            self.now_s += timeout or 0.0
        return ready

    def register(self, *given: Any) -> Any:
        return self._inner.register(*given)

    def unregister(self, fileobj: Any) -> Any:
        return self._inner.unregister(fileobj)

    def get_map(self) -> Any:
        return self._inner.get_map()

    def close(self) -> None:
        self._inner.close()


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._clock = _Timeless()
        super().__init__(self._clock)

    def time(self) -> float:
        return self._clock.now_s

    def hold(self, seconds: float) -> None:
        """The process stands still for so long."""
        self._clock.now_s += seconds


@pytest.fixture
def timeless(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Run]]:
    """Runs a plan in no time: sleeping moves the clock that the generator reads."""
    loop = _Loop()

    def now_ns() -> int:
        return round(loop.time() * 1e9)

    monkeypatch.setattr(run_module, "now_ns", now_ns)
    monkeypatch.setattr(client_module, "now_ns", now_ns)

    def start(
        arrivals: Any, target: "_Target", held_s: float = 0.0, stop_s: float = 0.0, **plan: Any
    ) -> Run:
        def shown(run: Run) -> None:
            target.shown.append((loop.time(), len(run.sent), run.num_in_flight))

        run = Run(Plan("m", **plan), target, None, shown)
        target.now_ns = now_ns
        target.hold = lambda: loop.hold(held_s)
        if stop_s:
            loop.call_later(stop_s, run.stop)
        loop.run_until_complete(run(arrivals))
        return run

    yield start
    loop.close()


class _Target:
    """Answers after 10 ms; between two moments it answers nobody."""

    def __init__(self, stall_s: tuple[float, float] = (0.0, 0.0)) -> None:
        self.now_ns: Callable[[], int] = lambda: 0
        self.hold: Callable[[], None] = lambda: None
        """Holds up the sending process when the first request is sent."""
        self.shown: list[tuple[float, int, int]] = []
        """Progress: when, requests done, in flight."""
        self.stall_s = stall_s
        self.asked: list[tuple[bytes, Behaviour]] = []

    async def ask(
        self,
        body: bytes,
        traceparent: str | None,
        timeout_s: float,
        behaviour: Behaviour = Behaviour.READS,
        limit: float = 0.0,
    ) -> Answer:
        self.asked.append((body, behaviour))
        answer = Answer(self.now_ns())
        if len(self.asked) == 1:
            self.hold()
        begin_s, end_s = self.stall_s
        if begin_s <= self.now_ns() / 1e9 < end_s:
            await asyncio.sleep(end_s - self.now_ns() / 1e9)
        await asyncio.sleep(0.01)
        answer.call.event(Kind.TEXT, self.now_ns())
        answer.call.use(Usage(output_tokens=1))
        answer.call.end(self.now_ns(), StreamState.COMPLETED)
        return answer

    def close(self) -> None:
        pass


def test_a_stall_moves_the_open_loop_s_p99_as_arithmetic_says(
    timeless: Callable[..., Run],
) -> None:
    """Due evenly, a share of stall / duration waits from nothing to the whole stall."""
    stalled = _Target((5.0, 5.0 + STALL_S))
    run = timeless(parse(f"constant:{RATE}", 0), stalled, duration_s=SECONDS)
    e2e = summary(run, f"constant:{RATE}")["warm"]["latency"]["e2e_ms"]
    # beyond the p99 is 1 % of all: those that were due in the first 0.2 s of the stall
    expected_ms = (STALL_S - 0.01 * SECONDS) * 1e3
    assert e2e["p99"] == pytest.approx(expected_ms, abs=30)
    assert e2e["max"] == pytest.approx(STALL_S * 1e3, abs=30)
    assert e2e["p50"] == pytest.approx(10, abs=2)


def test_a_closed_loop_does_not_see_it(timeless: Callable[..., Run]) -> None:
    """Coordinated omission: whoever waits asks nothing meanwhile, so one request sees the stall."""
    stalled = _Target((5.0, 5.0 + STALL_S))
    run = timeless(Closed(1), stalled, duration_s=SECONDS)
    told = summary(run, "closed:1")
    assert told["num_completed"] > 1_000
    assert told["warm"]["latency"]["e2e_ms"]["p99"] == pytest.approx(10, abs=2)
    assert told["warm"]["latency"]["e2e_ms"]["max"] == pytest.approx(STALL_S * 1e3, abs=30)


@pytest.mark.parametrize(("cv2", "speed"), [(0.5, 1.0), (4.0, 1.0), (9.0, 3.0)])
def test_requests_are_sent_with_the_burstiness_of_the_file(
    timeless: Callable[..., Run], tmp_path: Path, cv2: float, speed: float
) -> None:
    times_s = list(islice(accumulate(gamma_gaps(10.0, cv2, 11)), 800))
    path = tmp_path / "arrivals.csv"
    path.write_text("t_s\n" + "\n".join(f"{at:.6f}" for at in times_s))
    run = timeless(recorded(path, speed), _Target())
    sent_s = sorted(each.answer.call.start_ns / 1e9 for each in run.sent)
    assert len(sent_s) == len(times_s)
    asked, sent = squared_cv(times_s), squared_cv(sent_s)
    assert asked is not None
    assert sent == pytest.approx(asked, rel=0.05)
    spread_s = (times_s[-1] - times_s[0]) / speed
    assert sent_s[-1] - sent_s[0] == pytest.approx(spread_s, rel=0.001)
    lag_ms = [each.lag_ns / 1e6 for each in run.sent]
    assert min(lag_ms) >= 0
    assert max(lag_ms) <= 1


def test_the_same_seed_asks_the_same_of_the_same_clients(timeless: Callable[..., Run]) -> None:
    shares = {Behaviour.SLOW: 0.3, Behaviour.CANCELS: 0.3}

    def asked(seed: int) -> list[tuple[bytes, Behaviour]]:
        target = _Target()
        arrivals = parse("poisson:50", seed)
        timeless(arrivals, target, max_requests=60, seed=seed, shares=shares, turns=2)
        return target.asked

    first, again, other = asked(3), asked(3), asked(4)
    assert first == again
    assert len(first) == len(other)
    assert {behaviour for _, behaviour in first} > {Behaviour.READS}
    assert not {body for body, _ in first} & {body for body, _ in other}


def test_equal_blocks_are_equal_text_and_lengths_are_those_of_the_file(
    timeless: Callable[..., Run], tmp_path: Path
) -> None:
    path = tmp_path / "arrivals.jsonl"
    rows = [
        {"t_s": 0.0, "input_tokens": 40, "output_tokens": 7, "block_ids": [1, 2]},
        {"t_s": 0.5, "input_tokens": 40, "output_tokens": 3, "block_ids": [1, 3]},
        {"t_s": 0.5, "input_tokens": 0, "output_tokens": 0, "block_ids": [4]},
    ]
    path.write_text("\n".join(map(json.dumps, rows)))
    target = _Target()
    timeless(recorded(path), target)
    bodies = [json.loads(body) for body, _ in target.asked]
    words = [body["messages"][0]["content"].split() for body in bodies]
    assert [len(each) for each in words] == [40, 40, 1]  # no token cannot be asked for
    assert [body["max_tokens"] for body in bodies] == [7, 3, 1]
    assert words[0][:20] == words[1][:20]
    assert words[0][20:] != words[1][20:]


def test_what_is_ten_seconds_late_is_counted_and_not_sent(timeless: Callable[..., Run]) -> None:
    """So that a run which asks for more than this machine can send has an end."""
    run = timeless(parse("constant:10", 0), _Target(), held_s=15.0, duration_s=20.0)
    told = summary(run, "constant:10")
    assert told["num_due"] == 200
    # due at 0.2 to 4.9 s, looked at from 15 s on; that of 0.1 s was waited for when it began
    assert (told["num_too_late"], told["num_not_sent"], told["num_sent"]) == (48, 48, 152)
    assert told["asked_per_s"] == pytest.approx(10)
    assert told["is_behind"]
    lags_s = sorted(each.lag_ns / 1e9 for each in run.sent)
    assert lags_s[-2:] == pytest.approx([10.0, 14.9], abs=0.01)


def test_the_rate_asked_for_is_that_of_all_that_was_due(timeless: Callable[..., Run]) -> None:
    stalled = _Target((0.0, 100.0))
    run = timeless(parse("constant:10", 0), stalled, duration_s=10.0, max_in_flight=2)
    told = summary(run, "constant:10")
    assert (told["num_due"], told["num_sent"], told["num_not_sent"]) == (100, 2, 98)
    assert told["num_too_late"] == 0
    assert told["asked_per_s"] == pytest.approx(10)


def test_a_run_that_is_stopped_adds_up(timeless: Callable[..., Run]) -> None:
    """Turns that were not due yet are none; those in flight were sent."""
    stalled = _Target((2.0, 100.0))
    run = timeless(parse("constant:10", 0), stalled, stop_s=3.05, turns=2, think_s=1.5)
    told = summary(run, "constant:10")
    assert told["is_partial"]
    assert told["num_given_up"] > 0
    assert told["num_due"] == told["num_sent"] == len(run.sent) + told["num_given_up"]
    assert told["sent_per_s"] == pytest.approx(told["asked_per_s"], rel=0.01)
    assert not told["is_behind"]


def test_a_target_that_says_nothing_is_seen_to_say_nothing(timeless: Callable[..., Run]) -> None:
    hung = _Target((0.0, 30.0))
    timeless(parse("constant:1", 0), hung, max_requests=2)
    while_it_hung = [each for each in hung.shown if each[0] < 30]
    assert len(while_it_hung) >= 25
    assert while_it_hung[-1][1:] == (0, 2)


def test_a_closed_loop_does_not_hammer_a_target_that_is_down(timeless: Callable[..., Run]) -> None:
    class Down(_Target):
        async def ask(self, *given: Any, **named: Any) -> Answer:
            answer = Answer(self.now_ns())
            answer.failure = Failure.CONNECT
            answer.call.end(self.now_ns(), StreamState.ERROR)
            return answer

    told = summary(timeless(Closed(2), Down(), duration_s=5.0), "closed:2")
    assert told["failures"] == {"connect": 100}


def test_an_error_of_the_generator_itself_ends_the_run(timeless: Callable[..., Run]) -> None:
    def broken() -> Iterator[Session]:
        yield Session(0.0, (Turn(),))
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        timeless(broken(), _Target())


@pytest.mark.skipif(sys.platform != "linux", reason="timers of Linux")
async def test_an_alarm_wakes_no_sooner_than_asked_and_at_once_when_it_is_late() -> None:
    alarm = Alarm()
    for wait_ns in (0, -5_000_000, 300_000, 7_500_000, 1):
        due_ns = client_module.now_ns() + wait_ns
        await alarm.until(due_ns)
        assert client_module.now_ns() >= due_ns
    alarm.close()
