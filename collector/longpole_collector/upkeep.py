"""``longpole backup`` and ``longpole prune``, on a folder or by the collector that runs on it.

A running collector is asked over HTTP, as it alone may open its files; it writes a backup beside
its data, and the command moves it to where it was wanted.
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import httpx

from longpole.errors import BadInput, StoreBusy, Unreachable
from longpole_collector.content import Policy, Scrubber, load_key, own_settings, policy_of
from longpole_collector.health import Health
from longpole_collector.kept_content import (
    ContentRetention,
    content_retention,
    holds_content,
    note_kept,
    remove_expired,
)
from longpole_collector.putting import REJECTED
from longpole_collector.recovery import recover
from longpole_collector.stores.duckdb import DuckStore
from longpole_collector.stores.keeping import (
    Retention,
    backup,
    copy_ledgers,
    forget_person,
    prune,
    rewrite,
)
from longpole_collector.stores.remote import auth_headers
from longpole_collector.stores.schema import SPANS, TRACE_HI, TRACE_LO, trace_numbers
from longpole_collector.whereabouts import Whereabouts, find

BACKUP_PATH: Final = "/api/v1/backup"
PRUNE_PATH: Final = "/api/v1/prune"
DRAFTS: Final = "backups"
"""Folder below the data folder where a running collector writes a backup."""
_TIMEOUT_S: Final = 3600.0
_T = TypeVar("_T")
_TRIES: Final = 5
"""A day that is written to while it is rewritten is tried again."""


class Pruned(NamedTuple):
    """What was removed: days of receipt, traces of a person; and days rewritten in order."""

    days: list[str]
    num_traces: int
    rewritten: list[str]


def prune_store(
    store: DuckStore,
    folder: Path,
    retention: Retention,
    user: str | None,
    content: ContentRetention,
    *,
    compact: bool,
) -> Pruned:
    """Drop days, a person's traces, and prompts and answers that were kept long enough.

    With ``compact`` also rewrite every day, today's too, but those that still hold content.
    """
    days = prune(store, retention)
    note_kept(store, content)
    expired = {day.catalog for day in remove_expired(store, content)}
    num_traces = 0
    if user is not None:
        scrubber = Scrubber(Policy(key=load_key(folder)), Health())
        pseudonym = scrubber.pseudonym(user)
        forget_rejected(store, folder / REJECTED, pseudonym)
        num_traces = forget_person(store, pseudonym)
    rewritten = [
        day.date
        for day in list(store.days)
        if day.catalog in expired or (compact and not holds_content(store, day))
        if any(rewrite(store, day) for _ in range(_TRIES))
    ]
    return Pruned(days, num_traces, rewritten)


def forget_rejected(store: DuckStore, path: Path, pseudonym: str) -> None:
    """Take a user's or session's spans out of the file of spans that could not be stored.

    Those are the spans that carry the pseudonym, and all of their traces and of the store's
    traces that do; call it before the latter go.
    """
    with store.exclusive():
        if not path.is_file():
            return
        lines = [(line, _trace_of(line)) for line in path.read_bytes().splitlines(keepends=True)]
        gone = {trace for line, trace in lines if trace and pseudonym.encode() in line}
        gone |= _traces_of(store, {trace for _, trace in lines if trace is not None}, pseudonym)
        left = [
            line for line, trace in lines if pseudonym.encode() not in line and trace not in gone
        ]
        if len(left) < len(lines):
            draft = path.with_name(path.name + ".tmp")
            draft.write_bytes(b"".join(left))
            draft.chmod(0o600)
            draft.replace(path)


def _traces_of(
    store: DuckStore, among: set[tuple[int, int]], pseudonym: str
) -> set[tuple[int, int]]:
    """Those of these traces of which a stored span carries the pseudonym."""
    if not among:
        return set()
    ids = trace_numbers([f"{hi:016x}{lo:016x}" for hi, lo in among])
    with store.writing(known=ids) as writer:
        rows = writer.execute(
            f"SELECT DISTINCT trace_hi, trace_lo FROM {SPANS.name} "  # noqa: S608
            "SEMI JOIN known USING (trace_hi, trace_lo) WHERE "
            "strpos(attributes, $1) > 0 OR strpos(events, $1) > 0 OR conversation_id = $1",
            [pseudonym],
        ).fetchall()
    return set(rows)


def _trace_of(line: bytes) -> tuple[int, int] | None:
    """The halves of a trace's id in a line; ``None`` in one that was cut short."""
    try:
        span = json.loads(line)["span"]
        return int(span[TRACE_HI]), int(span[TRACE_LO])
    except (ValueError, KeyError, TypeError):
        return None


def backup_folder(folder: Path, target: Path) -> list[str]:
    """Copy a data folder's day files, alerts and reports into a new folder; names the files.

    Raises:
        BadInput: the target is there already.
        Unreachable: the data folder cannot be opened.
    """
    if target.exists():
        raise BadInput(f"{target} is there already: name a new folder")

    def ask(running: Whereabouts) -> list[str]:
        answer = _post(running, BACKUP_PATH, {})
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(answer["folder"], target)
        return list(answer["files"])

    def work(store: DuckStore) -> list[str]:
        return backup(store, target) + copy_ledgers(folder, target)

    return _here_or_there(folder, work, ask)


def prune_folder(
    folder: Path,
    retention: Retention,
    user: str | None,
    *,
    compact: bool,
) -> Pruned:
    """Drop days, a person's traces and expired content from a data folder.

    Raises:
        UsageError: the configuration cannot be used.
        Unreachable: the data folder cannot be opened.
    """

    def ask(running: Whereabouts) -> Pruned:
        asked = {**retention._asdict(), "user": user, "compact": compact}
        return Pruned(**_post(running, PRUNE_PATH, asked))

    def work(store: DuckStore) -> Pruned:
        content = content_retention(policy_of(folder), own_settings(folder))
        return prune_store(store, folder, retention, user, content, compact=compact)

    return _here_or_there(folder, work, ask)


def _here_or_there(
    folder: Path, here: Callable[[DuckStore], _T], there: Callable[[Whereabouts], _T]
) -> _T:
    if not folder.is_dir():
        raise Unreachable(f"no data in {folder}: name a data folder with --db")
    try:
        recover(folder)
        store = DuckStore(folder)
    except StoreBusy:
        running = find(folder)
        if running is None:
            raise
        return there(running)
    try:
        return here(store)
    finally:
        store.close()


def _post(running: Whereabouts, path: str, body: dict[str, Any]) -> dict[str, Any]:
    url = running.url + path
    headers = auth_headers(running.key)
    try:
        with httpx.Client(timeout=_TIMEOUT_S, trust_env=False, headers=headers) as client:
            response = client.post(url, json=body)
    except httpx.HTTPError as error:
        raise Unreachable(f"no collector answers at {url}: {error}") from error
    answer: dict[str, Any] = response.json()
    if response.status_code != 200:
        raise Unreachable(f"{url} answered {response.status_code}: {answer.get('error')}")
    return answer
