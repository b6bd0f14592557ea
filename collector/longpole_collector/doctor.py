"""``longpole doctor``: what can be wrong on this machine, checked one by one.

Every check says what it found and, unless all is well, what to do. Nothing is repaired, and
nothing is written but two spans into a running collector (see ``doctor_probe``).
"""

import os
import platform
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from longpole.errors import UsageError
from longpole_collector.doctor_ports import Listener, listener_on
from longpole_collector.settings import Settings, load_settings
from longpole_collector.whereabouts import Whereabouts, find

OK, WARN, FAIL = "ok", "warn", "fail"
MIN_FREE_BYTES: Final = 1 << 30
DASHBOARD_PORT: Final = 8501
ENGINE_PORT: Final = 8000
_EXTRAS: Final = ("collector", "analytics", "dashboard", "engine")
_PROXIES: Final = frozenset(("http", "https", "all", "grpc"))
_NEED: Final = re.compile(r"([\w.-]+).*;\s*extra == ['\"](\w+)['\"]$")
"""A requirement of an extra without further conditions."""


@dataclass(frozen=True)
class Check:
    """One finding: ``status`` is ok, warn or fail; ``fix`` is what to do, if anything."""

    name: str
    status: str
    detail: str
    fix: str | None = None


def examine(db: Path | None = None, url: str | None = None) -> Iterator[Check]:
    """All checks in order, each run when it is asked for.

    Args:
        db: data folder; default is the configured one, or none when ``url`` is given.
        url: HTTP address of a running collector; default is the one that runs on the folder.
    """
    yield _versions()
    missing = missing_extras()
    yield _extras(missing)
    if "collector" in missing:
        return
    settings, problem = _settings(db)
    if problem:
        yield problem
    running = find(settings.db)
    if db is not None or url is None:
        yield _folder(settings.db)
        yield _disk(settings.db)
        if running is None:
            yield _database(settings.db)
    yield from _ports(settings, running)
    yield _proxies()
    where = _doors(url, settings, running)
    if where is None:
        fix = f"longpole collect --db {settings.db}"
        yield Check("collector", WARN, f"none runs on {settings.db}", fix)
        return
    from longpole_collector.doctor_probe import probe

    yield from probe(*where)


def _doors(
    url: str | None, settings: Settings, running: Whereabouts | None
) -> tuple[str, str] | None:
    """The HTTP and gRPC addresses to try; a collector's on another machine has our gRPC port."""
    if running and url in (None, running.url):
        return running.url, running.grpc
    if url is None:
        return None
    host = urlsplit(url).hostname or settings.grpc_address.host
    bracketed = f"[{host}]" if ":" in host else host
    return url.rstrip("/"), f"{bracketed}:{settings.grpc_address.port}"


def missing_extras() -> dict[str, list[str]]:
    """Extra -> the packages it needs that are not installed; complete extras are left out."""
    missing: dict[str, list[str]] = {}
    for line in metadata.requires("longpole") or ():
        need = _NEED.match(line)
        if need and need[2] in _EXTRAS and not _is_installed(need[1]):
            missing.setdefault(need[2], []).append(need[1])
    return missing


def _is_installed(package: str) -> bool:
    try:
        metadata.version(package)
    except metadata.PackageNotFoundError:
        return False
    return True


def _versions() -> Check:
    detail = (
        f"longpole {metadata.version('longpole')}, Python {platform.python_version()}, "
        f"{platform.system()} {platform.machine()}, {sys.prefix}"
    )
    return Check("versions", OK, detail)


def _extras(missing: dict[str, list[str]]) -> Check:
    present = ", ".join(extra for extra in _EXTRAS if extra not in missing) or "none"
    if not missing:
        return Check("extras", OK, present)
    lacking = "; ".join(f"{extra} lacks {', '.join(names)}" for extra, names in missing.items())
    status = FAIL if "collector" in missing else WARN
    fix = f"pip install 'longpole[{','.join(missing)}]'"
    return Check("extras", status, f"{present}; {lacking}", fix)


def _settings(db: Path | None) -> tuple[Settings, Check | None]:
    """The collector's settings; its defaults, and why, when they cannot be."""
    try:
        return load_settings(db=db), None
    except UsageError as error:
        fix = "correct longpole.toml or the variable LONGPOLE_COLLECTOR_..."
        defaults = Settings() if db is None else replace(Settings(), db=db)
        return defaults, Check("settings", FAIL, str(error), fix)


