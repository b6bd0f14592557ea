import asyncio
import threading
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import StatusCode

import longpole
from longpole.branches import Branch, Fanout
from longpole.testing import Spans
from longpole.vocab import keys

MESSAGES: Any = [{"role": "user", "content": "x"}]


def facts(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def span_id(span: ReadableSpan) -> int:
    assert span.context is not None
    return span.context.span_id


async def test_a_race_of_branches_keeps_its_losers(spans: Spans) -> None:
    async def draft(group: Fanout, name: str, delay_s: float) -> Branch:
        with group.branch(name) as branch, longpole.tool(f"write {name}"):
            await asyncio.sleep(delay_s)
        return branch

    with longpole.workflow("answer") as run, longpole.fanout("drafts") as group:
        tasks = [asyncio.create_task(draft(group, n, s)) for n, s in (("a", 0.01), ("b", 30))]
        done, losers = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in losers:
            task.cancel()
        await asyncio.gather(*losers, return_exceptions=True)
        run.used(done.pop().result())
    winner, loser = spans.named("branch a")[0], spans.named("branch b")[0]
    root = spans.named("invoke_workflow answer")[0]
    assert facts(winner)[keys.BRANCH_STATE] == "completed"
    assert facts(loser)[keys.BRANCH_STATE] == "cancelled"
    assert loser.status.status_code is StatusCode.UNSET
    assert keys.ERROR_TYPE not in facts(loser)
    assert facts(root)[keys.BRANCH_USED] == (f"{span_id(winner):016x}",)
    assert {s.parent.span_id for s in (winner, loser) if s.parent} == {
        span_id(spans.named("fanout drafts")[0])
    }


def test_a_branch_that_raises_has_failed(spans: Spans) -> None:
    def work(group: Fanout) -> None:
        with group.branch("a"):
            raise ZeroDivisionError

    with longpole.fanout("f") as group:
        with pytest.raises(ZeroDivisionError):
            work(group)
        with group.branch("b") as stopped:
            stopped.cancelled()
    failed, cancelled = facts(spans[0]), facts(spans[1])
    assert (failed[keys.BRANCH_STATE], failed[keys.ERROR_TYPE]) == ("failed", "ZeroDivisionError")
    assert spans[0].status.status_code is StatusCode.ERROR
    assert cancelled[keys.BRANCH_STATE] == "cancelled"
    assert cancelled[keys.BRANCH_NAME] == "b"


def test_a_branch_in_a_bare_thread_belongs_to_its_group(spans: Spans) -> None:
    def work() -> None:
        with group.branch("a"), longpole.tool("t"):
            pass

    with longpole.workflow("w", route="r"), longpole.fanout("f") as group:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    tool, branch, fanout, root = spans
    assert branch.parent is not None
    assert branch.parent.span_id == span_id(fanout)
    assert tool.parent is not None
    assert tool.parent.span_id == span_id(branch)
    assert facts(tool)[keys.ROUTE] == "r"
    assert len({s.context.trace_id for s in (tool, root) if s.context}) == 1


def test_what_the_losers_cost_can_be_told(client: Any, spans: Spans) -> None:
    with longpole.workflow("w") as run, longpole.fanout("f") as group:
        for name in ("a", "b", "c"):
            with group.branch(name), longpole.validation("check"):
                client.chat.completions.create(model="plain", messages=MESSAGES)
        run.used("b")
    by_id = {span_id(span): span for span in spans}
    used = set(facts(spans[-1])[keys.BRANCH_USED])
    total = lost = 0
    for call in spans.named("chat plain"):
        above: ReadableSpan | None = call
        while above is not None and keys.BRANCH_NAME not in facts(above):
            above = by_id.get(above.parent.span_id) if above.parent else None
        assert above is not None
        tokens = facts(call)[keys.OUTPUT_TOKENS]
        total += tokens
        branch = facts(above)[keys.BRANCH_NAME]
        lost += 0 if {branch, f"{span_id(above):016x}"} & used else tokens
    assert total > 0
    assert lost * 3 == total * 2


def test_the_first_to_complete_wins_the_hedge(spans: Spans) -> None:
    with longpole.hedge("ask") as group:
        first, second, third = (group.branch(name) for name in ("a", "b", "c"))
        first.__enter__()
        second.__enter__()
        first.__exit__(OSError, OSError(), None)
        second.__exit__(None, None, None)
        with third:
            third.cancelled()
    ask = spans.named("hedge ask")[0]
    assert facts(ask)[keys.HEDGE_WINNER] == second.span_id
    states = [facts(span)[keys.BRANCH_STATE] for span in spans[:3]]
    assert states == ["failed", "completed", "cancelled"]


def test_a_hedge_nobody_answered_has_no_winner(spans: Spans) -> None:
    with longpole.hedge() as group, pytest.raises(ZeroDivisionError), group.branch("a"):
        raise ZeroDivisionError
    assert keys.HEDGE_WINNER not in facts(spans[-1])


def test_groups_decorate_and_begin_anew_each_time(spans: Spans) -> None:
    made = longpole.hedge("h")
    for _ in range(2):
        with made, made.branch("a"):
            pass
    first, second = (facts(span)[keys.HEDGE_WINNER] for span in spans.named("hedge h"))
    assert first != second

    @longpole.fanout
    def spread() -> int:
        return 3

    assert spread() == 3
    assert spans[-1].name == "fanout spread"
