import asyncio
import os
import random
import threading
import time

import pytest

from longpole_collector.batch import Batches, Budget, Full, GroupCommit, Item
from longpole_collector.decode import Compression, Format, Received
from longpole_collector.wal import MAGIC, Frame, Position, Signal, Wal

START = Position(0, 0)


def frame(text: str, received_ns: int = 1) -> Frame:
    return Frame(Format.JSON, Compression.GZIP, received_ns, text.encode())


def read(folder, stored=START):
    return [(position, found) for position, found in Wal(folder, stored).replay(stored)]


def texts(found):
    return [entry.body.decode() for _, entry in found if entry is not None]


def test_the_signal_of_a_request_is_kept(tmp_path):
    logs = frame("x")._replace(signal=Signal.LOGS)
    Wal(tmp_path, START).write([logs, frame("y")])
    assert [entry.signal for _, entry in read(tmp_path)] == [Signal.LOGS, Signal.TRACES]


def test_what_was_written_is_read_back_in_order(tmp_path):
    wal = Wal(tmp_path, START)
    frames = [frame(str(i), i) for i in range(5)]
    ends = wal.write(frames[:2]) + wal.write(frames[2:])
    found = read(tmp_path)
    assert [entry for _, entry in found] == frames
    assert [position for position, _ in found] == ends


def test_only_what_comes_after_the_stored_place_is_read_back(tmp_path):
    ends = Wal(tmp_path, START).write([frame("a"), frame("b"), frame("c")])
    assert texts(read(tmp_path, ends[0])) == ["b", "c"]
    assert texts(read(tmp_path, ends[2])) == []


def test_a_new_log_never_reuses_a_number_the_store_has_seen(tmp_path):
    wal = Wal(tmp_path, START)
    (end,) = wal.write([frame("a")])
    wal.close(end)
    assert not list(tmp_path.glob("*.wal"))
    again = Wal(tmp_path, end)
    (later,) = again.write([frame("b")])
    assert later > end
    assert texts(read(tmp_path, end)) == ["b"]


def test_segments_change_at_their_size_and_go_when_stored(tmp_path):
    wal = Wal(tmp_path, START, segment_bytes=100)
    ends = [wal.write([frame("x" * 60)])[0] for _ in range(6)]
    assert len({end.segment for end in ends}) == 3
    wal.forget(ends[3])
    assert texts(read(tmp_path, ends[3])) == ["x" * 60] * 2
    assert len(list(tmp_path.glob("*.wal"))) == 2


@pytest.mark.parametrize("seed", range(8))
def test_any_damage_loses_nothing_before_it_and_stops_nothing_after(tmp_path, seed):
    rng = random.Random(seed)
    wal = Wal(tmp_path, START, segment_bytes=200)
    for i in range(12):
        wal.write([frame(f"{i:02d}" * 25)])
    victim = rng.choice(sorted(tmp_path.glob("*.wal")))
    data = bytearray(victim.read_bytes())
    at = rng.randrange(len(MAGIC), len(data))
    if rng.random() < 0.5:
        del data[at:]
    else:
        data[at] ^= 0xFF
    victim.write_bytes(data)
    others = len(texts(read(tmp_path)))
    assert 12 - 4 <= others <= 12
    found = texts(read(tmp_path))
    assert found == sorted(found)
    assert not any(entry is None for _, entry in read(tmp_path)), "the torn tail is cut off"


def test_random_bytes_are_no_segment(tmp_path):
    (tmp_path / "000000000001.wal").write_bytes(b"rubbish" * 10)
    assert texts(read(tmp_path)) == []


def test_after_a_failed_write_the_log_goes_on_in_a_new_segment(tmp_path, monkeypatch):
    wal = Wal(tmp_path, START)
    wal.write([frame("a")])
    real = os.write

    def full(fd, data):
        real(fd, bytes(data)[:10])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="No space"):
        wal.write([frame("lost")])
    monkeypatch.undo()
    wal.write([frame("b")])
    assert texts(read(tmp_path)) == ["a", "b"]


def item(num_spans: int = 1) -> Item:
    received = Received(b"", Format.JSON, time.time_ns())
    return Item(Signal.TRACES, received, num_spans, 10, START)


def fail(item: Item) -> None:
    raise AssertionError("dropped")


async def test_requests_that_come_together_share_a_sync(tmp_path):
    wal = Wal(tmp_path, START)
    groups: list[int] = []
    write = wal.write

    def counting(frames):
        groups.append(len(frames))
        return write(frames)

    wal.write = counting
    delivered: list[Item] = []
    commits = GroupCommit(wal, delivered.append, fail)
    await asyncio.gather(*(commits.commit(frame(str(i)), item()) for i in range(50)))
    await commits.close()
    assert sum(groups) == len(delivered) == 50
    assert len(groups) <= 3
    assert [one.position for one in delivered] == sorted(one.position for one in delivered)
    assert len(texts(read(tmp_path))) == 50


async def test_when_the_disk_refuses_nobody_is_told_yes(tmp_path):
    wal = Wal(tmp_path, START)

    def refuse(frames):
        raise OSError("disk")

    wal.write = refuse
    delivered: list[Item] = []
    dropped: list[Item] = []
    commits = GroupCommit(wal, delivered.append, dropped.append)
    outcomes = await asyncio.gather(
        *(commits.commit(frame("x"), item()) for _ in range(3)), return_exceptions=True
    )
    await commits.close()
    assert [type(outcome) for outcome in outcomes] == [OSError] * 3
    assert delivered == []
    assert len(dropped) == 3


@pytest.mark.parametrize("is_refused", [False, True])
async def test_a_sender_that_goes_away_leaves_its_item_in_one_place(tmp_path, is_refused):
    wal = Wal(tmp_path, START)
    hold = threading.Event()
    write = wal.write

    def slow(frames):
        hold.wait(10)
        if is_refused:
            raise OSError("disk")
        return write(frames)

    wal.write = slow
    delivered: list[Item] = []
    dropped: list[Item] = []
    commits = GroupCommit(wal, delivered.append, dropped.append)
    waiting = asyncio.create_task(commits.commit(frame("x"), item()))
    await asyncio.sleep(0.05)
    waiting.cancel()
    hold.set()
    await commits.close()
    assert waiting.cancelled()
    assert (len(delivered), len(dropped)) == ((0, 1) if is_refused else (1, 0))


def test_the_budget_refuses_what_does_not_fit_and_takes_it_later():
    budget = Budget(100)
    budget.take(60)
    with pytest.raises(Full):
        budget.take(41)
    budget.take(40)
    assert budget.used_bytes() == 100
    budget.give(60)
    budget.take(60)


def test_a_batch_ends_by_number_of_spans_or_by_age():
    batches = Batches(max_age_s=0.05, loaded_age_s=0.05, max_records=10)
    for _ in range(5):
        batches.put(item(4))
    assert [len(batches.next(1.0)), len(batches.next(1.0))] == [3, 2]
    assert batches.next(0.01) == []
    threading.Timer(0.05, batches.put, [item()]).start()
    assert len(batches.next(None)) == 1
    batches.put(item())
    batches.close()
    assert len(batches.next(None)) == 1
    assert batches.next(None) is None


def test_after_a_large_batch_the_next_one_waits_longer():
    batches = Batches(max_age_s=0.01, loaded_age_s=5.0, max_records=20)
    batches.put(item(3))
    assert len(batches.next(1.0)) == 1
    threading.Timer(0.2, batches.put, [item(18)]).start()
    batches.put(item(1))
    batches.put(item(1))
    assert [one.num_records for one in batches.next(1.0)] == [1, 1, 18]
