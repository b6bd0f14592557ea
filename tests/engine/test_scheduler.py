import subprocess
import sys

from hypothesis import given
from hypothesis import strategies as st

from longpole_engine.scheduler.core import State, plan

ids = st.lists(st.text("abcdef", min_size=1, max_size=3), unique=True, max_size=12)


@given(ids, st.integers(1, 8), st.integers(0, 8))
def test_the_first_to_come_runs_first_and_all_running_decode(
    names: list[str], num_slots: int, num_running: int
) -> None:
    running = tuple(names[: min(num_running, num_slots)])
    waiting = tuple(names[len(running) :])
    step = plan(State(waiting, running, num_slots))
    assert step.decode == running
    assert len(running) + len(step.prefill) <= num_slots
    assert step.prefill == (waiting[:1] if len(running) < num_slots else ())


@given(st.integers(1, 30), st.integers(1, 5), st.data())
def test_every_request_is_served_in_order_of_arrival(
    num_requests: int, num_slots: int, data: st.DataObject
) -> None:
    left = {str(n): data.draw(st.integers(1, 4)) for n in range(num_requests)}
    waiting, running = tuple(left), tuple[str, ...]()
    started: list[str] = []
    for _ in range(10 * num_requests):
        step = plan(State(waiting, running, num_slots))
        started += step.prefill
        for name in step.decode:
            left[name] -= 1
        waiting = tuple(name for name in waiting if name not in step.prefill)
        running = tuple(name for name in running + step.prefill if left[name] > 0)
    assert started == [str(n) for n in range(num_requests)]
    assert not waiting
    assert not running


def test_planning_needs_no_torch() -> None:
    code = "import sys, longpole_engine.scheduler.core; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_core_needs_no_tokenizer_reader_or_server() -> None:
    code = """
import sys
for name in ("gguf", "tokenizers", "safetensors", "jinja2", "fastapi", "pydantic"):
    sys.modules[name] = None
import longpole_engine.runner, longpole_engine.engine, longpole_engine.models.loader
from longpole_engine.sampling import sampler
"""
    subprocess.run([sys.executable, "-c", code], check=True)
