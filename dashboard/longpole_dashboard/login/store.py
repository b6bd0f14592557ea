"""Who may log in to the dashboard: one file a person below ``DIR/logins``.

A file holds the scrypt hash of a password (RFC 7914), never the password, and the key that is
shown to the collector for that person, which decides the project they see. Folders are 0700 and
files 0600; each is written all at once, so a running dashboard follows at its next question.
"""

import hashlib
import hmac
import json
import os
import secrets
import time
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Final, NamedTuple

from longpole.errors import UsageError

FIRST_NAME: Final = "admin"
"""The login that the first start makes."""
ANYONE: Final = "*"
"""The login of whoever a proxy or an identity provider vouches for and has none of their own."""
LINK_S: Final = 3_600.0
"""How long a link that sets a password is good."""
MIN_CHARACTERS: Final = 12
MAX_BYTES: Final = 1_024
_MAX_NAME: Final = 200
_FOLDER: Final = "logins"
_SECRET: Final = "secret"  # noqa: S105 - a file's name
_ENDED: Final = "ended"
# OWASP's cheat sheet on password storage: as costly as N=2**17, p=1 in a quarter of the memory.
_LOG_N: Final = 15
_R: Final = 8
_P: Final = 3
_DUMMY: Final = f"scrypt${_LOG_N}${_R}${_P}${'00' * 16}${'00' * 32}"


class Login(NamedTuple):
    """What is kept of a person; ``None`` where nothing is.

    ``project`` is only told, the ``key`` decides what the collector answers; without one they see
    what the dashboard itself may read. ``link`` is the SHA-256 of a link's token and
    ``link_until_s`` when it ends (Unix time).
    """

    name: str
    created_s: float
    project: str | None = None
    key: str | None = None
    password: str | None = None
    link: str | None = None
    link_until_s: float = 0.0

    @property
    def stamp(self) -> str:
        """Changes with the password and when the login is made anew: older cookies are void."""
        return _sha256(f"{self.created_s} {self.password}")[:16]


class Logins:
    """The logins of one folder."""

    def __init__(self, folder: Path) -> None:
        """``folder`` is the data folder; nothing is made in it before it is needed."""
        self._folder = folder / _FOLDER
        self._lock = Lock()

    def find(self, name: str) -> Login | None:
        """The login of that name; ``None`` without one, or if its file is damaged."""
        return _read(self._path(name))

    def listed(self) -> list[Login]:
        """All logins by name; empty without any."""
        found = (_read(path) for path in self._folder.glob("*.json"))
        return sorted(login for login in found if login is not None)

    def add(self, name: str, project: str | None = None, key: str | None = None) -> Login:
        """Make a login, still without a password.

        Raises:
            UsageError: there is one of that name, or none can have it.
        """
        if not 0 < len(name) <= _MAX_NAME or not name.isprintable() or name != name.strip():
            raise UsageError(f"login {name!r}: a name has 1 to {_MAX_NAME} printable characters")
        if self.find(name) is not None:
            raise UsageError(f"there is a login '{name}': remove it first")
        login = Login(name, time.time(), project, key)
        self._write(login)
        return login

    def remove(self, name: str) -> Login:
        """Take a login away; returns what it was. Who is logged in by it no longer is.

        Raises:
            UsageError: there is none.
        """
        login = self.known(name)
        self._path(name).unlink(missing_ok=True)
        return login

    def new_link(self, name: str) -> str:
        """A token with which that person sets a password once, within :data:`LINK_S`.

        Raises:
            UsageError: there is no such login.
        """
        token = secrets.token_urlsafe(32)
        with self._lock:
            login = self.known(name)
            self._write(login._replace(link=_sha256(token), link_until_s=time.time() + LINK_S))
        return token

    def by_link(self, token: str) -> Login | None:
        """Whose link that is; ``None`` if it is nobody's, used, or too old."""
        asked, now_s = _sha256(token), time.time()
        found = None
        for login in self.listed():  # all of them, so that time tells nothing
            is_same = hmac.compare_digest(login.link or "", asked)
            if is_same and now_s < login.link_until_s:
                found = login
        return found

    def set_password(self, token: str, password: str) -> Login | None:
        """Set a password by a link, which is used up; ``None`` if the link is no longer good.

        Raises:
            UsageError: the password is too short or too long.
        """
        if len(password) < MIN_CHARACTERS or len(_plain(password)) > MAX_BYTES:
            raise UsageError(f"a password has {MIN_CHARACTERS} to {MAX_BYTES} characters")
        hashed = hash_password(password)
        with self._lock:
            login = self.by_link(token)
            if login is None:
                return None
            login = login._replace(password=hashed, link=None, link_until_s=0.0)
            self._write(login)
        return login

    def check(self, name: str, password: str) -> Login | None:
        """The login if the password is its own; takes as long whether or not there is one."""
        login = self.find(name)
        hashed = login.password if login and login.password else None
        if len(_plain(password)) > MAX_BYTES:
            return None
        is_right = is_password(password, hashed or _DUMMY)
        return login if is_right and hashed else None

    def secret(self) -> str:
        """What cookies are signed with; made when first asked for."""
        path = self._folder / _SECRET
        self._make_folder(self._folder)
        with suppress(FileExistsError):
            # complete before it has its name: another process may ask meanwhile
            draft = self._folder / f"{_SECRET}.{os.getpid()}"
            _write_private(draft, secrets.token_hex(32))
            try:
                os.link(draft, path)
            finally:
                draft.unlink()
        return path.read_text(encoding="utf-8")

    def end(self, number: str, lifetime_s: float) -> None:
        """Remember that the cookie of that number is void, and forget those that are too old."""
        folder = self._folder / _ENDED
        self._make_folder(folder)
        for path in folder.iterdir():
            with suppress(OSError):  # gone just now
                if time.time() - path.stat().st_mtime > lifetime_s:
                    path.unlink()
        (folder / _sha256(number)[:32]).touch(mode=0o600)

    def is_ended(self, number: str) -> bool:
        """Whether the cookie of that number is void."""
        return (self._folder / _ENDED / _sha256(number)[:32]).exists()

    def known(self, name: str) -> Login:
        """The login of that name.

        Raises:
            UsageError: there is none.
        """
        login = self.find(name)
        if login is None:
            raise UsageError(f"no login '{name}' in {self._folder}: see `longpole users list`")
        return login

    def _path(self, name: str) -> Path:
        return self._folder / f"{_sha256(name)[:32]}.json"

    def _write(self, login: Login) -> None:
        self._make_folder(self._folder)
        path = self._path(login.name)
        draft = path.with_suffix(f".{os.getpid()}")
        _write_private(draft, json.dumps(login._asdict()))
        draft.replace(path)

    @staticmethod
    def _make_folder(folder: Path) -> None:
        for place in (folder.parent, folder):
            place.mkdir(mode=0o700, parents=True, exist_ok=True)


