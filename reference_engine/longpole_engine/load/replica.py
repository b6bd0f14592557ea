"""Engines in processes of their own, started and stopped while load runs."""

import asyncio
import contextlib
import os
import re
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections import deque
from collections.abc import Mapping
from typing import Final

from longpole.errors import LongpoleError

_READY: Final = re.compile(r"engine ready\s+(\S+)\s+model '(.*)'")
_READY_S: Final = 180.0
_STOP_S: Final = 30.0
_KEPT_LINES: Final = 5


class Replica:
    """A running engine.

    Args:
        settings: keys of ``[engine]``; those not given are the configuration's.
    """

    def __init__(self, settings: Mapping[str, object]) -> None:
        self._settings = settings
        self._process: Process | None = None
        self._reader: asyncio.Task[None] | None = None
        self._said: deque[str] = deque(maxlen=_KEPT_LINES)
        self.url = self.model = ""
        self.start_s = 0.0
        """From starting the process until its first request would be answered."""

    async def start(self) -> "Replica":
        """Start it and wait until it is ready; itself.

        Raises:
            LongpoleError: it ended, or was not ready in three minutes.
        """
        begun_s = time.monotonic()
        environ = {
            f"LONGPOLE_ENGINE_{key.upper()}": str(value) for key, value in self._settings.items()
        }
        run = "from longpole.cli import main; main()"
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", run, "engine", "serve", "--port", "0"),
            env=os.environ | environ,
            stderr=PIPE,
            start_new_session=True,  # Ctrl-C is ours to handle
        )
        try:
            async with asyncio.timeout(_READY_S):
                self.url, self.model = await self._ready()
        except BaseException as error:
            await self.kill()
            if isinstance(error, TimeoutError):
                raise LongpoleError(f"an engine was not ready in {_READY_S:g} s") from error
            raise
        self.start_s = time.monotonic() - begun_s
        self._reader = asyncio.create_task(self._drain())
        return self

    async def stop(self) -> None:
        """Ask it to finish what it has and end."""
        await self._end(is_killed=False)

    async def kill(self) -> None:
        """End it at once, in mid answer."""
        await self._end(is_killed=True)

    async def _end(self, *, is_killed: bool) -> None:
        process = self._process
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.kill() if is_killed else process.terminate()
        try:
            await asyncio.wait_for(process.wait(), _STOP_S)
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
        if self._reader is not None:
            await self._reader

    async def _ready(self) -> tuple[str, str]:
        while line := await self._line():
            if found := _READY.match(line):
                return found[1], found[2]
        said = self._said[-1] if self._said else "it said nothing"
        raise LongpoleError(f"an engine ended before it was ready: {said.strip()}")

    async def _drain(self) -> None:
        while await self._line():
            pass

    async def _line(self) -> str:
        assert self._process is not None  # noqa: S101 - it was started
        assert self._process.stderr is not None  # noqa: S101 - asked for
        line = (await self._process.stderr.readline()).decode("utf-8", "replace")
        self._said.append(line)
        return line
