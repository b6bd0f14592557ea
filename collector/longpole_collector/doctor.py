"""``longpole doctor``: what can be wrong on this machine, checked one by one.

Every check says what it found and, unless all is well, what to do. Nothing is repaired unless
that is asked for (see ``doctor_mend``), and nothing is written but two spans into a running
collector (see ``doctor_probe``).
"""

import importlib
import os
import platform
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from longpole.errors import LongpoleError, UsageError
from longpole_collector.doctor_check import FAIL, OK, WARN, Check
from longpole_collector.doctor_dashboard import login_checks, where
from longpole_collector.doctor_data import file_checks, folder_checks, has_spans, lack_checks
from longpole_collector.doctor_mend import place_checks
from longpole_collector.doctor_ports import Listener, listener_on
from longpole_collector.doctor_store import store_checks
from longpole_collector.keys import DEFAULT_PROJECT
from longpole_collector.settings import Settings, load_settings
from longpole_collector.whereabouts import Whereabouts, find

__all__ = ["FAIL", "OK", "WARN", "Check", "examine", "missing_extras"]

DASHBOARD_PORT: Final = 8501
ENGINE_PORT: Final = 8000
_SHOWN: Final = ("opentelemetry-sdk", "duckdb", "pyarrow", "protobuf", "grpcio")
_EXTRAS: Final = ("collector", "analytics", "dashboard", "engine")
_CAPTURE: Final = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
_PROXIES: Final = frozenset(("http", "https", "all", "grpc"))
_NEED: Final = re.compile(r"([\w.-]+).*;\s*extra == ['\"](\w+)['\"]$")
"""A requirement of an extra without further conditions."""


def examine(
    db: Path | None = None, url: str | None = None, *, is_fixing: bool = False
) -> Iterator[Check]:
    """All checks in order, each run when it is asked for.

    Args:
        db: data folder; default is the configured one, or none when ``url`` is given.
        url: HTTP address of a running collector; default is the one that runs on the folder.
        is_fixing: mend what can be mended safely; the check says what was done.
    """
    yield _versions()
    missing = missing_extras()
    yield _extras(missing)
    if "collector" in missing:
        return
    settings, problem = _settings(db)
    if problem:
        yield problem
    is_here = db is not None or url is None
    if is_here:
        yield from folder_checks(settings.db)
        yield from place_checks(settings.db, is_fixing=is_fixing)
    running = find(settings.db)
    if is_here:
        if running is None:
            yield from store_checks(settings.db, settings.store)
            yield from file_checks(settings.db, is_fixing=is_fixing)
        yield _bind(settings)
        yield from login_checks(settings.db)
        yield _content(settings)
    yield from _ports(settings, running)
    yield _proxies()
    if "engine" not in missing:
        yield _torch()
    doors = _doors(url, settings, running)
    if doors is not None:
        from longpole_collector.doctor_probe import probe

        yield from probe(*doors)
    else:
        if has_spans(settings.db):
            yield from _last_spans(settings.db)
        fix = f"longpole collect --db {settings.db}"
        yield Check("collector", WARN, f"none runs on {settings.db}", fix)


def _last_spans(folder: Path) -> Iterator[Check]:
    """What the spans of a folder lack that no collector holds."""
    from longpole_collector.stores.duckdb import DuckStore

    try:
        store = DuckStore(folder, is_read_only=True)
    except LongpoleError as error:
        yield Check("attributes", WARN, f"the last spans cannot be read: {error}")
        return
    yield from lack_checks(store)
    store.close()


def _doors(
    url: str | None, settings: Settings, running: Whereabouts | None
) -> tuple[str, str, str | None] | None:
    """The HTTP and gRPC addresses to try, and the key to show there.

    A collector's on another machine has our gRPC port.
    """
    if running and url in (None, running.url):
        return running.url, running.grpc, running.key
    if url is None:
        return None
    host = urlsplit(url).hostname or settings.grpc_address.host
    bracketed = f"[{host}]" if ":" in host else host
    return url.rstrip("/"), f"{bracketed}:{settings.grpc_address.port}", settings.api_key


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
    others = ", ".join(f"{name} {metadata.version(name)}" for name in _SHOWN if _is_installed(name))
    detail = (
        f"longpole {metadata.version('longpole')}, Python {platform.python_version()}, "
        f"{platform.system()} {platform.machine()}, {sys.prefix}; {others}"
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


# --- who is let in, what is kept ----------------------------------------------------------------
def _bind(settings: Settings) -> Check:
    """Whether an address that others reach asks for a key."""
    addresses = (settings.http_address, settings.grpc_address)
    beyond = [str(address) for address in addresses if not address.is_loopback]
    if not beyond:
        return Check("bind", OK, "loopback only: no other machine reaches the collector")
    where = " and ".join(beyond)
    if settings.insecure_no_auth:
        fix = "longpole keys create, and take insecure_no_auth out"
        return Check("bind", WARN, f"{where} lets everybody in, without a key", fix)
    return Check("bind", OK, f"{where} lets in who shows a key")


def _content(settings: Settings) -> Check:
    """Whether prompts and answers are stored."""
    projects = {DEFAULT_PROJECT, *settings.projects}
    kept = {name: settings.project(name).content for name in sorted(projects)}
    detail = ", ".join(f"{content} in {name}" for name, content in kept.items())
    if _CAPTURE in os.environ:
        detail += f"; {_CAPTURE} is set: what is started here may send prompts and answers"
    keeping = [name for name, content in kept.items() if content == "keep"]
    if keeping:
        fix = f'content = "redact" or "drop" in [collector.projects.{keeping[0]}]'
        return Check("content", WARN, f"prompts and answers: {detail}", fix)
    return Check("content", OK, f"prompts and answers: {detail}")


def _torch() -> Check:
    """Where the reference engine would compute."""
    try:
        torch = importlib.import_module("torch")
        device = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
        detail = f"torch {torch.__version__} on {device}, {torch.get_num_threads()} threads"
    except (ImportError, OSError, RuntimeError) as error:
        fix = "pip install --force-reinstall 'longpole[engine]'"
        return Check("torch", WARN, f"torch cannot be used: {str(error).splitlines()[0]}", fix)
    return Check("torch", OK, detail)


# --- ports and proxies --------------------------------------------------------------------------
def _ports(settings: Settings, running: Whereabouts | None) -> Iterator[Check]:
    grpc, http = settings.grpc_address, settings.http_address
    ours = set()
    if running:
        ours = {int(address.rpartition(":")[2]) for address in (running.url, running.grpc)}
    for what, host, port, fix in (
        ("gRPC", grpc.host, grpc.port, "longpole collect --grpc HOST:PORT"),
        ("HTTP", http.host, http.port, "longpole collect --http HOST:PORT"),
        ("dashboard", *where(DASHBOARD_PORT), "longpole serve --port PORT"),
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
