"""The fast way gives what the reference gives: same rows, same counts, same verdict at the door."""

import hmac
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from longpole.errors import BadInput
from longpole.vocab import keys
from longpole_collector import bulk, normalise
from longpole_collector.bulk.hashing import digest_with, states_of
from longpole_collector.content import Policy, Scrubber
from longpole_collector.decode import Format, Received, check, parse, upb
from longpole_collector.decode.raw import MAX_TIME_NS
from longpole_collector.health import Health
from longpole_collector.normalise import Reader
from longpole_collector.stores.schema import SPANS, to_arrow

CORPUS = Path(__file__).parent / "corpus"
KEY = bytes(range(32))
START_NS = 1_790_000_000_000_000_000


@pytest.fixture(scope="module", autouse=True)
def compiled():
    assert bulk.start(wait=True)


@pytest.fixture(autouse=True)
def any_size(monkeypatch):
    monkeypatch.setattr(bulk, "MIN_BYTES", 0)


@pytest.fixture(autouse=True)
def no_fault(monkeypatch):
    """A fault would be hidden: the reference steps in."""

    def fail(*args: Any) -> None:
        raise AssertionError

    monkeypatch.setattr(normalise._log, "exception", fail)


def test_a_fault_loses_no_spans(monkeypatch):
    said: list[str] = []
    monkeypatch.setattr(normalise._log, "exception", said.append)
    quick = reader()
    quick._bulk = object()
    received = [Received(made([("a", 1)], [("a", 2)]), Format.PROTOBUF, 1)]
    assert quick.table(received).num_rows == 2
    assert len(said) == 1
    assert fast(received, quick)[0] == reference(received)[0]


def reader() -> Reader:
    health = Health()
    return Reader(health, Scrubber(Policy(key=KEY), health))


def canonical(table: Any) -> list[str]:
    return sorted(map(repr, table.to_pylist()))


def reference(received: list[Received]) -> tuple[list[str], str]:
    """Rows and counts by the reference."""
    slow = reader()
    rows = to_arrow(SPANS, [span for each in received for span in slow.read(each)])
    return canonical(rows), slow.health.prometheus()


def fast(received: list[Received], through: Reader | None = None) -> tuple[list[str], str]:
    """Rows and counts by the compiled loops."""
    quick = through or reader()
    table = quick.table(received)
    assert table.schema == to_arrow(SPANS, []).schema
    table.validate(full=True)
    return canonical(table), quick.health.prometheus()


def assert_equal(*bodies: bytes) -> None:
    received = [Received(body, Format.PROTOBUF, START_NS + i) for i, body in enumerate(bodies)]
    expected, counts = reference(received)
    rows, counted = fast(received)
    assert rows == expected
    assert counted == counts


def verdict(body: bytes) -> Any:
    try:
        return check(body, Format.PROTOBUF)
    except BadInput as error:
        return type(error), str(error)


def slow_verdict(body: bytes) -> Any:
    try:
        upb.refuse_other_signals(body, parsed := parse(body, Format.PROTOBUF))
    except BadInput as error:
        return type(error), str(error)
    return parsed.num_spans, parsed.num_rejected, parsed.reason


CASES = sorted(CORPUS.glob("*.otlp.pb"))


def test_the_whole_corpus_in_one_batch_and_file_by_file():
    bodies = [path.read_bytes() for path in CASES]
    assert_equal(*bodies)
    for body in bodies:
        assert_equal(body)
        assert verdict(body) == slow_verdict(body)


def made(*spans: Any, scope: str = "app") -> bytes:
    """A body of spans of the given attributes."""
    rng = random.Random(3)
    request = ExportTraceServiceRequest()
    scoped = request.resource_spans.add().scope_spans.add()
    scoped.scope.name = scope
    for attributes in spans:
        span = scoped.spans.add(
            trace_id=rng.randbytes(16), span_id=rng.randbytes(8), start_time_unix_nano=START_NS
        )
        fill(span.attributes, attributes)
    return request.SerializeToString()


def test_more_attributes_and_longer_text_than_expected_find_room():
    assert_equal(made(*([("a", 1), ("b", True), ("c", 2)] for _ in range(3000))))
    assert_equal(made(*([("a", "\x01" * 3000)] for _ in range(20))))
    assert_equal(*(made([("a", i)]) for i in range(500)))


