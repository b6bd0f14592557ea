"""What waits to be stored, in memory or in the log alone, comes out once and in its order."""

import random
from pathlib import Path
from typing import Any

import pytest

from longpole_collector.batch import Budget, Item, LogFull
from longpole_collector.decode import Compression, Format, Received
from longpole_collector.health import Health
from longpole_collector.waiting import Waiting, segment_bytes
from longpole_collector.wal import Frame, Position, Signal, Wal

NOTHING = Position(0, 0)
LIMIT = 20_000


class Life:
    """One process on a log, until it is killed."""

    def __init__(self, folder: Path, stored: Position) -> None:
        self.health = Health()
        self.budget = Budget(4_000)
        self.wal = Wal(folder, stored, segment_bytes(LIMIT))
        self.waiting = Waiting(self.wal, stored, self.budget, self.health, LIMIT)
        self.stored = stored

    def put(self, body: bytes) -> None:
        with self.waiting.room(len(body)):
            self.budget.take(len(body))
            (end,) = self.wal.write([Frame(Format.PROTOBUF, Compression.IDENTITY, 1, body)])
            received = Received(body, Format.PROTOBUF, 1)
            self.waiting.add(Item(Signal.TRACES, received, 1, len(body), end))

    def take(self, most: int) -> list[bytes]:
        batch = self.waiting.next(0.0, most)
        if not batch and self.waiting.is_in_log():
            batch = self.waiting.read_back()
        if not batch:
            return []
        self.waiting.done(batch)
        self.stored = batch[-1].position
        return [item.received.body for item in batch]


@pytest.mark.parametrize("seed", range(20))
def test_everything_comes_out_once_and_in_order_also_after_a_crash(
    seed: int, otlp: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("longpole_collector.waiting.BATCH_SPANS", 7)
    monkeypatch.setattr("longpole_collector.waiting._BATCH_AGE_S", 0.0)
    rng = random.Random(seed)
    life = Life(tmp_path, NOTHING)
    sent: list[bytes] = []
    found: list[bytes] = []
    for _ in range(200):
        does = rng.random()
        if does < 0.6:
            body = otlp.body([otlp.span(attributes={"x": "y" * rng.randrange(600)})])
            try:
                life.put(body)
            except LogFull:
                assert life.wal.num_bytes_after(life.stored) > LIMIT // 2
            else:
                sent.append(body)
        elif does < 0.97:
            found += life.take(rng.randrange(1, 9))
            if rng.random() < 0.5:
                life.wal.forget(life.stored)
        else:
            life = Life(tmp_path, life.stored)
    while got := life.take(9):
        found += got
    assert found == sent
    assert life.waiting.num_spans() == life.budget.used_bytes() == 0
    assert life.waiting.is_empty()
    assert life.health.total("log_frames_damaged") == 0


def test_a_torn_end_is_counted_and_what_comes_after_is_read(otlp: Any, tmp_path: Path) -> None:
    bodies = [otlp.body([otlp.span()]) for _ in range(3)]
    first = Life(tmp_path, NOTHING)
    for body in bodies[:2]:
        first.put(body)
    (path,) = tmp_path.glob("*.wal")
    path.write_bytes(path.read_bytes()[:-3])
    second = Life(tmp_path, NOTHING)
    second.put(bodies[2])
    found = []
    while got := second.take(9):
        found += got
    assert found == [bodies[0], bodies[2]]
    assert second.health.total("log_frames_damaged") == 1
