"""The collector put together: store, log, doors; started, found by others, stopped cleanly."""

import asyncio
import gc
import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from threading import Event, Thread
from typing import Any, Final

import uvicorn

from longpole.errors import UsageError
from longpole.vocab import Rollup
from longpole_collector.admin import add_admin
from longpole_collector.admin_state import add_state
from longpole_collector.api import create_api
from longpole_collector.asgi import Receive, Scope, Send, is_host_allowed, respond_json
from longpole_collector.doors import Door
from longpole_collector.heap import Heap
from longpole_collector.housekeeping import Housekeeper
from longpole_collector.ingest import Ingest
from longpole_collector.keys import Access
from longpole_collector.otlp_grpc import OtlpGrpc
from longpole_collector.otlp_http import PATHS, OtlpHttp
from longpole_collector.projects import Project, Projects
from longpole_collector.query_http import Queries
from longpole_collector.rollup import load_rollup
from longpole_collector.settings import Address, Settings
from longpole_collector.stores.duckdb import DuckStore
from longpole_collector.stores.keeping import Retention
from longpole_collector.watching import Seat, configured
from longpole_collector.whereabouts import Whereabouts, announce

_GRACE_S: Final = 5
_BACKLOG: Final = 1024


class Collector:
    """One running collector; use :func:`run` or :func:`background`."""

    def __init__(self, settings: Settings, rollup: Rollup | None) -> None:
        """Open the default project.

        Raises:
            StoreBusy: another collector runs on this folder.
            UsageError: a project's settings, or what is to be watched, cannot be used.
        """
        self._settings = settings
        self._watching = configured()
        self._hosts = settings.hosts
        self._access = Access(settings.db, settings.key_bytes_per_s)
        self._projects = Projects(settings, rollup)
        retention = Retention(settings.retention_days, settings.retention_bytes)
        self._heap = Heap()
        self._housekeeper = Housekeeper(self._projects.local, retention)
        self._queries = queries = Queries(settings.query_timeout_s)
        self.ingest.health.gauge("open_queries", lambda: queries.num_running)
        self.http = settings.http_address
        self.grpc = settings.grpc_address
        http, grpc = (
            Door(self._access, self._projects, is_open=settings.is_open(address))
            for address in (self.http, self.grpc)
        )
        body, timeout_s = settings.max_body_bytes, settings.body_timeout_s
        self._otlp = OtlpHttp(
            http, max_body_bytes=body, body_timeout_s=timeout_s, origins=settings.origins
        )
        self._otlp_grpc = OtlpGrpc(
            grpc,
            max_body_bytes=body,
            max_bodies=settings.max_queue_bytes // body,
            body_timeout_s=timeout_s,
        )
        self._api = create_api(http, self._queries, body_timeout_s=timeout_s)
        add_admin(self._api, http)
        add_state(self._api, http, settings, self._watching)

    @property
    def url(self) -> str:
        """Where HTTP is served, for clients on this machine."""
        return _url(self.http)

    @property
    def ingest(self) -> Ingest:
        """The write path of the default project."""
        return self._projects.default.ingest

    @property
    def store(self) -> DuckStore:
        """The store of the default project, if its files are here."""
        return self._projects.default.local

    @property
    def far(self) -> str | None:
        """The ClickHouse store's address, without credentials; ``None`` if the files are here."""
        found = self._projects.default.store
        return None if isinstance(found, DuckStore) else str(found.address)

    async def start(self) -> None:
        """Open the doors and start the ingest thread; the addresses then hold real ports.

        Raises:
            UsageError: an address is taken or not ours.
        """
        async with AsyncExitStack() as undo:
            undo.callback(self._projects.default.store.close)
            listener = undo.enter_context(_listen(self.http))
            self._grpc = self._otlp_grpc.server()
            undo.push_async_callback(self._grpc.stop, None)
            grpc_port = _grpc_port(self._grpc, self.grpc)
            undo.pop_all()
        self.http = Address(self.http.host, listener.getsockname()[1])
        self.grpc = Address(self.grpc.host, grpc_port)
        self._http = _Server(
            uvicorn.Config(
                self._route,
                interface="asgi3",
                lifespan="off",
                proxy_headers=False,
                ws="none",
                log_config=None,
                log_level="warning",
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=_GRACE_S,
            )
        )
        self._serving = asyncio.create_task(self._http.serve(sockets=[listener]))
        await self._grpc.start()
        self._projects.start(self._announce)
        self._housekeeper.start()
        self._heap.start()

    async def stop(self) -> None:
        """Close the doors, bring everything taken into the stores, let go of the folders."""
        self._projects.withdraw()
        self._http.should_exit = True
        await self._grpc.stop(_GRACE_S)
        await self._serving
        await asyncio.to_thread(self._heap.stop)
        await asyncio.to_thread(self._housekeeper.stop)
        await asyncio.to_thread(self._watching.stop)
        await self._projects.close()
        self._queries.close()

    def _announce(self, project: Project) -> None:
        """Tell whoever may read the project's folder where we are, with a key of its own."""
        key = self._access.own_key(project.name)
        announce(project.folder, Whereabouts(os.getpid(), self.url, str(self.grpc), key))
        for more in self._watching.start(Seat(project.name, project.folder, project.store)):
            project.ingest.health.tell(more)

    async def _route(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        if not is_host_allowed(scope, self._hosts):
            message = "unknown Host header: name it in [collector] allowed_hosts"
            await respond_json(send, 403, {"error": message})
        elif scope["path"] in PATHS:
            await self._otlp(scope, receive, send)
        else:
            await self._api(scope, receive, send)


def run(settings: Settings, started: Callable[[Collector], None]) -> None:
    """Run a collector until SIGTERM or SIGINT, then drain.

    Raises:
        StoreBusy: another collector runs on this folder.
        UsageError: an address is taken.
    """

    async def main() -> None:
        collector = Collector(settings, load_rollup())
        stopping = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stopping.set)
        await _while(collector, started, stopping)

    # spans are many small objects and no cycles: look for garbage less often (a quarter of the CPU)
    gc.set_threshold(100_000, 20, 100)
    os.umask(0o077)  # the database's own side files too are nobody else's to read
    _run(main())


