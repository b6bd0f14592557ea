"""The collector's own counters, and their Prometheus text.

Everything that is received, stored, refused or dropped is counted here, by cause, so that no
loss is silent.
"""

from collections import Counter
from collections.abc import Callable
from threading import Lock
from typing import Final

COUNTERS: Final = {
    "requests_received": ("", "trace requests that were understood"),
    "requests_refused": ("cause", "requests that were answered with an error"),
    "spans_received": ("", "good spans in acknowledged requests"),
    "spans_rejected": ("", "bad spans, told to the sender as partial success"),
    "spans_stored": ("", "spans that were new to the store"),
    "spans_duplicate": ("", "spans the store had already"),
    "spans_dropped": ("cause", "acknowledged spans that could not be stored"),
    "spans_unknown_dialect": ("", "spans no dialect claimed"),
    "signals_dropped": ("signal", "log records and metric points taken and dropped"),
    "values_dropped": ("cause", "attribute values dropped or cut"),
    "dialect_errors": ("dialect", "spans a dialect failed to read"),
    "rollup_errors": ("", "traces whose roll-up failed"),
    "log_frames_damaged": ("", "frames of the write-ahead log that could not be read back"),
}
"""Counter -> (label or "", meaning)."""

GAUGES: Final = {
    "queue_bytes": "bytes taken and not yet stored",
    "dirty_traces": "traces that wait for their roll-up",
}


class Health:
    """Counters by name and cause; safe to use from several threads."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str]] = Counter()
        self._gauges: dict[str, Callable[[], int]] = {}
        self._lock = Lock()

    def add(self, name: str, label: str = "", num: int = 1) -> None:
        """Count ``num`` more; ``name`` is one of :data:`COUNTERS`."""
        with self._lock:
            self._counts[name, label] += num

    def gauge(self, name: str, read: Callable[[], int]) -> None:
        """Say how to read a gauge; ``name`` is one of :data:`GAUGES`."""
        self._gauges[name] = read

    def total(self, name: str, label: str | None = None) -> int:
        """A counter's value: one cause's, or the sum over all."""
        with self._lock:
            return sum(
                num
                for (counter, cause), num in self._counts.items()
                if counter == name and label in (None, cause)
            )

    def prometheus(self) -> str:
        """All of it in Prometheus text format 0.0.4; a counter that never moved shows 0."""
        with self._lock:
            counts = dict(self._counts)
        lines: list[str] = []
        for name, (label, meaning) in COUNTERS.items():
            full = f"longpole_{name}_total"
            lines += [f"# HELP {full} {meaning}", f"# TYPE {full} counter"]
            found = {cause: num for (counter, cause), num in counts.items() if counter == name}
            if not label:
                lines.append(f"{full} {found.get('', 0)}")
            lines += [
                f'{full}{{{label}="{_escaped(cause)}"}} {num}'
                for cause, num in sorted(found.items())
                if label
            ]
        for name, meaning in GAUGES.items():
            full = f"longpole_{name}"
            value = self._gauges[name]() if name in self._gauges else 0
            lines += [f"# HELP {full} {meaning}", f"# TYPE {full} gauge", f"{full} {value}"]
        return "\n".join(lines) + "\n"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
