"""Runs a matrix's cells on real engines."""

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any, Final

from longpole_engine.load.arrivals import Closed, Turn
from longpole_engine.load.client import Client, Target
from longpole_engine.load.incident import phase
from longpole_engine.load.matrix import Axes, Basis, Cell, cells, resumed, write
from longpole_engine.load.replica import Replica
from longpole_engine.load.run import Plan, Run

_BLOCK_WORDS: Final = 8
"""With a cache that hits, seven of eight such pieces of a prompt are every prompt's."""
_TIMEOUT_S: Final = 300.0


class Matrix:
    """One run over the cells that a file lacks.

    Args:
        basis: what the cells have in common.
        axes: what they differ in.
        path: of the document.
        machine: facts of it that the document tells.
        say: is told what goes on.
    """

    def __init__(
        self,
        basis: Basis,
        axes: Axes,
        path: Path,
        machine: Mapping[str, Any],
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        wanted = cells(axes)
        self._basis, self._path, self._say = basis, path, say
        self.document, self.left = resumed(path, basis, machine, wanted)
        self.num_wanted = len(wanted)
        self._is_stopped = False
        self._run: Run | None = None

    def stop(self) -> None:
        """Give the running cell up; those that are done stay."""
        self._is_stopped = True
        if self._run is not None:
            self._run.stop()

    async def __call__(self) -> None:
        """Run what is left; each cell is in the file when it is done.

        Raises:
            LongpoleError: an engine did not start.
        """
        engine: Replica | None = None
        settings: Mapping[str, object] = {}
        try:
            for number, cell in enumerate(self.left, self.num_wanted - len(self.left) + 1):
                self._say(f"{number} of {self.num_wanted}: {cell.key}")
                wanted = self._settings(cell)
                if engine is None or cell.start == "cold" or wanted != settings:
                    if engine is not None:
                        await engine.stop()
                    engine, settings = Replica(wanted), wanted
                    await engine.start()
                row = await self._cell(cell, engine)
                if row is None:
                    return
                self.document["cells"].append(row)
                write(self._path, self.document)
        finally:
            if engine is not None:
                with suppress(ProcessLookupError):
                    await engine.kill()

    def _settings(self, cell: Cell) -> dict[str, object]:
        caching = {"prefix_cache": "false" if cell.cache == "off" else "true"}
        return {"model": self._basis.model, **caching, **cell.settings}

    async def _cell(self, cell: Cell, engine: Replica) -> dict[str, Any] | None:
        """The cell's row; ``None`` if it was given up."""
        if cell.start == "warm":
            await self._requests(cell, engine, max(2, cell.concurrency), "warm-up")
        run = await self._requests(cell, engine, self._basis.requests, "measured")
        if self._is_stopped:
            return None
        seconds = (run.ended_ns - run.begun_ns) / 1e9
        known = [each.answer.call.usage for each in run.sent if each.answer.is_whole]
        given = [usage.input_tokens for usage in known if usage.input_tokens is not None]
        made = [usage.output_tokens for usage in known if usage.output_tokens is not None]
        return {
            "key": cell.key,
            "cell": vars(cell),
            "at": datetime.now(UTC).isoformat(timespec="seconds"),
            "start_s": engine.start_s if cell.start == "cold" else None,
            "result": {
                **phase(run.sent),
                "duration_s": seconds,
                "requests_per_s": len(known) / seconds,
                "output_tokens_per_s": sum(made) / seconds if made else None,
                "input_tokens_mean": sum(given) / len(given) if given else None,
                "output_tokens_mean": sum(made) / len(made) if made else None,
            },
        }

    async def _requests(self, cell: Cell, engine: Replica, num: int, name: str) -> Run:
        """So many requests by so many clients that wait for their answers."""
        plan = Plan(
            engine.model,
            cell.input_tokens,
            cell.output_tokens,
            self._basis.seed,
            max_requests=num,
            timeout_s=_TIMEOUT_S,
            language=cell.language,
        )
        self._run = Run(plan, Client(Target.at(engine.url, None)))
        if not self._is_stopped:
            await self._run(Closed(cell.concurrency, lambda number: self._turn(cell, name, number)))
        return self._run

    def _turn(self, cell: Cell, name: str, number: int) -> Turn:
        random = Random(f"{self._basis.seed} {cell.key} {name} {number}")  # noqa: S311
        length = round(cell.input_tokens * (1 + self._basis.spread * random.uniform(-1, 1)))
        own = random.getrandbits(60)
        if cell.cache != "hit":
            return Turn(0.0, max(1, length), None, (own,))
        # of no other cell, so that only this one's requests fill the cache
        first = Random(cell.key).getrandbits(60)  # noqa: S311
        num_blocks = max(2, -(-length // _BLOCK_WORDS))
        num_shared = num_blocks - max(1, num_blocks // 8)
        prefix = range(first, first + num_shared)
        return Turn(
            0.0, max(1, length), None, (*prefix, *range(own, own + num_blocks - num_shared))
        )


def run_until_done(matrix: Matrix, interrupted: Callable[[], None]) -> float:
    """Run it; Ctrl-C gives the cell that runs up. Seconds it took."""
    import signal

    async def main() -> None:
        loop = asyncio.get_running_loop()

        def stop() -> None:
            loop.remove_signal_handler(signal.SIGINT)
            interrupted()
            matrix.stop()

        loop.add_signal_handler(signal.SIGINT, stop)
        try:
            await matrix()
        finally:
            loop.remove_signal_handler(signal.SIGINT)

    begun_s = time.monotonic()
    asyncio.run(main())
    return time.monotonic() - begun_s
