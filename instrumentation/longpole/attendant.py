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
        self._thread: threading.Thread | None = None

    def put(self, job: Callable[[], object]) -> None:
        """Have ``job`` run soon; never blocks."""
        self._jobs.put(job)

    def start(self) -> None:
        """Start the thread unless it runs (it does not survive a fork)."""
        if self._thread is not None and self._thread.is_alive():
            return
        with self._start_lock:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._work, name="longpole", daemon=True)
                self._thread.start()

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
        while True:
            job = self._jobs.get()
            try:
                job()
            except Exception as error:  # noqa: BLE001 - counted; the thread must live
                health.swallow("attendant", error)
