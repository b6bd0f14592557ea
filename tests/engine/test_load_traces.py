"""A run is kept as traces that tell the wait to be sent, the call, and what came of it."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from longpole import emit
from longpole.call import StreamState
from longpole.testing import Spans, capture_spans
from longpole.vocab import keys
from longpole_analytics.rollup import ROLLUP
from longpole_collector.app import background
from longpole_collector.settings import Settings
from longpole_collector.stores import open_reader
from longpole_engine.load.client import Answer, Failure, now_ns
from longpole_engine.load.traces import Part, Traces

MS = 1_000_000
NUM = 4


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[Spans]:
    monkeypatch.setattr(emit, "init", lambda *_, **__: None)
    with capture_spans() as found:
        yield found


def kept(traces: Traces, lag_ns: int, failure: Failure | None, state: StreamState) -> str:
    """One request, sent so late, that ended so; its ``traceparent``."""
    sent_ns = now_ns()
    answer = Answer(sent_ns)
    begun, traceparent = traces.begin(sent_ns - lag_ns, sent_ns, 3)
    answer.failure, answer.status = failure, 200
    answer.call.end(sent_ns + 20 * MS, state)
    traces.end(begun, answer)
    return traceparent


def test_a_late_request_begins_when_it_was_due_and_its_wait_is_admission(spans: Spans) -> None:
    traces = Traces("http://127.0.0.1:1", "m", "r", Part("v7"))
    traceparent = kept(traces, 5 * MS, None, StreamState.COMPLETED)
    wait, call, root = spans
    due_ns = root.start_time or 0
    times = [(each.start_time, each.end_time) for each in (wait, call, root)]
    assert times == [
        (due_ns, due_ns + 5 * MS),
        (due_ns + 5 * MS, due_ns + 25 * MS),
        (due_ns, due_ns + 25 * MS),
    ]
    assert (wait.attributes or {})[keys.STAGE] == "admission"
    assert call.context is not None
    assert root.context is not None
    assert traceparent == f"00-{root.context.trace_id:032x}-{call.context.span_id:016x}-01"
    assert [each.parent and each.parent.span_id for each in (wait, call, root)] == [
        root.context.span_id, root.context.span_id, None,
    ]  # fmt: skip
    told = root.attributes or {}
    assert (told[keys.ROUTE], told[keys.ROUTE_VERSION], told[keys.OUTCOME]) == (
        "r", "v7", "accepted",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("failure", "state", "outcome"),
    [
        (None, StreamState.COMPLETED, "accepted"),
        (None, StreamState.CLOSED_EARLY, "rejected"),
        (Failure.TIMEOUT, StreamState.ERROR, "failed"),
    ],
)
def test_what_came_of_it_is_told(
    spans: Spans, failure: Failure | None, state: StreamState, outcome: str
) -> None:
    kept(Traces("http://127.0.0.1:1", "m", "r"), 0, failure, state)
    call, root = spans  # sent in time: there was no wait
    assert (root.attributes or {})[keys.OUTCOME] == outcome
    assert (call.attributes or {}).get(keys.ERROR_TYPE) == (failure and str(failure))
    assert root.status.is_ok is (failure is None)


def test_a_run_is_in_the_store_and_its_stages_add_up(
    serve: Callable[..., Any], tmp_path: Path
) -> None:
    db = tmp_path / "data"
    with background(Settings(db=db, http="127.0.0.1:0", grpc="127.0.0.1:0"), ROLLUP) as collector:
        words = [serve().url, "--model", "tiny", "--arrivals", "constant:20", "--json"]
        kept = ["--otlp", collector.url, "--route", "r", "--release", "v7"]
        less = ["--requests", str(NUM), "--input-tokens", "8", "--output-tokens", "4"]
        run = ("-c", "from longpole.cli import main; main()", "load", *words, *kept, *less)
        done = subprocess.run(
            [sys.executable, *run], capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, done.stderr
        reader = open_reader(url=collector.url)
        query = (
            "SELECT count(*) AS num, min(s.total_ns = s.wall_ns) AS adds_up, max(c.ttft_ms) AS ttft"
            " FROM (SELECT t.trace_id, round(any_value(wall_ms) * 1e6) AS wall_ns,"
            " round(sum(critical_ms) * 1e6) AS total_ns FROM traces AS t JOIN trace_stages"
            " USING (trace_id) WHERE route = 'r' AND route_version = 'v7' GROUP BY 1) AS s"
            " JOIN calls AS c USING (trace_id)"
        )
        deadline = time.monotonic() + 60
        while True:
            (row,) = reader.sql(query).to_pylist()
            if row["num"] == NUM or time.monotonic() > deadline:
                break
            time.sleep(0.1)
        reader.close()
    assert (row["num"], row["adds_up"]) == (NUM, True)
    parts = [
        json.loads(done.stdout)[name]["service"]["ttft_ms"]["max"] for name in ("warm", "cold")
    ]
    assert row["ttft"] == pytest.approx(max(part for part in parts if part is not None), abs=0.001)
