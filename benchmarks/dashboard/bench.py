"""What the measurements share: a browser, the large store and the small one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from benchmarks.collector.build import NUM_DAYS, build
from benchmarks.collector.process import collecting
from benchmarks.dashboard import chromium, spans
from benchmarks.dashboard.serve import Served, dashboard
from playwright.sync_api import Browser

NUM_CALLS = 10_000_000
"""Of the large store; every second span is one."""


@dataclass
class Bench:
    """A folder, the size of it all, and a browser.

    Attributes:
        folder: whatever is written goes below it.
        scale: all numbers are multiplied by this; below 1 only tries the scripts.
        data: a data folder to take as the large store; ``None`` builds one.
        say: prints a line.
    """

    folder: Path
    scale: float = 1.0
    data: Path | None = None
    say: Callable[[str], None] = field(default=print)
    _stack: ExitStack = field(default_factory=ExitStack)

    @cached_property
    def browser(self) -> Browser:
        """A running Chromium; its first window, which loads the browser's own parts, is past."""
        return self._stack.enter_context(chromium.running())

    @cached_property
    def _large(self) -> Path:
        folder = self.folder / "large"
        if self.data is not None:
            folder.symlink_to(self.data.resolve(), target_is_directory=True)
        else:
            build(folder, self.num(2 * NUM_CALLS // NUM_DAYS, 2_048), self.say)
        return folder

    @contextmanager
    def large(self) -> Iterator[Served]:
        """The dashboard on ten days of calls, with nothing left to roll up."""
        with dashboard(self._large) as served:
            served.collector.wait_settled()
            yield served

    @contextmanager
    def small(self) -> Iterator[Served]:
        """The dashboard on a planted fault and a few large traces, all of the last half hour."""
        folder = self.folder / "small"
        if not folder.exists():
            with collecting(folder) as collector:
                for body in spans.bodies(self.num(spans.NUM_LONG, 400)):
                    spans.send(collector.url, body)
                collector.wait_settled()
        with dashboard(folder) as served:
            yield served

    def num(self, number: int, least: int) -> int:
        """A number at this scale."""
        return max(least, int(number * self.scale))

    def close(self) -> None:
        """End the browser."""
        self._stack.close()
