"""What the watch says on ``/metrics``: requests and bad ones, burn rates, budgets, durations.

Counters and histograms begin with the process, as Prometheus expects: a minute that is read again
adds only what was not there before. Durations are counted in buckets that double, so histograms
of many processes add up.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from threading import Lock
from typing import Final

import numpy as np
import polars as pl

from longpole_analytics.alerts.book import Entry
from longpole_analytics.minutes import MINUTE_NS, SCALE
from longpole_analytics.slo.check import Standing
from longpole_analytics.slo.objectives import span
from longpole_analytics.slo.series import Ints

BOUNDS_S: Final = tuple(2.0**k / 1000 for k in range(20))
"""Upper bounds of the buckets: 1 ms to 9 minutes."""
DURATIONS: Final = ("ttft_ms", "tpot_ms", "e2e_ms")
MAX_ROUTES: Final = 50
OTHER: Final = "(other)"
KEPT_MIN: Final = 120
"""Minutes of which is known what was counted; what comes later is not shown here."""
_SUM: Final = -1
Key = tuple[str, str, int]
Pairs = Sequence[tuple[str, str]]


class Tally:
    """Counters that never go back, of minutes that are read again and again."""

    def __init__(self, since_ns: int) -> None:
        """Requests that began before ``since_ns`` are another process's."""
        self._since_ns = since_ns
        self._seen: dict[int, Counter[Key]] = {}
        self._totals: Counter[Key] = Counter()
        self._routes: set[str] = set()
        self._lock = Lock()

    def read(
        self, requests: pl.DataFrame, names: Sequence[str], counts: Ints, first_minute: int
    ) -> None:
        """Note minutes that were just read whole.

        Args:
            requests: all requests that began in them.
            names: of the objectives.
            counts: of each objective by minute, as ``slo.counting`` has them.
            first_minute: the first minute, since the Unix epoch.
        """
        since = self._since_ns // MINUTE_NS + 1
        last = first_minute + counts.shape[1] - 1
        new: dict[int, Counter[Key]] = {
            minute: Counter() for minute in range(max(since, first_minute), last + 1)
        }
        for minute, own in new.items():
            for row, name in enumerate(names):
                bad, total = counts[row, minute - first_minute, :2]
                own["bad", name, 0], own["total", name, 0] = int(bad), int(total)
        self._durations(requests, new)
        with self._lock:
            for minute, own in new.items():
                before = self._seen.get(minute, Counter())
                for key, num in own.items():
                    self._totals[key] += max(num - before[key], 0)
                self._seen[minute] = own | before
            for minute in [each for each in self._seen if each < last - KEPT_MIN]:
                del self._seen[minute]

    def totals(self) -> Counter[Key]:
        """All counts so far."""
        with self._lock:
            return Counter(self._totals)

    def _durations(self, requests: pl.DataFrame, new: Mapping[int, Counter[Key]]) -> None:
        minute = pl.col("start_ns") // MINUTE_NS
        known = requests.filter(minute.is_between(min(new, default=1), max(new, default=0)))
        for name in DURATIONS:
            seconds = pl.col(name) / 1000
            rows = known.filter(pl.col(name).is_finite() & (pl.col(name) >= 0)).select(
                minute.alias("minute"), pl.col("route").fill_null(""), seconds.alias("value")
            )
            places = np.searchsorted(BOUNDS_S, rows["value"].to_numpy())
            rows = rows.with_columns(pl.Series("place", places, pl.Int64))
            found = rows.group_by("minute", "route", "place", maintain_order=True).agg(
                pl.len(), pl.col("value").sum()
            )
            for at, route, place, num, total_s in found.iter_rows():
                shown = self._route(route)
                new[at][name, shown, place] += num
                new[at][name, shown, _SUM] += int(total_s * 1e9)

    def _route(self, route: str) -> str:
        if route in self._routes or len(self._routes) < MAX_ROUTES:
            self._routes.add(route)
            return route
        return OTHER


def counters(tally: Tally) -> list[str]:
    """Lines of the counters and histograms."""
    totals = tally.totals()
    lines: list[str] = []
    for kind, name, meaning in (
        ("total", "longpole_slo_events_total", "requests that count for the objective"),
        ("bad", "longpole_slo_bad_events_total", "those of them that were bad"),
    ):
        found = {key[1]: num for key, num in totals.items() if key[0] == kind}
        rows = [([("slo", slo)], num / SCALE) for slo, num in sorted(found.items())]
        lines += family(name, "counter", meaning, rows)
    for metric in DURATIONS:
        name = f"longpole_request_{metric.removesuffix('_ms')}_seconds"
        lines += _histogram(name, metric, totals)
    return lines