def test_many_keys_marks_scopes_and_values_at_once():
    marks = [keys.OPERATION, keys.PROVIDER, keys.REQUEST_MODEL, keys.ENGINE_E2E, "pid", "host_id",
             "thread_label", keys.ENGINE_QUEUE, keys.PROVIDER_OLD]  # fmt: skip
    many_marks = [
        [(key, "x") for bit, key in enumerate(marks) if number >> bit & 1] for number in range(512)
    ]
    assert_equal(made(*many_marks))
    assert_equal(made(*([(f"key {i} {j}", j) for j in range(20)] for i in range(500))))
    assert_equal(*(made([("a", 1)], scope=f"scope {i}") for i in range(1100)))
    assert_equal(made(*([("list", [str(i)]), ("real", i / 7)] for i in range(5000))))
    assert_equal(made([(f"k{i}", i) for i in range(255)], [(f"k{i}", i) for i in range(300)]))


def test_content_and_people_are_treated_as_the_policy_says():
    prompts = [("gen_ai.prompt.0.content", "ü" * i) for i in range(1, 40)]
    spans = [[prompt, ("gen_ai.input.messages", [1, {"a": None}]), ("z", 1)] for prompt in prompts]
    spans += [
        [("user.id", f"user {i % 3}"), (keys.CONVERSATION_ID, f"c{i // 2}")] for i in range(9)
    ]
    spans += [[("user.id", value)] for value in (5, True, 0.5, ["a"], b"x", "", "h:1", "h" * 60)]
    spans += [prompts[:20], [*prompts[:1], ("b.hash", 1)], [("gen_ai.prompt", 7), ("p", False)]]
    assert_equal(made(*spans))
    assert_equal(made(*spans, scope=keys.SCOPE_SDK))
    people = [f"{i % 1500}{i % 2 * '-of-the-shop'}" for i in range(4500)]  # not all remembered
    assert_equal(made(*([("user.id", person)] for person in people)))


@pytest.mark.parametrize("num", [15, 30])
def test_what_each_span_copies_of_its_resource_is_bounded(num):
    request = ExportTraceServiceRequest.FromString(made(*([("a", 1)] for _ in range(50))))
    holder = request.resource_spans[0]
    fill(holder.resource.attributes, [(f"k{i}", "x" * 1000) for i in range(num)])
    fill(holder.resource.attributes, [("service.name", "s" * 5000)])
    holder.scope_spans[0].scope.name = "scope " * 1000
    body = request.SerializeToString()
    assert_equal(body)
    table = reader().table([Received(body, Format.PROTOBUF, START_NS)])
    assert max(map(len, table["attributes"].to_pylist())) < 18_000
    assert len(table["service"][0].as_py()) == len(table["scope"][0].as_py()) == 1024
    assert table["flags"][0].as_py() == (["attributes_cut"] if num == 30 else [])


def test_rules_begin_anew_when_they_are_full():
    quick = reader()
    for i in range(4):
        body = made(*([(f"{i} {j} {k}", k) for k in range(10)] for j in range(250)))
        received = [Received(body, Format.PROTOBUF, START_NS)]
        rows, _ = fast(received, quick)
        assert rows == reference(received)[0]


def test_batches_of_many_chunks_keep_every_span():
    body = made(*([("text", "x" * 1000)] for _ in range(1000)))
    received = [Received(body, Format.PROTOBUF, START_NS + i) for i in range(10)]
    table = reader().table(received)
    assert table.num_rows == 10_000
    assert sorted(set(table["received_ns"].to_pylist())) == [START_NS + i for i in range(10)]


def test_json_bodies_and_an_empty_batch_are_read_too():
    document = b"""{"resourceSpans": [{"scopeSpans": [{"spans": [{"name": "a",
        "traceId": "0102030405060708090a0b0c0d0e0f10", "spanId": "0102030405060708"}]}]}]}"""
    received = [Received(document, Format.JSON, 1), Received(made([]), Format.PROTOBUF, 2)]
    assert fast(received) == reference(received)
    assert reader().table([]).num_rows == 0


def test_a_policy_that_keeps_content_takes_the_reference():
    health = Health()
    keeping = Reader(health, Scrubber(Policy("keep", KEY), health))
    received = [Received(made([("gen_ai.prompt", "secret")]), Format.PROTOBUF, 1)]
    assert "secret" in keeping.table(received)["attributes"][0].as_py()
    assert "secret" not in reader().table(received)["attributes"][0].as_py()


@given(st.binary(max_size=80), st.binary(max_size=55))
def test_the_compiled_hmac_is_pythons(key, message):
    state, words = np.empty(8, np.uint32), np.empty(16, np.uint32)
    digest_with(states_of(key), np.frombuffer(message, np.uint8), 0, len(message), state, words)
    assert state.astype(">u4").tobytes() == hmac.digest(key, message, "sha256")


