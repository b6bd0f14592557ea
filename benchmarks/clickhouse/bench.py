"""What the measurements share: a folder, sizes, spans, and the store in this process."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from benchmarks.collector.payload import Payload

from longpole_collector import bulk
from longpole_collector.content import Policy, Scrubber
from longpole_collector.decode import Format, Received
from longpole_collector.health import Health
from longpole_collector.normalise import Reader
from longpole_collector.stores.clickhouse.opening import open_store
from longpole_collector.stores.clickhouse.store import ClickStore

DAY_NS = 86_400 * 1_000_000_000
_PER_BODY = 512
_BATCH_BODIES = 256
ROWS_AT_ONCE = _PER_BODY * _BATCH_BODIES


@dataclass(frozen=True)
class Bench:
    """A folder that the data lie in, and the size of it all."""

    folder: Path
    scale: float = 1.0

    def spans(self, number: int) -> int:
        """A number of spans at this scale, whole batches."""
        return max(1, round(number * self.scale / ROWS_AT_ONCE)) * ROWS_AT_ONCE

    def store(self, database: str) -> ClickStore:
        """A store of this name; the engine of a process has one folder."""
        return open_store(f"chdb://{self.folder / 'chdb'}?database={database}&timeout_s=3600")


def rows(num_spans: int, first_ns: int, length_ns: int, *, has_pool: bool) -> Iterator[pa.Table]:
    """Decoded columns of spans that begin evenly over a time, in the order of their starts.

    Args:
        num_spans: how many, in whole batches.
        first_ns: when the first begins.
        length_ns: until the last begins.
        has_pool: take all but ids and times from a pool, which is faster to make; else every span
            is built anew.
    """
    given = {} if has_pool else {"num_pool": num_spans}
    payload = Payload(_PER_BODY, **given)
    bulk.start(wait=True)
    health = Health()
    reader = Reader(health, Scrubber(Policy(), health))
    bodies = payload.bodies(num_spans, 1, first_ns, length_ns)
    gap_ns = length_ns * _PER_BODY // num_spans
    batch: list[Received] = []
    for number, body in enumerate(bodies):
        batch.append(Received(body, Format.PROTOBUF, first_ns + number * gap_ns))
        if len(batch) == _BATCH_BODIES:
            yield reader.table(batch)
            batch = []


def yesterday_ns() -> int:
    """When yesterday ended (UTC)."""
    return time.time_ns() // DAY_NS * DAY_NS
