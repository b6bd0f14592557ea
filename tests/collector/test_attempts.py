"""Attempts that only an HTTP client's spans tell are those of the call above them."""

import json
from pathlib import Path

import pytest

from longpole.vocab import keys
from longpole_collector.rollup import load_rollup
from longpole_collector.stores.attempts import address_of
from longpole_collector.stores.duckdb import DuckStore
from longpole_collector.writer import Writer

CORPUS = Path(__file__).parent / "corpus"
START_NS = 1_790_000_000_000_000_000
MS = 1_000_000
URL = "https://api.example.com/v1/chat/completions"
CLIENT, INTERNAL, ERROR = 3, 1, 2


@pytest.fixture
def store(tmp_path):
    with_files = DuckStore(tmp_path / "db")
    yield with_files
    with_files.close()


class Trace:
    """One trace whose root is a model call; times in ms since its start."""

    def __init__(self, otlp, **call):
        self._otlp = otlp
        self._facts = {"gen_ai.operation.name": "chat"} | call
        self.id = otlp.random.randbytes(16)
        self.call = self.span(0, 2000, name="chat", kind=CLIENT, attributes=self._facts)

    def span(self, start, end, **given):
        return self._otlp.span(
            trace_id=self.id,
            start_time_unix_nano=START_NS + start * MS,
            end_time_unix_nano=START_NS + end * MS,
            **given,
        )

    def post(self, start, status, *, url=URL, method="POST", below=None, old=False):
        names = ("http.method", "http.url") if old else ("http.request.method", "url.full")
        return self.span(
            start,
            start + 50,
            name=method,
            kind=CLIENT,
            parent_span_id=(below or self.call)["span_id"],
            attributes=dict(zip(names, (method, url), strict=True)),
            status=(ERROR, "") if status >= 400 else (0, ""),
        )

    def write(self, store, *batches):
        writer = Writer(store, load_rollup())
        for batch in batches:
            writer.write_spans(self._otlp.spans(self._otlp.body(batch, scope="somebody")))
            writer.settle(everything=True)
        writer.save()


def told(store):
    (call,) = store.sql("SELECT num_attempts, retry_ms FROM calls").to_pylist()
    (trace,) = store.sql("SELECT num_calls, num_retries FROM traces").to_pylist()
    assert trace == {"num_calls": 1, "num_retries": (call["num_attempts"] or 1) - 1}
    stages = store.sql("SELECT critical_ms FROM trace_stages WHERE stage = 'retry'").to_pylist()
    assert [row["critical_ms"] for row in stages] == [call["retry_ms"]] * bool(call["retry_ms"])
    return call["num_attempts"], call["retry_ms"]


def test_a_real_library_that_retries_by_itself_is_told_by_its_http_clients_spans(otlp, store):
    truth = json.loads((CORPUS / "openlit-oai-retry.expected.json").read_text())
    writer = Writer(store, load_rollup())
    writer.write_spans(otlp.spans((CORPUS / "openlit-oai-retry.otlp.pb").read_bytes()))
    writer.settle(everything=True)
    num, retry_ms = told(store)
    assert num == truth["attempts"] == 3
    assert retry_ms > sum(truth["retry_wait_ms"])


@pytest.mark.parametrize("old", [False, True])
def test_the_last_request_and_the_failed_ones_before_it_are_attempts(otlp, store, old):
    trace = Trace(otlp)
    posts = [trace.post(start, status, old=old) for start, status in ((100, 429), (300, 503),
             (700, 200))]  # fmt: skip
    trace.write(store, [trace.call, *posts])
    assert told(store) == (3, 600)


def test_attempts_that_all_fail_are_counted(otlp, store):
    trace = Trace(otlp)
    trace.write(store, [trace.call, trace.post(100, 429), trace.post(300, 429)])
    assert told(store) == (2, 200)


def test_other_requests_are_no_attempts(otlp, store):
    trace = Trace(otlp)
    inner = trace.post(500, 503)
    others = [
        trace.post(10, 500, url="https://login.example.com/token"),
        trace.post(50, 404, method="GET"),
        trace.post(100, 200),  # answered: what comes after it is another request
        trace.post(505, 503, below=inner),  # the same one, a layer below
        inner,
        trace.post(900, 200),
    ]
    trace.write(store, [trace.call, *others])
    assert told(store) == (2, 400)


def test_requests_that_all_went_well_are_left_alone(otlp, store):
    trace = Trace(otlp)
    trace.write(store, [trace.call, trace.post(10, 200), trace.post(100, 200)])
    assert told(store) == (None, None)


def test_what_the_library_counted_stands_unless_more_was_seen(otlp, store):
    trace = Trace(otlp, **{"http.request.resend_count": 4})
    trace.write(store, [trace.call, trace.post(100, 429), trace.post(300, 200)])
    assert told(store) == (5, None)


def test_attempts_that_come_late_or_again_are_counted_once(otlp, store):
    trace = Trace(otlp)
    posts = [trace.post(100, 429), trace.post(300, 429), trace.post(600, 200)]
    trace.write(store, posts[:1], [trace.call], posts[2:], posts[1:2], posts)
    assert told(store) == (3, 500)
    assert store.sql("SELECT num_attempts FROM spans WHERE name = 'chat'").to_pylist() == [
        {"num_attempts": 3}
    ]


def test_a_call_that_two_spans_tell_has_them_once(otlp, store):
    trace = Trace(otlp)
    inner = trace.span(
        20,
        1900,
        kind=CLIENT,
        parent_span_id=trace.call["span_id"],
        attributes={"gen_ai.operation.name": "chat", keys.RESPONSE_ID: "r"},
    )
    posts = [trace.post(start, status, below=inner) for start, status in ((100, 429), (300, 200))]
    trace.write(store, [trace.call, inner, *posts])
    assert told(store) == (2, 200)


@pytest.mark.parametrize(
    ("attributes", "address"),
    [
        ({"http.method": "POST", "http.url": "http://a:1/b?c=d"}, "http://a:1/b"),
        ({"http.request.method": "POST", "url.full": "https://a/b"}, "https://a/b"),
        ({"http.request.method": "GET", "url.full": "https://a/b"}, None),
        ({"http.request.method": "POST"}, None),
        ({"http.request.method": "POST", "url.full": "http://[::1"}, "http://[::1"),
        ({}, None),
    ],
)
def test_an_address_is_that_of_a_post_without_its_query(attributes, address):
    assert address_of(json.dumps(attributes)) == address
