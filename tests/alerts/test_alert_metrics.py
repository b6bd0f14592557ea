"""What is counted for Prometheus: nothing twice, nothing back, in buckets that double."""

import itertools
import json
from pathlib import Path

import numpy as np
import polars as pl
from prometheus_client.parser import text_string_to_metric_families

from longpole_analytics.alerts.metrics import BOUNDS_S, MAX_ROUTES, OTHER, Tally, counters
from longpole_analytics.minutes import MINUTE_NS, SCALE

from .harness import START, slo

GRAFANA = Path(__file__).parents[2] / "examples" / "grafana" / "longpole.json"


def requests(ms, routes=None, minute=START + 1):
    size = len(ms)
    return pl.DataFrame(
        {
            "start_ns": [minute * MINUTE_NS] * size,
            "route": routes or ["search"] * size,
            "ttft_ms": ms,
            "tpot_ms": [None] * size,
            "e2e_ms": [None] * size,
        },
        schema_overrides={"ttft_ms": pl.Float64, "tpot_ms": pl.Float64, "e2e_ms": pl.Float64},
    )


def counts(bad, total):
    found = np.zeros((1, 1, 4), np.int64)
    found[0, 0, :2] = bad * SCALE, total * SCALE
    return found


def values(lines):
    families = text_string_to_metric_families("\n".join([*lines, ""]))
    return {(s.name, *sorted(s.labels.items())): s.value for f in families for s in f.samples}


def test_a_minute_that_is_read_again_adds_only_what_is_new():
    tally = Tally(START * MINUTE_NS)
    for ms, bad in (([100.0], 0), ([100.0, 900.0], 1), ([100.0, 900.0], 1), ([900.0], 1)):
        tally.read(requests(ms), ["a"], counts(bad, len(ms)), START + 1)
    found = values(counters(tally))
    assert found["longpole_slo_events_total", ("slo", "a")] == 2
    assert found["longpole_slo_bad_events_total", ("slo", "a")] == 1
    assert found["longpole_request_ttft_seconds_count", ("route", "search")] == 2
    assert found["longpole_request_ttft_seconds_sum", ("route", "search")] == 1.0


def test_buckets_double_and_hold_what_is_up_to_them():
    assert all(later == 2 * bound for bound, later in itertools.pairwise(BOUNDS_S))
    tally = Tally(0)
    tally.read(requests([1.0, 1.01, 1e9]), ["a"], counts(0, 3), START + 1)
    found = values(counters(tally))
    name, route = "longpole_request_ttft_seconds_bucket", ("route", "search")
    assert found[name, ("le", "0.001"), route] == 1
    assert found[name, ("le", "0.002"), route] == 2
    assert found[name, ("le", "+Inf"), route] == 3


def test_requests_of_a_process_before_are_not_counted():
    tally = Tally((START + 1) * MINUTE_NS)
    tally.read(requests([1.0]), ["a"], counts(1, 1), START + 1)
    assert counters(tally) == []


def test_routes_beyond_a_bound_are_one():
    names = [f"r{number}" for number in range(MAX_ROUTES + 5)]
    tally = Tally(0)
    tally.read(requests([1.0] * len(names), names), ["a"], counts(0, 1), START + 1)
    found = values(counters(tally))
    assert found["longpole_request_ttft_seconds_count", ("route", OTHER)] == 5


def test_names_are_escaped_and_the_text_parses(scene):
    it = scene(a=slo(where=None))
    it.fill(60, good=20)
    it.fill(12, bad=20, route='x"} 1\nevil 1\n')
    names = {f.name for f in text_string_to_metric_families(it.watch.prometheus())}
    assert "evil" not in names
    assert {"longpole_slo_burn_rate", "longpole_alerts_firing"} <= names


def test_every_metric_of_the_grafana_dashboard_is_there(scene):
    it = scene(a=slo())
    it.fill(60, good=20)
    it.fill(12, bad=20)
    families = text_string_to_metric_families(it.watch.prometheus())
    known = {sample.name for family in families for sample in family.samples}
    panels = json.loads(GRAFANA.read_text())["panels"]
    asked = [target["expr"] for panel in panels for target in panel.get("targets", [])]
    assert len(asked) >= 8
    import re

    for expression in asked:
        names = set(re.findall(r"longpole_[a-z0-9_]+", expression))
        assert names
        assert names <= known, expression
