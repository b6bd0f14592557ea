"""Bringing what the log has and the store has not into the store."""

import logging
import sys
from collections.abc import Callable
from typing import Final, NamedTuple

from longpole.errors import BadInput
from longpole_collector.batch import Item
from longpole_collector.decode import Received, check, inflate
from longpole_collector.decode.logs import parse_logs
from longpole_collector.health import Health
from longpole_collector.wal import Frame, Position, Signal, Wal
from longpole_collector.writer import Writer

_BATCH_SPANS: Final = 65_536

_log = logging.getLogger("longpole.collector.ingest")


class Lost(NamedTuple):
    """The part of the log that a save which failed took out of the store.

    Attributes:
        since: its begin.
        until: its end.
        note: told each place reached: what is before it need not be read again.
    """

    since: Position
    until: Position
    note: Callable[[Position], None]


def replay(wal: Wal, writer: Writer, lost: Lost | None = None) -> Position:
    """Read the log back; returns the place reached.

    What is in the log has passed the door's limits, whatever they were then.

    Args:
        wal: the log.
        writer: the way into the store.
        lost: only this part of the log, of which the store had everything, and while more is
            being written; nothing is saved then.
    """
    stored = writer.stored()
    if lost is not None:
        stored = min(stored, lost.since)
    save = writer.save if lost is None else None
    traces: list[Received] = []
    num_frames = num_spans = 0

    def write() -> None:
        writer.write(writer.read(traces), stored, save, is_again=lost is not None)
        if lost is not None:
            lost.note(stored)

    for position, frame in wal.replay(stored, lost and lost.until):
        stored = position
        num_frames += 1
        item = unpacked(position, frame, writer.health)
        if item is not None and item.signal is Signal.LOGS:
            writer.write_events([item.received])
        elif item is not None:
            num_spans += item.num_records
            traces.append(item.received)
        if num_spans >= _BATCH_SPANS:
            write()
            traces, num_spans = [], 0
    if num_frames:
        write()
        if lost is None:
            writer.save()
            wal.forget(stored)
        _log.info("read %d requests back from the log", num_frames)
    return stored


def unpacked(position: Position, frame: Frame | None, health: Health) -> Item | None:
    """What a frame of the log holds; one that is damaged is counted and gives ``None``."""
    try:
        if frame is None:
            raise BadInput("damaged")
        plain = inflate(frame.body, frame.compression, sys.maxsize)
        received = Received(plain, frame.format, frame.received_ns)
        if frame.signal is Signal.LOGS:
            num_records = len(parse_logs(plain, frame.format, sys.maxsize).events)
        else:
            num_records = check(plain, frame.format, None).num_spans
    except BadInput as error:
        health.add("log_frames_damaged")
        _log.warning("log at %d:%d: %s", *position, error)
        return None
    return Item(frame.signal, received, num_records, 0, position)