@contextmanager
def background(settings: Settings, rollup: Rollup | None = None) -> Iterator[Collector]:
    """A collector in a thread of its own, for as long as the ``with`` lasts.

    Args:
        settings: where and how.
        rollup: computes the traces' roll-ups; default is the installed one.

    Raises:
        StoreBusy: another collector runs on this folder.
        UsageError: an address is taken.
    """
    ready = Event()
    found: list[Collector] = []
    failed: list[BaseException] = []
    stop: list[Callable[[], object]] = []

    async def main() -> None:
        stopping = asyncio.Event()
        loop = asyncio.get_running_loop()
        stop.append(lambda: loop.call_soon_threadsafe(stopping.set))
        collector = Collector(settings, rollup or load_rollup())

        def started(collector: Collector) -> None:
            found.append(collector)
            ready.set()

        await _while(collector, started, stopping)

    def target() -> None:
        try:
            _run(main())
        except BaseException as error:  # noqa: BLE001 - handed to the caller's thread
            failed.append(error)
        finally:
            ready.set()

    thread = Thread(target=target, name="longpole-collector", daemon=True)
    thread.start()
    ready.wait()
    try:
        if found:
            yield found[0]
    finally:
        if stop and thread.is_alive():
            stop[0]()
        thread.join()
    if failed:
        raise failed[0]


async def _while(
    collector: Collector, started: Callable[[Collector], None], stopping: asyncio.Event
) -> None:
    await collector.start()
    try:
        started(collector)
        await stopping.wait()
    finally:
        await collector.stop()


def _run(main: Any) -> None:
    try:
        from uvloop import new_event_loop
    except ImportError:  # not on Windows
        asyncio.run(main)
    else:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            runner.run(main)


class _Server(uvicorn.Server):
    """Uvicorn without its signal handlers: stopping is ours, gRPC and the store included."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals alone."""
        yield


def _listen(address: Address) -> socket.socket:
    host = address.host.strip("[]")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, address.port))
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise UsageError(f"cannot listen on {address} (HTTP): {error.strerror}") from error
    return listener


def _grpc_port(server: Any, address: Address) -> int:
    try:
        port: int = server.add_insecure_port(str(address))
    except RuntimeError as error:
        raise UsageError(f"cannot listen on {address} (gRPC): it is taken") from error
    return port


def _url(address: Address) -> str:
    host = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}.get(address.host, address.host)  # noqa: S104
    return f"http://{host}:{address.port}"
