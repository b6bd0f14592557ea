"""The critical path beside others on the same traces: CRISP's, and the definition in plain Python.

Two kinds of traces with nothing wrong with them, as many spans of each: services' calls in a
tree of 60, one after the other and side by side, and wide ones, 4,000 calls at once under one
parent. All sides find a path in each; CPU time of this process. CRISP's time grows with the square
of what runs at once, so the ratio is another one for each kind; the bar is on all of them.

- CRISP (uber-research/CRISP) gets each trace as a parsed Jaeger document and does what its
  ``process`` does up to exclusive times per call path: graph, path, metrics. Ours goes from a
  table of spans to the tables of traces and stages. CRISP is not on PyPI: a checkout of it is
  looked for in ``--crisp``, else in ``LONGPOLE_BENCH_CACHE`` (default ``~/.cache/longpole-bench``)
  under ``CRISP``; without one it is left out.
- The definition in plain Python (the tests' reference) walks spans that are ready; of ours only
  the walk is counted beside it.

    python -m benchmarks.analytics.paths [--wide 4] [--crisp FOLDER]
"""

from __future__ import annotations

import argparse
import importlib
import logging
import os
import sys
import time
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.analytics.rollup import seconds
from tests.analytics.naive import naive_path
from tests.analytics.rolled import table_of

from longpole.vocab import Span
from longpole_analytics import bulk
from longpole_analytics.bulk.columns import flatten
from longpole_analytics.bulk.compiled import jit
from longpole_analytics.bulk.paths import walk
from longpole_analytics.bulk.rolling import grow, read
from longpole_analytics.bulk.table import SEED, roll_up_many, sort_rows
from longpole_analytics.tree import PathSpan

START_NS = 1_790_000_000_000_000_000
US = 1_000
SPANS_A_TRACE = 60
WIDTH = 4_000
ROUNDS = 15
NUM_WALKS = 50
NEED_CRISP = 200.0
NEED_PLAIN = 50.0


