"""A store whose traces are sampled: what stays, what goes, what is counted, over restarts."""

import random
import time
from dataclasses import replace
from functools import partial

import pytest

from longpole.errors import UsageError
from longpole.vocab import keys
from longpole_analytics.rollup import ROLLUP
from longpole_collector import thinning as module
from longpole_collector.sampling_rules import SamplingRules
from longpole_collector.settings import load_settings
from longpole_collector.stores.duckdb import DuckStore
from longpole_collector.stores.keeping import rewrite
from longpole_collector.stores.minutes import refresh
from longpole_collector.stores.sampled import Sampled
from longpole_collector.stores.schema import trace_numbers
from longpole_collector.thinning import violations
from longpole_collector.writer import Writer

RULES = SamplingRules(
    is_on=True, rest=0.1, slow_share=0.001, rare_traces=1, quiet_s=1e-6, slices=()
)
HOUR_NS = 3600 * 10**9
BEGAN_NS = time.time_ns() + HOUR_NS
"""After any store of these tests was made."""
LATER_NS = 4_000_000_000_000_000_000
NUM = 24
"""Traces; every fourth is kept."""
SLICES = "start_ns, service, route, metric, bucket, sum(num) AS num, min(min_ms), max(max_ms)"


@pytest.fixture(autouse=True)
def no_pause(monkeypatch):
    monkeypatch.setattr(module, "_PAUSE_S", 0.0)


@pytest.fixture
def store(tmp_path):
    store = DuckStore(tmp_path / "db")
    yield store
    store.close()


def workflow(otlp, number, *, is_slow=False, began_ns=BEGAN_NS, **root):
    """A root and a model call below it; the id of every fourth is kept whatever it is."""
    trace_id = random.Random(number).randbytes(9) + bytes([255 if number % 4 == 0 else 1] * 7)
    start = began_ns + number * 10**9
    end = start + (10**12 if is_slow else 10**9 + number)
    shared = {"trace_id": trace_id, "start_time_unix_nano": start, "end_time_unix_nano": end}
    route = {keys.ROUTE: "r"}
    top = otlp.span(span_id=b"rrrrrrrr", attributes=route, **shared, **root)
    call = {keys.OPERATION: "chat", keys.REQUEST_MODEL: "m", **route}
    return top, otlp.span(parent_span_id=b"rrrrrrrr", kind=3, attributes=call, **shared)


def stored(otlp, store, rules=RULES, began_ns=BEGAN_NS):
    """A writer with so many traces, rolled up."""
    writer = Writer(store, ROLLUP, sampling=rules)
    spans = [s for number in range(NUM) for s in workflow(otlp, number, began_ns=began_ns)]
    writer.write_spans(otlp.canonical(*spans))
    writer.settle(everything=True)
    return writer


def num(store, view, what="count(*)"):
    return store.sql(f"SELECT {what} AS n FROM {view}")["n"][0].as_py()


def minutes(store):
    found = []
    for view in ("minutes", "hours"):
        found += store.sql(f"SELECT {SLICES} FROM {view} GROUP BY ALL ORDER BY ALL").to_pylist()
    stages = "SELECT start_ns, route, stage, sum(num) AS n, sum(critical_ns) AS ns FROM"
    found += store.sql(f"{stages} stage_minutes GROUP BY ALL ORDER BY ALL").to_pylist()
    assert found
    return found


def test_nothing_goes_unless_asked(otlp, store):
    writer = stored(otlp, store, rules=SamplingRules())
    assert writer.settle() == 0
    assert num(store, "traces", "sum(weight)") == num(store, "traces") == NUM
    assert num(store, "calls", "sum(weight)") == num(store, "calls") == NUM


