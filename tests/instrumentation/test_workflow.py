import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import StatusCode

import longpole
from longpole import step
from longpole.testing import Spans
from longpole.vocab import Stage, keys


def facts(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def parents(spans: Spans) -> dict[str, str | None]:
    names = {span.context.span_id: span.name for span in spans if span.context}
    return {s.name: names.get(s.parent.span_id) if s.parent else None for s in spans}


def test_a_workflow_is_a_root_whose_facts_are_inherited(spans: Spans) -> None:
    with (
        longpole.workflow(
            "answer", route="rag", route_version="7", slo_class="interactive", prompt_version="p3"
        ),
        longpole.tool("search"),
    ):
        pass
    inside, root = spans
    assert root.name == "invoke_workflow answer"
    assert root.parent is None
    assert facts(root)[keys.OPERATION] == "invoke_workflow"
    assert facts(root)[keys.WORKFLOW_NAME] == "answer"
    for span in spans:
        assert facts(span)[keys.ROUTE] == "rag"
        assert facts(span)[keys.ROUTE_VERSION] == "7"
        assert facts(span)[keys.SLO_CLASS] == "interactive"
        assert facts(span)[keys.PROMPT_VERSION] == "p3"
    assert parents(spans)[inside.name] == root.name


def test_an_outcome_nobody_stated_is_unknown(spans: Spans) -> None:
    with longpole.workflow("answer"):
        pass
    assert keys.OUTCOME not in facts(spans[0])
    assert spans[0].status.status_code is StatusCode.UNSET


def test_accepted_carries_its_facts_and_its_time(spans: Spans) -> None:
    with longpole.workflow("answer") as run:
        run.first_useful_output()
        run.first_useful_output()
        run.accept(tests=12)
    found = facts(spans[0])
    assert found[keys.OUTCOME] == "accepted"
    assert found["longpole.outcome.fact.tests"] == 12
    assert 0 < found[keys.TIME_TO_USEFUL] < found[keys.TIME_TO_ACCEPTED] < 5


def test_rejected_and_failed(spans: Spans) -> None:
    with longpole.workflow("a") as run:
        run.reject("no_citation")
    with longpole.workflow("b") as run:
        run.accept()
        run.fail("tool_timeout")
    assert facts(spans[0])[keys.OUTCOME] == "rejected"
    assert facts(spans[0])[keys.OUTCOME_REASON] == "no_citation"
    assert facts(spans[1])[keys.OUTCOME] == "failed"
    assert facts(spans[1])[keys.FAILURE_CLASS] == "tool_timeout"
    assert keys.TIME_TO_ACCEPTED not in facts(spans[1])


def test_an_exception_fails_the_run_and_goes_on_unchanged(spans: Spans) -> None:
    error = ValueError("a secret question")

    def work(failure_class: str | None) -> None:
        with longpole.workflow("a") as run:
            run.accept()
            if failure_class:
                run.fail(failure_class)
            raise error

    for failure_class in (None, "mine"):
        with pytest.raises(ValueError, match="secret") as caught:
            work(failure_class)
        assert caught.value is error
    assert [facts(s)[keys.FAILURE_CLASS] for s in spans] == ["ValueError", "mine"]
    assert [facts(s)[keys.OUTCOME] for s in spans] == ["failed", "failed"]
    assert facts(spans[0])[keys.ERROR_TYPE] == "ValueError"
    assert spans[0].status.status_code is StatusCode.ERROR
    assert "secret" not in spans[0].to_json()


async def test_cancelled_work_is_failed_and_no_error(spans: Spans) -> None:
    async def work() -> None:
        async with longpole.workflow("a"):
            await asyncio.sleep(10)

    with pytest.raises(TimeoutError):
        await asyncio.wait_for(work(), 0.01)
    assert facts(spans[0])[keys.FAILURE_CLASS] == "CancelledError"
    assert spans[0].status.status_code is StatusCode.UNSET


def test_a_step_can_run_again(spans: Spans) -> None:
    made = longpole.tool("t")
    for number in range(2):
        with made:
            made.set("number", number)
    assert [facts(span)["number"] for span in spans] == [0, 1]


def test_a_late_word_is_lost_and_said_once(spans: Spans, caplog: Any) -> None:
    with longpole.workflow("a") as run:
        pass
    run.accept()
    run.first_useful_output()
    run.used("x")
    assert len(caplog.records) == 1


def test_branches_the_outcome_uses(spans: Spans) -> None:
    with longpole.workflow("a") as run, longpole.fanout("drafts"):
        with longpole.tool("one") as one:
            pass
        run.used(one)
        run.used("two")
    assert facts(spans[-1])[keys.BRANCH_USED] == (one.span_id, "two")


@pytest.mark.parametrize(
    ("kind", "name", "stage", "operation"),
    [
        (longpole.tool, "execute_tool x", Stage.TOOL, "execute_tool"),
        (longpole.retrieval, "retrieval x", Stage.RETRIEVAL, "retrieval"),
        (longpole.rerank, "rerank x", Stage.RETRIEVAL, None),
        (longpole.validation, "validation x", Stage.VALIDATION, None),
        (longpole.guardrail, "guardrail x", Stage.VALIDATION, None),
        (longpole.prompt_assembly, "prompt_assembly x", Stage.OTHER, None),
        (longpole.admission, "admission x", Stage.ADMISSION, None),
        (longpole.human_wait, "human_wait x", Stage.HUMAN_WAIT, None),
        (longpole.render, "render x", Stage.RENDER, None),
        (longpole.cache_lookup, "cache_lookup x", Stage.OTHER, None),
        (longpole.fanout, "fanout x", Stage.OTHER, None),
    ],
)
def test_the_kinds_of_steps(
    kind: step.StepKind, name: str, stage: Stage, operation: str | None, spans: Spans
) -> None:
    with kind("x") as made:
        made.set("mine", 1)
    assert spans[0].name == name
    assert facts(spans[0])[keys.STAGE] == stage
    assert facts(spans[0]).get(keys.OPERATION) == operation
    assert facts(spans[0])["mine"] == 1


def test_a_tool_and_a_source_are_named(spans: Spans) -> None:
    with longpole.tool("search"), longpole.retrieval("wiki"):
        pass
    assert facts(spans[0])[keys.DATA_SOURCE_ID] == "wiki"
    assert facts(spans[1])[keys.TOOL_NAME] == "search"


def test_decorated_functions_keep_their_face_and_name_the_step(spans: Spans) -> None:
    @longpole.tool
    def bare(x: int) -> int:
        """Doc."""
        return x + 1

    @longpole.tool()
    def called(x: int) -> int:
        return x + 2

    @longpole.tool("named")
    def named(x: int) -> int:
        return x + 3

    assert [bare(1), called(1), named(1), named(1)] == [2, 3, 4, 4]
    assert (bare.__name__, bare.__doc__) == ("bare", "Doc.")
    names = [span.name.removeprefix("execute_tool ") for span in spans]
    assert names == ["bare", "called", "named", "named"]


async def test_decorated_coroutines_run_inside_the_step(spans: Spans) -> None:
    @longpole.workflow("answer")
    async def answer() -> str:
        run = longpole.current_run()
        assert run is not None
        await asyncio.gather(*(search(i) for i in range(3)))
        run.accept()
        return "done"

    @longpole.tool
    async def search(number: int) -> int:
        await asyncio.sleep(0.01 * number)
        return number

    assert await answer() == "done"
    assert longpole.current_run() is None
    root = spans[-1]
    assert facts(root)[keys.OUTCOME] == "accepted"
    assert root.context is not None
    assert {s.parent.span_id for s in spans[:-1] if s.parent} == {root.context.span_id}


def test_a_decorated_generator_is_a_step_as_long_as_it_runs(spans: Spans) -> None:
    @longpole.workflow("stream")
    def numbers(limit: int) -> Iterator[int]:
        with longpole.tool("outer"):
            for number in range(limit):
                with longpole.tool(f"t{number}"):
                    pass
                yield number

    seen = []
    for number in numbers(2):
        assert not trace.get_current_span().get_span_context().is_valid
        seen.append(number)
    assert seen == [0, 1]
    assert parents(spans) == {
        "execute_tool t0": "execute_tool outer",
        "execute_tool t1": "execute_tool outer",
        "execute_tool outer": "invoke_workflow stream",
        "invoke_workflow stream": None,
    }


def test_a_decorated_generator_passes_on_what_is_sent_thrown_and_returned(spans: Spans) -> None:
    @longpole.tool
    def echo() -> Any:
        got = yield "ready"
        try:
            yield got
        except KeyError:
            return "caught"

    def outer() -> Any:
        return (yield from echo())

    generator = outer()
    assert next(generator) == "ready"
    assert generator.send(5) == 5
    with pytest.raises(StopIteration) as done:
        generator.throw(KeyError())
    assert done.value.value == "caught"
    assert len(spans) == 1
    assert spans[0].status.status_code is StatusCode.UNSET


def test_a_generator_left_early_ends_its_step_without_error(spans: Spans) -> None:
    @longpole.workflow("stream")
    def numbers() -> Iterator[int]:
        yield from range(10)

    generator = numbers()
    next(generator)
    generator.close()  # type: ignore[attr-defined]
    assert len(spans) == 1
    assert keys.OUTCOME not in facts(spans[0])


async def test_a_decorated_async_generator(spans: Spans, caplog: Any) -> None:
    @longpole.workflow("stream")
    async def numbers() -> AsyncIterator[int]:
        async with longpole.tool("inner"):
            for number in range(3):
                await asyncio.sleep(0)
                yield number

    assert [n async for n in numbers()] == [0, 1, 2]
    assert parents(spans)["execute_tool inner"] == "invoke_workflow stream"

    broken = numbers()
    await anext(broken)
    await asyncio.create_task(broken.aclose())  # type: ignore[attr-defined]
    assert len(spans) == 4
    assert caplog.records == []


async def test_a_block_that_ends_in_another_task_logs_nothing(spans: Spans, caplog: Any) -> None:
    async def numbers() -> AsyncIterator[int]:
        with longpole.workflow("stream"):
            yield 1
            yield 2

    generator = numbers()
    await asyncio.create_task(anext(generator))  # type: ignore[arg-type]
    await generator.aclose()  # type: ignore[attr-defined]
    assert len(spans) == 1
    assert caplog.records == []


def test_a_failure_of_ours_leaves_the_block_alone(
    monkeypatch: pytest.MonkeyPatch, spans: Spans
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError

    monkeypatch.setattr("longpole.emit.start_span", broken)
    with longpole.workflow("a") as run:
        with longpole.tool("b") as made:
            made.set("x", 1)
        run.accept()
    assert longpole.stats().num_internal_errors == {"step": 2}


def test_current_run_is_the_innermost(spans: Spans) -> None:
    with longpole.workflow("a") as outer:
        with longpole.workflow("b") as inner, longpole.tool("t"):
            assert longpole.current_run() is inner
        assert longpole.current_run() is outer
