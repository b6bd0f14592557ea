"""Keys: who may send to or read from which project.

One file a key under ``DIR/keys``, so that making, revoking and using keys never write over each
other; the file holds the SHA-256 of the key, never the key. Its time of change is when the key
was last used (1970: never). A running collector looks at the folder again every second.
"""

import hashlib
import hmac
import json
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from threading import Lock
from time import monotonic, time
from typing import Final, NamedTuple

from longpole.errors import LongpoleError, StoreBusy, UsageError

DEFAULT_PROJECT: Final = "default"
"""The project of who shows no key; it lies in the data folder itself."""

_FOLDER: Final = "keys"
_PROJECT_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
_PREFIX: Final = "lp"
_ID_BYTES: Final = 4
_KEY_BYTES: Final = 32
_LOOK_AGAIN_S: Final = 1.0
_NOTE_USE_S: Final = 60.0
_BURST_S: Final = 2.0


class Scope(StrEnum):
    """What a key is for."""

    INGEST = "ingest"
    """Sending spans."""
    READ = "read"
    """Queries and metrics."""
    ADMIN = "admin"
    """Everything in its project."""


class NoKey(LongpoleError):
    """No key was shown where one is needed, or one that is not known."""


class WrongScope(LongpoleError):
    """The key is for something else."""


class TooFast(StoreBusy):
    """The key's owner sends more than a key may; the same request may succeed after ``wait_s``."""

    def __init__(self, wait_s: float) -> None:
        super().__init__("this key sends too fast: try again later")
        self.wait_s = wait_s


class Key(NamedTuple):
    """What is known of a key; times in ISO 8601, UTC."""

    id: str
    name: str | None
    project: str
    scope: Scope
    created: str
    sha256: str
    last_used: str | None = None


class Grant(NamedTuple):
    """What a request may do: its project, and its key's id if it has shown one."""

    project: str
    key_id: str | None = None


def check_project(name: str) -> str:
    """The name, if a project may be called so.

    Raises:
        UsageError: it may not.
    """
    if not _PROJECT_NAME.fullmatch(name):
        raise UsageError(
            f"project '{name}': a name has up to 63 of a-z, 0-9, _ and -, and starts with neither "
            "_ nor -"
        )
    return name


# --- the folder ---------------------------------------------------------------------------------
def create(folder: Path, project: str, scope: Scope, name: str | None = None) -> tuple[Key, str]:
    """Make a key; returns what is kept of it, and the key itself, which is kept nowhere.

    Args:
        folder: the data folder.
        project: the project it opens.
        scope: what it is for.
        name: what its owner calls it.

    Raises:
        UsageError: no project can have that name.
    """
    check_project(project)
    id_, secret = _new_secret()
    key = Key(id_, name, project, scope, _iso(time()), _hash(secret))
    path = _path(folder, id_)
    for place in (folder, path.parent):
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_suffix(".new")
    draft.touch(mode=0o600, exist_ok=False)
    kept = {field: value for field, value in key._asdict().items() if field != "last_used"}
    draft.write_text(json.dumps(kept), encoding="utf-8")
    os.utime(draft, (0, 0))
    draft.rename(path)
    return key, secret


def listed(folder: Path) -> list[Key]:
    """All keys, the oldest first; empty without any. A damaged file is left out."""
    found = [key for path in _paths(folder) if (key := _read(path)) is not None]
    return sorted(found, key=lambda key: (key.created, key.id))


def revoke(folder: Path, key_id: str) -> None:
    """Make a key worthless; a running collector knows within a second.

    Raises:
        UsageError: no key has that id.
    """
    if not key_id.isalnum() or not _path(folder, key_id).is_file():
        raise UsageError(f"no key '{key_id}' in {folder}: see `longpole keys list`")
    _path(folder, key_id).unlink()


def has_keys(folder: Path) -> bool:
    """Whether there is a key at all."""
    return any(_paths(folder))