# --- random requests ----------------------------------------------------------------------------
KNOWN_KEYS = sorted(
    {value for name, value in vars(keys).items() if name.isupper() and isinstance(value, str)}
)
OTHER_KEYS = [
    "http.request.method", "url.full", "http.url", "url.query", "app.password", "user.id",
    "session.id", "gen_ai.prompt", "gen_ai.prompt.0.content", "gen_ai.input.messages",
    "gen_ai.input.messages.length", "a.hash", "resource.x", "telemetry.sdk.name", "ai.operationId",
    "traceloop.span.kind", "openinference.span.kind", "queue_time", "pid", "", "ü", '"\\\n\x00',
    "gen_ai.usage.cached_tokens", "gen_ai.request.id", "exception.type", "thread_label", "host_id",
]  # fmt: skip
TEXTS = [
    "", "chat", "embeddings", "execute_tool", "retrieval", "stop", "error", "anthropic", "openai.x",
    "true", "FALSE", "12", "007", "9" * 19, "tool", "hit", "accepted", "h:0123456789abcdef", '"q"',
    "https://x.test/a?b=c", "?", "ü", "€", "\U0001f600", 'a"b\\c\n\t\x01\x7f\x00', "[\"stop\"]",
    "x" * 60, "y" * 1100, "z" * 16_385, "ß" * 9000,
]  # fmt: skip
texts = st.sampled_from(TEXTS) | st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
ints = st.sampled_from([0, 1, 2, 10_000, 10_001, 2**53, 2**60, 2**63 - 1, -1, -(2**63)]) | (
    st.integers(-(2**63), 2**63 - 1)
)
floats = st.sampled_from([0.0, -0.0, 0.5, 1.0, 1e16, 5e-324, 9.2e9, 9.3e9, 1e300]) | st.floats()
scalars = texts | st.booleans() | ints | floats | st.binary(max_size=4)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=2),
    max_leaves=4,
)
names = st.sampled_from(KNOWN_KEYS) | st.sampled_from(OTHER_KEYS) | st.text("ab.", max_size=4)
pairs = st.lists(st.tuples(names, values | st.none()), max_size=12)
likely = st.fixed_dictionaries(
    {},
    optional={
        keys.OPERATION: st.sampled_from(["chat", "embeddings", "execute_tool", "x"]),
        keys.PROVIDER: st.sampled_from(["openai", "anthropic", "google"]),
        keys.REQUEST_STREAM: st.booleans(),
        keys.RESPONSE_ID: st.just("r1"),
        keys.FINISH_REASONS: st.lists(st.sampled_from(["stop", "error", "length"]), max_size=2),
        keys.INPUT_TOKENS: st.integers(0, 50) | st.just(2**62),
        keys.CACHED_INPUT_TOKENS: st.integers(0, 100) | st.just(2**63 - 1),
        keys.CACHE_WRITE_TOKENS: st.integers(0, 100),
        keys.OUTPUT_TOKENS: st.integers(0, 50),
        keys.TIME_TO_FIRST_CHUNK: st.floats(0, 3),
        keys.TIME_PER_OUTPUT_TOKEN: st.floats(0, 3),
        keys.ENGINE_DECODE: st.floats(0, 1e8) | st.integers(0, 10**9),
        keys.ENGINE_QUEUE: st.floats(0, 3) | st.integers(9_990, 10_010),
        keys.ENGINE_E2E: st.floats(0, 3),
        keys.CONVERSATION_ID: texts,
        keys.ERROR_TYPE: st.just("timeout"),
        keys.FLAGS: st.lists(st.sampled_from(["truncated", "ttft_first_event", "x"]), max_size=2),
        "temperature": floats,
    },
).map(lambda found: list(found.items()))
times = st.sampled_from([0, 1, START_NS, START_NS + 5, MAX_TIME_NS, 2**63]) | st.integers(
    START_NS, START_NS + 10**10
)
typed = st.tuples(st.just("exception.type"), st.sampled_from(["ValueError", "", 5, ["x"]]))
event = st.tuples(
    st.sampled_from(["first", "exception", "exception", "gen_ai.choice", "ü"]),
    times,
    st.tuples(st.lists(typed, max_size=1), pairs).map(lambda two: two[0] + two[1][:3]),
)
span = st.fixed_dictionaries(
    {
        "trace_id": st.binary(min_size=16, max_size=16) | st.sampled_from([b"", bytes(16), b"x"]),
        "span_id": st.binary(min_size=8, max_size=8) | st.sampled_from([b"", bytes(8), b"x"]),
        "parent_span_id": st.sampled_from([b"", bytes(8), b"12345678", b"123"]),
        "name": texts,
        "kind": st.integers(-1, 6),
        "start_time_unix_nano": times,
        "end_time_unix_nano": times,
        "flags": st.sampled_from([0, 1, 257]),
        "trace_state": st.sampled_from(["", "a=b", "ot=th:c", "x=1,ot=rv:0123456789abcd;th:f7"]),
        "attributes": st.tuples(likely, pairs).map(lambda two: two[0] + two[1]),
        "events": st.lists(event, max_size=2),
        "links": st.lists(pairs.map(lambda x: x[:2]), max_size=1),
        "status": st.none() | st.tuples(st.integers(-1, 3), texts),
    }
)
SCOPES = [
    "", keys.SCOPE_SDK, keys.SCOPE_ENGINE, "vllm.engine", "sglang", "app",
    "opentelemetry.instrumentation.openai_v2", "opentelemetry.instrumentation.genai.x",
    "opentelemetry.instrumentation.openai", "com.anthropic.sdk.x", "litellm", "ü",
]  # fmt: skip
group = st.tuples(
    st.lists(st.tuples(st.sampled_from(["service.name", "host.name", "k8s.pod", "a.password",
                                        "user.id", "gen_ai.prompt", ""]), values), max_size=4),
    st.lists(st.tuples(st.sampled_from(SCOPES), st.lists(span, max_size=4)), max_size=2),
)  # fmt: skip
requests = st.lists(group, min_size=1, max_size=2)


