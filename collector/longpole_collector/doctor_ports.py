"""Who listens on a port of this machine."""

import errno
import os
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

_PROC: Final = Path("/proc")
_LISTENS: Final = "0A"
_NAME: Final = "longpole"


class Listener(NamedTuple):
    """What keeps a port from being ours; ``problem`` says why when it is no other program."""

    program: str
    is_ours: bool
    problem: str = ""


def listener_on(host: str, port: int) -> Listener | None:
    """What has this port; ``None`` when it is free, as port 0 (any free one) always is."""
    plain = host.strip("[]")
    family = socket.AF_INET6 if ":" in plain else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((plain, port))
            probe.listen(1)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                return Listener("", False, f"cannot listen on {host}: {error.strerror or error}")
        else:
            return None
    for pid in _holders(port):
        words = _words(pid)
        is_ours = any(word.startswith(_NAME) for word in words)
        return Listener(f"{' '.join(words)} (pid {pid})", is_ours)
    return Listener("another program", False)


def _holders(port: int) -> Iterator[int]:
    """Processes that listen on a port, where Linux tells and they are the user's own."""
    sockets = {f"socket:[{inode}]" for inode in _inodes(port)}
    if not sockets:
        return
    for folder in _PROC.glob("[0-9]*/fd"):
        with suppress(OSError):  # another user's, or it has just ended
            if any(os.readlink(link) in sockets for link in folder.iterdir()):
                yield int(folder.parent.name)


def _inodes(port: int) -> set[str]:
    """Inodes of the listening sockets of a port (proc(5), ``/proc/net/tcp``)."""
    found: set[str] = set()
    for table in ("net/tcp", "net/tcp6"):
        with suppress(OSError):
            for line in (_PROC / table).read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == _LISTENS and int(fields[1].rpartition(":")[2], 16) == port:
                    found.add(fields[9])
    return found


def _words(pid: int) -> list[str]:
    """A process's program and first arguments: file names only, an argument may be a secret."""
    try:
        line = (_PROC / str(pid) / "cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return ["a program"]
    words = [Path(word).name for word in line.split("\0")[:3] if word and word != "-m"]
    return words or ["a program"]
