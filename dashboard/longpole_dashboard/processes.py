"""Child processes of ``longpole serve`` and ``longpole demo``: start, wait until ready, stop.

A child's output goes straight into a file, so nobody has to read a pipe and a child that outlives
its parent never blocks on one. Children stay in the parent's process group: Ctrl-C and
``kill -- -PGID`` reach all of them. A stop is bounded: SIGTERM, a wait, then SIGKILL, always to
the pids this process started.
"""

import contextlib
import http.client
import logging
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from ipaddress import ip_address
from pathlib import Path
from types import FrameType, TracebackType
from typing import Self
from urllib.parse import urlsplit

from longpole.errors import LongpoleError, Unreachable, UsageError

log = logging.getLogger("longpole.dashboard.processes")

LOOPBACK = "127.0.0.1"
POLL_S = 0.1
NUM_PORTS_TRIED = 100


def longpole_command(*arguments: str) -> list[str]:
    """The command line that runs ``longpole`` with this interpreter, whatever is on the PATH."""
    return [sys.executable, "-c", "from longpole.cli import main; main()", *arguments]


def free_port(preferred: int, host: str = LOOPBACK, taken: Collection[int] = ()) -> int:
    """``preferred`` if it can be bound now, else the next port above it that can.

    Args:
        preferred: the port asked for; 0 lets the system choose one.
        host: address to bind.
        taken: ports promised to others that may not be bound yet.

    Raises:
        UsageError: the host cannot be bound, or none of the next 100 ports is free.
    """
    candidates = range(preferred, min(preferred + NUM_PORTS_TRIED, 65536)) if preferred else (0,)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    reason = "all taken"
    for port in candidates:
        if port in taken:
            continue
        with socket.socket(family) as probe:
            # Without it a port whose last server just closed counts as taken for a minute.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, port))
            except OSError as error:
                reason = error.strerror or str(error)
                continue
            return int(probe.getsockname()[1])
    raise UsageError(f"no free port on {host} from {preferred} on: {reason}")


def is_beyond(host: str) -> bool:
    """Whether an address that is bound is reached by other machines.

    Raises:
        UsageError: it is no address.
    """
    try:
        return host != "localhost" and not ip_address(host).is_loopback
    except ValueError as error:
        raise UsageError(f"--host '{host}' is not an IP address: use 127.0.0.1") from error


def check_bind(host: str, *, is_insecure: bool, has_login: bool = False) -> bool:
    """Whether ``host`` reaches beyond this machine.

    Raises:
        UsageError: it does, nobody has to log in, and nobody said that is wanted.
    """
    is_open = is_beyond(host)
    if is_open and not is_insecure and not has_login:
        raise UsageError(
            f"--host {host} opens the dashboard to the network and it has no login: "
            "use 127.0.0.1, or add --login password, or --insecure-no-auth to accept that"
        )
    return is_open


