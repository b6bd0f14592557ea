"""The end of what ``content = "keep"`` stored: taken out of days that are over for long.

Every file that is written while a project keeps prompts and answers says so in itself, so that
its content ends in time whatever the policy is by then. Such a file is not rewritten in order
before its content is out of it: the rewriting is what takes the old bytes off the disk.
"""

import json
import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

import pyarrow as pa

from longpole_collector.content import Policy, Scrubber, is_message
from longpole_collector.health import Health
from longpole_collector.settings import ProjectSettings
from longpole_collector.stores.connection import registered
from longpole_collector.stores.days import Day
from longpole_collector.stores.duckdb import DuckStore
from longpole_collector.stores.migrations import note
from longpole_collector.stores.schema import SPANS, to_json

_NOTE: Final = "content"
_KEPT: Final = "kept"
_REMOVED: Final = "removed"
_ROWS: Final = 2000
_SAVE_ROWS: Final = 100_000
"""Changed rows stay in memory until they are saved."""
_log = logging.getLogger("longpole.collector.content")


class ContentRetention(NamedTuple):
    """How a project's prompts and answers end.

    Attributes:
        key: of the hashes that stay in their place.
        is_kept: whether the project keeps any now.
        days: days of receipt after which they are removed.
    """

    key: bytes
    is_kept: bool = False
    days: int = 7


def content_retention(policy: Policy, own: ProjectSettings) -> ContentRetention:
    """How the content of a project of these settings ends."""
    return ContentRetention(policy.key, policy.content == "keep", own.keep_days)


def note_kept(store: DuckStore, content: ContentRetention) -> None:
    """Write into the files there are that they hold content, if the project keeps it."""
    if not content.is_kept:
        return
    with store.exclusive():
        for day in store.days:
            if not day.is_sorted and not store.noted(day, _NOTE, ""):
                with store.transaction(day) as writer:
                    note(writer, day.catalog, _NOTE, _KEPT)


def holds_content(store: DuckStore, day: Day) -> bool:
    """Whether a file holds content that must still be taken out; one in order never does."""
    return not day.is_sorted and store.noted(day, _NOTE, "") == _KEPT


def remove_expired(
    store: DuckStore,
    content: ContentRetention,
    now: datetime | None = None,
    is_stopping: Callable[[], bool] = lambda: False,
) -> list[Day]:
    """Take content out of the days it was kept for long enough; returns those.

    The spans stay, with the lengths and hashes that ``drop`` leaves. A day that is left half-way
    is done again. The old bytes are off the disk when the day is rewritten.
    """
    first = ((now or datetime.now(UTC)) - timedelta(days=content.days)).strftime("%Y%m%d")
    done: list[Day] = []
    for day in list(store.days):
        if day.date >= first or not holds_content(store, day):
            continue
        num = _remove(store, day, Scrubber(Policy(key=content.key), Health()), is_stopping)
        if num is None:
            break
        with store.transaction(day) as writer:
            note(writer, day.catalog, _NOTE, _REMOVED)
        store.save()
        done.append(day)
        _log.info("%s: removed the prompts and answers of %d spans", day.date, num)
    return done


def _remove(
    store: DuckStore, day: Day, scrubber: Scrubber, is_stopping: Callable[[], bool]
) -> int | None:
    """Take the content out of a file; how many spans had any, or ``None`` if stopped."""
    table = f"{day.catalog}.{SPANS.name}"
    num = num_unsaved = first = 0
    last = -1
    while not is_stopping():
        with store.writing() as writer:
            if first > last:  # also what was put in meanwhile
                query = f"SELECT coalesce(max(rowid), -1) FROM {table}"  # noqa: S608
                last = int(writer.execute(query).fetchall()[0][0])
                if first > last:
                    return num
            rows = writer.execute(
                f"SELECT rowid, attributes, events, links FROM {table} "  # noqa: S608
                f"WHERE rowid BETWEEN {first} AND {first + _ROWS - 1}"
            ).fetchall()
        changed = [new for row in rows if (new := _without(row, scrubber)) is not None]
        if changed:
            _put(store, day, changed)
        first += _ROWS
        num += len(changed)
        num_unsaved += len(changed)
        if num_unsaved >= _SAVE_ROWS:
            store.save()
            num_unsaved = 0
    return None


def _put(store: DuckStore, day: Day, changed: list[tuple[Any, ...]]) -> None:
    places, *texts = zip(*changed, strict=True)
    names = ("attributes", "events", "links")
    columns = {name: pa.array(text, pa.string()) for name, text in zip(names, texts, strict=True)}
    new = pa.table({"place": pa.array(places, pa.int64()), **columns})
    with store.transaction(day) as writer, registered(writer, new_texts=new):
        writer.execute(
            f"UPDATE {day.catalog}.{SPANS.name} AS old SET attributes = new.attributes, "  # noqa: S608
            "events = new.events, links = new.links FROM new_texts AS new "
            "WHERE old.rowid = new.place"
        )


def _without(row: tuple[Any, ...], scrubber: Scrubber) -> tuple[Any, ...] | None:
    """A row (its place, attributes, events, links) without content; ``None`` if it has none."""
    place, *texts = row
    attributes, events, links = (json.loads(text) if text else [] for text in texts)
    num = scrubber.drop_content(attributes, length=str) if attributes else 0
    for event in events:
        num += scrubber.drop_content(event["attributes"], is_message=is_message(event["name"]))
    for link in links:
        num += scrubber.drop_content(link["attributes"])
    if not num:
        return None
    given = (attributes, events, links)
    return place, *(to_json(new) if text else text for text, new in zip(texts, given, strict=True))
