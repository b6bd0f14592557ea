"""Sends what is written down, to one sink, until it has arrived.

Five tries with 1, 2, 4 and 8 seconds between them, or what the sink asks for by ``Retry-After``.
What then still has not arrived is tried in the same way every few minutes, as the sink may come
back, but not for longer than people would want to hear of it. What a sink refuses for good is
not tried again.
"""

import logging
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from threading import Event as Flag
from threading import Thread
from typing import Final

from longpole.errors import LongpoleError
from longpole_analytics.alerts.ledger import Ledger, Message
from longpole_analytics.alerts.net import Gate, Later, Never
from longpole_analytics.alerts.sinks.base import Post, Sink

NUM_TRIES: Final = 5
PAUSE_S: Final = 300.0
"""Between two rounds of tries."""
GIVEN_UP_S: Final = 4 * 3600.0
MAX_WAIT_S: Final = 3600.0
"""What a sink may ask for."""
_IDLE_S: Final = 0.5
_MAX_ERROR: Final = 200

_log = logging.getLogger("longpole.analytics.alerts")


class Courier:
    """Delivers to one sink; :meth:`deliver` is one round, :meth:`start` goes on in a thread."""

    def __init__(self, folder: Path, sink: Sink, gate: Gate, clock: Callable[[], float]) -> None:
        self.sink = sink
        self.outcomes: Counter[str] = Counter()
        self._gate = gate
        self._clock = clock
        self._folder = folder
        self._stopping = Flag()
        self._wake = Flag()
        self._thread = Thread(target=self._run, name=f"longpole-sink-{sink.name}", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def wake(self) -> None:
        """Something was written down."""
        self._wake.set()

    def stop(self, timeout_s: float) -> None:
        """End after the message that is on its way, or leave it to itself after a while."""
        self._stopping.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def deliver(self, ledger: Ledger, now_s: float) -> int:
        """Send what is due at a moment; returns how many messages were tried."""
        num = 0
        while not self._stopping.is_set():
            message = ledger.due(self.sink.name, now_s)
            if message is None:
                break
            num += 1
            self._try(ledger, message, now_s)
        return num

    def _try(self, ledger: Ledger, message: Message, now_s: float) -> None:
        post = Post(message.event, is_refresh=message.is_refresh, now_s=now_s)
        try:
            self.sink.kind.send(post, self.sink.options, self._gate)
        except Never as error:
            self._note("refused")
            ledger.failed(message, str(error)[:_MAX_ERROR])
            _log.error("sink '%s' refused an alert: %s", self.sink.name, error)
        except Later as error:
            self._put_off(ledger, message, now_s, str(error)[:_MAX_ERROR], error.after_s)
        except Exception as error:  # noqa: BLE001 - a plug-in's fault must not lose the message
            self._put_off(ledger, message, now_s, type(error).__name__, None)
        else:
            self._note("sent")
            ledger.sent(message)

    def _put_off(
        self, ledger: Ledger, message: Message, now_s: float, error: str, after_s: float | None
    ) -> None:
        tries = message.tries + 1
        in_round = tries % NUM_TRIES
        if in_round:
            wait_s = max(2.0 ** (in_round - 1), after_s or 0.0)
        elif message.is_refresh or now_s - message.created_s > GIVEN_UP_S:
            self._note("given_up")
            ledger.failed(message, error)
            _log.error("sink '%s' does not take an alert: %s", self.sink.name, error)
            return
        else:
            wait_s = max(PAUSE_S, after_s or 0.0)
            _log.warning("sink '%s' does not take an alert yet: %s", self.sink.name, error)
        self._note("put_off")
        ledger.later(message, now_s + min(wait_s, MAX_WAIT_S), error, tries)

    def _note(self, outcome: str) -> None:
        self.outcomes[outcome] += 1

    def _run(self) -> None:
        try:
            ledger = Ledger(self._folder)
        except LongpoleError as error:
            _log.error("sink '%s' gets nothing: %s", self.sink.name, error)
            return
        try:
            while not self._stopping.is_set():
                self._wake.clear()
                try:
                    self.deliver(ledger, self._clock())
                except Exception:  # noqa: BLE001 - the disk is full, perhaps; next time it may not be
                    _log.exception("sink '%s': the outbox cannot be used", self.sink.name)
                self._wake.wait(_IDLE_S)
        finally:
            ledger.close()
