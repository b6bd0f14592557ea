"""longpole: where the time to an accepted outcome went, for every LLM request.

    import longpole

    client = longpole.wrap(OpenAI())
    with longpole.workflow("answer", route="rag.search") as run:
        ...
        run.accept()

Spans go to a collector at ``http://127.0.0.1:4318`` unless :func:`init` or the environment says
otherwise. Nothing here raises into the application, blocks it, or sends prompt or answer text.
Importing this loads OpenTelemetry's API only; its SDK comes with the first wrapped client or
span, the exporter with the first export.
"""

from longpole.context import carry, context_headers, remaining_s
from longpole.emit import Stats, flush, init, stats
from longpole.prompts import prompt, route_decision, route_inputs
from longpole.workflow import (
    Run,
    admission,
    cache_lookup,
    context_executor,
    current_run,
    fanout,
    guardrail,
    hedge,
    human_wait,
    prompt_assembly,
    render,
    rerank,
    retrieval,
    speculate,
    tool,
    validation,
    workflow,
)
from longpole.wrap import instrument, uninstrument, unwrap, wrap

__all__ = [
    "Run",
    "Stats",
    "admission",
    "cache_lookup",
    "carry",
    "context_executor",
    "context_headers",
    "current_run",
    "fanout",
    "flush",
    "guardrail",
    "hedge",
    "human_wait",
    "init",
    "instrument",
    "prompt",
    "prompt_assembly",
    "remaining_s",
    "render",
    "rerank",
    "retrieval",
    "route_decision",
    "route_inputs",
    "speculate",
    "stats",
    "tool",
    "uninstrument",
    "unwrap",
    "validation",
    "workflow",
    "wrap",
]