def fill(target: Any, found: list[tuple[str, Any]]) -> None:
    for key, value in found:
        pair = target.add(key=key)
        fill_value(pair.value, value)


def fill_value(target: Any, value: Any) -> None:
    if isinstance(value, bool):
        target.bool_value = value
    elif isinstance(value, int):
        target.int_value = value
    elif isinstance(value, float):
        target.double_value = value
    elif isinstance(value, bytes):
        target.bytes_value = value
    elif isinstance(value, list):
        target.array_value.SetInParent()
        for item in value:
            fill_value(target.array_value.values.add(), item)
    elif isinstance(value, dict):
        target.kvlist_value.SetInParent()
        fill(target.kvlist_value.values, list(value.items()))
    elif value is not None:
        target.string_value = value


def body_of(groups: Any) -> bytes:
    request = ExportTraceServiceRequest()
    for resource, scopes in groups:
        holder = request.resource_spans.add()
        fill(holder.resource.attributes, resource)
        for scope, spans in scopes:
            scoped = holder.scope_spans.add()
            scoped.scope.name = scope
            for given_span in spans:
                fields = dict(given_span)
                attributes, events = fields.pop("attributes"), fields.pop("events")
                links, status = fields.pop("links"), fields.pop("status")
                made = scoped.spans.add(**fields)
                fill(made.attributes, attributes)
                for name, at_ns, found in events:
                    fill(made.events.add(name=name, time_unix_nano=at_ns).attributes, found)
                for found in links:
                    fill(made.links.add(trace_id=b"t").attributes, found)
                if status is not None:
                    made.status.code, made.status.message = status
    return request.SerializeToString()


QUIET = settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@QUIET
@given(st.lists(requests, min_size=1, max_size=3))
def test_any_request_gives_the_rows_and_counts_of_the_reference(batch):
    bodies = [body_of(groups) for groups in batch]
    for body in bodies:
        assert verdict(body) == slow_verdict(body)
    assert_equal(*bodies)


@QUIET
@given(requests, st.randoms(use_true_random=False), st.integers(1, 4))
def test_a_broken_body_gets_the_verdict_and_the_rows_of_the_reference(groups, rng, num_changes):
    body = bytearray(body_of(groups))
    for _ in range(num_changes):
        change = rng.random()
        place = rng.randrange(len(body) + 1)
        if change < 0.5 and place < len(body):
            body[place] = rng.randrange(256)
        elif change < 0.7:
            body[place:place] = rng.randbytes(rng.randrange(1, 4))
        elif change < 0.9:
            del body[place : place + rng.randrange(1, 4)]
        else:
            del body[place:]
    broken = bytes(body)
    said = verdict(broken)
    assert said == slow_verdict(broken)
    if isinstance(said[0], int):
        assert_equal(broken)
    else:  # the door does not let it in; what is in an old log must do no harm
        fast([Received(broken, Format.PROTOBUF, START_NS)])
