"""The watch over one project: reads what changed, looks at the objectives, has people told.

A look reads only the minutes of which the store has something else than was counted. While the
store cannot be asked nothing is decided, so nothing is over because nobody could look; that is
said in the log, on ``/metrics``, and after some minutes to the sinks.
"""

import logging
import time
from collections.abc import Callable
from threading import Event as Flag
from threading import Lock, Thread
from typing import Any, Final

import duckdb
import polars as pl

from longpole.errors import BadInput, LongpoleError
from longpole_analytics.alerts import event as events
from longpole_analytics.alerts import metrics, reading
from longpole_analytics.alerts.book import Decision, Turn, decide, untold
from longpole_analytics.alerts.cause import explain
from longpole_analytics.alerts.courier import Courier
from longpole_analytics.alerts.ledger import FOLDER, Ledger
from longpole_analytics.alerts.net import Gate
from longpole_analytics.alerts.rings import Held, Rings
from longpole_analytics.alerts.settings import AlertSettings
from longpole_analytics.alerts.telling import LOOKED, watched
from longpole_analytics.minutes import MINUTE_NS
from longpole_analytics.outcome_facts import outcome_facts
from longpole_analytics.slo.burn import panel
from longpole_analytics.slo.check import Standing, standings
from longpole_analytics.slo.counting import counted
from longpole_analytics.slo.floors import with_floors
from longpole_analytics.slo.lifecycle import Alert, Memory, advance, alert_key, loads, rewound
from longpole_analytics.slo.objectives import LATENCIES, SEVERITIES
from longpole_collector.watching import Seat

RECENT_MIN: Final = 60
"""Minutes that every look compares; the whole period is compared every :data:`FULL_S`."""
FULL_S: Final = 300.0
MAX_TRACES: Final = 200_000
"""Traces that one look reads; the rest is left to the next."""
MAX_CAUSE_TRACES: Final = 10_000
TROUBLE_S: Final = 300.0
"""How long the store may be out of reach before the sinks hear of it."""
STOP_S: Final = 2.0
JUMP_S: Final = 120.0
"""A clock that went by so much more or less than time did has been set."""
SETTLED_S: Final = 900.0
"""How long after that nothing is over: the windows have a hole, or two times one hour."""
_MEMORY: Final = "memory"
_TROUBLE: Final = "trouble_since_s"

_log = logging.getLogger("longpole.analytics.alerts")


