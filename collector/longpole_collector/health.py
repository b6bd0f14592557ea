"""The collector's own counters and histograms, and their Prometheus text.

Everything that is received, stored, refused or dropped is counted here, by cause, so that no
loss is silent. :data:`COUNTERS`, :data:`GAUGES` and :data:`HISTOGRAMS` are the one list of what
``/metrics`` shows.

Own code, not ``prometheus_client``: a batch's freshness is noted as an array, 17 ns a span where
that library takes 700, and the text format, which its parser checks in the tests, is the lesser
part of this file. One value costs 0.3 us: it is put aside and sorted into a bucket when somebody
asks.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from threading import Lock
from typing import Any, Final, NamedTuple

import numpy as np


class Metric(NamedTuple):
    """What a metric's labels are called, in order, and what it counts."""

    labels: tuple[str, ...]
    meaning: str


COUNTERS: Final = {
    "requests_received": Metric((), "trace requests that were understood"),
    "requests_answered": Metric(
        ("signal", "door", "encoding"), "requests that were taken, whole or in part"
    ),
    "requests_refused": Metric(("cause",), "requests that were answered with an error"),
    "spans_received": Metric((), "good spans in acknowledged requests"),
    "spans_rejected": Metric((), "bad spans, told to the sender as partial success"),
    "spans_stored": Metric((), "spans that were new to the store"),
    "spans_duplicate": Metric((), "spans the store had already"),
    "spans_late": Metric((), "spans that arrived long after they had ended"),
    "spans_dropped": Metric(("cause",), "acknowledged spans that could not be stored"),
    "spans_unknown_dialect": Metric((), "spans no dialect claimed"),
    "traces_kept": Metric(("reason",), "traces that sampling kept"),
    "traces_dropped": Metric(("cause",), "traces that sampling took out, wholly or what came late"),
    "events_received": Metric((), "GenAI events of log records in acknowledged requests"),
    "events_joined": Metric((), "GenAI events joined to their span"),
    "events_dropped": Metric(("cause",), "acknowledged GenAI events that met no span"),
    "signals_dropped": Metric(("signal",), "log records and metric points taken and dropped"),
    "values_dropped": Metric(("cause",), "attribute values dropped, redacted or cut"),
    "dialect_errors": Metric(("dialect",), "spans a dialect failed to read"),
    "rollup_errors": Metric((), "traces whose roll-up failed"),
    "log_frames_damaged": Metric((), "frames of the write-ahead log that could not be read back"),
}
"""Shown as ``longpole_<name>_total``."""

GAUGES: Final = {
    "queue_bytes": Metric((), "bytes taken and not yet stored"),
    "queue_spans": Metric((), "spans taken and not yet stored"),
    "dirty_traces": Metric((), "traces that wait for their roll-up"),
    "undecided_traces": Metric((), "traces that wait for the decision whether they are kept"),
    "unsent_traces": Metric((), "traces that sampling kept and a ClickHouse store has not got"),
    "pending_events": Metric((), "GenAI events that wait for their span"),
    "stored_files": Metric((), "files of the store"),
    "stored_bytes": Metric(("what",), "bytes on disk: of the store, of the write-ahead log"),
    "broken_files": Metric((), "files of the store that cannot be read"),
    "store_failing": Metric((), "whether a ClickHouse store does not answer, or refuses"),
    "open_queries": Metric((), "queries that run now"),
}
"""Shown as ``longpole_<name>``; one that nobody reads is left out."""

_ACK_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_FRESHNESS_S: Final = (0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1, 1.5, 2, 3, 5, 10, 30, 60, 300)
HISTOGRAMS: Final = {
    "ack_seconds": (Metric(("door",), "request in to answer out"), _ACK_S),
    "freshness_seconds": (Metric((), "span received to visible in queries"), _FRESHNESS_S),
}
"""Shown as ``longpole_<name>``; with the upper bounds of the buckets, seconds."""

LATE_S: Final = 300.0
"""A span that arrives later than this after its end is late."""
_MAX_ASIDE: Final = 4096

Label = str | tuple[str, ...]
"""The value of a metric's label, or of each of its labels."""


