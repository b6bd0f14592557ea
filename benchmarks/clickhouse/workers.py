"""How much faster two workers settle than one, each a process, beside the engine in a third.

The engine stands behind the small HTTP door of the tests, which lets one statement run at a time.
"""

from __future__ import annotations

import importlib.util
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Event
from typing import Any, NamedTuple

from benchmarks.bars import Bar, say
from benchmarks.clickhouse.bench import DAY_NS, Bench, rows, yesterday_ns

from longpole_collector.stores.clickhouse.opening import open_store
from longpole_collector.stores.clickhouse.schema import TABLES, remember

_DOOR = Path(__file__).parents[2] / "tests" / "collector" / "clickhouse" / "door.py"
_ROUNDS = 3
_WARM_SPANS = 16_384
_HOUR_NS = DAY_NS // 24
_TICKS = os.sysconf("SC_CLK_TCK")


class Run(NamedTuple):
    """Some workers settled everything: wall time, and CPU time of theirs and of the engine's."""

    wall_s: float
    workers_cpu_s: float
    engine_cpu_s: float
    others_cores: float
    """Cores that other processes had meanwhile: much of one makes the wall times mean nothing."""


def workers(bench: Bench) -> list[Bar]:
    """Spans per second of one and of two workers; the best of three rounds each.

    A worker settles 65,536 spans at once: with few of such parts the time in which the second
    waits for its first would be a large share of all.
    """
    num_spans = bench.spans(786_432)
    found = _rounds(num_spans, [1, 2] * _ROUNDS)
    one, two = (min(runs) for runs in (found[::2], found[1::2]))
    sides: dict[str, float | str] = {"num_spans": num_spans, "cores": os.cpu_count() or 0}
    for name, run in (("one", one), ("two", two)):
        sides[f"{name}_spans_per_s"] = num_spans / run.wall_s
        sides[f"{name}_workers_us_per_span"] = run.workers_cpu_s / num_spans * 1e6
        sides[f"{name}_engine_us_per_span"] = run.engine_cpu_s / num_spans * 1e6
        sides[f"{name}_others_cores"] = run.others_cores
    return [Bar("workers_1_to_2", one.wall_s / two.wall_s, "x", ">=", 1.7, sides)]


def settle_cost(bench: Bench) -> tuple[Run, int]:
    """What one worker and the engine take to settle so many spans."""
    num_spans = bench.spans(262_144)
    return _rounds(num_spans, [1])[0], num_spans


def _rounds(num_spans: int, nums: Sequence[int]) -> list[Run]:
    """Settle the same spans again and again, each time by so many workers."""
    found: list[Run] = []
    tables = list(rows(num_spans, yesterday_ns() - _HOUR_NS, _HOUR_NS, has_pool=True))
    with _engine() as (url, pid):
        store = open_store(f"{url}/work?timeout_s=600")
        for table in tables:
            store.insert(table)
        for number in range(1, max(nums) + 1):
            warm = open_store(f"{url}/warm{number}?timeout_s=600")
            warm.insert(tables[0].slice(0, _WARM_SPANS))
            warm.close()
        for num in nums:
            for name in set(TABLES) - {"span_rows"}:
                store.client.tell(f"TRUNCATE TABLE {name}")
            remember(store.client)
            found.append(_run(url, pid, num))
            count = store.client.ask("SELECT sum(num_spans) AS num FROM traces")
            assert int(count["num"][0].as_py()) == num_spans
            say(f"{num} of them: {num_spans / found[-1].wall_s:,.0f} spans/s")
        store.close()
    return found


@contextmanager
def _engine() -> Iterator[tuple[str, int]]:
    """The address of an engine in a process of its own, and that process."""
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs,), daemon=True)
    process.start()
    try:
        yield ours.recv(), process.pid or 0
    finally:
        ours.send("end")
        process.join(20)
        process.kill()


def _serve(pipe: Connection) -> None:
    spec = importlib.util.spec_from_file_location("door", _DOOR)
    assert spec is not None
    assert spec.loader is not None
    door: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(door)
    with door.serving() as found:
        pipe.send(f"clickhouse://{door.USER}:{door.WORD}@{found.address}")
        pipe.recv()


def _run(url: str, engine: int, num: int) -> Run:
    """Let so many workers settle everything."""
    context = get_context("spawn")
    pipes, processes = [], []
    for number in range(1, num + 1):
        ours, theirs = context.Pipe()
        process = context.Process(target=_work, args=(theirs, url, number, num), daemon=True)
        process.start()
        pipes.append(ours)
        processes.append(process)
    _hear(pipes)
    busy_s, engine_s, begun_s = _busy_s(), _cpu_s(engine), time.perf_counter()
    for pipe in pipes:
        pipe.send("begin")
    cpu_s = sum(_hear(pipes))
    wall_s = time.perf_counter() - begun_s
    engine_s = _cpu_s(engine) - engine_s
    others_s = _busy_s() - busy_s - cpu_s - engine_s
    for process in processes:
        process.join()
    return Run(wall_s, cpu_s, engine_s, max(0.0, others_s / wall_s))


def _hear(pipes: Sequence[Connection]) -> list[float]:
    return [pipe.recv() for pipe in pipes]


def _work(pipe: Connection, url: str, number: int, num: int) -> None:
    """One worker: loads what it needs on other spans, waits for the word, settles its share."""
    from longpole_analytics import bulk
    from longpole_collector.work import Work, work

    bulk.start(wait=True)
    work(Work(f"{url}/warm{number}", since_ns=0, is_once=True), Event())
    pipe.send(0.0)
    pipe.recv()
    cpu_s = time.process_time()
    work(Work(f"{url}/work?timeout_s=600", f"{number}/{num}", is_once=True), Event())
    pipe.send(time.process_time() - cpu_s)


def _cpu_s(pid: int) -> float:
    """CPU time of a process with its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def _busy_s() -> float:
    """CPU time of everything on this machine."""
    user, nice, system, *_ = map(int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:])
    return (user + nice + system) / _TICKS
