import threading
from typing import Any

import pytest
from opentelemetry import trace

import longpole
from longpole import settings
from longpole.testing import Spans
from longpole.vocab import keys

PARENT = "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01"
MESSAGES: Any = [{"role": "user", "content": "x"}]


def test_pooled_work_keeps_the_parent_of_its_submission(spans: Spans) -> None:
    ready = threading.Event()

    def work(_: int = 0) -> None:
        ready.wait(5)
        with longpole.tool("t"):
            pass

    with longpole.context_executor(2) as pool:
        with longpole.workflow("a", route="r"):
            futures = [pool.submit(work) for _ in range(3)]
        ready.set()  # the parent has ended before any of them runs
        for future in futures:
            future.result()
        with longpole.workflow("b"):
            list(pool.map(work, range(2)))
    roots = {span.name: span.context.span_id for span in spans if not span.parent and span.context}
    found = [span.parent.span_id for span in spans if span.parent]
    assert found.count(roots["invoke_workflow a"]) == 3
    assert found.count(roots["invoke_workflow b"]) == 2
    inherited = [dict(s.attributes or {}).get(keys.ROUTE) for s in spans if s.parent]
    assert inherited.count("r") == 3


def test_a_span_of_the_same_trace_that_is_current_stays_the_parent(spans: Spans) -> None:
    with longpole.carry({"traceparent": PARENT}), longpole.workflow("framework"):
        framework = trace.get_current_span().get_span_context()
        with longpole.carry({"traceparent": PARENT}), longpole.tool("inner"):
            pass
    inner = next(span for span in spans if span.name == "execute_tool inner")
    assert inner.parent is not None
    assert inner.parent.span_id == framework.span_id


def test_a_trace_goes_on_from_the_headers_of_a_request(spans: Spans) -> None:
    with longpole.carry({"TraceParent": PARENT, "tracestate": "a=b"}), longpole.workflow("a"):
        sent = longpole.context_headers()
    context = spans[0].context
    assert context is not None
    assert f"{context.trace_id:032x}" == PARENT.split("-")[1]
    assert sent["traceparent"] == f"00-{context.trace_id:032x}-{context.span_id:016x}-01"
    assert sent["tracestate"] == "a=b"
    assert longpole.context_headers() == {}


@pytest.mark.parametrize("headers", [{}, {"traceparent": "junk"}, None, [(b"a", b"b")], {1: 2}])
def test_headers_without_a_trace_change_nothing(headers: Any, spans: Spans) -> None:
    with longpole.workflow("a"):
        before = trace.get_current_span()
        with longpole.carry(headers):
            assert trace.get_current_span() is before


def test_a_prompt_leaves_hashes_and_lengths_and_no_text(client: Any, spans: Spans) -> None:
    segments = {"system": "You are terse.", "tools": "[]", "user": "a secret question"}
    with (
        longpole.prompt("p7", segments, volatile={"user"}),
        longpole.route_inputs(tier="free", num_docs=3),
        longpole.tool("t"),
    ):
        client.chat.completions.create(model="plain", messages=MESSAGES)
    call, tool = (dict(span.attributes or {}) for span in spans)
    assert call[keys.PROMPT_VERSION] == tool[keys.PROMPT_VERSION] == "p7"
    assert call["longpole.prompt.segment.user.length"] == 17
    assert len(call["longpole.prompt.segment.user.hash"]) == 32
    assert (call["longpole.route.input.tier"], call["longpole.route.input.num_docs"]) == ("free", 3)
    assert keys.PREFIX_HASH not in tool
    assert "secret" not in spans[0].to_json()


def prefix_hash(client: Any, spans: Spans, segments: Any, volatile: Any = ()) -> Any:
    with longpole.prompt(segments=segments, volatile=volatile):
        client.chat.completions.create(model="plain", messages=MESSAGES)
    return dict(spans[-1].attributes or {}).get(keys.PREFIX_HASH)


def test_the_prefix_ends_before_the_first_volatile_segment(client: Any, spans: Spans) -> None:
    one = prefix_hash(client, spans, {"a": "x", "now": "12:00", "b": "y"}, {"now"})
    two = prefix_hash(client, spans, {"a": "x", "now": "12:01", "b": "z"}, {"now"})
    assert one == two
    assert prefix_hash(client, spans, {"now": "12:00", "a": "x"}, {"now"}) is None
    swapped = [prefix_hash(client, spans, s) for s in ({"a": "x", "b": "y"}, {"b": "y", "a": "x"})]
    assert swapped[0] != swapped[1]


def test_the_hash_is_keyed(client: Any, spans: Spans) -> None:
    found = set()
    for key in ("one", "two", None):
        settings.put(settings.load(hash_key=key))
        found.add(prefix_hash(client, spans, {"a": "x"}))
    assert len(found) == 3


def test_segments_that_are_no_text_do_not_hurt(client: Any, spans: Spans) -> None:
    assert prefix_hash(client, spans, {"a": object()}) is None
    assert longpole.stats().num_internal_errors == {"prompt": 1}
