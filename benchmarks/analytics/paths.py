"""The critical path beside others on the same traces: CRISP's, and the definition in plain Python.

Five kinds of traces with nothing wrong with them, about as many spans of each: CRISP's own test
traces over and over (1 to 9 spans), agents' workflows, services' calls in trees of 60 and of 1,000
(one after the other and side by side), and wide ones, 4,000 calls at once under one parent. All
sides find a path in each; CPU time of this process. CRISP's time grows with the square of what
runs at once, ours does not, so the ratio is another one for each kind: every one is printed, and
the small trees together. The bar is on all of them together.

- CRISP (uber-research/CRISP) gets each trace as a parsed Jaeger document and does what its
  ``process`` does up to exclusive times per call path: graph, path, metrics. Its start and the
  reading of JSON are not counted. Ours goes from a table of spans to the tables of traces and
  stages, with the model calls explained on the way; ``path`` is the part of it that CRISP does
  too: link the spans, prepare the tree, walk it. CRISP is not on PyPI: a checkout of it is
  looked for in ``--crisp``, else in ``LONGPOLE_BENCH_CACHE`` (default ``~/.cache/longpole-bench``)
  under ``CRISP``; without one it is left out.
- The definition in plain Python (the tests' reference) walks spans that are ready; of ours only
  the walk is counted beside it.

    python -m benchmarks.analytics.paths [--wide 4] [--crisp FOLDER]
"""

from __future__ import annotations

import argparse
import importlib
import json
import logging
import os
import sys
import time
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.analytics.rollup import seconds
from tests.analytics.naive import naive_path
from tests.analytics.random_traces import agent_trace
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
AGENT_SPANS = 12
"""About as many has an agent's workflow."""
ROUNDS = 15
CRISP_ROUNDS = 5
MAX_CRISP_S = 2.0
"""What takes longer is measured once."""
WIDE = "wide"
NUM_WALKS = 50
NEED_CRISP = 200.0
NEED_PLAIN = 50.0


def service_trace(random: Random, trace_id: str, num_spans: int = SPANS_A_TRACE) -> list[Span]:
    """A tree of calls; children of a span are laid one after the other or side by side in it."""
    length = random.randrange(100_000, 900_000) * US
    spans = [_span(trace_id, None, START_NS, START_NS + length, random)]
    for parent in spans:
        if len(spans) >= num_spans:
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


def own_traces(folder: Path, num_spans: int) -> list[list[Span]]:
    """CRISP's test traces, in turn until there are so many spans; new ids each time."""
    files = sorted((folder / "test_cases").glob("*.json"))
    known = [json.loads(file.read_text())["data"][0]["spans"] for file in files]
    found: list[list[Span]] = []
    num = 0
    while num < num_spans:
        spans = known[len(found) % len(known)]
        found.append(_of_jaeger(spans, f"{len(found) + 1:032x}"))
        num += len(spans)
    return found


def _of_jaeger(spans: list[dict[str, Any]], trace_id: str) -> list[Span]:
    ids = {span["spanID"]: f"{place + 1:016x}" for place, span in enumerate(spans)}
    found = []
    for span in spans:
        parent = next((ids[ref["spanID"]] for ref in span["references"] or ()), None)
        start = START_NS + span["startTime"] * US
        known = ("app", "app-1", "x", "unknown", "unset")
        end = start + span["duration"] * US
        name = span["operationName"] if parent else "root"
        found.append(
            Span(
                trace_id,
                ids[span["spanID"]],
                parent,
                name,
                "internal",
                start,
                end,
                START_NS,
                *known,
            )
        )
    return found


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
    data = [{"traceID": trace[0].trace_id, "spans": spans, "processes": processes}]
    root = next(span.name for span in trace if span.parent_id is None)
    return {"data": data, "root": root}


def crisp_seconds(folder: Path, documents: list[dict[str, Any]]) -> float:
    """CPU seconds that CRISP takes for these traces; every one must give a path."""
    sys.path.insert(0, str(folder))
    logging.disable(logging.WARNING)
    graph_of = importlib.import_module("crisp.graph").Graph
    begun = time.process_time()
    for document in documents:
        graph = graph_of(document, "app", document["root"], "", True)
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


def path_seconds(table: Any) -> float:
    """CPU seconds from columns to walked trees: rows by trace, links, trees, the walk."""
    flat = flatten(table)
    loops = (flat.columns, flat.times, flat.facts, flat.answers)

    def once() -> float:
        begun = time.process_time()
        _, _, by_trace, ends, room = sort_rows(table, flat)
        walk_all(loops, by_trace, ends, SEED, tuple(room), 1)
        return time.process_time() - begun

    once()
    return min(once() for _ in range(ROUNDS))


def beside_crisp(crisp: Path, kinds: dict[str, list[list[Span]]]) -> bool:
    """Print what CRISP and we take for each kind and for all; whether the bar is met."""
    sums: dict[str, list[float]] = {"small trees": [0.0] * 4, "all": [0.0] * 4}
    for name, traces in kinds.items():
        table = table_of([span for trace in traces for span in trace])
        documents = [jaeger(trace) for trace in traces]
        theirs = [crisp_seconds(crisp, documents)]
        while len(theirs) < CRISP_ROUNDS and sum(theirs) < MAX_CRISP_S:
            theirs.append(crisp_seconds(crisp, documents))
        found = [
            table.num_rows,
            seconds(roll_up_many, table, ROUNDS),
            path_seconds(table),
            min(theirs),
        ]
        _print(name, *found)
        for part in ("all",) if name == WIDE else sums:
            sums[part] = [old + new for old, new in zip(sums[part], found, strict=True)]
    for name, found in sums.items():
        _print(name, *found)
    ratio = sums["all"][3] / sums["all"][1]
    print(f"{'ours / CRISP, all':46}{ratio:12.0f}   need >= {NEED_CRISP:.0f}")
    return ratio >= NEED_CRISP


def _print(name: str, num_spans: float, ours: float, path: float, theirs: float) -> None:
    print(
        f"{name:16}{num_spans:8,.0f} spans   ours {num_spans / ours:10,.0f} a CPU-second "
        f"(path {num_spans / path:11,.0f})   CRISP {num_spans / theirs:8,.0f}   "
        f"{theirs / ours:5.0f}x (path {theirs / path:5.0f}x)"
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
    num = options.wide * WIDTH
    trees = {
        name: [service_trace(random, f"{n + 1:032x}", size) for n in range(num // size)]
        for name, size in (("services, 60", SPANS_A_TRACE), ("services, 1,000", 1_000))
    }
    small = trees["services, 60"]
    kinds = {
        "agents": [agent_trace(random, f"{n + 1:032x}") for n in range(num // AGENT_SPANS)],
        **trees,
        WIDE: [wide_trace(random, f"{n + 1:032x}") for n in range(options.wide)],
    }
    bulk.start(wait=True)
    is_met = True
    if (crisp / "crisp" / "graph.py").is_file():
        is_met = beside_crisp(crisp, {"CRISP's tests": own_traces(crisp, num), **kinds})
    else:
        print(f"CRISP is not in {crisp}: clone uber-research/CRISP there, or give --crisp")
    return int(not (beside_plain_python(small) and is_met))


if __name__ == "__main__":
    sys.exit(main())
