"""Several branches at once: a fan-out whose results are used together, a hedge where one wins."""

from opentelemetry import trace
from opentelemetry.context import Context

from longpole.context import Facts, is_cancel
from longpole.step import Step
from longpole.vocab import Stage, keys


class Fanout(Step):
    """A group of branches; it lasts as long as its block."""

    def branch(self, name: str) -> "Branch":
        """A branch of the group, a step of its own; use it where the branch runs.

        In a thread or task that does not know the group's context its parent is the group all
        the same. What the outcome takes from it is said by ``run.used(branch)``.
        """
        return Branch(self, name)

    def _ended(self, branch: "Branch", state: str) -> None:
        """A branch of the group has ended."""


class Hedge(Fanout):
    """Duplicates of one request; the first branch that completes has won.

    The others should be cancelled: what they still take after that is their cost.
    """

    def begin(self) -> None:
        """Start the span."""
        self._completed: list[Branch] = []
        super().begin()

    def _ended(self, branch: "Branch", state: str) -> None:
        if state == "completed":
            self._completed.append(branch)
            if self._completed[0] is branch:
                self.set(keys.HEDGE_WINNER, branch.span_id)


class Branch(Step):
    """One branch of a group."""

    def __init__(self, group: Fanout, name: str) -> None:
        attributes: Facts = {keys.STAGE: Stage.OTHER.value, keys.BRANCH_NAME: name}
        super().__init__(f"branch {name}", attributes)
        self._group = group
        self._is_cancelled = False

    def cancelled(self) -> None:
        """The branch was told to stop, and not by an exception that says so itself."""
        self._is_cancelled = True

    def begin(self) -> None:
        """Start the span."""
        self._is_cancelled = False
        super().begin()

    def _around(self) -> Context:
        here = super()._around()
        is_inside = trace.get_current_span(here).get_span_context().is_valid
        return here if is_inside or self._group.context is None else self._group.context

    def _conclude(self, error: BaseException | None) -> None:
        if self._is_cancelled or (error is not None and is_cancel(error)):
            state, error = "cancelled", None  # a loser that was stopped has not failed
        else:
            state = "completed" if error is None else "failed"
        super()._conclude(error)
        self._span.set_attribute(keys.BRANCH_STATE, state)
        self._group._ended(self, state)
