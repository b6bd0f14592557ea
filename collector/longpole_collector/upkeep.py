"""``longpole backup`` and ``longpole prune``, on a folder or by the collector that runs on it.

A running collector is asked over HTTP, as it alone may open its files; it writes a backup beside
its data, and the command moves it to where it was wanted.
"""

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
from longpole_collector.recovery import recover
from longpole_collector.stores.duckdb import DuckStore
from longpole_collector.stores.keeping import Retention, backup, forget_person, prune, rewrite
from longpole_collector.stores.remote import auth_headers
from longpole_collector.whereabouts import Whereabouts, find

BACKUP_PATH: Final = "/api/v1/backup"
PRUNE_PATH: Final = "/api/v1/prune"
DRAFTS: Final = "backups"
"""Folder below the data folder where a running collector writes a backup."""
_TIMEOUT_S: Final = 3600.0
_T = TypeVar("_T")


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
        num_traces = forget_person(store, scrubber.pseudonym(user))
    rewritten = [
        day.date
        for day in list(store.days)
        if day.catalog in expired or (compact and not holds_content(store, day))
        if rewrite(store, day)
    ]
    return Pruned(days, num_traces, rewritten)


def backup_folder(folder: Path, target: Path) -> list[str]:
    """Copy a data folder's day files into a new folder; names the files.

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

    return _here_or_there(folder, lambda store: backup(store, target), ask)


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
