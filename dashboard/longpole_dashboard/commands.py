"""Commands of the dashboard: ``longpole serve``, ``open`` and ``demo``.

Each starts its servers as children of one process group and stops them together; Streamlit is
imported only in the child that serves pages.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from longpole import config
from longpole.errors import LongpoleError, UsageError
from longpole_dashboard import processes
from longpole_dashboard.login import settings as login_settings
from longpole_dashboard.login.settings import WAYS
from longpole_dashboard.login.store import invite
from longpole_dashboard.processes import Child, Group
from longpole_dashboard.settings import DEFAULTS

START_TIMEOUT_S = 60.0
DEFAULT_DB = Path(".longpole")
TRACE_FILES = (".json", ".jsonl", ".pb", ".parquet", ".gz")
"""Endings of the files that ``open FOLDER`` takes."""
_KEY_VARIABLE = "LONGPOLE_COLLECTOR_API_KEY"
_STORE_VARIABLE = "LONGPOLE_COLLECTOR_STORE"


@dataclass(frozen=True)
class _Where:
    """Where the dashboard should listen; ``None`` is the configuration's."""

    host: str | None
    port: int | None
    is_insecure: bool
    login: str | None


_db_option = click.option(
    "--db",
    type=click.Path(file_okay=False, path_type=Path),
    default=DEFAULT_DB,
    show_default=True,
    help="Data folder.",
)
_port_option = click.option("--port", type=int, help="Port of the dashboard (default 8501).")


def _where_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that say where the dashboard listens."""
    for option in (
        click.option(
            "--insecure-no-auth", is_flag=True, help="Accept a --host beyond loopback, no login."
        ),
        click.option(
            "--login",
            type=click.Choice(WAYS),
            help="How people log in (default: not at all on loopback).",
        ),
        click.option("--host", help="Address of the dashboard (default 127.0.0.1)."),
        _port_option,
    ):
        command = option(command)
    return command


@click.command("serve")
@_db_option
@click.option("--project", help="Project in the data folder that the dashboard shows.")
@click.option("--http", default="127.0.0.1:4318", show_default=True, help="OTLP/HTTP address.")
@click.option("--grpc", default="127.0.0.1:4317", show_default=True, help="OTLP/gRPC address.")
@click.option("--store", help="Keep spans at clickhouse://HOST:PORT/DATABASE instead.")
@click.option("--schema", type=click.Choice(["own", "otel"]), help="Whose tables are at --store.")
@_where_options
def serve(
    db: Path,
    project: str | None,
    http: str,
    grpc: str,
    store: str | None,
    schema: str | None,
    port: int | None,
    host: str | None,
    login: str | None,
    insecure_no_auth: bool,
) -> None:
    """Collector and dashboard until Ctrl-C; a taken port gives way to the next free one.

    The collector takes every project's spans; the dashboard shows one, which is the default one
    or --project's, and to whoever logs in the one of their login (`longpole users`).
    """
    from longpole_collector.keys import check_project
    from longpole_collector.settings import named_store
    from longpole_collector.stores.clickhouse.address import parse

    if project is not None:
        check_project(project)
    store = named_store(store, schema)
    db.mkdir(mode=0o700, parents=True, exist_ok=True)
    http_host, http_port = _address(http)
    grpc_host, grpc_port = _address(grpc)
    http_port = processes.free_port(http_port, http_host)
    grpc_port = processes.free_port(grpc_port, grpc_host, {http_port})
    http, grpc = f"{http_host}:{http_port}", f"{grpc_host}:{grpc_port}"
    collector = _collector(db, http, grpc, store)
    where = _Where(host, port, insecure_no_auth, login)
    shown = ["--url", f"http://{http}", *(["--project", project] if project else [])]
    page = _page(shown, db, where, {http_port, grpc_port})
    with Group() as group:
        try:
            group.start(collector).wait_ready(f"http://{http}/readyz", START_TIMEOUT_S)
            _say(
                f"collector ready  http://{http} (OTLP/HTTP)   {grpc} (OTLP/gRPC)   data {db}"
                + (f"   store {parse(store)}" if store else "")
            )
            # not before: a key lets the collector listen to other machines
            with _key_to(db, project) as key:
                if key is not None:
                    page.child.env = {**os.environ, _KEY_VARIABLE: key}
                _show(group, page)
        except KeyboardInterrupt:
            _say("stopping")


@click.command("open")
@click.argument("files", nargs=-1, type=click.Path(exists=True, path_type=Path))
@click.option("--url", help="A running collector instead, shown LONGPOLE_COLLECTOR_API_KEY.")
@_where_options
def open_files(
    files: tuple[Path, ...],
    url: str | None,
    port: int | None,
    host: str | None,
    login: str | None,
    insecure_no_auth: bool,
) -> None:
    """The dashboard on FILES of traces, or on the trace files in a folder; nothing is kept."""
    if bool(files) == (url is not None):
        raise UsageError("name files or folders of traces, or a collector with --url")
    found = [str(file) for file in trace_files(files)] if url is None else ["--url", url]
    where = _Where(host, port, insecure_no_auth, login)
    with tempfile.TemporaryDirectory(prefix="longpole-open-") as state, Group() as group:
        page = _page(found, Path(state), where, ())
        try:
            _show(group, page)
        except KeyboardInterrupt:
            _say("stopping")


@click.command("demo")
@click.option("--minutes", type=float, default=2.0, show_default=True, help="Length of the replay.")
@click.option("--json", "as_json", is_flag=True, help="The finding as one JSON document on stdout.")
@click.option("--exit", "exit_after", is_flag=True, help="Stop after the finding.")
@click.option("--keep", is_flag=True, help="Add to what earlier runs left in the data folder.")
@click.option(
    "--db",
    type=click.Path(file_okay=False, path_type=Path),
    default=DEFAULT_DB / "demo",
    show_default=True,
    help="Data folder.",
)
@_port_option
@click.option(
    "--model",
    type=click.Choice(["smollm2", "tiny"]),
    default="smollm2",
    show_default=True,
    help="Model to serve.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the workload.")
def demo(
    minutes: float,
    as_json: bool,
    exit_after: bool,
    keep: bool,
    db: Path,
    port: int | None,
    model: str,
    seed: int,
) -> None:
    """A real model, a real workload with one planted fault, and the finding."""
    from longpole_dashboard.demo.run import Options, run

    if minutes <= 0:
        raise UsageError(f"--minutes {minutes:g}: give a positive number")
    sys.exit(
        run(
            Options(
                minutes=minutes,
                as_json=as_json,
                exit_after=exit_after,
                db=db,
                keep=keep,
                port=_port(port),
                model=model,
                seed=seed,
            )
        )
    )


def _collector(db: Path, http: str, grpc: str, store: str | None) -> Child:
    """The collector's child, not yet started; ``store`` names a ClickHouse store."""
    return Child(
        "collector",
        processes.longpole_command("collect", "--db", str(db), "--http", http, "--grpc", grpc),
        log=db / "logs" / "collector.log",
        # not as an argument: others of this machine would see a password that stands in it
        env=None if store is None else {**os.environ, _STORE_VARIABLE: store},
    )


