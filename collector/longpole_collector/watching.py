"""The door for plug-ins that watch a project's data while the collector runs, as alerts do.

What is watched for is analytics and comes in through the entry-point group ``longpole.watcher``;
here is only when a watch begins and ends, and what it is given.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from longpole.errors import LongpoleError
from longpole.family import load
from longpole_collector.stores.base import Reader

_log = logging.getLogger("longpole.collector.watching")


@dataclass(frozen=True)
class Seat:
    """What a watch is given: one open project.

    Attributes:
        project: its name.
        folder: its data folder, where the watch may keep a folder of its own.
        reader: its data; asked from any thread, and closed by the collector.
    """

    project: str
    folder: Path
    reader: Reader


class Watch(Protocol):
    """One project being watched."""

    def start(self) -> None:
        """Begin, in threads of its own; returns at once."""

    def stop(self) -> None:
        """End; returns when it reads and writes nothing any more."""

    def prometheus(self) -> str:
        """What it has to say on ``/metrics``: Prometheus text, ended by a line's end."""


@runtime_checkable
class Answering(Protocol):
    """A watch that readers of its project may ask, too."""

    def answer(self, asked: str) -> dict[str, Any] | None:
        """The document of that name, as ``alerts``; ``None`` if it has no such.

        Asked from any thread while the watch runs; holds no secret.
        """


Begin = Callable[[Seat], Watch | None]
"""Makes a project's watch; ``None`` where nothing is watched."""


@dataclass(frozen=True)
class Watcher:
    """A member of the family ``longpole.watcher``.

    ``configure`` reads the configuration, once, when the collector starts; ``None`` where nothing
    is to be watched. It raises ``UsageError`` on what cannot be meant, and then the collector does
    not start.
    """

    configure: Callable[[], Begin | None]


class Watching:
    """The watches of a collector's projects."""

    def __init__(self, begins: Iterable[Begin]) -> None:
        self._begins = tuple(begins)
        self._running: dict[str, list[Watch]] = {}

    def start(self, seat: Seat) -> list[Callable[[], str]]:
        """Begin to watch a project; returns what says more about it on ``/metrics``."""
        found: list[Watch] = []
        for begin in self._begins:
            try:
                watch = begin(seat)
                if watch is not None:
                    watch.start()
                    found.append(watch)
            except (LongpoleError, OSError) as error:
                _log.error("project '%s' is not watched: %s", seat.project, error)
        self._running[seat.project] = found
        return [watch.prometheus for watch in found]

    def answer(self, project: str, asked: str) -> dict[str, Any] | None:
        """The document of that name that a project's watches have; ``None`` if none has it."""
        for watch in self._running.get(project, ()):
            found = watch.answer(asked) if isinstance(watch, Answering) else None
            if found is not None:
                return found
        return None

    def stop(self) -> None:
        """End all of them."""
        running, self._running = self._running, {}
        for watches in running.values():
            for watch in watches:
                watch.stop()


def configured() -> Watching:
    """The watches that the installed plug-ins make of the configuration.

    Raises:
        UsageError: the configuration cannot be used.
    """
    try:
        members: Mapping[str, Watcher] = load(None, "WATCHER", Watcher)
    except ImportError as error:
        _log.warning("nothing is watched: %s", error)
        members = {}
    begins = (member.configure() for member in members.values())
    return Watching(begin for begin in begins if begin is not None)
