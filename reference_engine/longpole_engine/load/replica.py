"""Commands of longpole in processes of their own, started and stopped while load runs."""

import asyncio
import contextlib
import os
import re
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Self

from longpole.errors import LongpoleError

_ENGINE_READY: Final = re.compile(r"engine ready\s+(\S+)\s+model '(.*)'")
_STORE_READY: Final = re.compile(r"longpole collect: http (\S+), grpc ")
_READY_S: Final = 180.0
_STOP_S: Final = 30.0
_KEPT_LINES: Final = 5


class Command:
    """A command that runs until it is told to end, and says on stderr when it is ready.

    Args:
        name: what messages call it, with its article.
        words: its name and arguments.
        ready: what it says when it is ready.
        environ: added to our environment.
    """

    def __init__(
        self,
        name: str,
        words: Sequence[str],
        ready: re.Pattern[str],
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self._name, self._words, self._environ = name, words, environ or {}
        self._pattern = ready
        self._process: Process | None = None
        self._reader: asyncio.Task[None] | None = None
        self._said: deque[str] = deque(maxlen=_KEPT_LINES)
        self.start_s = 0.0
        """From starting the process until its first request would be answered."""

    async def start(self) -> Self:
        """Start it and wait until it is ready; itself.

        Raises:
            LongpoleError: it ended, or was not ready in three minutes.
        """
        begun_s = time.monotonic()
        run = "from longpole.cli import main; main()"
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", run, *self._words),
            env=os.environ | self._environ,
            stderr=PIPE,
            start_new_session=True,  # Ctrl-C is ours to handle
        )
        try:
            async with asyncio.timeout(_READY_S):
                self._told(await self._ready())
        except BaseException as error:
            await self.kill()
            if isinstance(error, TimeoutError):
                raise LongpoleError(f"{self._name} was not ready in {_READY_S:g} s") from error
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

    def _told(self, ready: re.Match[str]) -> None:
        """It is ready, and said so."""

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

    async def _ready(self) -> re.Match[str]:
        while line := await self._line():
            if found := self._pattern.match(line):
                return found
        said = self._said[-1] if self._said else "it said nothing"
        raise LongpoleError(f"{self._name} ended before it was ready: {said.strip()}")

    async def _drain(self) -> None:
        while await self._line():
            pass

    async def _line(self) -> str:
        assert self._process is not None  # noqa: S101 - it was started
        assert self._process.stderr is not None  # noqa: S101 - asked for
        line = (await self._process.stderr.readline()).decode("utf-8", "replace")
        if line:
            self._said.append(line)
        return line


class Replica(Command):
    """A running engine.

    Args:
        settings: keys of ``[engine]``; those not given are the configuration's.
    """

    def __init__(self, settings: Mapping[str, object]) -> None:
        environ = {f"LONGPOLE_ENGINE_{key.upper()}": str(value) for key, value in settings.items()}
        super().__init__("an engine", ("engine", "serve", "--port", "0"), _ENGINE_READY, environ)
        self.url = self.model = ""

    def _told(self, ready: re.Match[str]) -> None:
        self.url, self.model = ready[1], ready[2]


class Store(Command):
    """A running collector, on ports of its own.

    Args:
        db: its data folder.
    """

    def __init__(self, db: Path) -> None:
        words = ("collect", "--db", str(db), "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0")
        super().__init__("a collector", words, _STORE_READY)
        self.url = ""

    def _told(self, ready: re.Match[str]) -> None:
        self.url = f"http://{ready[1]}"
