"""How far a run is, while it runs; on stderr."""

import sys
import time
from typing import Final

import click

from longpole_engine.load.client import now_ns
from longpole_engine.load.run import Run

_REPORT_EVERY_S: Final = 10.0
_REDRAW_S: Final = 0.2
_BAR: Final = 20
_CLEAR: Final = "\r\x1b[2K"


class Progress:
    """One line on a terminal, kept up to date; elsewhere one every ten seconds.

    Args:
        num: requests of the run; ``None`` where that is not known.
        duration_s: of the run, likewise.
    """

    def __init__(self, num: int | None, duration_s: float | None) -> None:
        self._num, self._duration_s = num, duration_s
        self._is_terminal = sys.stderr.isatty()
        self._begun_s = self._last_s = time.monotonic()

    def __call__(self, run: Run) -> None:
        """Show it, unless that was done just now."""
        now_s = time.monotonic()
        if now_s - self._last_s < (_REDRAW_S if self._is_terminal else _REPORT_EVERY_S):
            return
        self._last_s = now_s
        line = f"{now_s - self._begun_s:5.0f} s  {self.line(run)}"
        if self._is_terminal:
            click.echo(f"{_CLEAR}{line}", nl=False, err=True)
        else:
            click.echo(line, err=True)

    def line(self, run: Run) -> str:
        """How far it is: a bar where its end is known, and what came of its requests."""
        of = f" of {self._num}" if self._num else ""
        shares = [0.0]
        if self._num:
            shares.append(len(run.sent) / self._num)
        if self._duration_s:
            shares.append((now_ns() - run.begun_ns) / 1e9 / self._duration_s)
        num_full = round(min(1.0, max(shares)) * _BAR)
        bar = f"[{'#' * num_full:.<{_BAR}}]  " if len(shares) > 1 else ""
        return (
            f"{bar}{len(run.sent)}{of} done  {run.num_in_flight} in flight  {run.num_failed} failed"
        )

    def clear(self) -> None:
        """Leave nothing of it on a terminal."""
        if self._is_terminal:
            click.echo(_CLEAR, nl=False, err=True)
