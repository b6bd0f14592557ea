"""The report that comes by itself: once a week, whatever happens in between.

The moment of the next one is kept, so that after a time of rest one is made at once, and only
one. It is made by a process of its own, at low priority, so that the collector goes on meanwhile.
"""

import logging
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from threading import Event as Flag
from threading import Thread
from typing import Any, Final

from longpole.errors import BadInput, LongpoleError
from longpole_analytics.alerts.metrics import family
from longpole_analytics.alerts.net import Gate, Later, Never
from longpole_analytics.report.book import FOLDER, Book, Message
from longpole_analytics.report.settings import ReportSettings
from longpole_analytics.report.telling import LISTED, listed, read
from longpole_analytics.report.weeks import Window, last_week
from longpole_collector.watching import Seat

LOOK_S: Final = 15.0
RETRY_S: Final = 300.0
GIVEN_UP_S: Final = 24 * 3600.0
TIMEOUT_S: Final = 1800.0
_NO_DATA: Final = 4
_MAX_ERROR: Final = 200
Make = Callable[[Window, Path], None]

_log = logging.getLogger("longpole.analytics.report")


class ReportWatch:
    """Makes one project's reports; :meth:`tick` is one look, :meth:`start` goes on in a thread."""

    def __init__(
        self,
        seat: Seat,
        settings: ReportSettings,
        make: Make | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Find again what was left.

        Args:
            seat: the project.
            settings: what is configured.
            make: writes the report of a window into a folder; default is a process of its own.
            clock: seconds since the Unix epoch.

        Raises:
            Unreachable: what is kept of reports cannot be read.
        """
        self._seat = seat
        self._settings = settings
        self._make = make or self._by_command
        self._clock = clock
        self._book = Book(seat.folder)
        self._gate = Gate(settings.allow_hosts)
        self._folder = settings.folder or seat.folder / FOLDER
        if settings.folder is not None and len(settings.projects) > 1:
            self._folder = settings.folder / seat.project
        self._retry_s = 0.0
        self._child: subprocess.Popen[bytes] | None = None
        self._outcomes: Counter[str] = Counter()
        self._stopping = Flag()
        self._thread = Thread(target=self._run, name="longpole-report", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End, the report that is being made with it: it is made again after the next start."""
        self._stopping.set()
        child = self._child
        if child is not None:
            child.kill()
        if self._thread.is_alive():
            self._thread.join()
        self._book.close()

    def tick(self, now_s: float) -> None:
        """One look at a moment, seconds since the Unix epoch."""
        now_ns = int(now_s * 1e9)
        schedule = self._settings.schedule
        name = f"{schedule.weekday} {schedule.at} {schedule.tz}"
        due_ns = self._book.next_ns(name)
        if due_ns is None:  # the first start, or another schedule: nothing is made up for
            self._book.note_next(name, schedule.after(now_ns))
        elif now_ns >= due_ns and now_s >= self._retry_s:
            while (next_ns := schedule.after(due_ns)) <= now_ns:
                due_ns = next_ns
            self._due(last_week(due_ns, schedule.tz), now_s, name, next_ns)
        for message in self._book.due(now_s):
            if self._stopping.is_set():
                break
            self._deliver(message, now_s)

    def prometheus(self) -> str:
        """As :meth:`Watch.prometheus <longpole_collector.watching.Watch.prometheus>`."""
        rows = [([("outcome", name)], float(num)) for name, num in sorted(self._outcomes.items())]
        lines = family("longpole_reports_total", "counter", "reports by what came of them", rows)
        return "\n".join([*lines, ""]) if lines else ""

    def answer(self, asked: str) -> dict[str, Any] | None:
        """As :meth:`Answering.answer <longpole_collector.watching.Answering.answer>`.

        ``reports`` lists what stands in the folder, ``reports/NAME`` is one of them.
        """
        kind, _, name = asked.partition("/")
        if kind != FOLDER:
            return None
        if name:
            return read(self._folder, name)
        return {"schema": LISTED, "reports": listed(self._folder)}

    def _due(self, window: Window, now_s: float, name: str, next_ns: int) -> None:
        assert window.week is not None  # noqa: S101 - a week has a name
        if self._book.is_made(window.week):
            self._book.note_next(name, next_ns)
            return
        folder = self._folder / window.week
        try:
            self._make(window, folder)
        except (LongpoleError, OSError, subprocess.SubprocessError) as error:
            if self._stopping.is_set():
                return
            self._retry_s = now_s + RETRY_S
            self._outcomes["failed"] += 1
            _log.error("the report of %s could not be made: %s", window.week, error)
            return
        sinks = [sink.name for _, sink in self._settings.sinks]
        self._book.made(window.week, folder, sinks, now_s, name, next_ns)
        self._outcomes["made"] += 1
        _log.warning("the report of %s stands in %s", window.week, folder)

    def _deliver(self, message: Message, now_s: float) -> None:
        from longpole_analytics.report.sending import send

        by_name = {sink.name: (kind, sink) for kind, sink in self._settings.sinks}
        if message.sink not in by_name:
            self._book.note_sent(message, "failed", now_s, "it is configured no more")
            return
        kind, sink = by_name[message.sink]
        try:
            send(kind, sink, message.folder, self._gate, now_s)
        except Never as error:
            self._told(message, "failed", now_s, str(error))
        except (Later, OSError) as error:
            is_over = now_s - message.created_s > GIVEN_UP_S
            wait_s = min(2.0**message.tries, RETRY_S)
            after_s = error.after_s if isinstance(error, Later) else None
            state = "failed" if is_over else "waiting"
            self._told(message, state, now_s + max(wait_s, min(after_s or 0.0, 3600.0)), str(error))
        else:
            self._told(message, "sent", now_s, "")

    def _told(self, message: Message, state: str, due_s: float, error: str) -> None:
        self._outcomes[state] += 1
        self._book.note_sent(message, state, due_s, error[:_MAX_ERROR])
        if state == "failed":
            _log.error("sink '%s' does not take a report: %s", message.sink, error[:_MAX_ERROR])

    def _by_command(self, window: Window, folder: Path) -> None:
        """Make the report as ``longpole report`` does, which asks the collector that runs here."""
        root, options = self._seat.folder, list[str]()
        if self._seat.project != "default":
            root, options = root.parent.parent, ["--project", self._seat.project]
        if self._settings.path is not None:
            options += ["--config", str(self._settings.path)]
        words = ["report", "--db", str(root), *options, "--week", str(window.week)]
        words += ["--tz", window.tz, "--out", str(folder)]
        program = "import os; os.nice(10); from longpole.cli import main; main()"
        self._child = subprocess.Popen(  # noqa: S603 - ourselves
            [sys.executable, "-c", program, *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        if self._stopping.is_set():
            self._child.kill()
        try:
            _, said = self._child.communicate(timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.communicate()
            raise
        finally:
            code, self._child = self._child.returncode, None
        if code not in (0, _NO_DATA):
            raise BadInput(said.decode("utf-8", "replace").strip()[-_MAX_ERROR:] or f"exit {code}")

    def _run(self) -> None:
        wait_s = 0.0
        while not self._stopping.wait(wait_s):
            try:
                self.tick(self._clock())
            except Exception:  # noqa: BLE001 - the next look may do better
                _log.exception("the report could not be looked after")
            wait_s = LOOK_S
