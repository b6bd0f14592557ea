"""LangChain: its chains, prompts, tools and retrievers as longpole's steps.

    from longpole.frameworks import langchain

    langchain.install()
    longpole.instrument("openai")  # before the models are made: they make their clients themselves

The framework tells callbacks when each of its runs starts and ends. Its own runs of models make
no span here: the wrapped client's calls are in their place. No text is read: not the inputs or
outputs of a run, not the documents.

LangSmith's OpenTelemetry export is no substitute: it makes its spans after the fact, so that the
client's call cannot be inside the model's run and each call would count twice.
"""

from contextvars import ContextVar
from functools import cache
from importlib import import_module
from typing import Any, Final

from longpole.frameworks.open_steps import OpenSteps
from longpole.step import Step
from longpole.vocab import Stage, keys
from longpole.workflow import current_run, prompt_assembly, retrieval, tool, workflow

_HIDDEN: Final = "langsmith:hidden"
"""The framework's tag for runs that are its own plumbing."""


class Bridge:
    """A callback handler of the framework; :func:`install` registers one for all runs."""

    run_inline = True  # in the task that does the work, not in one of its own
    raise_error = False
    ignore_llm = True
    ignore_chat_model = True
    ignore_retry = True
    ignore_custom_event = True
    ignore_agent = False  # tools go by this name too
    ignore_chain = False
    ignore_retriever = False

    def __init__(self) -> None:
        self._steps = OpenSteps("langchain")

    def on_chain_start(self, serialized: Any, inputs: Any, *, run_id: Any, **more: Any) -> None:
        """A chain, a graph, a prompt or a function begins."""
        self._steps.begin(run_id, lambda: _chain(serialized, more))

    def on_chain_end(self, outputs: Any, *, run_id: Any, **_: Any) -> None:
        """It ended."""
        self._steps.end(run_id)

    def on_chain_error(self, error: BaseException, *, run_id: Any, **_: Any) -> None:
        """It failed."""
        self._steps.end(run_id, error)

    def on_tool_start(self, serialized: Any, input_str: Any, *, run_id: Any, **more: Any) -> None:
        """A tool begins."""
        self._steps.begin(run_id, lambda: tool(_name(serialized, more)))

    def on_tool_end(self, output: Any, *, run_id: Any, **_: Any) -> None:
        """It ended."""
        self._steps.end(run_id)

    def on_tool_error(self, error: BaseException, *, run_id: Any, **_: Any) -> None:
        """It failed."""
        self._steps.end(run_id, error)

    def on_retriever_start(self, serialized: Any, query: Any, *, run_id: Any, **more: Any) -> None:
        """A retriever begins."""
        self._steps.begin(run_id, lambda: retrieval(_name(serialized, more)))

    def on_retriever_end(self, documents: Any, *, run_id: Any, **_: Any) -> None:
        """It ended."""
        self._steps.end(run_id)

    def on_retriever_error(self, error: BaseException, *, run_id: Any, **_: Any) -> None:
        """It failed."""
        self._steps.end(run_id, error)


def _name(serialized: Any, more: dict[str, Any]) -> str:
    known = serialized if isinstance(serialized, dict) else {}
    return str(more.get("name") or known.get("name") or "unnamed")


def _chain(serialized: Any, more: dict[str, Any]) -> Step | None:
    if _HIDDEN in (more.get("tags") or ()):
        return None
    name = _name(serialized, more)
    if more.get("run_type") == "prompt":
        return prompt_assembly(name)
    if more.get("parent_run_id") is None and current_run() is None:
        return workflow(name)
    return Step(f"chain {name}", {keys.STAGE: Stage.OTHER.value})


@cache
def install() -> Any:
    """Register the bridge for all runs, once; it returns the handler that is there.

    For some runs only, pass it yourself: ``chain.invoke(..., {"callbacks": [handler()]})``.

    Raises:
        ModuleNotFoundError: ``langchain-core`` is not installed.
    """
    made = handler()
    # a default, and not a value, is there in every thread and task
    always: ContextVar[Any] = ContextVar("longpole_langchain", default=made)
    hooks = import_module("langchain_core.tracers.context")
    hooks.register_configure_hook(always, inheritable=True)
    return made


def handler() -> Any:
    """A callback handler of LangChain's own type.

    Raises:
        ModuleNotFoundError: ``langchain-core`` is not installed.
    """
    base = import_module("langchain_core.callbacks").BaseCallbackHandler
    return type("LongpoleHandler", (Bridge, base), {})()
