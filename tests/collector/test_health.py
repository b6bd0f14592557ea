import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from longpole_collector.health import (
    COUNTERS,
    GAUGES,
    HISTOGRAMS,
    LATE_S,
    Health,
    num_late,
)


def samples(health):
    """(name, labels) -> value, as Prometheus reads the text."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(health.prometheus())
        for sample in family.samples
    }


def test_every_metric_is_told_with_its_type_and_meaning():
    health = Health()
    for name, metric in GAUGES.items():
        health.gauge(name, lambda metric=metric: {"x": 1} if metric.labels else 1)
    families = {
        family.name: family for family in text_string_to_metric_families(health.prometheus())
    }
    for name, metric in COUNTERS.items():
        family = families.pop(f"longpole_{name}")
        assert (family.type, family.documentation) == ("counter", metric.meaning)
    for name, metric in GAUGES.items():
        family = families.pop(f"longpole_{name}")
        assert (family.type, family.documentation) == ("gauge", metric.meaning)
        assert [tuple(sample.labels) for sample in family.samples] == [metric.labels]
    for name, (metric, _) in HISTOGRAMS.items():
        family = families.pop(f"longpole_{name}")
        assert (family.type, family.documentation) == ("histogram", metric.meaning)
    assert families == {}


def test_a_counter_that_never_moved_is_0_and_a_gauge_nobody_reads_is_left_out():
    found = samples(Health())
    assert found["longpole_spans_stored_total", ()] == 0
    assert not [name for name, _ in found if name == "longpole_queue_bytes"]


def test_labels_survive_whatever_they_hold():
    health = Health()
    strange = 'a"b\\c\nd{}=,é'
    health.add("values_dropped", strange, 3)
    health.add("requests_answered", ("traces", "http", "json+gzip"))
    found = samples(health)
    assert found["longpole_values_dropped_total", (("cause", strange),)] == 3
    labels = (("door", "http"), ("encoding", "json+gzip"), ("signal", "traces"))
    assert found["longpole_requests_answered_total", labels] == 1
    assert health.total("values_dropped") == health.total("values_dropped", strange) == 3
    assert health.total("requests_answered", ("traces", "http", "json+gzip")) == 1


def test_the_readers_of_one_gauge_are_summed():
    health = Health()
    health.gauge("queue_bytes", lambda: 5)
    health.gauge("queue_bytes", lambda: 7)
    health.gauge("stored_bytes", lambda: {"store": 1, "log": 2})
    health.gauge("stored_bytes", lambda: {"store": 10})
    found = samples(health)
    assert found["longpole_queue_bytes", ()] == 12
    assert found["longpole_stored_bytes", (("what", "store"),)] == 11
    assert found["longpole_stored_bytes", (("what", "log"),)] == 2


times = st.lists(st.floats(0, 1e4), max_size=50)


@given(times, times)
def test_a_histogram_counts_every_value_once_in_its_bucket(one_by_one, at_once):
    health = Health()
    for value in one_by_one:
        health.observe("freshness_seconds", value)
    health.observe_many("freshness_seconds", np.array(at_once))
    health.observe_many("freshness_seconds", at_once)
    values = [*one_by_one, *at_once, *at_once]
    found = samples(health)
    for bound in HISTOGRAMS["freshness_seconds"][1]:
        below = sum(value <= bound for value in values)
        assert found["longpole_freshness_seconds_bucket", (("le", str(float(bound))),)] == below
    assert found["longpole_freshness_seconds_bucket", (("le", "+Inf"),)] == len(values)
    assert found["longpole_freshness_seconds_count", ()] == len(values)
    assert found["longpole_freshness_seconds_sum", ()] == pytest.approx(sum(values))


def test_nothing_is_lost_between_threads_that_observe_and_one_that_reads():
    health = Health()
    num_threads, num_values = 8, 5000

    def observe():
        for _ in range(num_values):
            health.observe("ack_seconds", 0.003, "http")
            health.add("spans_received")

    threads = [threading.Thread(target=observe) for _ in range(num_threads)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        samples(health)
    found = samples(health)
    total = num_threads * num_values
    assert found["longpole_ack_seconds_count", (("door", "http"),)] == total
    assert found["longpole_ack_seconds_bucket", (("door", "http"), ("le", "0.005"))] == total
    assert found["longpole_ack_seconds_bucket", (("door", "http"), ("le", "0.0025"))] == 0
    assert health.total("spans_received") == total


def test_a_span_is_late_when_it_arrives_long_after_its_end():
    late_ns = int(LATE_S * 1e9)
    ended = np.array([0, 1, 2, late_ns])
    assert num_late(ended, np.full(4, late_ns + 1)) == 1
    assert num_late(ended, late_ns + 2) == 2
    assert num_late(np.array([], np.int64), np.array([], np.int64)) == 0
    assert num_late([late_ns * 10], [0]) == 0  # a clock that is ahead is not late
