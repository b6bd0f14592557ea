"""One daemon thread for what must not run on the application's threads."""

import threading
from collections.abc import Callable
from queue import SimpleQueue

from longpole import health


class Attendant:
    """A thread that runs small jobs in order.

    ``put`` is safe inside ``__del__`` (``SimpleQueue.put`` is reentrant), so a garbage-collected
    stream ends its span here and not in the middle of somebody's lock.
    """

    def __init__(self) -> None:
        self._start_lock = threading.Lock()
        self._jobs: SimpleQueue[Callable[[], object]] = SimpleQueue()
        self.is_running = False

    def put(self, job: Callable[[], object]) -> None:
        """Have ``job`` run soon; never blocks."""
        self._jobs.put(job)

    def start(self) -> None:
        """Start the thread unless it runs; the child of a fork has an attendant of its own."""
        if self.is_running:
            return
        with self._start_lock:
            if not self.is_running:
                threading.Thread(target=self._work, name="longpole", daemon=True).start()
                self.is_running = True

    def run(self, job: Callable[[], object], timeout_s: float) -> bool:
        """Run ``job`` and wait; ``False`` if it did not finish in time."""
        done = threading.Event()
        try:
            self.start()
        except RuntimeError:  # the interpreter shuts down and takes no new threads
            return False
        self.put(job)
        self.put(done.set)
        return done.wait(timeout_s)

    def _work(self) -> None:
        try:
            while True:
                self._do(self._jobs.get())
        finally:
            self.is_running = False

    def _do(self, job: Callable[[], object]) -> None:
        try:
            job()
        except Exception as error:  # noqa: BLE001 - counted; the thread must live
            health.swallow("attendant", error)