def service_trace(random: Random, trace_id: str) -> list[Span]:
    """A tree of calls; children of a span are laid one after the other or side by side in it."""
    length = random.randrange(100_000, 900_000) * US
    spans = [_span(trace_id, None, START_NS, START_NS + length, random)]
    for parent in spans:
        if len(spans) >= SPANS_A_TRACE:
            break
        at, is_serial = parent.start_ns, random.random() < 0.6
        for _ in range(random.randrange(1, 6)):
            assert parent.end_ns is not None
            room = (parent.end_ns - at) // US
            if room < 10:
                break
            start = at + random.randrange(max(room // 5, 1)) * US
            end = start + random.randrange(1, max((parent.end_ns - start) // US, 2)) * US
            spans.append(_span(trace_id, parent.span_id, start, end, random))
            if is_serial:
                at = end
    return spans


def wide_trace(random: Random, trace_id: str) -> list[Span]:
    """A root with calls that all run at once."""
    spans = [_span(trace_id, None, START_NS, START_NS + 3 * WIDTH * US, random)]
    for place in range(1, WIDTH):
        at = START_NS + place * US
        spans.append(_span(trace_id, spans[0].span_id, at, at + WIDTH * US, random))
    return spans


def _span(trace_id: str, parent_id: str | None, start: int, end: int, random: Random) -> Span:
    span_id = f"{random.getrandbits(63) + 1:016x}"
    name = f"op{random.randrange(30)}" if parent_id else "root"
    known = ("app", "app-1", "x", "unknown", "unset")
    return Span(trace_id, span_id, parent_id, name, "internal", start, end, START_NS, *known)


def jaeger(trace: list[Span]) -> dict[str, Any]:
    """A trace as Jaeger's API gives it."""
    spans = [
        {
            "traceID": span.trace_id,
            "spanID": span.span_id,
            "operationName": span.name,
            "processID": "p1",
            "startTime": span.start_ns // US,
            "duration": ((span.end_ns or 0) - span.start_ns) // US,
            "references": [
                {"refType": "CHILD_OF", "traceID": span.trace_id, "spanID": span.parent_id}
            ]
            * bool(span.parent_id),
            "tags": [],
            "logs": [],
        }
        for span in trace
    ]
    processes = {"p1": {"serviceName": "app", "tags": []}}
    return {"data": [{"traceID": trace[0].trace_id, "spans": spans, "processes": processes}]}


def crisp_seconds(folder: Path, documents: list[dict[str, Any]]) -> float:
    """CPU seconds that CRISP takes for these traces; every one must give a path."""
    sys.path.insert(0, str(folder))
    logging.disable(logging.WARNING)
    graph_of = importlib.import_module("crisp.graph").Graph
    begun = time.process_time()
    for document in documents:
        graph = graph_of(document, "app", "root", "", True)
        path = graph.findCriticalPath()
        saved = graph.computeTimeSaved()
        metrics = graph.getMetrics("", path, graph.findErrorsOnCriticalPath(), *saved, {})
        assert path and metrics is not None  # noqa: PT018 - a side that fails is no side
    return time.process_time() - begun


@jit
def walk_all(flat: Any, by_trace: Any, ends: Any, seed: Any, room: Any, num_walks: int) -> int:
    """Prepare every trace and walk it so many times; returns how many were walked."""
    columns, times, facts, answers = flat
    spans, known, calls, nodes, desk = room
    low = num = 0
    for trace in range(len(ends)):
        high = ends[trace]
        found = read(
            columns, times, facts, answers, by_trace, low, high, seed, spans, known, calls, desk
        )
        if found >= 0:
            num_nodes, _ = grow(columns, high - low, spans, calls, nodes)
            for _ in range(num_walks):
                walk(num_nodes, nodes, desk)
            num += 1
        low = high
    return num


def walk_seconds(table: Any) -> float:
    """CPU seconds of the compiled walk alone: many walks of each trace, less one of each."""
    flat = flatten(table)
    _, _, by_trace, ends, room = sort_rows(table, flat)
    loops = (flat.columns, flat.times, flat.facts, flat.answers)

    def walked(num_walks: int) -> float:
        begun = time.process_time()
        num = walk_all(loops, by_trace, ends, SEED, tuple(room), num_walks)
        assert num == len(ends)
        return time.process_time() - begun

    walked(1)
    more, once = (min(walked(num) for _ in range(3)) for num in (NUM_WALKS + 1, 1))
    return (more - once) / NUM_WALKS


def beside_crisp(crisp: Path, kinds: dict[str, list[list[Span]]]) -> bool:
    """Print what CRISP and we take for each kind and for all; whether the bar is met."""
    num_all, ours_all, theirs_all = 0, 0.0, 0.0
    for name, traces in kinds.items():
        table = table_of([span for trace in traces for span in trace])
        ours = seconds(roll_up_many, table, ROUNDS)
        theirs = crisp_seconds(crisp, [jaeger(trace) for trace in traces])
        _print(name, table.num_rows, ours, theirs)
        num_all += table.num_rows
        ours_all, theirs_all = ours_all + ours, theirs_all + theirs
    _print("all", num_all, ours_all, theirs_all)
    print(f"{'ours / CRISP':46}{theirs_all / ours_all:12.0f}   need >= {NEED_CRISP:.0f}")
    return theirs_all / ours_all >= NEED_CRISP


def _print(name: str, num_spans: int, ours: float, theirs: float) -> None:
    print(
        f"{name:16}{num_spans:8,} spans   ours {num_spans / ours:11,.0f} a CPU-second   "
        f"CRISP {num_spans / theirs:9,.0f}   {theirs / ours:6.0f}x"
    )


def beside_plain_python(traces: list[list[Span]]) -> bool:
    """Print what the walk takes compiled and by its definition; whether the bar is met."""
    table = table_of([span for trace in traces for span in trace])
    walked = table.num_rows / walk_seconds(table)
    ready = [[PathSpan(s.span_id, s.parent_id, s.start_ns, s.end_ns) for s in t] for t in traces]
    begun = time.process_time()
    for spans in ready:
        naive_path(spans)
    plain = table.num_rows / (time.process_time() - begun)
    print(f"{'the walk, compiled':46}{walked:12,.0f} spans a CPU-second")
    print(f"{'the walk, plain Python':46}{plain:12,.0f} spans a CPU-second")
    print(f"{'compiled / plain':46}{walked / plain:12.0f}   need >= {NEED_PLAIN:.0f}")
    return walked / plain >= NEED_PLAIN


def main() -> int:
    """Print the table; 1 if a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--wide", type=int, default=4, help="how many wide traces")
    parser.add_argument("--crisp", type=Path, help="a checkout of uber-research/CRISP")
    options = parser.parse_args()
    cache = os.environ.get("LONGPOLE_BENCH_CACHE") or Path.home() / ".cache" / "longpole-bench"
    crisp = options.crisp or Path(cache) / "CRISP"
    random = Random(1)  # noqa: S311 - not for secrets
    wide = [wide_trace(random, f"{n + 1:032x}") for n in range(options.wide)]
    small = [
        service_trace(random, f"{n + 1:032x}") for n in range(options.wide * WIDTH // SPANS_A_TRACE)
    ]
    bulk.start(wait=True)
    is_met = True
    if (crisp / "crisp" / "graph.py").is_file():
        is_met = beside_crisp(crisp, {"services": small, "wide": wide})
    else:
        print(f"CRISP is not in {crisp}: clone uber-research/CRISP there, or give --crisp")
    return int(not (beside_plain_python(small) and is_met))


if __name__ == "__main__":
    sys.exit(main())
