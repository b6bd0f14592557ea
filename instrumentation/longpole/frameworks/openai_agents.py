"""OpenAI Agents: its traces, agents, tools, handoffs and guardrails as longpole's steps.

    from longpole.frameworks import openai_agents

    openai_agents.install()
    agents.set_default_openai_client(longpole.wrap(AsyncOpenAI()))

The framework tells a tracing processor when each of its spans starts and ends. Its own spans of
model calls make none here: the wrapped client's calls are in their place. No text is read: not
the input or output of a tool, not the messages.
"""

from functools import cache
from importlib import import_module
from typing import Any

from longpole.frameworks.open_steps import OpenSteps
from longpole.step import Step
from longpole.vocab import Stage, keys
from longpole.workflow import current_run, guardrail, tool, workflow


class _OTHER(Exception):
    """OpenTelemetry's ``error.type`` where the sender says that something failed, and not what."""


class Bridge:
    """A tracing processor of the framework; :func:`install` adds one."""

    def __init__(self) -> None:
        self._steps = OpenSteps("openai_agents")

    def on_trace_start(self, trace: Any) -> None:
        """A run begins: a workflow, unless the application has one around it."""
        self._steps.begin(trace.trace_id, lambda: _run(trace))

    def on_trace_end(self, trace: Any) -> None:
        """It ended."""
        self._steps.end(trace.trace_id)

    def on_span_start(self, span: Any) -> None:
        """Something begins inside it."""
        self._steps.begin(span.span_id, lambda: _step(span.span_data))

    def on_span_end(self, span: Any) -> None:
        """It ended."""
        self._steps.end(span.span_id, None if span.error is None else _OTHER())

    def shutdown(self) -> None:
        """Nothing is held back."""

    def force_flush(self) -> None:
        """Nothing is held back; see :func:`longpole.flush`."""


def _run(trace: Any) -> Step | None:
    if current_run() is not None:
        return None
    return workflow(trace.name, conversation_id=trace.group_id)


def _step(data: Any) -> Step | None:
    """The step that a span of the framework is; ``None`` for what longpole does not show.

    Model calls are the wrapped client's; tasks and turns only group what is shown.
    """
    if data.type == "agent":
        facts = {keys.OPERATION: "invoke_agent", keys.AGENT_NAME: data.name}
        return Step(f"invoke_agent {data.name}", facts)
    if data.type == "function":
        return tool(str(data.name))
    if data.type == "guardrail":
        return guardrail(str(data.name))
    if data.type == "handoff":
        return Step(f"handoff {data.from_agent}", {keys.STAGE: Stage.OTHER.value})
    if data.type == "mcp_tools":
        return Step(f"list_tools {data.server}", {keys.STAGE: Stage.TOOL.value})
    return None


@cache
def install() -> Bridge:
    """Add the bridge to the framework's processors, once; it returns the one that is there.

    The framework's own exporter goes on; ``agents.set_trace_processors([Bridge()])`` replaces it.

    Raises:
        ModuleNotFoundError: ``openai-agents`` is not installed.
    """
    bridge = Bridge()
    import_module("agents").add_trace_processor(bridge)
    return bridge
