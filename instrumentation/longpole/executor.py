"""A thread pool that keeps context; loaded when one is made."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class ContextExecutor(ThreadPoolExecutor):
    """A thread pool whose tasks see the context of the moment they were submitted."""

    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """As the pool's own, in a copy of the caller's context."""
        return super().submit(partial(copy_context().run, fn, *args, **kwargs))
