"""A store of ten days, filled as if each day's spans had been received on that day.

The doors note the time of receipt themselves, so ten days of traffic cannot come through them in
minutes. Bodies go straight to the collector's own decoder and from there to its own store.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from benchmarks.collector.bench import DAY_NS
from benchmarks.collector.disk import compact, day_files
from benchmarks.collector.payload import Payload

from longpole_collector import bulk
from longpole_collector.decode import Format, Received
from longpole_collector.rollup import load_rollup
from longpole_collector.stores.duckdb import DuckStore
from longpole_collector.writer import Writer

NUM_DAYS = 10
_PER_BODY = 512
_BATCH_BODIES = 256


class Data(NamedTuple):
    """What was built."""

    folder: Path
    num_spans: int
    first_ns: int
    last_ns: int
    last_file: Path


def build(folder: Path, num_spans: int, say: Callable[[str], None]) -> Data:
    """``num_spans`` a day up to the end of yesterday (UTC); rolled up, then rewritten in order."""
    last_ns = time.time_ns() // DAY_NS * DAY_NS
    first_ns = last_ns - NUM_DAYS * DAY_NS
    payload = Payload(_PER_BODY)
    bulk.start(wait=True)
    store = DuckStore(folder)
    writer = Writer(store, load_rollup())
    total = 0
    for day in range(NUM_DAYS):
        begin_ns = first_ns + day * DAY_NS
        bodies = list(payload.bodies(num_spans, 100 + day, begin_ns, DAY_NS))
        begun = time.perf_counter()
        gap_ns = DAY_NS // len(bodies)
        received = [
            Received(body, Format.PROTOBUF, begin_ns + number * gap_ns)
            for number, body in enumerate(bodies)
        ]
        for at in range(0, len(received), _BATCH_BODIES):
            total += writer.write(writer.read(received[at : at + _BATCH_BODIES]))
        stored_s = time.perf_counter() - begun
        writer.settle(everything=True)
        settled_s = time.perf_counter() - begun - stored_s
        say(f"day {day + 1}: stored in {stored_s:.1f} s, rolled up in {settled_s:.1f} s more")
    store.close()
    compact(folder)
    return Data(folder, total, first_ns, last_ns, day_files(folder)[-1])
