"""A watch over a made store with a clock of its own, and a sink that writes down what it gets."""

from longpole_analytics.alerts.ledger import Ledger
from longpole_analytics.alerts.settings import AlertSettings
from longpole_analytics.alerts.sinks.base import Sink, SinkKind
from longpole_analytics.alerts.watch import AlertWatch
from longpole_analytics.slo.objectives import from_tables
from longpole_collector.watching import Seat

from .made_store import MadeStore

START = 29_833_320  # a minute in September 2026
FAST = {"severity": "page", "long": "1h", "short": "5m", "factor": 14.4}
SLOW = {"severity": "ticket", "long": "6h", "short": "30m", "factor": 3.0}


def slo(**given):
    return {
        "metric": "ttft_ms",
        "threshold": 2000,
        "target": 0.99,
        "period": "1d",
        "where": "route = 'search'",
        "rules": [FAST],
    } | given


class Scene:
    """What goes on: minutes are played, looked at once each, half-way through by default."""

    def __init__(
        self, folder, sinks=(), allow=("127.0.0.1",), repeat_s=14_400.0, patience_s=0.0, **tables
    ):
        self.folder, self.store = folder, MadeStore()
        self.got = []
        self.fault = None
        kind = SinkKind({}, self._take)
        self.settings = AlertSettings(
            objectives=tuple(from_tables(tables or {"search-ttft": slo()})),
            projects=frozenset(["default"]),
            interval_s=5.0,
            repeat_s=repeat_s,
            patience_s=patience_s,
            dashboard="http://127.0.0.1:8501",
            sinks=(Sink("book", kind, {}), *sinks),
            allow_hosts=allow,
        )
        self.now_s = START * 60.0
        self.watch = None
        self.open()

    def open(self):
        """Start, or start again."""
        if self.watch is not None:
            self.watch.stop()
        self.watch = AlertWatch(
            Seat("default", self.folder, self.store), self.settings, lambda: self.now_s
        )

    def close(self):
        self.watch.stop()
        self.store.close()

    def look(self, now_s=None):
        self.now_s = self.now_s if now_s is None else now_s
        self.watch.tick(self.now_s)
        self.watch.deliver(self.now_s)

    def fill(self, minutes, good=0, bad=0, **given):
        """Minutes with so many requests each, and one look at their end."""
        for _ in range(minutes):
            self.store.add(int(self.now_s) // 60, good, bad, **given)
            self.now_s += 60
        self.look()

    def play(self, minutes, good=0, bad=0, **given):
        """Minutes with so many requests each, and a look at the end of each."""
        for _ in range(minutes):
            self.store.add(int(self.now_s) // 60, good, bad, **given)
            self.look(self.now_s + 30)
            self.now_s += 30

    def ledger(self):
        return Ledger(self.folder)

    def ledger_rows(self):
        ledger = self.ledger()
        rows = ledger.deliveries(50)
        ledger.close()
        return rows

    @property
    def told(self):
        return [(event["status"], event["severity"]) for event in self.got]

    @property
    def status(self):
        """Status by objective."""
        return {name: each.status for name, each in self.watch._standings.items()}

    def _take(self, post, _options, _gate):
        if self.fault is not None:
            raise self.fault
        self.got.append(post.event)
