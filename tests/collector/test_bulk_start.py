"""Small installations never load the compiled loops; large batches have them made once."""

import subprocess
import sys

SCRIPT = """
import sys
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from longpole_collector import bulk
from longpole_collector.content import Policy, Scrubber
from longpole_collector.decode import Format, Received, check
from longpole_collector.health import Health
from longpole_collector.normalise import Reader

def body(num):
    request = ExportTraceServiceRequest()
    spans = request.resource_spans.add().scope_spans.add().spans
    for i in range(num):
        spans.add(trace_id=b"t" * 16, span_id=i.to_bytes(8, "big"), name="x" * 100)
    return request.SerializeToString()

health = Health()
reader = Reader(health, Scrubber(Policy(), health))
assert reader.table([Received(body(300), Format.PROTOBUF, 1)]).num_rows == 299
assert "numba" not in sys.modules and not bulk.is_ready()
{then}
large = [Received(body(3000), Format.PROTOBUF, 1)]
assert reader.table(large).num_rows == 2999  # the reference, or not: the caller cannot tell
assert bulk.start(wait=True) is {is_there}
assert reader.table(large).num_rows == 2999
assert check(large[0].body, Format.PROTOBUF)[:2] == (2999, 1)
"""


def run(then: str, is_there: bool) -> str:
    script = SCRIPT.format(then=then, is_there=is_there)
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_the_loops_are_loaded_by_the_first_large_batch_only():
    assert "one by one" not in run("", True)


def test_without_a_compiler_the_reference_does_everything():
    assert "one by one" in run("sys.modules['numba'] = None", False)
