"""Work started on a guess: before anybody asked for it."""

import weakref
from typing import overload

from opentelemetry.trace import Span

from longpole import emit
from longpole.context import Facts
from longpole.step import F, Step, StepKind
from longpole.vocab import keys

_NS_PER_S = 1e9


class _Unsent:
    """A span that is over and waits for its verdict; it ends once, in one process."""

    def __init__(self, span: Span, at_ns: int) -> None:
        self._span = span
        self._at_ns = at_ns
        emit.open_calls.add(self.send)

    def send(self) -> None:
        """End the span as of the time it was over."""
        try:
            emit.open_calls.remove(self.send)
        except KeyError:
            return
        self._span.end(self._at_ns)


class Speculation(Step):
    """Work on a guess, and its verdict: :meth:`used`, :meth:`expired` or :meth:`discard`.

    The verdict mostly comes after the work's block has ended. So the span ends with the block but
    is sent only with the verdict, or when the application lets go of this object, or when the
    process ends: then its verdict is unknown.
    """

    def __init__(self, name: str, attributes: Facts, *, ttl_s: float | None = None) -> None:
        ttl = {} if ttl_s is None else {keys.SPECULATION_TTL: ttl_s}
        super().__init__(name, {**attributes, **ttl})
        self._has_verdict = False
        self._unsent: _Unsent | None = None

    def used(self) -> None:
        """The guess was right: its result is used. Within its ttl or not, the age tells."""
        self._judge("used")

    def expired(self) -> None:
        """Its time to live passed before anybody wanted it."""
        self._judge("expired")

    def discard(self) -> None:
        """The guess was wrong."""
        self._judge("discarded")

    def begin(self) -> None:
        """Start the span."""
        self._has_verdict, self._unsent = False, None
        super().begin()

    def is_late(self) -> bool:
        """The span has been sent."""
        return self._unsent is None and super().is_late()

    def _judge(self, state: str) -> None:
        """Only the first verdict counts."""
        if self._has_verdict:
            return
        self._has_verdict = True
        self.set(keys.SPECULATION_STATE, state)
        self.set(keys.SPECULATION_AGE, self.elapsed_ns() / _NS_PER_S)
        if self._unsent is not None:
            self._unsent.send()
            self._unsent = None

    def _end(self, at_ns: int) -> None:
        if self._has_verdict:
            super()._end(at_ns)
            return
        self._unsent = _Unsent(self._span, at_ns)
        emit.attendant.start()
        weakref.finalize(self, _leave, self._unsent).atexit = False


class SpeculationKind(StepKind[Speculation]):
    """The kind of step that works on a guess."""

    @overload
    def __call__(self, name: F) -> F: ...
    @overload
    def __call__(self, name: str | None = None, ttl_s: float | None = None) -> Speculation: ...
    def __call__(self, name: F | str | None = None, ttl_s: float | None = None) -> F | Speculation:
        """Work on a guess.

        Args:
            name: what is done; default for a decorator is the function's name.
            ttl_s: seconds from its start for which its result is good; ``None`` is unknown.
        """
        if callable(name):
            return super().__call__(name)
        return self.make(name, {"ttl_s": ttl_s})


def _leave(unsent: _Unsent) -> None:
    """Nobody can judge it any more; not here, in the middle of a garbage collection."""
    emit.attendant.put(unsent.send)
