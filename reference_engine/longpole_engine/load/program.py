"""Any command as a target: it gets the prompt on its standard input and prints the answer."""

import asyncio
import contextlib
import json
import shlex
from asyncio.subprocess import DEVNULL, PIPE, Process

from longpole.call import Kind, StreamState
from longpole.errors import UsageError
from longpole_engine.load.client import MAX_ERROR_BYTES, Answer, Behaviour, Failure, now_ns

_READ_BYTES = 65_536


class Program:
    """A command line, run once a request; each piece that it prints is a chunk of content.

    Raises:
        UsageError: the line cannot be split into words.
    """

    def __init__(self, line: str) -> None:
        try:
            self._words = shlex.split(line)
        except ValueError as error:
            raise UsageError(f"--command '{line}': {error}") from error
        if not self._words:
            raise UsageError("--command is empty")

    async def ask(
        self,
        body: bytes,
        traceparent: str | None,
        timeout_s: float,
        behaviour: Behaviour = Behaviour.READS,
        limit: float = 0.0,
    ) -> Answer:
        """Run it once; ``TRACEPARENT`` is in its environment where traces are kept."""
        said = (each.get("content") for each in json.loads(body)["messages"])
        prompt = "\n".join(text for text in said if isinstance(text, str)).encode()
        answer = Answer(now_ns())
        words = [*self._words]
        if traceparent:
            words = ["env", f"TRACEPARENT={traceparent}", *words]
        process: Process | None = None
        try:
            async with asyncio.timeout(timeout_s):
                process = await asyncio.create_subprocess_exec(
                    *words, stdin=PIPE, stdout=PIPE, stderr=DEVNULL
                )
                await self._read(process, prompt, answer, behaviour, limit)
        except TimeoutError:
            if answer.call.end_ns is None:
                answer.failure = Failure.TIMEOUT
        except OSError as error:
            answer.failure, answer.text = Failure.CONNECT, str(error)[:MAX_ERROR_BYTES]
        finally:
            if process is not None and process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
        if answer.call.end_ns is None:
            state = StreamState.ERROR if answer.failure else StreamState.CLOSED_EARLY
            answer.call.end(now_ns(), state)
        return answer

    def close(self) -> None:
        """Nothing stays open."""

    @staticmethod
    async def _read(
        process: Process, prompt: bytes, answer: Answer, behaviour: Behaviour, limit: float
    ) -> None:
        assert process.stdin is not None  # noqa: S101 - asked for above
        assert process.stdout is not None  # noqa: S101 - asked for above
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            process.stdin.write(prompt)
            await process.stdin.drain()
        process.stdin.close()
        if behaviour is Behaviour.DISCONNECTS:
            return
        while piece := await process.stdout.read(_READ_BYTES):
            answer.call.event(Kind.TEXT if piece.strip() else Kind.EMPTY, now_ns())
            if behaviour is Behaviour.CANCELS and len(answer.call.content_ns) >= limit:
                return
            if behaviour is Behaviour.SLOW:
                await asyncio.sleep(limit)
        answer.status = await process.wait()
        if answer.status:
            answer.failure = Failure.STATUS
            answer.call.end(now_ns(), StreamState.ERROR)
        else:
            answer.call.end(now_ns(), StreamState.COMPLETED)