def gauges(standings: Iterable[Standing]) -> list[str]:
    """Lines of where the objectives stand; what is unknown is left out."""
    burns: dict[tuple[str, str], float] = {}
    budgets: list[tuple[Pairs, float]] = []
    targets: list[tuple[Pairs, float]] = []
    states: list[tuple[Pairs, float]] = []
    for each in standings:
        slo = each.objective.id
        for rule in each.rules:
            for length, burn in (
                (rule.rule.long_min, rule.burn_long),
                (rule.rule.short_min, rule.burn_short),
            ):
                if burn is not None:
                    burns[slo, span(length)] = burn
        if each.budget.remaining is not None:
            budgets.append(([("slo", slo)], each.budget.remaining))
        targets.append(([("slo", slo)], each.objective.target))
        states.append(([("slo", slo), ("status", each.status)], 1))
    rates = [([("slo", slo), ("window", window)], burn) for (slo, window), burn in burns.items()]
    return [
        *family("longpole_slo_burn_rate", "gauge", "burn rate of the error budget", rates),
        *family(
            "longpole_slo_budget_remaining_ratio", "gauge", "what is left of the budget", budgets
        ),
        *family("longpole_slo_target_ratio", "gauge", "share of requests promised good", targets),
        *family("longpole_slo_status", "gauge", "1 for the status that the objective has", states),
    ]


def broken(reasons: Iterable[str]) -> list[str]:
    """Lines of the objectives whose condition cannot be asked, by id."""
    rows = [([("slo", slo)], 1.0) for slo in reasons]
    meaning = "objectives whose condition cannot be asked"
    return family("longpole_slo_broken", "gauge", meaning, rows)


def alerts(entries: Iterable[Entry], age_s: float | None, tick_s: float) -> list[str]:
    """Lines of the alerts that fire, and of the last look; ``None`` if there was none."""
    firing = [([("slo", each.slo), ("severity", each.severity)], 1.0) for each in entries]
    lines = family("longpole_alerts_firing", "gauge", "alerts that fire", firing)
    if age_s is None:
        return lines
    name, meaning = "longpole_alerts_last_eval_age_seconds", "since objectives were last looked at"
    lines += family(name, "gauge", meaning, [([], age_s)])
    name, meaning = "longpole_alerts_eval_seconds", "time of the last look"
    return [*lines, *family(name, "gauge", meaning, [([], tick_s)])]


def deliveries(outcomes: Mapping[str, Mapping[str, int]]) -> list[str]:
    """Lines of what came of the messages, by sink."""
    rows = [
        ([("sink", sink), ("outcome", outcome)], float(num))
        for sink, found in outcomes.items()
        for outcome, num in sorted(found.items())
    ]
    meaning = "messages by what came of them"
    return family("longpole_alerts_deliveries_total", "counter", meaning, rows)


def family(name: str, kind: str, meaning: str, rows: Iterable[tuple[Pairs, float]]) -> list[str]:
    """One family in Prometheus text; none without rows."""
    found = [f"{name}{_braces(pairs)} {value:.10g}" for pairs, value in rows]
    return [f"# HELP {name} {meaning}", f"# TYPE {name} {kind}", *found] if found else []


def _histogram(name: str, metric: str, totals: Mapping[Key, int]) -> list[str]:
    routes = sorted({key[1] for key in totals if key[0] == metric})
    lines = []
    for route in routes:
        own = [("route", route)]
        num = 0
        for place, bound in enumerate((*map(str, BOUNDS_S), "+Inf")):
            num += totals.get((metric, route, place), 0)
            lines.append(f"{name}_bucket{_braces([*own, ('le', bound)])} {num}")
        lines.append(f"{name}_sum{_braces(own)} {totals.get((metric, route, _SUM), 0) / 1e9:.10g}")
        lines.append(f"{name}_count{_braces(own)} {num}")
    head = [f"# HELP {name} of requests, by route", f"# TYPE {name} histogram"]
    return [*head, *lines] if lines else []


def _braces(pairs: Pairs) -> str:
    text = ",".join(f'{name}="{_escaped(value)}"' for name, value in pairs)
    return f"{{{text}}}" if text else ""


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
