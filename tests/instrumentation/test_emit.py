"""Export: the real OTLP way, a dead collector, the end of a process. Each in a process of its own
where it sets up something a process has once."""

import json
import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from socket import socket
from typing import Any

import pytest
from otlp_sink import Collector

ROOT = Path(__file__).parents[2]


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector.serving() as made:
        yield made


@pytest.fixture
def dead() -> str:
    with socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{taken.getsockname()[1]}"


def run(code: str, endpoint: str | None = None, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run a script in a fresh process; ``LONGPOLE_SDK_ENDPOINT`` is set when ``endpoint`` is."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("OTEL_", "LONGPOLE_"))}
    env |= environ
    if endpoint:
        env["LONGPOLE_SDK_ENDPOINT"] = endpoint
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(code)],
        env=env,
        cwd=ROOT / "tests",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_spans_arrive_without_any_set_up(collector: Collector) -> None:
    done = run(
        """
        import longpole
        with longpole.workflow("answer", route="rag"):
            with longpole.tool("search"):
                pass
        """,
        collector.url,
        OTEL_SERVICE_NAME="shop",
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert {span.name for span in collector.spans()} == {
        "invoke_workflow answer",
        "execute_tool search",
    }
    assert collector.resource()["service.name"] == "shop"
    assert collector.resource()["host.name"]
    scope = collector.requests[0].resource_spans[0].scope_spans[0].scope
    assert scope.name == "longpole"


def test_runs_with_the_same_seed_have_ids_of_their_own(collector: Collector) -> None:
    code = """
        import random
        random.seed(7)
        import longpole
        with longpole.workflow("answer"), longpole.tool("search"):
            pass
        assert longpole.flush(10)
        """
    for _ in range(2):
        done = run(code, OTEL_EXPORTER_OTLP_ENDPOINT=collector.url)
        assert (done.returncode, done.stderr) == (0, "")
    ids = [span.span_id for span in collector.spans()]
    assert len(set(ids)) == len(ids) == 4
    assert len({span.trace_id for span in collector.spans()}) == 2


def test_init_sets_service_and_headers_and_makes_the_provider_the_applications(
    collector: Collector,
) -> None:
    done = run(
        f"""
        import longpole
        from opentelemetry import trace
        with longpole.tool("before"):
            pass
        longpole.init("shop", endpoint="{collector.url}", headers={{"x-key": "k"}})
        longpole.init("other")
        with trace.get_tracer("mine").start_as_current_span("mine"):
            with longpole.tool("t"):
                pass
        assert longpole.flush(10)
        assert longpole.stats().num_sent == 3, longpole.stats()
        """,
        OTEL_EXPORTER_OTLP_ENDPOINT=collector.url,
    )
    assert done.returncode == 0, done.stderr
    assert "changes nothing" in done.stderr
    assert {span.name for span in collector.spans()} == {
        "mine",
        "execute_tool t",
        "execute_tool before",
    }
    assert {h.get("x-key") for h in collector.headers} == {None, "k"}


OWN_PROVIDER = """
import longpole
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
memory = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(memory))
trace.set_tracer_provider(provider)
longpole.init({arguments})
with longpole.tool("t"):
    pass
assert trace.get_tracer_provider() is provider
assert [span.name for span in memory.get_finished_spans()] == ["execute_tool t"]
assert longpole.flush(10)
"""


@pytest.mark.parametrize("is_stated", [False, True])
def test_the_applications_provider_is_used_and_gets_our_exporter_only_if_asked(
    collector: Collector, is_stated: bool
) -> None:
    arguments = f'endpoint="{collector.url}"' if is_stated else ""
    done = run(OWN_PROVIDER.format(arguments=arguments))
    assert (done.returncode, done.stderr) == (0, "")
    assert len(collector.spans()) == int(is_stated)


def test_a_provider_the_application_sets_later_takes_over(collector: Collector) -> None:
    done = run(
        """
        import longpole
        with longpole.tool("early"):
            pass
        """
        + textwrap.indent(OWN_PROVIDER.format(arguments=""), " " * 8).replace(
            "import longpole", ""
        ),
        OTEL_EXPORTER_OTLP_ENDPOINT=collector.url,
    )
    assert done.returncode == 0, done.stderr
    assert [span.name for span in collector.spans()] == ["execute_tool early"]


DEAD = """
import logging, sys, time, longpole
{logging}
for number in range(3):
    for _ in range(600):
        with longpole.tool("t"):
            pass
    started = time.monotonic()
    assert not longpole.flush(0.5)
    assert time.monotonic() - started < 2
print("answer")
assert longpole.stats().num_sent == 0
sys.stdout.flush()
print(time.time(), file=sys.stdout)
"""


@pytest.mark.parametrize("log", ["", "logging.basicConfig()"])
def test_a_dead_collector_is_one_warning_and_a_quick_exit(dead: str, log: str) -> None:
    done = run(DEAD.format(logging=log), dead, LONGPOLE_SDK_QUEUE_SIZE="1000")
    ended = time.time()
    assert done.returncode == 0, done.stderr
    lines = done.stdout.split()
    assert lines[0] == "answer"
    assert done.stderr.count("\n") == 1
    assert dead in done.stderr
    assert "the application is not affected" in done.stderr
    assert ended - float(lines[1]) < 5


def test_a_collector_that_never_answers_does_not_hold_the_exit() -> None:
    with socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        done = run(
            """
            import longpole, time
            with longpole.tool("t"):
                pass
            started = time.monotonic()
            assert not longpole.flush(0.3)
            assert time.monotonic() - started < 2
            print(time.time())
            """,
            f"http://127.0.0.1:{silent.getsockname()[1]}",
        )
        ended = time.time()
    assert (done.returncode, done.stderr) == (0, "")
    assert ended - float(done.stdout) < 5


def test_a_full_queue_is_counted_and_bounded(dead: str) -> None:
    done = run(
        """
        import json, longpole
        for _ in range(50):
            with longpole.tool("t"):
                pass
        stats = longpole.stats()
        print(json.dumps([stats.num_queued, stats.num_dropped]))
        """,
        dead,
        LONGPOLE_SDK_QUEUE_SIZE="20",
        LONGPOLE_SDK_EXPORT_DELAY_S="60",
    )
    queued, dropped = json.loads(done.stdout)
    assert queued == 20
    assert dropped == {"queue_full": 30}
    assert done.stderr.count("\n") == 1


def test_the_warnings_of_the_applications_own_exporter_are_left_alone(dead: str) -> None:
    done = run(
        f"""
        import logging, longpole
        logging.basicConfig()
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import SimpleSpanProcessor
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        with longpole.tool("t"):
            pass
        longpole.flush(0.3)
        mine = OTLPSpanExporter(endpoint="{dead}/v1/traces", timeout=0.1)
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(mine))
        provider.get_tracer("mine").start_span("mine").end()
        """,
        dead,
    )
    assert done.returncode == 0, done.stderr
    assert "opentelemetry.exporter" in done.stderr


def test_a_stream_still_open_at_the_end_of_the_process_is_sent(
    collector: Collector, server: Any
) -> None:
    done = run(
        f"""
        import openai, longpole
        client = longpole.wrap(openai.OpenAI(api_key="k", base_url="{server.base_url}"))
        stream = client.chat.completions.create(
            model="slow", messages=[{{"role": "user", "content": "x"}}], stream=True
        )
        next(stream)
        """,
        collector.url,
    )
    assert done.returncode == 0, done.stderr
    attributes = {a.key: a.value for a in collector.spans()[0].attributes}
    assert attributes["longpole.stream.state"].string_value == "abandoned"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_sends_its_own_spans(collector: Collector) -> None:
    done = run(
        """
        import os, warnings, longpole
        warnings.simplefilter("ignore")  # Python 3.12 warns of forks where there are threads
        with longpole.tool("before"):
            pass
        with longpole.workflow("around"):
            pid = os.fork()
            if pid == 0:
                with longpole.tool("child"):
                    pass
        if pid == 0:
            os._exit(0 if longpole.flush(45) and longpole.stats().num_sent == 1 else 3)
        _, status = os.waitpid(pid, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        """,
        collector.url,
        LONGPOLE_SDK_EXPORT_DELAY_S="60",
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(span.name for span in collector.spans()) == [
        "execute_tool before",
        "execute_tool child",
        "invoke_workflow around",
    ]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_while_the_exporter_is_being_loaded_leaves_a_child_that_works(
    collector: Collector,
) -> None:
    done = run(
        """
        import os, sys, threading, time, warnings, longpole
        warnings.simplefilter("ignore")
        begun = threading.Event()

        class Slow:
            def find_spec(self, name, path=None, target=None):
                if name == "requests.sessions":
                    begun.set()
                    time.sleep(0.2)

        sys.meta_path.insert(0, Slow())
        with longpole.tool("parent"):
            pass
        begun.wait()
        pid = os.fork()
        if pid == 0:
            with longpole.tool("child"):
                pass
            os._exit(0 if longpole.flush(45) and longpole.stats().num_sent == 1 else 3)
        _, status = os.waitpid(pid, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        """,
        collector.url,
        LONGPOLE_SDK_EXPORT_DELAY_S="0.01",
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(span.name for span in collector.spans()) == [
        "execute_tool child",
        "execute_tool parent",
    ]


def test_opentelemetrys_own_switch_turns_it_off(collector: Collector) -> None:
    done = run(
        """
        import longpole
        with longpole.tool("t"):
            pass
        """,
        collector.url,
        OTEL_SDK_DISABLED="true",
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert collector.requests == []


IMPORT = """
import sys
import longpole
heavy = [
    "torch", "duckdb", "streamlit", "polars", "pydantic", "numpy", "openai", "fastapi", "click",
    "pyarrow", "requests", "google.protobuf", "opentelemetry.exporter", "opentelemetry.sdk",
]
print([name for name in heavy if name in sys.modules])
"""


def test_importing_longpole_is_light() -> None:
    assert run(IMPORT).stdout.strip() == "[]"


def test_the_first_span_loads_no_exporter_on_its_thread() -> None:
    done = run(
        """
        import sys, longpole
        with longpole.tool("t"):
            pass
        print("requests" in sys.modules, "opentelemetry.sdk.trace" in sys.modules)
        """,
        LONGPOLE_SDK_EXPORT_DELAY_S="60",
    )
    assert done.stdout.split() == ["False", "True"]


def test_the_public_names_are_the_contracts() -> None:
    import longpole

    contract = (
        "init wrap unwrap instrument uninstrument workflow tool retrieval rerank validation "
        "guardrail prompt_assembly admission human_wait render cache_lookup fanout prompt "
        "route_inputs context_executor carry flush stats"
    )
    assert set(contract.split()) <= set(longpole.__all__)
    assert all(hasattr(longpole, name) for name in longpole.__all__)
    assert longpole.__all__ == sorted(longpole.__all__)