def invite(folder: Path, *, is_told: bool = False) -> str | None:
    """A token for the first password of a dashboard; ``None`` where somebody was let in before.

    A first link that was not used gives way to another; not if ``is_told``, while it is good.
    """
    logins = Logins(folder)
    known = logins.listed()
    if not known:
        known = [logins.add(FIRST_NAME)]
    is_unused = [(login.name, login.password) for login in known] == [(FIRST_NAME, None)]
    if not is_unused or (is_told and known[0].link_until_s > time.time()):
        return None
    return logins.new_link(FIRST_NAME)


def has_logins(folder: Path) -> bool:
    """Whether there is a login at all."""
    return any((folder / _FOLDER).glob("*.json"))


def hash_password(password: str) -> str:
    """Salt, costs and scrypt hash in one line of text."""
    salt = secrets.token_bytes(16)
    found = _scrypt(password, salt, _LOG_N, _R, _P)
    return f"scrypt${_LOG_N}${_R}${_P}${salt.hex()}${found.hex()}"


def is_password(password: str, hashed: str) -> bool:
    """Whether a line of :func:`hash_password` is of this password; compared in constant time."""
    try:
        kind, log_n, r, p, salt, known = hashed.split("$")
        found = _scrypt(password, bytes.fromhex(salt), int(log_n), int(r), int(p))
        return kind == "scrypt" and hmac.compare_digest(found, bytes.fromhex(known))
    except ValueError:  # a damaged file opens nothing
        return False


def _scrypt(password: str, salt: bytes, log_n: int, r: int, p: int) -> bytes:
    n = 1 << log_n
    max_bytes = 2 * 128 * r * (n + p)
    return hashlib.scrypt(_plain(password), salt=salt, n=n, r=r, p=p, maxmem=max_bytes, dklen=32)


def _plain(password: str) -> bytes:
    return password.encode(errors="surrogatepass")


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


def _write_private(path: Path, text: str) -> None:
    with suppress(FileNotFoundError):
        path.unlink()
    number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(number, "w", encoding="utf-8") as file:
        file.write(text)


def _read(path: Path) -> Login | None:
    try:
        return Login(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None