# --- the folder ---------------------------------------------------------------------------------
def _existing(folder: Path) -> Path:
    """The folder, or the nearest one above it that is there."""
    here = folder.resolve()
    return next(path for path in (here, *here.parents) if path.exists())


def _folder(folder: Path) -> Check:
    there = _existing(folder)
    fix = f"chown or chmod {there}, or pass another --db"
    if not there.is_dir():
        return Check("data folder", FAIL, f"{there} is no folder", "pass another --db")
    if there != folder.resolve():
        if os.access(there, os.W_OK | os.X_OK):
            return Check("data folder", OK, f"{folder} is not there yet and can be made")
        return Check("data folder", FAIL, f"{folder} cannot be made in {there}", fix)
    try:
        with tempfile.TemporaryFile(dir=there) as file:
            file.write(b"longpole")
    except OSError as error:
        return Check("data folder", FAIL, f"{folder}: {error.strerror or error}", fix)
    return Check("data folder", OK, f"{folder} is writable")


def _disk(folder: Path) -> Check:
    free = shutil.disk_usage(_existing(folder)).free
    detail = f"{free / (1 << 30):.1f} GiB free"
    if free < MIN_FREE_BYTES:
        return Check("disk", WARN, detail, "free some space, or move the data folder with --db")
    return Check("disk", OK, detail)


def _database(folder: Path) -> Check:
    """The database of a folder that no collector holds, opened for reading only."""
    import duckdb

    from longpole_collector.stores.duckdb import FILE_NAME, SCHEMA_VERSION
    from longpole_collector.stores.guard import first_line

    path = folder / FILE_NAME
    if not path.exists():
        return Check("database", OK, f"{path} is not there yet")
    try:
        with duckdb.connect(str(path), read_only=True) as connection:
            sql = "SELECT value FROM meta WHERE key = 'schema_version'"
            row = connection.execute(sql).fetchone()
    except duckdb.Error as error:
        fix = "end the program that has it open; if none has, restore the file from a copy"
        return Check("database", FAIL, first_line(error), fix)
    version = int(row[0]) if row else 0
    detail = f"{path} opens, schema {version}, this longpole writes {SCHEMA_VERSION}"
    if version > SCHEMA_VERSION:
        return Check("database", FAIL, detail, "pip install --upgrade longpole")
    return Check("database", OK, detail)


# --- ports and proxies --------------------------------------------------------------------------
def _ports(settings: Settings, running: Whereabouts | None) -> Iterator[Check]:
    grpc, http = settings.grpc_address, settings.http_address
    ours = set()
    if running:
        ours = {int(address.rpartition(":")[2]) for address in (running.url, running.grpc)}
    for what, host, port, fix in (
        ("gRPC", grpc.host, grpc.port, "longpole collect --grpc HOST:PORT"),
        ("HTTP", http.host, http.port, "longpole collect --http HOST:PORT"),
        ("dashboard", http.host, DASHBOARD_PORT, "longpole serve --port PORT"),
        ("engine", http.host, ENGINE_PORT, "longpole engine serve --port PORT"),
    ):
        name = f"port {port} ({what})"
        found = listener_on(host, port)
        if found is None:
            yield Check(name, OK, "free")
        elif port in ours and running:
            yield Check(name, OK, f"our collector, pid {running.pid}")
        else:
            yield _taken(name, found, fix, is_fine=what in ("dashboard", "engine"))


def _taken(name: str, found: Listener, fix: str, *, is_fine: bool) -> Check:
    """A port that another program has; our own dashboard and engine are where they belong."""
    if found.problem:
        return Check(name, FAIL, found.problem, f"choose another: {fix}")
    if found.is_ours and is_fine:
        return Check(name, OK, f"taken by {found.program}")
    return Check(name, WARN, f"taken by {found.program}", f"end it, or choose another: {fix}")


def _proxies() -> Check:
    """Whether exporters on this machine would send spans for localhost to a proxy."""
    caught = sorted(_PROXIES & getproxies().keys())
    hosts = ("127.0.0.1", "localhost")
    if not caught:
        return Check("proxy", OK, "no proxy variables")
    if all(proxy_bypass(host) for host in hosts):
        return Check("proxy", OK, "NO_PROXY lets localhost through")
    names = ", ".join(f"{name}_proxy" for name in caught)
    detail = f"{names} would catch spans sent to localhost"
    return Check("proxy", WARN, detail, f"export NO_PROXY={','.join(hosts)}")
