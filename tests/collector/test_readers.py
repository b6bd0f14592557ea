"""Storing goes before reading: when it needs the memory, queries make room and come again."""

from threading import Event, Thread
from time import sleep

import duckdb
import pytest

from longpole.errors import BadInput, StoreBusy
from longpole_collector.stores.connection import Limits
from longpole_collector.stores.duckdb import DuckStore
from longpole_collector.stores.schema import SPANS
from longpole_collector.writer import Writer

LONG = "SELECT count(*) AS n FROM range(20000000) a, range(3) b"
"""Begins to answer when it is done."""
MANY = "SELECT i FROM range(1000000) AS many(i)"
"""Begins to answer at once."""


@pytest.fixture
def store():
    store = DuckStore(limits=Limits(max_rows=2_000_000))
    yield store
    store.close()


def test_a_query_that_makes_room_is_run_again_and_answers_in_full(store):
    answers: list[int] = []
    is_running = Event()
    asked = store._asked

    def told(*args):
        is_running.set()
        return asked(*args)

    store._asked = told
    reader = Thread(target=lambda: answers.append(store.sql(LONG)["n"][0].as_py()))
    reader.start()
    assert is_running.wait(30)
    with store.alone():
        is_running.clear()
        late = Thread(target=lambda: answers.append(store.sql("SELECT 7 AS n")["n"][0].as_py()))
        late.start()
        late.join(0.2)
        assert answers in ([], [60_000_000])  # nobody reads, unless it was done before
        with store.writing() as writer:
            assert writer.sql("SELECT 1").fetchall() == [(1,)]
    reader.join(60)
    late.join(60)
    assert sorted(answers) == [7, 60_000_000]


def test_an_answer_that_has_begun_is_broken_off_and_says_come_again(store, monkeypatch):
    monkeypatch.setattr("longpole_collector.stores.readers._ASIDE_S", 0.2)
    with store.stream(MANY) as stream:
        next(stream.batches)
        with store.alone():
            pass
        with pytest.raises(StoreBusy, match="try again"):
            for _ in stream.batches:
                pass
    assert store.sql("SELECT 7 AS n")["n"][0].as_py() == 7


def test_an_answer_that_takes_too_long_says_so_also_after_its_begin():
    store = DuckStore(limits=Limits(max_rows=2_000_000, timeout_s=0.2))
    with store.stream(MANY) as stream:
        next(stream.batches)
        sleep(0.6)
        with pytest.raises(BadInput, match="query_timeout_s"):
            for _ in stream.batches:
                pass
    store.close()


def test_who_waits_too_long_for_room_is_told_to_come_again():
    store = DuckStore(limits=Limits(timeout_s=0.2))
    with store.alone(), pytest.raises(StoreBusy, match="memory is needed"):
        store.sql("SELECT 1")
    store.close()


def test_as_many_run_at_once_as_there_are_cores_and_the_next_waits_its_turn():
    store = DuckStore(limits=Limits(max_rows=2_000_000, timeout_s=0.5, threads=1))
    with store.stream(MANY) as one, store.stream(MANY) as other:
        assert next(one.batches).num_rows == next(other.batches).num_rows
        with pytest.raises(StoreBusy, match="other queries"):
            store.sql("SELECT 1")
    assert store.sql("SELECT 7 AS n")["n"][0].as_py() == 7
    store.close()


def settled_anew(store, otlp):
    """One span more, and another changed, as when a call turns out to be told of twice."""
    Writer(store, None).write_spans(otlp.canonical(otlp.span()))
    day = store.latest_day()
    with store.transaction(day) as writer:
        writer.execute(f"UPDATE {day.catalog}.{SPANS.name} SET call_role = 1 - call_role")


def test_a_query_that_sees_what_was_changed_does_not_cost_what_is_not_saved(otlp, tmp_path):
    store = DuckStore(tmp_path / "db", limits=Limits(max_rows=2_000_000))
    settled_anew(store, otlp)
    store.save()
    with store.stream(f"SELECT many.i, s.trace_id FROM ({MANY}) many, spans s") as stream:
        next(stream.batches)
        settled_anew(store, otlp)
        with pytest.raises(StoreBusy, match="in the way"):
            store.save(at_once=False)
        assert store.num_unsaved() == 1
    store.save(at_once=False)
    assert store.num_unsaved() == 0
    assert store.sql("SELECT count(*) AS n FROM spans")["n"][0].as_py() == 2
    store.close()


def test_a_save_that_cannot_wait_sets_a_query_aside(otlp, tmp_path):
    store = DuckStore(tmp_path / "db", limits=Limits(max_rows=2_000_000))
    settled_anew(store, otlp)
    store.save()
    with store.stream(f"SELECT many.i, s.trace_id FROM ({MANY}) many, spans s") as stream:
        next(stream.batches)
        settled_anew(store, otlp)
        saving = Thread(target=store.save)
        saving.start()
        with pytest.raises(StoreBusy, match="try again"):
            [sleep(0.05) for _ in stream.batches]
    saving.join(60)
    assert store.num_unsaved() == 0
    store.close()


def test_a_query_for_which_the_memory_does_not_suffice_is_run_once_more_alone(store):
    num_running: list[int] = []
    asked = store._asked

    def told(*args):
        num_running.append(len(store._readers._running))
        if len(num_running) == 2:  # the first of the second query
            raise duckdb.OutOfMemoryException("failed to allocate")
        return asked(*args)

    store._asked = told
    other = Thread(target=lambda: store.sql(LONG))
    other.start()
    while not num_running:
        sleep(0.01)
    assert store.sql("SELECT 7 AS n")["n"][0].as_py() == 7
    other.join(60)
    assert num_running[2] == 1
    assert len(num_running) == 3


def test_a_query_that_does_not_fit_alone_says_so(store):
    def told(*_):
        raise duckdb.OutOfMemoryException("failed to allocate")

    store._asked = told
    with pytest.raises(BadInput, match="failed to allocate"):
        store.sql("SELECT 7 AS n")