def test_what_is_kept_is_whole_and_weighed_and_the_rest_is_gone(otlp, store):
    writer = stored(otlp, store)
    writer.settle()
    writer.write_spans(otlp.canonical(*workflow(otlp, 41, status=(2, ""))))
    writer.write_spans(otlp.canonical(*workflow(otlp, 43, is_slow=True)))
    writer.settle(everything=True)
    assert writer.settle() == 0
    found = store.sql("SELECT trace_id, weight FROM traces ORDER BY start_ns").to_pylist()
    kept = {row["trace_id"]: row["weight"] for row in found}
    for number in range(44):
        trace_id = workflow(otlp, number)[0]["trace_id"].hex()
        if number in (41, 43):
            assert kept.pop(trace_id) == 1.0
        elif number % 4 == 0 and 0 < number < NUM:
            assert kept.pop(trace_id) == pytest.approx(10)
    assert kept.keys() <= {workflow(otlp, 0)[0]["trace_id"].hex()}  # the first of all is rare
    for view in ("spans", "calls", "trace_stages"):
        asked = f"SELECT DISTINCT trace_id FROM {view}"
        assert set(store.sql(asked)["trace_id"].to_pylist()) == {row["trace_id"] for row in found}
    same = "calls JOIN traces USING (trace_id) WHERE calls.weight = traces.weight"
    assert num(store, same) == len(found)
    assert writer.health.total("traces_dropped", "sampling") == NUM + 2 - len(found)


@pytest.mark.parametrize("is_counted_before", [True, False])
def test_minutes_tell_of_all_that_came(otlp, store, is_counted_before):
    plain = DuckStore()
    stored(otlp, plain, rules=SamplingRules())
    refresh(plain, LATER_NS)
    writer = stored(otlp, store)
    if is_counted_before:
        refresh(store, LATER_NS)
    writer.settle()
    assert num(store, "traces") < NUM / 2
    refresh(store, LATER_NS)
    assert minutes(store) == minutes(plain)
    if not is_counted_before:
        plain.close()
        return
    # a late span of a kept trace and one of a dropped trace have their minutes counted anew
    for number in (4, 5):
        top, _ = workflow(otlp, number)
        late = otlp.span(**{k: top[k] for k in top if k.endswith("nano") or k == "trace_id"})
        for each in (writer, Writer(plain, ROLLUP)):
            each.write_spans(otlp.canonical({**late, "parent_span_id": b"rrrrrrrr"}))
            each.settle(everything=True)
    writer.settle()
    for each in (store, plain):
        refresh(each, LATER_NS)
    of_time = [row for row in minutes(plain) if "metric" in row]
    assert [row for row in minutes(store) if "metric" in row] == of_time
    assert any(map(partial(rewrite, store), list(store.days)))
    assert [row for row in minutes(store) if "metric" in row] == of_time
    plain.close()


def test_what_comes_late_of_a_dropped_trace_goes_too(otlp, store):
    writer = stored(otlp, store)
    writer.settle()
    before = num(store, "traces")
    top, call = workflow(otlp, 5)
    writer.write_spans(otlp.canonical({**call, "span_id": b"lateline", "status": (2, "")}))
    writer.settle(everything=True)
    assert num(store, "traces") == before + 1
    writer.settle()
    assert num(store, "traces") == before
    assert num(store, f"spans WHERE trace_id = '{top['trace_id'].hex()}'") == 0
    assert writer.health.total("traces_dropped", "late") == 1


def test_dropped_ids_are_let_go_of(otlp, store):
    writer = stored(otlp, store)
    writer.settle()
    sampled = Sampled(store, ())
    ids = trace_numbers([workflow(otlp, number)[0]["trace_id"].hex() for number in (4, 5, 6)])
    assert sampled.gone(ids).num_rows == 2
    sampled.forget(time.time_ns() - HOUR_NS)
    assert sampled.gone(ids).num_rows == 2
    sampled.forget(time.time_ns() + HOUR_NS)
    assert sampled.gone(ids).num_rows == 0


def test_a_late_span_of_a_kept_trace_has_its_weight(otlp, store):
    writer = stored(otlp, store)
    writer.settle()
    top, call = workflow(otlp, 8)
    mine = f"WHERE trace_id = '{top['trace_id'].hex()}'"
    before = num(store, f"traces {mine}", "max(weight)")
    writer.write_spans(otlp.canonical({**call, "span_id": b"lateline"}))
    writer.settle(everything=True)
    assert num(store, f"traces {mine}", "max(weight)") == before == pytest.approx(10)
    writer.settle()
    weights = store.sql(f"SELECT weight FROM calls {mine}")["weight"].to_pylist()
    assert weights == [before, before]


