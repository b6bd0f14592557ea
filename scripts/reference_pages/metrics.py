"""What ``/metrics`` of the collector and of the engine show, read from what they would print."""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from reference_pages.base import lowered, page, table

Family = tuple[str, str, str, str]
"""Name, kind, labels, meaning."""


def metrics() -> str:
    """The metrics by who shows them."""

    def shown(found: Iterable[Family]) -> str:
        rows = [
            (f"`{name}`", kind, ", ".join(f"`{each}`" for each in labels.split()), lowered(what))
            for name, kind, labels, what in found
        ]
        return table(("metric", "kind", "labels", "what"), rows)

    return page(
        "Metrics",
        "In Prometheus' text format, on `GET /metrics`. Counters begin with the process. What "
        "nobody measures is left out, not shown as 0.",
        "## Of the collector\n\n" + shown((*collector(), *watch())),
        "Those that begin with `longpole_slo_`, `longpole_alerts_` and `longpole_request_` come "
        "with [objectives](../slo.md), `longpole_reports_total` with a [schedule of reports]"
        "(../report.md#by-itself).",
        "## Of the engine\n\nNames and meanings are vLLM's, so that its dashboards work; what "
        "vLLM has not is under `longpole:`.\n\n" + shown(engine()),
    )


def collector() -> Iterator[Family]:
    """The collector's own, from their one list."""
    from longpole_collector.health import COUNTERS, GAUGES, HISTOGRAMS

    for name, metric in COUNTERS.items():
        yield f"longpole_{name}_total", "counter", " ".join(metric.labels), metric.meaning
    for name, metric in GAUGES.items():
        yield f"longpole_{name}", "gauge", " ".join(metric.labels), metric.meaning
    for name, (metric, _) in HISTOGRAMS.items():
        yield f"longpole_{name}", "histogram", " ".join(metric.labels), metric.meaning


def watch() -> Iterator[Family]:
    """Those of objectives, alerts and reports: what they print of one of each."""
    from longpole_analytics.alerts import metrics as said
    from longpole_analytics.alerts.book import Entry
    from longpole_analytics.report.watch import ReportWatch

    rule = SimpleNamespace(
        rule=SimpleNamespace(long_min=60, short_min=5), burn_long=1, burn_short=1
    )
    standing: Any = SimpleNamespace(
        objective=SimpleNamespace(id="x", target=0.99),
        rules=(rule,),
        budget=SimpleNamespace(remaining=1.0),
        status="inactive",
    )
    totals = {("total", "x", 0): 1, ("bad", "x", 0): 1}
    totals |= {(name, "x", place): 1 for name in said.DURATIONS for place in (0, -1)}
    tally: Any = SimpleNamespace(totals=lambda: totals)
    reports: Any = SimpleNamespace(_outcomes={"made": 1})
    lines = [
        *said.counters(tally),
        *said.gauges([standing]),
        *said.broken(["x"]),
        *said.alerts([Entry("x", "x", "page", 0.0)], 1.0, 1.0),
        *said.deliveries({"chat": {"sent": 1}}),
        *ReportWatch.prometheus(reports).splitlines(),
    ]
    yield from families("\n".join(lines))


def engine() -> Iterator[Family]:
    """The engine's, from a registry in which each was seen once."""
    from longpole_engine.telemetry import reporter
    from longpole_engine.telemetry.prom import Metrics
    from longpole_engine.telemetry.resources import Sample

    seen = Metrics("x")
    seen.started({"warm_up": 1.0})
    seen.sampled(Sample(*[1] * len(Sample._fields)))
    seen._done.labels("x", "0", "stop").inc()
    source = Path(reporter.__file__).read_text("utf-8")
    gauges = re.findall(r'\(\s*"(vllm:\w+)",\s*"([^"]+)"', source)
    for name, meaning in gauges:
        seen.watch(name, meaning, lambda: 1.0)
    yield from families(seen.text().decode())


def families(text: str) -> Iterator[Family]:
    """The families of a text in Prometheus' format; labels by their first sample."""
    meanings = dict(re.findall(r"^# HELP (\S+) (.*)$", text, re.MULTILINE))
    for name, kind in re.findall(r"^# TYPE (\S+) (\w+)$", text, re.MULTILINE):
        if name.endswith("_created"):
            continue
        sample = re.search(rf"^{re.escape(name)}(?:_\w+)?{{(.*)}} ", text, re.MULTILINE)
        labels = re.findall(r'(\w+)="', sample[1]) if sample else []
        own = " ".join(each for each in labels if each != "le")
        yield name, kind, own, meanings[name].rstrip(".")
