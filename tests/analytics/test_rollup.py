"""The row of a trace: whose facts it takes, and what stays unknown."""

import subprocess
import sys

from longpole.family import load
from longpole.vocab import Rollup, Stage, Trace
from longpole_analytics.prepare import SYNTHETIC_ROOT_NAME
from longpole_analytics.rollup import ROLLUP

from .traces import MS, call, engine, span, streamed


def row(*spans):
    return ROLLUP.compute(spans)[0]


def test_the_family_finds_it_by_its_entry_point():
    assert load(None, "ROLLUP", Rollup)["critical_path"] is ROLLUP


def test_loading_it_imports_no_table_library():
    heavy = "import sys, longpole_analytics.rollup as r; "
    heavy += "print([m for m in ('polars', 'pyarrow', 'numpy', 'duckdb') if m in sys.modules])"
    found = subprocess.run(
        [sys.executable, "-c", heavy], capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == "[]"


def test_a_whole_workflow():
    trace = row(
        span(
            "r",
            None,
            0,
            1000,
            name="invoke_workflow question",
            operation="invoke_workflow",
            route="shop.question",
            route_version="3",
            slo_class="interactive",
            outcome="accepted",
            time_to_useful_ns=300 * MS,
            time_to_accepted_ns=990 * MS,
            flags=["clock_note"],
        ),
        span("t", "r", 0, 50, stage=Stage.TOOL),
        streamed(
            "c",
            "r",
            50,
            950,
            400,
            800,
            prompt_version="v2",
            input_tokens=100,
            cached_input_tokens=64,
            num_attempts=2,
        ),
        *engine("e", "c", 60, {"queue": 5, "prefill": 380, "decode": 400}, output_tokens=12),
    )
    assert trace._replace(long_pole_ns=0) == Trace(
        trace_id="4bf92f3577b34da6a3ce929d0e0e4736",
        start_ns=0,
        end_ns=1000 * MS,
        wall_ns=1000 * MS,
        root_name="invoke_workflow question",
        service="app",
        route="shop.question",
        route_version="3",
        prompt_version="v2",
        slo_class="interactive",
        outcome="accepted",
        failure_class=None,
        time_to_useful_ns=300 * MS,
        time_to_accepted_ns=990 * MS,
        num_spans=7,
        num_calls=1,
        num_tools=1,
        num_retries=1,
        input_tokens=100,
        cached_input_tokens=64,
        output_tokens=12,
        cost_usd=None,
        long_pole="later_decode",
        long_pole_ns=0,
        shape=None,
        flags=["clock_note"],
    )


def test_unknown_stays_unknown():
    trace = row(span("r", None, 0, 10), call("c", "r", 1, 9, status="error"))
    assert (trace.outcome, trace.input_tokens, trace.route) == (None, None, None)
    assert (trace.num_calls, trace.num_retries) == (1, 0)


def test_facts_of_a_workflow_below_a_web_servers_span_hold():
    trace = row(
        span("http", None, 0, 1000, name="POST /ask"),
        span(
            "w",
            "http",
            100,
            900,
            operation="invoke_workflow",
            route="ask",
            outcome="rejected",
            time_to_useful_ns=200 * MS,
        ),
        span("inner", "w", 200, 300, operation="invoke_workflow", outcome="accepted"),
    )
    assert (trace.root_name, trace.route, trace.outcome) == ("POST /ask", "ask", "rejected")
    assert trace.time_to_useful_ns == 300 * MS


def test_the_outcome_of_an_inner_workflow_is_not_that_of_the_whole():
    trace = row(
        span("w", None, 0, 900, operation="invoke_workflow"),
        span("inner", "w", 200, 300, operation="invoke_workflow", outcome="accepted"),
    )
    assert trace.outcome is None


def test_prompt_version_only_when_all_calls_agree():
    one = call("a", "r", 0, 5, prompt_version="v1")
    other = call("b", "r", 5, 9, prompt_version="v2")
    unnamed = call("c", "r", 5, 9)
    root = span("r", None, 0, 10)
    assert row(root, one, unnamed).prompt_version == "v1"
    assert row(root, one, other).prompt_version is None


def test_tokens_are_counted_once_whoever_knows_them():
    trace = row(
        span("r", None, 0, 100),
        call("a", "r", 0, 50, input_tokens=10),
        *engine("ea", "a", 0, {"prefill": 40}, input_tokens=11, output_tokens=3),
        *engine("eb", "r", 50, {"prefill": 40}, input_tokens=20, output_tokens=4),
    )
    assert (trace.num_calls, trace.input_tokens, trace.output_tokens) == (2, 30, 7)


def test_a_trace_without_its_root_says_so():
    trace = row(span("a", "lost", 0, 10, route="x"), span("b", "lost", 20, 30))
    assert trace.root_name == SYNTHETIC_ROOT_NAME
    assert trace.flags == ["incomplete_trace"]
    assert (trace.route, trace.wall_ns) == ("x", 30 * MS)


def test_a_trace_without_a_finished_span_has_no_duration():
    trace, stages = ROLLUP.compute([span("r", None, 5, None)])
    assert (trace.wall_ns, trace.long_pole, trace.long_pole_ns) == (0, "other", 0)
    assert trace.start_ns == 5 * MS
    assert (stages, trace.flags) == ((), ["unfinished_span"])
