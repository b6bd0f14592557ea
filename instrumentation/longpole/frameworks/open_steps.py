"""The steps a framework has open, by the framework's own ids.

A framework says that something starts and later that it ended, in the task or thread that does
the work. Between the two the step is current there.
"""

from collections.abc import Callable
from contextlib import suppress
from contextvars import Token
from threading import Lock

from opentelemetry import context as otel
from opentelemetry.context import Context

from longpole import health
from longpole.step import Step

MAX_OPEN = 10_000
"""Steps open at most; what a framework starts beyond that is not followed."""


class OpenSteps:
    """Begins and ends steps; failures are counted under ``place`` and reach nobody."""

    def __init__(self, place: str) -> None:
        self._place = place
        self._open: dict[str, tuple[Step, Token[Context] | None]] = {}
        self._lock = Lock()

    def begin(self, key: object, make: Callable[[], Step | None]) -> None:
        """Begin the step that ``make`` gives, if it gives one, and make it current."""
        try:
            if len(self._open) >= MAX_OPEN:
                health.count(health.internal_errors, f"{self._place} full")
                return
            step = make()
            if step is None:
                return
            step.begin()
            token = None if step.context is None else otel.attach(step.context)
            with self._lock:
                self._open[str(key)] = step, token
        except Exception as error:  # noqa: BLE001 - counted; the work goes on untraced
            health.swallow(self._place, error)

    def end(self, key: object, error: BaseException | None = None) -> None:
        """End it; a key that has no step is none of ours."""
        with self._lock:
            found = self._open.pop(str(key), None)
        if found is None:
            return
        step, token = found
        if token is not None:
            with suppress(ValueError):  # it ended in a copy of the context it began in
                token.var.reset(token)
        step.finish(error)