class AlertWatch:
    """Watches one project; :meth:`tick` is one look, :meth:`start` goes on in a thread."""

    def __init__(
        self, seat: Seat, settings: AlertSettings, clock: Callable[[], float] = time.time
    ) -> None:
        """Find again what was left.

        Raises:
            Unreachable: what is kept of alerts cannot be read.
        """
        self._seat = seat
        self._settings = settings
        self._clock = clock
        self._objectives = with_floors(settings.objectives)
        self._names = {
            events.fingerprint(seat.project, each, severity)
            for each in self._objectives
            for severity in SEVERITIES
        }
        self._ledger = Ledger(seat.folder)
        self._rings = Rings(seat.folder / FOLDER, self._objectives)
        self._memory = _remembered(self._ledger)
        self._entries = self._ledger.entries()
        self._conditions = reading.Conditions()
        self._needs_stages = reading.needs_stages(self._objectives)
        self._facts = outcome_facts(self._objectives)
        gate = Gate(settings.allow_hosts)
        self._couriers = [Courier(seat.folder, sink, gate, clock) for sink in settings.sinks]
        self._refreshed_s: dict[str, float] = {}
        self._tally = metrics.Tally(int(clock() * 1e9))
        self._standings: dict[str, Standing] = {}
        self._news: set[int] = set()
        self._broken: dict[str, str] = {}
        self._looked_s: float | None = None
        self._full_s = 0.0
        self._minute = -1
        self._tick_s = 0.0
        self._trusted_from = 0.0
        self._lock = Lock()
        self._stopping = Flag()
        self._thread = Thread(target=self._run, name="longpole-alerts", daemon=True)

    def start(self) -> None:
        """Begin."""
        for courier in self._couriers:
            courier.start()
        self._thread.start()

    def stop(self) -> None:
        """End the look that goes on and the messages on their way; what waits is kept."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()
        for courier in self._couriers:
            courier.stop(STOP_S)
        self._ledger.close()
        self._conditions.close()

    def deliver(self, now_s: float) -> int:
        """One round of all sinks in this thread; returns how many messages were tried."""
        return sum(courier.deliver(self._ledger, now_s) for courier in self._couriers)

    def clock_was_set(self) -> None:
        """The clock is not what it was: take nothing for over until the windows are filled."""
        _log.warning("the clock was set: no alert is taken for over for a while")
        self._trusted_from = time.monotonic() + SETTLED_S

    def tick(self, now_s: float) -> None:
        """One look at a moment, seconds since the Unix epoch."""
        minute = int(now_s) // 60
        try:
            self._rings.advance(minute)
            is_whole = self._read(now_s, minute)
        except (LongpoleError, duckdb.Error, OSError) as error:
            self._paused(str(error).splitlines()[0] if str(error) else type(error).__name__, now_s)
            self._refresh(now_s)
            return
        if is_whole:  # else the past is still being read
            memory = self._evaluated(minute)
            self._decide(tuple(self._standings.values()), memory, now_s)
            self._minute = minute
        self._refresh(now_s)

    def prometheus(self) -> str:
        """As :meth:`Watch.prometheus <longpole_collector.watching.Watch.prometheus>`."""
        with self._lock:
            looked_s, entries = self._looked_s, list(self._entries.values())
            found = list(self._standings.values())
        age_s = None if looked_s is None else max(self._clock() - looked_s, 0.0)
        lines = [
            *metrics.counters(self._tally),
            *metrics.gauges(found),
            *metrics.broken(self._broken),
            *metrics.alerts(entries, age_s, self._tick_s),
            *metrics.deliveries({c.sink.name: c.outcomes.copy() for c in self._couriers}),
        ]
        return "\n".join([*lines, ""]) if lines else ""

    def answer(self, asked: str) -> dict[str, Any] | None:
        """As :meth:`Answering.answer <longpole_collector.watching.Answering.answer>`."""
        if asked != "alerts":
            return None
        return watched(self._seat.folder, self._settings.sinks, self._clock())

    # --- reading --------------------------------------------------------------------------------
    def _read(self, now_s: float, minute: int) -> bool:
        """Count the minutes that changed; false if some are left for the next look."""
        is_full = self._looked_s is None or not 0 <= now_s - self._full_s < FULL_S
        first = minute - (self._rings.length if is_full else RECENT_MIN) + 1
        held = reading.held(self._seat.reader, first * MINUTE_NS)
        unread = self._rings.unread(held, minute)
        num = 0
        for chunk in reading.chunks(unread):
            if num >= MAX_TRACES or self._stopping.is_set():
                return False
            self._news |= self._count(chunk)
            num += int(chunk.traces.sum())
        if is_full:
            self._full_s = now_s
        return True

    def _count(self, chunk: Held) -> set[int]:
        """Count these minutes; returns the places of the objectives that they change."""
        first, last = int(chunk.minutes[0]), int(chunk.minutes[-1])
        found = reading.requests_of(
            self._seat.reader,
            first * MINUTE_NS,
            (last + 1) * MINUTE_NS,
            stages=self._needs_stages,
            facts=self._facts,
        )
        is_own, wrong = self._conditions.selected(found.requests, self._objectives)
        for slo, reason in wrong.items():
            if slo not in self._broken:
                _log.error("objective '%s' is not watched: %s", slo, reason)
        self._broken |= wrong
        counts = counted(found.requests, self._objectives, is_own, first, last - first + 1)
        names = [each.id for each in self._objectives]
        self._tally.read(found.requests, names, counts, first)
        return self._rings.put(first, counts, chunk)

    def _evaluated(self, minute: int) -> Memory:
        """Note where objectives stand; one at a time, as a period is long, and only with news."""
        memory = None if self._memory is None else rewound(self._memory, minute)
        found, news = dict(self._standings), self._news
        alerts: dict[str, tuple[Alert, ...]] = {}
        for row, objective in enumerate(self._objectives):
            if memory is not None and minute == self._minute and row not in news:
                keys = [alert_key(objective, rule) for rule in objective.rules]
                alerts |= {key: memory.alerts[key] for key in keys}
                continue
            minutes = panel([objective], [self._rings.series(row, minute)])
            own = advance(memory, minutes, minute)
            alerts |= own.alerts
            (found[objective.id],) = standings(minutes, minute, own)
        for slo in self._broken:
            found.pop(slo, None)
        with self._lock:
            self._standings = found
        self._news = set()
        return Memory(minute, alerts)

    # --- deciding -------------------------------------------------------------------------------
    def _decide(self, found: tuple[Standing, ...], memory: Memory, now_s: float) -> None:
        decision = decide(
            self._seat.project,
            found,
            self._entries,
            now_s=now_s,
            repeat_s=self._settings.repeat_s,
            silences=[each for _, each, _ in self._ledger.silences(now_s)],
            acks=self._ledger.acks(),
            may_end=time.monotonic() >= self._trusted_from,
        )
        told = self._told(decision, now_s)
        entries = {n: each for n, each in decision.entries.items() if n in self._names}
        gone = [each for n, each in decision.entries.items() if n not in entries and each.is_told]
        entries |= untold(
            entries, {turn.entry.fingerprint for turn in decision.turns} - told.keys()
        )
        with self._ledger.transaction():
            self._ledger.note(_MEMORY, memory.dumps())
            self._ledger.note(LOOKED, str(now_s))
            self._recovered(now_s)
            last = self._ledger.events()
            for each in gone:  # its objective is written no more, or of other requests
                if each.fingerprint in last:
                    self._send(events.over(last[each.fingerprint], int(now_s * 1e9)), now_s)
            for made in told.values():
                self._send(made, now_s)
            self._ledger.keep(entries, told)
            self._ledger.tidy(now_s, [courier.sink.name for courier in self._couriers])
        with self._lock:
            self._memory, self._entries, self._looked_s = memory, entries, now_s
        if told or gone:
            for courier in self._couriers:
                courier.wake()

    def _told(self, decision: Decision, now_s: float) -> dict[str, events.Event]:
        """What is told, by alert; what may know its cause in a moment waits for the next look."""
        last = self._ledger.events() if decision.turns else {}
        told: dict[str, events.Event] = {}
        for turn in decision.turns:
            name, is_news = turn.entry.fingerprint, turn.kind in ("firing", "repeat")
            cause = self._cause(turn, now_s) if is_news else events.Cause(unknown="")
            is_new = now_s - turn.entry.started_s < self._settings.patience_s
            may_know = cause.unknown and turn.standing.objective.metric in LATENCIES
            if turn.kind == "firing" and is_new and may_know:
                continue
            told[name] = self._event(turn, cause, last.get(name), now_s)
        return told

    def _event(
        self, turn: Turn, cause: events.Cause, last: events.Event | None, now_s: float
    ) -> events.Event:
        is_news = turn.kind in ("firing", "repeat")
        made = events.make_event(
            self._seat.project,
            turn.standing,
            turn.entry.severity,
            "firing" if is_news else "ack" if turn.kind == "ack" else "resolved",
            cause,
            started_ns=int(turn.entry.started_s * 1e9),
            now_ns=int(now_s * 1e9),
            dashboard=self._settings.dashboard,
        )
        if not is_news and last is not None:
            made |= {key: last[key] for key in ("cause", "change", "next_step")}
            made["links"]["traces"] = last["links"]["traces"]
        return made

    def _cause(self, turn: Turn, now_s: float) -> events.Cause:
        """The cause as far as it is known; an alert goes out without it rather than not at all."""
        rule = events.burning(turn.standing, turn.entry.severity).rule
        objective = turn.standing.objective
        since_ns = int((now_s - 60 * rule.long_min) * 1e9)
        try:
            before, found = (
                reading.requests_of(
                    self._seat.reader,
                    *window,
                    stages=True,
                    facts=self._facts,
                    max_traces=MAX_CAUSE_TRACES,
                )
                for window in (
                    (since_ns - rule.long_min * MINUTE_NS, since_ns),
                    (since_ns, int(now_s * 1e9)),
                )
            )
            every = pl.concat([before.requests, found.requests], how="diagonal_relaxed")
            (is_own,), _ = self._conditions.selected(every, [objective])
            own = every if is_own is None else every.filter(is_own)
            return explain(own, found.calls, objective, since_ns)
        except Exception as error:  # noqa: BLE001 - a page without its cause is still a page
            _log.exception("the cause of an alert could not be looked for")
            return events.Cause(
                unknown=f"the cause could not be looked for: {type(error).__name__}"
            )

    def _send(self, event: events.Event, now_s: float) -> None:
        sinks = [c.sink.name for c in self._couriers if event["severity"] in c.sink.severities]
        self._ledger.put(sinks, event, now_s)
        if event["status"] == "resolved":
            self._ledger.ended(event, now_s)

    def _refresh(self, now_s: float) -> None:
        """Say again what fires to sinks that forget it."""
        for courier in self._couriers:
            sink = courier.sink
            every_s = sink.kind.refresh_s
            if not every_s or now_s - self._refreshed_s.get(sink.name, 0.0) < every_s:
                continue
            self._refreshed_s[sink.name] = now_s
            told = self._ledger.events()
            for name, entry in self._entries.items():
                if entry.is_told and name in told and entry.severity in sink.severities:
                    said = told[name] | {"status": "firing"}
                    self._ledger.put([sink.name], said, now_s, is_refresh=True)
            courier.wake()

    # --- trouble --------------------------------------------------------------------------------
    def _paused(self, reason: str, now_s: float) -> None:
        """Nothing could be looked at: say so, and decide nothing."""
        told = self._ledger.meta(_TROUBLE)
        since_s = self._looked_s if self._looked_s is not None else now_s
        if self._looked_s is None:
            self._looked_s = now_s
        if not told and now_s - since_s >= TROUBLE_S:
            _log.error("objectives are not looked at: %s", reason)
            event = self._trouble(reason, "firing", since_s, now_s)
            with self._ledger.transaction():
                self._ledger.note(_TROUBLE, str(since_s))
                self._send(event, now_s)

    def _recovered(self, now_s: float) -> None:
        since = self._ledger.meta(_TROUBLE)
        if since:
            _log.warning("objectives are looked at again")
            self._ledger.note(_TROUBLE, "")
            self._send(self._trouble("", "resolved", float(since), now_s), now_s)

    def _trouble(
        self, reason: str, status: events.Status, since_s: float, now_s: float
    ) -> events.Event:
        return events.trouble(
            self._seat.project,
            reason,
            status,
            started_ns=int(since_s * 1e9),
            now_ns=int(now_s * 1e9),
            dashboard=self._settings.dashboard,
        )

    # --- the thread -----------------------------------------------------------------------------
    def _run(self) -> None:
        wait_s = 0.0
        ahead_s = self._clock() - time.monotonic()
        while not self._stopping.wait(wait_s):
            begun = time.monotonic()
            before_s, ahead_s = ahead_s, self._clock() - begun
            if abs(ahead_s - before_s) > JUMP_S:
                self.clock_was_set()
            try:
                self.tick(self._clock())
            except Exception:  # noqa: BLE001 - the next look may do better; its age shows on /metrics
                _log.exception("objectives could not be looked at")
            self._tick_s = time.monotonic() - begun
            wait_s = min(max(self._settings.interval_s, 5 * self._tick_s), 15.0)


def _remembered(ledger: Ledger) -> Memory | None:
    text = ledger.meta(_MEMORY)
    try:
        return None if text is None else loads(text)
    except BadInput as error:
        _log.error("%s: alerts begin anew", error)
        return None