def test_a_restart_decides_what_was_not_and_remembers_what_was(otlp, tmp_path):
    folder = tmp_path / "db"
    store = DuckStore(folder)
    slow = replace(RULES, quiet_s=3600.0)
    assert stored(otlp, store, rules=slow).settle() == NUM
    store.close()
    store = DuckStore(folder)
    writer = Writer(store, ROLLUP, sampling=RULES)
    writer.settle()
    num_kept = num(store, "traces")
    assert NUM / 4 <= num_kept <= NUM / 4 + 1
    store.close()
    store = DuckStore(folder)
    writer = Writer(store, ROLLUP, sampling=RULES)
    assert writer.settle() == 0
    assert num(store, "traces") == num_kept
    writer.write_spans(otlp.canonical(workflow(otlp, 5)[1]))
    writer.settle(everything=True)
    writer.settle()
    assert num(store, "traces") == num_kept
    store.close()


def test_traces_from_before_sampling_stay(otlp, tmp_path):
    store = DuckStore(tmp_path / "db")
    stored(otlp, store, rules=SamplingRules(), began_ns=BEGAN_NS - 2 * HOUR_NS)
    writer = Writer(store, ROLLUP, sampling=RULES)
    assert not any(day.is_unsaved for day in store.days)  # since when is known after a crash too
    writer.settle(everything=True)  # what came last is rolled up anew
    assert writer.settle() == 0
    assert num(store, "traces") == NUM
    store.close()


def test_a_decision_that_could_not_be_written_down_is_made_again(otlp, store, monkeypatch):
    writer = stored(otlp, store)

    def fail(*_args):
        raise module.duckdb.IOException("no room")

    with monkeypatch.context() as patch:
        patch.setattr(module.Sampled, "apply", fail)
        with pytest.raises(module.duckdb.IOException):
            writer.settle()
    assert num(store, "traces") == NUM
    assert writer.settle() == 0
    assert num(store, "traces") < NUM / 2


def test_senders_sampling_is_a_weight_with_nothing_set(otlp, store):
    writer = Writer(store, ROLLUP)
    top, call = workflow(otlp, 1)
    writer.write_spans(
        otlp.canonical({**top, "trace_state": "ot=th:8"}, {**call, "trace_state": "ot=th:c"})
    )
    writer.write_spans(otlp.canonical(*workflow(otlp, 2)))
    writer.settle(everything=True)
    asked = "SELECT weight FROM {} ORDER BY weight"
    assert store.sql(asked.format("traces"))["weight"].to_pylist() == [1.0, 2.0]
    assert store.sql(asked.format("calls"))["weight"].to_pylist() == [1.0, 4.0]


# --- objectives and settings -------------------------------------------------------------------
def test_what_breaks_an_objective_is_kept(otlp, store, monkeypatch):
    tables = {
        "slow": {"metric": "e2e_ms", "threshold": 1000, "where": "route = 'r' -- ours"},
        "other": {"metric": "e2e_ms", "threshold": 1, "where": "route = 'elsewhere'"},
        "odd": {"metric": "e2e_ms", "threshold": 1, "where": "no_such_column = 1"},
        "ratio": {"metric": "availability", "target": 0.9},
    }
    assert set(violations(tables)) == {"slow", "other", "odd"}
    monkeypatch.setattr(module, "violations", lambda: violations(tables))
    writer = stored(otlp, store)
    writer.settle()
    kept = store.sql("SELECT count(*) AS n, max(weight) AS w FROM traces WHERE wall_ms > 1000")
    assert kept.to_pylist() == [{"n": NUM - 1, "w": 1.0}]


def test_the_table_of_the_configuration_is_read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "longpole.toml").write_text(
        '[collector.sampling]\nis_on = true\nrest = 0.5\nslices = ["provider"]\n'
    )
    found = load_settings().sampling
    assert (found.is_on, found.rest, found.slices, found.error) == (True, 0.5, ("provider",), 1.0)
    assert not SamplingRules().is_on
    for line, said in (("rest = 0", "above 0"), ("rst = 1", "rst"), ("is_on = 3", "is_on")):
        (tmp_path / "longpole.toml").write_text(f"[collector.sampling]\n{line}\n")
        with pytest.raises(UsageError, match=said):
            load_settings()
