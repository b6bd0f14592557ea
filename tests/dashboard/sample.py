"""Spans of an agent's workflow: retrieval, two model calls seen by both sides, parallel tools."""

from collections.abc import Mapping
from itertools import count
from typing import Any

from longpole.vocab import Kind, Span, Stage

MS = 1_000_000
T0 = 1_789_392_600_000_000_000  # 2026-09-14 13:30:00 UTC


class Builder:
    """Makes spans of one trace; times in ms since its start."""

    def __init__(self, number: int = 1, at_ns: int = T0) -> None:
        self.trace_id = f"{number:032x}"
        self.at_ns = at_ns
        self.ids = count(1)
        self.spans: list[Span] = []

    def span(
        self, name: str, start: float, end: float, parent: Span | None = None, **values: Any
    ) -> Span:
        known: dict[str, Any] = {
            "kind": Kind.INTERNAL,
            "service": "app",
            "instance_id": "app-1",
            "scope": "longpole",
            "dialect": "otel_genai",
            "status": "unset",
            "route": "agent.research",
            "prompt_version": "v41",
        }
        made = Span(
            trace_id=self.trace_id,
            span_id=f"{next(self.ids):016x}",
            parent_id=parent.span_id if parent else None,
            name=name,
            start_ns=self.at_ns + int(start * MS),
            end_ns=self.at_ns + int(end * MS),
            received_ns=self.at_ns + 60_000 * MS,
            **{**known, **values},
        )
        self.spans.append(made)
        return made

    def call(self, start: float, parent: Span, phases: dict[str, float], name: str = "") -> float:
        """A streamed model call with its engine's account; returns when it ended."""
        network, stream = 12.0, 6.0
        before = [s for s in phases if s != Stage.LATER_DECODE]
        ttft = network + sum(phases[s] for s in before)
        last = ttft + phases.get(Stage.LATER_DECODE, 0.0)
        client = self.span(
            name or "chat smollm2",
            start,
            start + last + stream,
            parent,
            kind=Kind.CLIENT,
            operation="chat",
            is_model_call=True,
            is_streamed=True,
            request_model="smollm2",
            input_tokens=812,
            output_tokens=96,
            ttft_ns=int(ttft * MS),
            last_content_ns=int(last * MS),
            attributes={"app.tenant": "acme", "prompt.hash": "9c1f"},
        )
        at = start + network / 2
        engine = self.span(
            "llm_request",
            at,
            at + sum(phases.values()),
            client,
            kind=Kind.SERVER,
            service="engine",
            instance_id="engine-1",
            scope="longpole.engine",
            is_model_call=True,
            is_engine=True,
            operation="chat",
        )
        for stage, ms in phases.items():
            self.span(
                "decode" if stage == Stage.LATER_DECODE else stage,
                at,
                at + ms,
                engine,
                stage=stage,
                service="engine",
                instance_id="engine-1",
                scope="longpole.engine",
            )
            at += ms
        return start + last + stream


PHASES = {
    Stage.ADMISSION: 1.0,
    Stage.TOKENIZE: 2.5,
    Stage.QUEUE: 80.0,
    Stage.PREFILL: 200.0,
    Stage.FIRST_DECODE: 9.0,
    Stage.LATER_DECODE: 400.0,
}


def agent_trace(number: int = 1, at_ns: int = T0, turns: int = 3, name: str = "") -> list[Span]:
    """Turns of retrieval, a model call and two parallel tools; ``name`` replaces a tool's name."""
    made = Builder(number, at_ns)
    at = 4.0
    length = 4.0 + turns * 1_500.0
    root = made.span(
        "invoke_workflow agent.research", 0, length, operation="invoke_workflow", outcome="accepted"
    )
    for turn in range(1, turns + 1):
        step = made.span(f"turn {turn}", at, at + 1_480, root)
        made.span("retrieval docs", at + 3, at + 90 + 15 * turn, step, stage=Stage.RETRIEVAL)
        end = made.call(at + 95 + 15 * turn, step, PHASES)
        made.span(name or "execute_tool search", end + 5, end + 350, step, stage=Stage.TOOL)
        made.span("execute_tool fetch", end + 5, end + 270, step, stage=Stage.TOOL)
        made.span(
            "validation schema", end + 355, end + 371, step, stage=Stage.VALIDATION, status="error"
        )
        at += 1_490
    return made.spans


def workflow(
    number: int,
    *,
    at_s: float = 0.0,
    stages: Mapping[str, float] | None = None,
    ttft_ms: float | None = 100.0,
    **facts: Any,
) -> list[Span]:
    """One workflow with one model call of ``ttft_ms``, then ``stages`` (ms) one after the other."""
    stages = {Stage.TOOL: 50.0} if stages is None else stages
    known = {"outcome": "accepted", "route": "rag.search", "prompt_version": "v1", **facts}
    inherited = {name: known[name] for name in ("route", "prompt_version")}
    made = Builder(number, T0 + int(at_s * 1000 * MS))
    at = 0.0 if ttft_ms is None else ttft_ms
    root = made.span("invoke_workflow", 0, at + sum(stages.values()), **known)
    if ttft_ms is not None:
        made.span(
            "chat tiny",
            0,
            ttft_ms,
            root,
            kind=Kind.CLIENT,
            operation="chat",
            request_model="tiny",
            is_model_call=True,
            is_streamed=True,
            ttft_ns=int(ttft_ms * MS),
            last_content_ns=int(ttft_ms * MS),
            tpot_ms=10.0,
            input_tokens=100,
            output_tokens=5,
            **inherited,
        )
    for stage, ms in stages.items():
        made.span(f"{stage} step", at, at + ms, root, stage=stage, **inherited)
        at += ms
    return made.spans
