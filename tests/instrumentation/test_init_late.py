"""A set-up that comes late: what is still open then belongs to it, from its real start. Through
real OTLP, each in a process of its own, since a process is set up once."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

from otlp_sink import Collector

TESTS = Path(__file__).parents[1]


def run(code: str, before: str) -> str:
    """What a fresh process says on stderr; ``before`` is where spans go until it is set up."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("OTEL_", "LONGPOLE_"))}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(code)],
        env={**env, "OTEL_EXPORTER_OTLP_ENDPOINT": before},
        cwd=TESTS,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


def spans_by_service(collector: Collector) -> dict[tuple[str, str], Any]:
    """What it was sent, by the name of the service and of the span."""
    found = {}
    for request in collector.requests:
        for each in request.resource_spans:
            (service,) = (
                a.value.string_value for a in each.resource.attributes if a.key == "service.name"
            )
            found |= {(service, span.name): span for s in each.scope_spans for span in s.spans}
    return found


def attributes(span: Any) -> dict[str, str]:
    return {a.key: a.value.string_value for a in span.attributes}


def test_init_inside_a_workflow_gets_its_root_from_its_real_start() -> None:
    with Collector.serving() as first, Collector.serving() as chosen:
        said = run(
            f"""
            import longpole
            waiting = longpole.human_wait("approval")
            with longpole.workflow("answer", route="rag.search") as run:
                with longpole.tool("early"):
                    pass
                waiting.begin()
                longpole.init("shop", endpoint="{chosen.url}", headers={{"x-key": "k"}})
                waiting.finish(None)
                with longpole.tool("late"):
                    pass
                run.accept()
            assert longpole.flush(30)
            stats = longpole.stats()
            assert (stats.num_sent, stats.num_queued, stats.num_dropped) == (4, 0, {{}}), stats
            """,
            first.url,
        )
    assert said == ""
    (early,) = first.spans()
    assert early.name == "execute_tool early"
    assert {headers["x-key"] for headers in chosen.headers} == {"k"}
    sent = spans_by_service(chosen)
    assert set(sent) == {
        ("shop", "invoke_workflow answer"),
        ("shop", "human_wait approval"),
        ("shop", "execute_tool late"),
    }
    root, wait, late = (
        sent["shop", name]
        for name in ("invoke_workflow answer", "human_wait approval", "execute_tool late")
    )
    assert root.parent_span_id == b""
    for inner in (early, wait, late):
        assert (inner.trace_id, inner.parent_span_id) == (root.trace_id, root.span_id)
        assert root.start_time_unix_nano <= inner.start_time_unix_nano
        assert inner.end_time_unix_nano <= root.end_time_unix_nano
    assert wait.start_time_unix_nano <= wait.end_time_unix_nano <= late.start_time_unix_nano
    assert attributes(root)["longpole.outcome"] == "accepted"
    assert attributes(root)["longpole.route"] == "rag.search"


OWN_PROVIDER = """
import longpole
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

class Foreign(trace.NoOpTracerProvider):
    pass

with longpole.workflow("answer"):
    {provider}
    trace.set_tracer_provider(provider)
    {init}
    with longpole.tool("late"):
        pass
longpole.flush(30)
assert longpole.stats().num_internal_errors == {{}}
assert longpole.stats().num_dropped == {dropped}, longpole.stats()
"""
SDKS = """provider = TracerProvider(resource=Resource({{"service.name": "shop"}}))
    provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter("{url}/v1/traces")))"""


def test_a_provider_that_the_application_sets_inside_a_workflow_gets_its_root() -> None:
    with Collector.serving() as first, Collector.serving() as chosen:
        run(
            OWN_PROVIDER.format(provider=SDKS.format(url=chosen.url), init="", dropped={}),
            first.url,
        )
    assert first.spans() == []
    sent = spans_by_service(chosen)
    assert set(sent) == {("shop", "invoke_workflow answer"), ("shop", "execute_tool late")}
    root = sent["shop", "invoke_workflow answer"]
    assert sent["shop", "execute_tool late"].parent_span_id == root.span_id


def test_a_root_that_nobody_can_take_is_counted_and_said_once() -> None:
    with Collector.serving() as first:
        said = run(
            OWN_PROVIDER.format(
                provider="provider = Foreign()", init="longpole.init()", dropped={"closed": 1}
            ),
            first.url,
        )
    assert first.spans() == []
    assert said.splitlines() == [
        "longpole.init() came inside 'invoke_workflow answer', which is lost: call it before the "
        "first workflow"
    ]
