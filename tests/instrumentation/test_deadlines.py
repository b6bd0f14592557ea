import asyncio
import time
from typing import Any

import pytest

import longpole
from longpole.testing import Spans
from longpole.vocab import keys

MESSAGES: Any = [{"role": "user", "content": "x"}]


def facts(span: Any) -> dict[str, Any]:
    return dict(span.attributes or {})


def test_what_is_left_is_inherited_by_every_span_inside(client: Any, spans: Spans) -> None:
    with longpole.workflow("a", deadline_s=60) as run, longpole.retrieval("wiki"):
        client.chat.completions.create(model="plain", messages=MESSAGES)
        left_s = run.remaining_s()
        assert left_s is not None
        assert left_s < 60
        assert longpole.remaining_s() == pytest.approx(left_s, abs=5)
    call, step, root = (facts(span) for span in spans)
    assert root[keys.DEADLINE] == 60
    assert root[keys.DEADLINE_MISSED] is False
    assert keys.DEADLINE_REMAINING not in root
    assert 60 > step[keys.DEADLINE_REMAINING] > call[keys.DEADLINE_REMAINING] > left_s
    assert keys.DEADLINE not in step


def test_the_tightest_deadline_counts() -> None:
    with longpole.workflow("a", deadline_s=100):
        with longpole.tool("slow", deadline_s=1000):
            assert longpole.remaining_s() == pytest.approx(100, abs=30)
        with longpole.tool("quick", deadline_s=10) as tool:
            left_s = longpole.remaining_s()
            assert left_s is not None
            assert left_s <= 10
            assert tool.context is not None
        assert longpole.remaining_s() == pytest.approx(100, abs=30)
    assert longpole.remaining_s() is None


def test_a_missed_deadline_is_recorded_and_stops_nothing(spans: Spans) -> None:
    with longpole.workflow("a", deadline_s=0.001) as run:
        time.sleep(0.01)
        with longpole.tool("late", deadline_s=30):
            pass
        assert run.remaining_s() < 0  # type: ignore[operator]
    tool, root = (facts(span) for span in spans)
    assert root[keys.DEADLINE_MISSED] is True
    assert tool[keys.DEADLINE_MISSED] is False
    assert tool[keys.DEADLINE_REMAINING] < 0


def test_without_a_deadline_nothing_is_said(spans: Spans) -> None:
    with longpole.workflow("a") as run, longpole.tool("t"):
        assert run.remaining_s() is None
        assert longpole.remaining_s() is None
    for span in spans:
        assert not [key for key in facts(span) if key.startswith("longpole.deadline")]


async def test_each_run_of_a_decorated_workflow_has_its_own_deadline(spans: Spans) -> None:
    @longpole.workflow("a", deadline_s=50)
    async def answer() -> float | None:
        await asyncio.sleep(0.01)
        return longpole.remaining_s()

    first, second = [await answer() for _ in range(2)]
    assert first is not None
    assert second is not None
    assert 40 < first < 50
    assert 40 < second < 50


def test_acknowledged_counts_the_first_time_only(spans: Spans) -> None:
    with longpole.workflow("a") as run:
        run.acknowledged()
        time.sleep(0.02)
        run.acknowledged()
        run.first_useful_output()
    found = facts(spans[0])
    assert 0 < found[keys.TIME_TO_ACKNOWLEDGED] <= found[keys.TIME_TO_USEFUL] - 0.02