# --- the guard ----------------------------------------------------------------------------------
class Access:
    """Says what a request may do; used by the doors' thread."""

    def __init__(self, folder: Path, bytes_per_s: float) -> None:
        """``folder`` is the data folder, ``bytes_per_s`` what one key may send."""
        self._folder = folder
        self._bytes_per_s = bytes_per_s
        self._own: dict[str, Key] = {}
        self._keys: dict[str, Key] = {}
        self._buckets: dict[str, _Bucket] = {}
        self._noted: dict[str, float] = {}
        self._lock = Lock()
        self._looked = -_LOOK_AGAIN_S

    def own_key(self, project: str) -> str:
        """A key to everything in a project, for who can read its folder; dies with the process."""
        id_, secret = _new_secret()
        self._own[id_] = Key(id_, "own", project, Scope.ADMIN, _iso(time()), _hash(secret))
        return secret

    def grant(self, authorization: str, scope: Scope, *, is_open: bool) -> Grant:
        """What a request may do.

        Args:
            authorization: its header of that name; empty if it has none.
            scope: what it wants to do.
            is_open: the door lets in who shows no key. A key that is shown counts all the same.

        Raises:
            NoKey: a key is needed, or the one shown is not known.
            WrongScope: the key is for something else.
        """
        if not authorization and is_open:
            return Grant(DEFAULT_PROJECT)
        kind, _, secret = authorization.partition(" ")
        secret = secret.strip()
        key = self._find(secret)
        known = key.sha256 if key else ""
        if not hmac.compare_digest(_hash(secret), known) or kind.lower() != "bearer" or not key:
            raise NoKey("a key is needed: send `Authorization: Bearer lp_...`, see `longpole keys`")
        if key.scope not in (scope, Scope.ADMIN):
            raise WrongScope(f"this key is for '{key.scope}', '{scope}' is needed")
        self._note_use(key)
        return Grant(key.project, key.id)

    def check_rate(self, grant: Grant) -> None:
        """Let a request in if its key has not sent too much.

        Raises:
            TooFast: it has.
        """
        bucket = self._bucket(grant)
        if bucket is not None and bucket.left() <= 0:
            raise TooFast(max(1.0, -bucket.left() / self._bytes_per_s))

    def spend(self, grant: Grant, num_bytes: int) -> None:
        """Count what a request has sent; the next ones wait for it."""
        bucket = self._bucket(grant)
        if bucket is not None:
            bucket.take(num_bytes)

    def _bucket(self, grant: Grant) -> "_Bucket | None":
        if grant.key_id is None:
            return None
        return self._buckets.setdefault(grant.key_id, _Bucket(self._bytes_per_s))

    def _find(self, secret: str) -> Key | None:
        prefix, _, rest = secret.partition("_")
        id_ = rest.partition("_")[0]
        if prefix != _PREFIX:
            return None
        self._look()
        return self._keys.get(id_) or self._own.get(id_)

    def _look(self) -> None:
        """Read new keys and forget revoked ones, at most once a second."""
        with self._lock:
            if monotonic() - self._looked < _LOOK_AGAIN_S:
                return
            self._looked = monotonic()
            found: dict[str, Key] = {}
            for path in _paths(self._folder):
                key = self._keys.get(path.stem) or _read(path)
                if key is not None:
                    found[key.id] = key
            self._keys = found
            for gone in self._buckets.keys() - found.keys() - self._own.keys():
                del self._buckets[gone]

    def _note_use(self, key: Key) -> None:
        if key.id in self._own or monotonic() - self._noted.get(key.id, -_NOTE_USE_S) < _NOTE_USE_S:
            return
        self._noted[key.id] = monotonic()
        with suppress(OSError):  # revoked just now, or a disk that refuses: no reason to say no
            os.utime(_path(self._folder, key.id))


class _Bucket:
    """A token bucket in bytes that may be overdrawn by one request."""

    def __init__(self, bytes_per_s: float) -> None:
        self._bytes_per_s = bytes_per_s
        self._level = bytes_per_s * _BURST_S
        self._at = monotonic()

    def left(self) -> float:
        """Bytes that may be sent now; below 0 when overdrawn."""
        now = monotonic()
        filled = self._level + (now - self._at) * self._bytes_per_s
        self._level, self._at = min(filled, self._bytes_per_s * _BURST_S), now
        return self._level

    def take(self, num_bytes: int) -> None:
        """Take bytes out."""
        self._level = self.left() - num_bytes


def _new_secret() -> tuple[str, str]:
    """An id, and a key that starts with it."""
    id_ = secrets.token_hex(_ID_BYTES)
    return id_, f"{_PREFIX}_{id_}_{secrets.token_hex(_KEY_BYTES)}"


def _path(folder: Path, key_id: str) -> Path:
    return folder / _FOLDER / f"{key_id}.json"


def _paths(folder: Path) -> Iterator[Path]:
    return (folder / _FOLDER).glob("*.json")


def _read(path: Path) -> Key | None:
    try:
        used_s = path.stat().st_mtime
        key = Key(**json.loads(path.read_text(encoding="utf-8")))
        check_project(key.project)
        last_used = _iso(used_s) if used_s else None
        return key._replace(scope=Scope(key.scope), last_used=last_used)
    except (
        OSError,
        ValueError,
        TypeError,
        UsageError,
    ):  # revoked just now, or damaged: it opens nothing
        return None


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode(errors="surrogatepass")).hexdigest()


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
