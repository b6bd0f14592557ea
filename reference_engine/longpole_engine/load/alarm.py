"""Waking on time: event loops count whole milliseconds, Linux's timers do not."""

import asyncio
import ctypes
import os
import sys
from typing import Final

from longpole_engine.load.client import now_ns

_MONOTONIC: Final = 1
_FLAGS: Final = os.O_NONBLOCK | os.O_CLOEXEC
_ABSOLUTE: Final = 1
_NS: Final = 1_000_000_000


class _Times(ctypes.Structure):
    """``struct itimerspec``."""

    _fields_ = [(name, ctypes.c_long) for name in ("every_s", "every_ns", "at_s", "at_ns")]


class Alarm:
    """Wakes one waiter at a time (timerfd_create(2)); made while its loop runs.

    Raises:
        OSError: this system has no such timers.
    """

    def __init__(self) -> None:
        if sys.platform != "linux":
            raise OSError("timers of this kind are Linux's")
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._timer = self._libc.timerfd_create(_MONOTONIC, _FLAGS)
        if self._timer < 0:
            raise OSError(ctypes.get_errno(), "no timer")
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._timer, self._rang)
        self._woken: asyncio.Future[None] | None = None

    async def until(self, due_ns: int) -> None:
        """Wait until :data:`now_ns` is this; let others run even if it is late."""
        await asyncio.sleep(0)
        if due_ns <= now_ns():
            return
        self._woken = self._loop.create_future()
        times = _Times(0, 0, *divmod(due_ns, _NS))
        self._libc.timerfd_settime(self._timer, _ABSOLUTE, ctypes.byref(times), None)
        await self._woken

    def close(self) -> None:
        """Wake nobody any more."""
        self._loop.remove_reader(self._timer)
        os.close(self._timer)

    def _rang(self) -> None:
        try:
            os.read(self._timer, 8)
        except BlockingIOError:
            return
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)
