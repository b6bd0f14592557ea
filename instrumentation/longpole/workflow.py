"""Workflows and their steps: the application's own account of a request.

``workflow`` is the root of a trace. What it knows (route, versions, task class) is inherited by
every span inside, also by model calls in other threads. Its run says how the request ended:
accepted, rejected or failed; a run that says nothing has an unknown outcome, not a good one.
"""

from typing import TYPE_CHECKING

from opentelemetry import context as otel

from longpole.branches import Fanout, Hedge
from longpole.caches import CacheLookup, CacheLookupKind
from longpole.call import AttributeValue
from longpole.context import Facts, remaining_s
from longpole.speculation import Speculation, SpeculationKind
from longpole.step import Step, StepKind
from longpole.tools import Tool, ToolKind
from longpole.vocab import Stage, keys

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

_NS_PER_S = 1e9
_RUN = otel.create_key("longpole.run")


class Run(Step):
    """One workflow while it runs.

    The last of :meth:`accept`, :meth:`reject` and :meth:`fail` counts. An exception that leaves
    the workflow makes it failed, with the exception's class as failure class unless one was set.
    """

    def __init__(
        self, name: str, attributes: Facts, inherited: Facts, *, deadline_s: float | None = None
    ) -> None:
        super().__init__(name, attributes, inherited, deadline_s=deadline_s)
        self._outcome: dict[str, AttributeValue] = {}
        self._used: list[str] = []
        self._reached: set[str] = set()

    def accept(self, **facts: AttributeValue) -> None:
        """The outcome was verified and accepted; ``facts`` say by what (``tests=12``)."""
        named = {keys.OUTCOME_FACT_PREFIX + name: value for name, value in facts.items()}
        taken_s = self.elapsed_ns() / _NS_PER_S
        self._ends({keys.OUTCOME: "accepted", keys.TIME_TO_ACCEPTED: taken_s, **named})

    def reject(self, reason: str) -> None:
        """The outcome was checked and not accepted; ``reason`` is a short class, not a text."""
        self._ends({keys.OUTCOME: "rejected", keys.OUTCOME_REASON: reason})

    def fail(self, failure_class: str) -> None:
        """The workflow failed; ``failure_class`` names the kind of failure."""
        self._ends({keys.OUTCOME: "failed", keys.FAILURE_CLASS: failure_class})

    def acknowledged(self) -> None:
        """The user sees that the request is being worked on; only the first time counts."""
        self._reach(keys.TIME_TO_ACKNOWLEDGED)

    def first_useful_output(self) -> None:
        """The user has something useful now; only the first time counts."""
        self._reach(keys.TIME_TO_USEFUL)

    def used(self, branch: str | Step) -> None:
        """The outcome uses this branch of a fan-out or a hedge: its name, or its step."""
        self._used.append(branch.span_id if isinstance(branch, Step) else branch)
        self.set(keys.BRANCH_USED, self._used)

    def remaining_s(self) -> float | None:
        """Seconds until the workflow's deadline, or an earlier one around it; below 0 when over.

        ``None`` without a deadline, and before the run began.
        """
        return None if self.context is None else remaining_s(self.context)

    def _reach(self, key: str) -> None:
        if key not in self._reached:
            self._reached.add(key)
            self.set(key, self.elapsed_ns() / _NS_PER_S)

    def _ends(self, outcome: dict[str, AttributeValue]) -> None:
        if not self.is_late():
            self._outcome = outcome

    def begin(self) -> None:
        """Start the root span; the code inside finds this run."""
        self._outcome, self._used, self._reached = {}, [], set()
        super().begin()
        if self.context is not None:
            self.context = otel.set_value(_RUN, self, self.context)

    def _conclude(self, error: BaseException | None) -> None:
        if error is not None and not isinstance(error, GeneratorExit):
            name = self._outcome.get(keys.FAILURE_CLASS, type(error).__name__)
            self._outcome = {keys.OUTCOME: "failed", keys.FAILURE_CLASS: name}
        self._span.set_attributes(self._outcome)
        super()._conclude(error)


def workflow(
    name: str,
    *,
    route: str | None = None,
    route_version: str | None = None,
    slo_class: str | None = None,
    prompt_version: str | None = None,
    conversation_id: str | None = None,
    deadline_s: float | None = None,
) -> Run:
    """Make the root of a trace; use it in ``with``, in ``async with`` or as a decorator.

    Args:
        name: what the workflow is called.
        route: route id.
        route_version: version of the route's policy.
        slo_class: task class: interactive, standard, quality-first, offline, consequential.
        prompt_version: version of the prompt, where one serves the whole workflow.
        conversation_id: conversation or session the request belongs to.
        deadline_s: seconds the whole may take. Spans inside say what was left of it when they
            began; nothing is stopped, see :func:`remaining_s`.
    """
    facts = {
        keys.ROUTE: route,
        keys.ROUTE_VERSION: route_version,
        keys.SLO_CLASS: slo_class,
        keys.PROMPT_VERSION: prompt_version,
        keys.CONVERSATION_ID: conversation_id,
    }
    inherited: dict[str, AttributeValue] = {k: v for k, v in facts.items() if v is not None}
    attributes: dict[str, AttributeValue] = {
        keys.OPERATION: "invoke_workflow",
        keys.WORKFLOW_NAME: name,
    }
    return Run(f"invoke_workflow {name}", attributes, inherited, deadline_s=deadline_s)


def context_executor(max_workers: int | None = None) -> "ThreadPoolExecutor":
    """A thread pool whose tasks keep their parent span and facts.

    The context is copied when a task is submitted, so siblings stay siblings whenever they run.
    """
    from longpole.executor import ContextExecutor

    return ContextExecutor(max_workers)


def current_run() -> Run | None:
    """The run of the innermost workflow around the caller; ``None`` outside.

    For functions that are decorated, or called from inside a workflow.
    """
    found = otel.get_value(_RUN)
    return found if isinstance(found, Run) else None


tool = ToolKind(Tool, "execute_tool", Stage.TOOL, operation="execute_tool", name_key=keys.TOOL_NAME)
"""A tool call."""
retrieval = StepKind(
    Step, "retrieval", Stage.RETRIEVAL, operation="retrieval", name_key=keys.DATA_SOURCE_ID
)
"""A search in a data source, named by the source."""
rerank = StepKind(Step, "rerank", Stage.RETRIEVAL)
"""Ordering what a retrieval found."""
validation = StepKind(Step, "validation", Stage.VALIDATION)
"""Checking an answer."""
guardrail = StepKind(Step, "guardrail", Stage.VALIDATION)
"""Checking an input or an answer against a policy."""
prompt_assembly = StepKind(Step, "prompt_assembly", Stage.OTHER)
"""Building the prompt."""
admission = StepKind(Step, "admission", Stage.ADMISSION)
"""Waiting to be let through: rate limiter, semaphore, queue of one's own."""
human_wait = StepKind(Step, "human_wait", Stage.HUMAN_WAIT)
"""Waiting for a person."""
render = StepKind(Step, "render", Stage.RENDER)
"""Showing the answer."""
cache_lookup = CacheLookupKind(CacheLookup, "cache_lookup", Stage.OTHER)
"""A look into a response cache of the application's own."""
fanout = StepKind(Fanout, "fanout", Stage.OTHER)
"""Several branches at once; ``fanout("drafts").branch("a")`` makes one."""
hedge = StepKind(Hedge, "hedge", Stage.OTHER)
"""The same request more than once, for the first answer."""
speculate = SpeculationKind(Speculation, "speculate", Stage.OTHER)
"""Work started on a guess."""