class Child:
    """One child process whose output (stdout and stderr) goes to a file.

    Attributes:
        name: what messages call it, e.g. ``collector``.
        command: its command line.
        log: the file of its output; emptied at each start, its folder is created (mode 0700).
        env: its whole environment; ``None`` inherits ours.
    """

    def __init__(
        self, name: str, command: Sequence[str], *, log: Path, env: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self.command = list(command)
        self.log = log
        self.env = env
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """Its process id; ``None`` before the start."""
        return None if self._process is None else self._process.pid

    @property
    def is_alive(self) -> bool:
        """Started and not yet ended."""
        return self._process is not None and self._process.poll() is None

    @property
    def returncode(self) -> int | None:
        """Its exit code, negative for a signal; ``None`` while it runs or before the start."""
        return None if self._process is None else self._process.poll()

    def start(self) -> None:
        """Start it; returns at once.

        Raises:
            UsageError: it was started before.
            LongpoleError: the program or the log file cannot be opened.
        """
        if self._process is not None:
            raise UsageError(f"{self.name} was started already (pid {self.pid})")
        try:
            self.log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with self.log.open("wb") as out:
                self.log.chmod(0o600)
                self._process = subprocess.Popen(  # noqa: S603 - our own command line, no shell
                    self.command,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=subprocess.STDOUT,
                    env=self.env,
                )
        except OSError as error:
            raise LongpoleError(f"cannot start {self.name}: {error}") from error
        log.info("%s started, pid %d", self.name, self._process.pid)

    def wait_ready(self, url: str, timeout_s: float = 60.0) -> float:
        """Wait until ``GET url`` answers 200; returns the seconds it took.

        Asks directly, past any proxy variables of the environment.

        Raises:
            LongpoleError: the child ended before it was ready; says its code and last line.
            Unreachable: not ready within ``timeout_s`` seconds.
        """
        started = time.monotonic()
        while True:
            is_ready = answers_200(url)
            if not self.is_alive:
                raise LongpoleError(self.obituary())
            waited_s = time.monotonic() - started
            if is_ready:
                return waited_s
            if waited_s > timeout_s:
                raise Unreachable(
                    f"{self.name} gave no answer at {url} for {timeout_s:g} s: see {self.log}"
                )
            time.sleep(POLL_S)

    def obituary(self) -> str:
        """One sentence about a child that ended: its code, its last line, where the log is."""
        lines = self.tail(1)
        last = f": {lines[-1]}" if lines else ""
        return f"{self.name} ended with code {self.returncode}{last} (log: {self.log})"

    def tail(self, num_lines: int = 20) -> list[str]:
        """The last non-empty lines of its output, without control codes; empty if none."""
        try:
            with self.log.open("rb") as file:
                file.seek(max(0, self.log.stat().st_size - 65536))
                text = file.read().decode("utf-8", "replace")
        except OSError:  # no log yet: nothing to show
            return []
        lines = ["".join(c for c in line if c.isprintable()) for line in text.splitlines()]
        return [line for line in lines if line.strip()][-num_lines:]

    def stop(self, timeout_s: float = 10.0) -> int | None:
        """SIGTERM, wait at most ``timeout_s`` seconds, then SIGKILL; returns the exit code.

        ``None`` if it was never started. Stopping twice, or a child that ended, is no error.
        """
        if self._process is None:
            return None
        if self.is_alive:
            self._process.terminate()
            try:
                self._process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                log.warning("%s did not stop within %g s: killed", self.name, timeout_s)
                self._process.kill()
        return self._process.wait()

    def kill(self) -> None:
        """SIGKILL at once; no error if it ended."""
        if self._process is not None and self.is_alive:
            self._process.kill()
            self._process.wait()


def answers_200(url: str, timeout_s: float = 2.0) -> bool:
    """Whether ``GET url`` answers 200 now; every failure is ``False``.

    Of a server with TLS the certificate is not looked at: it is one that we have just started,
    and is not asked for anything else.
    """
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port
    connection = http.client.HTTPConnection(host, port, timeout=timeout_s)
    if parts.scheme == "https":
        unchecked = ssl.create_default_context()
        unchecked.check_hostname, unchecked.verify_mode = False, ssl.CERT_NONE
        connection = http.client.HTTPSConnection(host, port, timeout=timeout_s, context=unchecked)
    try:
        connection.request("GET", parts.path or "/")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):  # refused, reset, not HTTP: not ready yet
        return False
    finally:
        connection.close()


class Group:
    """The children of one command, stopped together, the last started first.

    A context manager: inside it SIGTERM and SIGHUP raise ``KeyboardInterrupt`` like Ctrl-C, so one
    ``except KeyboardInterrupt`` covers all three (SIGINT too where a script started us with it
    ignored); on the way out every child is stopped. A second signal while stopping kills what is
    left at once. Must be entered in the main thread.
    """

    def __init__(self, stop_timeout_s: float = 10.0) -> None:
        self.stop_timeout_s = stop_timeout_s
        self.children: list[Child] = []
        self._handlers: list[tuple[int, object]] = []

    def start(self, child: Child) -> Child:
        """Start a child and own it from here on; returns it."""
        self.children.append(child)
        child.start()
        return child

    def dead(self) -> Child | None:
        """The first child that has ended by itself; ``None`` while all live."""
        return next((child for child in self.children if not child.is_alive), None)

    def wait(self) -> Child:
        """Block until a child ends; returns it. A signal ends the wait by KeyboardInterrupt."""
        while True:
            if (child := self.dead()) is not None:
                return child
            time.sleep(POLL_S)

    def stop(self) -> None:
        """Stop all children, the last started first; afterwards the group is empty."""
        try:
            for child in reversed(self.children):
                child.stop(self.stop_timeout_s)
        except KeyboardInterrupt:
            _kill(self.children)
        self.children.clear()

    def __enter__(self) -> Self:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            self._handlers.append((number, signal.signal(number, _interrupt)))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
        for number, handler in self._handlers:
            signal.signal(number, handler)  # type: ignore[arg-type]  # what signal() gave us
        self._handlers.clear()


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _kill(children: Iterable[Child]) -> None:
    for child in children:
        with contextlib.suppress(KeyboardInterrupt):  # a third Ctrl-C must not leave one behind
            child.kill()