class _Histogram:
    """Counts by bucket; observations are put aside, and counted when there are many."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = np.array(bounds)
        self._counts = np.zeros(len(bounds) + 1, np.int64)
        self._sum = 0.0
        self._aside: deque[float] = deque()
        self._lock = Lock()

    def observe(self, value: float) -> None:
        """Note one value; takes no lock but once in many times."""
        self._aside.append(value)
        if len(self._aside) >= _MAX_ASIDE:
            self.read()

    def observe_many(self, values: Any) -> None:
        """Note the values of an array or list."""
        with self._lock:
            self._count(np.asarray(values, np.float64))

    def read(self) -> tuple[list[int], float]:
        """How many values were up to each bound and in all, and their sum."""
        with self._lock:
            self._count(np.array([self._aside.popleft() for _ in range(len(self._aside))]))
            return list(accumulate(self._counts.tolist())), self._sum

    def _count(self, values: Any) -> None:
        found = np.bincount(np.searchsorted(self._bounds, values), minlength=len(self._counts))
        self._counts += found
        self._sum += float(values.sum())


class Health:
    """Counters, gauges and histograms by name; safe to use from several threads."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, Label]] = Counter()
        self._gauges: dict[str, list[Callable[[], int | Mapping[str, int]]]] = {}
        self._histograms: dict[tuple[str, str], _Histogram] = {}
        self._more: list[Callable[[], str]] = []
        self._lock = Lock()

    def add(self, name: str, label: Label = "", num: int = 1) -> None:
        """Count ``num`` more; ``name`` is one of :data:`COUNTERS`."""
        with self._lock:
            self._counts[name, label] += num

    def gauge(self, name: str, read: Callable[[], int | Mapping[str, int]]) -> None:
        """Say how to read a gauge, a number or one by label; of several readers the sum is shown.

        ``name`` is one of :data:`GAUGES`.
        """
        self._gauges.setdefault(name, []).append(read)

    def tell(self, more: Callable[[], str]) -> None:
        """Show Prometheus text of others too: whole families, ended by a line's end."""
        self._more.append(more)

    def observe(self, name: str, seconds: float, label: str = "") -> None:
        """Note one value of a histogram; ``name`` is one of :data:`HISTOGRAMS`."""
        self._histogram(name, label).observe(seconds)

    def observe_many(self, name: str, seconds: Any, label: str = "") -> None:
        """Note many values at once, a numpy array or a list."""
        self._histogram(name, label).observe_many(seconds)

    def total(self, name: str, label: Label | None = None) -> int:
        """A counter's value: one label's, or the sum over all."""
        with self._lock:
            return sum(
                num
                for (counter, found), num in self._counts.items()
                if counter == name and label in (None, found)
            )

    def prometheus(self) -> str:
        """All of it in Prometheus text format 0.0.4; a counter that never moved shows 0."""
        with self._lock:
            counts = dict(self._counts)
            histograms = dict(self._histograms)
        lines: list[str] = []
        for name, metric in COUNTERS.items():
            values = {label: num for (counter, label), num in counts.items() if counter == name}
            if not metric.labels:
                values = {"": values.get("", 0)}
            lines += _samples(f"longpole_{name}_total", "counter", metric, values)
        for name, metric in GAUGES.items():
            if name in self._gauges:
                found: Counter[Label] = Counter()
                for read in self._gauges[name]:
                    value = read()
                    found.update(value if isinstance(value, Mapping) else {"": value})
                lines += _samples(f"longpole_{name}", "gauge", metric, found)
        for name, (metric, bounds) in HISTOGRAMS.items():
            full = f"longpole_{name}"
            lines += _head(full, "histogram", metric)
            for (histogram, label), found_in in sorted(histograms.items()):
                if histogram == name:
                    lines += _buckets(full, metric, label, bounds, found_in)
        return "\n".join(lines) + "\n" + "".join(more() for more in self._more)

    def _histogram(self, name: str, label: str) -> _Histogram:
        found = self._histograms.get((name, label))
        if found is None:
            with self._lock:
                found = self._histograms.setdefault((name, label), _Histogram(HISTOGRAMS[name][1]))
        return found


def num_late(ended_ns: Any, received_ns: Any) -> int:
    """How many spans arrived late.

    Args:
        ended_ns: array of their ends, or starts while unfinished, Unix epoch.
        received_ns: array of their arrivals, or the one arrival of all.
    """
    late = np.asarray(received_ns) - np.asarray(ended_ns) > LATE_S * 1e9
    return int(np.count_nonzero(late))


# --- the text format ----------------------------------------------------------------------------
def _head(full: str, kind: str, metric: Metric) -> list[str]:
    return [f"# HELP {full} {metric.meaning}", f"# TYPE {full} {kind}"]


def _samples(full: str, kind: str, metric: Metric, values: Mapping[Label, int]) -> list[str]:
    lines = _head(full, kind, metric)
    for label, value in sorted(values.items(), key=str):
        labels = label if isinstance(label, tuple) else (label,)
        lines.append(f"{full}{_braces(zip(metric.labels, labels, strict=False))} {value}")
    return lines


def _buckets(
    full: str, metric: Metric, label: str, bounds: Sequence[float], histogram: _Histogram
) -> list[str]:
    counts, total = histogram.read()
    own = list(zip(metric.labels, (label,), strict=False))
    lines = [
        f"{full}_bucket{_braces([*own, ('le', str(bound))])} {count}"
        for bound, count in zip((*map(float, bounds), "+Inf"), counts, strict=True)
    ]
    return [*lines, f"{full}_sum{_braces(own)} {total}", f"{full}_count{_braces(own)} {counts[-1]}"]


def _braces(pairs: Iterable[tuple[str, str]]) -> str:
    text = ",".join(f'{name}="{_escaped(value)}"' for name, value in pairs)
    return f"{{{text}}}" if text else ""


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
