import gc
import json
import subprocess
import sys
import time
from typing import Any

import pytest

import longpole
from longpole import emit
from longpole.testing import Spans
from longpole.vocab import keys


def facts(span: Any) -> dict[str, Any]:
    return dict(span.attributes or {})


@pytest.mark.parametrize(
    ("verdict", "state"), [("used", "used"), ("expired", "expired"), ("discard", "discarded")]
)
def test_the_verdict_may_come_after_the_work(verdict: str, state: str, spans: Spans) -> None:
    with longpole.workflow("w"):
        with longpole.speculate("next page", ttl_s=30) as guess:
            pass
        time.sleep(0.02)
        assert [span.name for span in spans] == []
        getattr(guess, verdict)()
        guess.discard()  # the first verdict counts
        guess.set("late", 1)
    span = spans.named("speculate next page")[0]
    found = facts(span)
    assert found[keys.SPECULATION_STATE] == state
    assert found[keys.SPECULATION_TTL] == 30
    assert 0.02 <= found[keys.SPECULATION_AGE] < 30
    assert span.end_time is not None
    assert span.start_time is not None
    assert span.end_time - span.start_time < found[keys.SPECULATION_AGE] * 1e9 - 0.019e9
    assert "late" not in found
    assert len(spans) == 2
    assert emit.open_calls == set()


def test_the_verdict_may_come_during_the_work(spans: Spans) -> None:
    with longpole.speculate("g") as guess:
        guess.used()
    assert facts(spans[0])[keys.SPECULATION_STATE] == "used"
    assert keys.SPECULATION_TTL not in facts(spans[0])


def test_work_that_failed_can_be_judged_too(spans: Spans) -> None:
    with pytest.raises(ZeroDivisionError), longpole.speculate("g") as guess:
        raise ZeroDivisionError
    guess.discard()
    assert facts(spans[0])[keys.ERROR_TYPE] == "ZeroDivisionError"
    assert facts(spans[0])[keys.SPECULATION_STATE] == "discarded"


def test_a_guess_that_is_let_go_has_no_verdict(spans: Spans) -> None:
    @longpole.speculate
    def prefetch() -> int:
        return 3

    assert prefetch() == 3
    gc.collect()
    assert [span.name for span in spans] == ["speculate prefetch"]
    assert keys.SPECULATION_STATE not in facts(spans[0])
    assert emit.open_calls == set()


def test_one_object_serves_one_run_after_the_other(spans: Spans) -> None:
    guess = longpole.speculate("g")
    for verdict in (guess.used, guess.discard):
        with guess:
            pass
        verdict()
    assert [facts(s)[keys.SPECULATION_STATE] for s in spans] == ["used", "discarded"]


def test_the_end_of_the_process_sends_what_waits() -> None:
    code = """
import json, sys
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
import longpole
from longpole import emit

class Printer(SpanExporter):
    def export(self, spans):
        print(json.dumps([span.name for span in spans]), flush=True)
        return SpanExportResult.SUCCESS

longpole.init(endpoint="http://127.0.0.1:9")
trace.get_tracer_provider().add_span_processor(SimpleSpanProcessor(Printer()))
with longpole.speculate("g") as guess:
    pass
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert [json.loads(line) for line in run.stdout.splitlines()] == [["speculate g"]]
