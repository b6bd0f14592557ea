"""A full disk: nobody is told yes for what is not safe; with room again, all goes on."""

import os
import subprocess
import time

import duckdb
import httpx
import pytest

from longpole_collector.decode import Compression, Format, Received
from longpole_collector.replay import Lost, replay
from longpole_collector.stores import open_reader
from longpole_collector.stores.duckdb import DuckStore
from longpole_collector.stores.schema import SPANS, to_arrow
from longpole_collector.wal import Frame, Position, Wal
from longpole_collector.writer import Writer

START_NS = 1_790_000_000_000_000_000
PROTOBUF = {"content-type": "application/x-protobuf"}


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 48 MB; only root may make one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=48m", "tmpfs", str(folder)]
    try:
        subprocess.run(mount, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("needs the right to mount a file system")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(folder):
    """Take all the room there is."""
    path = folder / "filler"
    with path.open("wb", buffering=0) as file:
        for size in (1 << 16, 1 << 12, 1):
            try:
                while file.write(b"x" * size):
                    pass
            except OSError:
                continue
    return path


def test_a_full_disk_is_told_and_nothing_acknowledged_is_lost(
    otlp, small_disk, settings, collecting, eventually
):
    from dataclasses import replace

    acked: list[str] = []

    def send(client, num):
        names = [f"{os.urandom(6).hex()}" for _ in range(num)]
        body = otlp.body([otlp.span(name=name, attributes={"x": "y" * 500}) for name in names])
        answer = client.post("/v1/traces", content=body, headers=PROTOBUF)
        if answer.status_code == 200:
            acked.extend(names)
        return answer

    places = replace(settings, db=small_disk / "data")
    with (
        collecting(places) as collector,
        httpx.Client(base_url=collector.url, trust_env=False, timeout=30) as client,
    ):
        assert send(client, 500).status_code == 200
        filler = fill(small_disk)
        refused = eventually(lambda: (a := send(client, 500)).status_code != 200 and a)
        assert refused.status_code == 503
        assert refused.headers["retry-after"]
        assert b"log cannot be written" in refused.content
        assert client.get("/healthz").status_code == 200
        time.sleep(1.5)  # the store has met the full disk too
        filler.unlink()
        eventually(lambda: send(client, 100).status_code == 200)
        query = {"sql": "SELECT count(*) FROM spans"}

        def num_stored():
            return client.post("/api/v1/query", json=query).json()["rows"][0][0]

        eventually(lambda: num_stored() == len(acked))
    reader = open_reader(db=places.db)
    stored = set(reader.sql("SELECT name FROM spans")["name"].to_pylist())
    reader.close()
    assert stored == set(acked)


def test_a_save_that_fails_loses_nothing_that_is_in_the_log(otlp, small_disk, tmp_path):
    wal = Wal(tmp_path / "wal", Position(0, 0))
    bodies = [otlp.body([otlp.span() for _ in range(200)]) for _ in range(6)]
    frames = [Frame(Format.PROTOBUF, Compression.IDENTITY, START_NS, body) for body in bodies]
    ends = wal.write(frames)

    def num_stored(store):
        return store.sql("SELECT count(*) AS n FROM spans")["n"][0].as_py()

    def store_some(writer, first, last):
        received = [Received(body, Format.PROTOBUF, START_NS) for body in bodies[first:last]]
        writer.write(writer.read(received), ends[last - 1])

    store = DuckStore(small_disk / "db")
    writer = Writer(store, None)
    store_some(writer, 0, 2)
    writer.save()
    store_some(writer, 2, 4)
    filler = fill(small_disk)
    with pytest.raises(duckdb.Error):
        writer.save()
    assert num_stored(store) == 400  # as it was when last saved
    assert store.stored() == ends[1]
    reached: list[Position] = []
    assert replay(wal, writer, Lost(ends[1], ends[3], reached.append)) == ends[3]
    assert num_stored(store) == 800
    assert reached == [ends[3]]
    assert writer.health.total("spans_stored") == 800  # what was lost and read back counts once
    assert writer.health.total("spans_duplicate") == 0
    filler.unlink()
    store_some(writer, 4, 6)
    writer.save()
    store.close()
    store = DuckStore(small_disk / "db", is_read_only=True)
    assert num_stored(store) == 1200
    assert store.stored() == ends[5]
    assert not store.days.broken
    store.close()


def test_a_save_that_fails_in_one_day_leaves_no_later_day_ahead_of_it(otlp, small_disk):
    store = DuckStore(small_disk / "db")
    day_ns = 86_400 * 1_000_000_000

    def insert(day, offset):
        (span,) = otlp.canonical(otlp.span())
        rows = to_arrow(SPANS, [span._replace(received_ns=START_NS + day * day_ns)])
        store.insert(rows, Position(1, offset))

    insert(0, 10)
    insert(1, 20)
    store.save()
    insert(0, 30)
    insert(1, 40)
    filler = fill(small_disk)
    with pytest.raises(duckdb.Error):
        store.save()
    assert store.stored() == Position(1, 20)
    assert store.sql("SELECT count(*) AS n FROM spans")["n"].to_pylist() == [2]
    filler.unlink()
    store.close()