def trace_files(given: Sequence[Path]) -> list[Path]:
    """The files named, and the trace files in the folders named, sorted.

    Raises:
        UsageError: a folder holds none.
    """
    found: list[Path] = []
    for path in given:
        if not path.is_dir():
            found.append(path)
            continue
        inside = sorted(file for file in path.iterdir() if file.suffix in TRACE_FILES)
        if not inside:
            raise UsageError(f"no trace file ({', '.join(TRACE_FILES)}) in {path}")
        found += inside
    return found


def _address(text: str) -> tuple[str, int]:
    """HOST:PORT in two.

    Raises:
        UsageError: it is neither.
    """
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise UsageError(f"'{text}' is not HOST:PORT, e.g. 127.0.0.1:4318")
    return host.strip("[]"), int(port)


def _setting(key: str) -> config.Scalar | None:
    return config.settings("dashboard", DEFAULTS)[key].value


def _port(given: int | None) -> int:
    return given if given is not None else int(_setting("port") or 0)


@dataclass(frozen=True)
class _Page:
    """The dashboard's child, not yet started, its address, and a line to say once it is there."""

    child: Child
    url: str
    invitation: str | None


def _page(arguments: Sequence[str], state: Path, where: _Where, taken: Collection[int]) -> _Page:
    """The dashboard on what ``arguments`` name; ``state`` keeps its log and its logins."""
    host = where.host or str(_setting("host"))
    front = login_settings.front(host, state, is_insecure=where.is_insecure, login=where.login)
    port = processes.free_port(_port(where.port), host, taken)
    command = [sys.executable, "-m", "longpole_dashboard.server", "--host", host]
    command += ["--port", str(port), "--state", str(state)]
    command += ["--login", front.login or login_settings.NONE]
    command += ["--insecure-no-auth"] if where.is_insecure else []
    token = invite(state) if front.login == login_settings.PASSWORD else None
    child = Child("dashboard", [*command, *arguments], log=state / "logs" / "dashboard.log")
    said = login_settings.invitation(host, port, token) if token else None
    return _Page(child, login_settings.address(host, port), said)


@contextmanager
def _key_to(folder: Path, project: str | None) -> Iterator[str | None]:
    """A key that reads a project for as long as the ``with`` lasts.

    To the default project it is the one that the collector gives whoever can read its folder.
    """
    from longpole_collector.keys import DEFAULT_PROJECT, Scope, create, revoke
    from longpole_collector.whereabouts import find

    if project in (None, DEFAULT_PROJECT):
        running = find(folder)
        yield running.key if running else None
        return
    key, secret = create(folder, project, Scope.READ, "longpole serve")
    try:
        yield secret
    finally:
        revoke(folder, key.id)


def _show(group: Group, page: _Page) -> None:
    """Start the dashboard, say where it is, and wait.

    Raises:
        LongpoleError: a child ended by itself.
    """
    group.start(page.child).wait_ready(f"{page.url}/healthz", START_TIMEOUT_S)
    _say(f"dashboard ready  {page.url}   Ctrl-C stops")
    if page.invitation:
        _say(page.invitation)
    raise LongpoleError(group.wait().obituary())


def _say(line: str) -> None:
    click.echo(line, err=True)
