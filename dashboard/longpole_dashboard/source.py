"""Where the dashboard's data comes from, named once by the process that serves it.

Where people log in, each sees what their login may read: :func:`source` is the source of whoever
looks at the page that asks. Everything that pages read comes by it, so it is the one place that
decides the project.

Apart from ``data``, so that the server can be set up before Streamlit's caches exist.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Self

from longpole.errors import UsageError
from longpole_collector import stores
from longpole_collector.settings import project_folder
from longpole_collector.stores import clickhouse
from longpole_collector.stores.base import Reader
from longpole_collector.stores.clickhouse.address import parse
from longpole_collector.stores.remote import RemoteReader

LIMIT_S: Final = 5.0
"""A question of a page that takes longer is broken off: then it asks too much."""


@dataclass(frozen=True)
class Source:
    """Where the data comes from: exactly one of a collector, a data folder, files.

    ``key`` is what the collector is shown, and decides the project; without one it is the
    configured one, if there is one. ``project`` is only told.

    Raises:
        UsageError: none or more than one is given.
    """

    url: str | None = None
    db: Path | None = None
    files: tuple[Path, ...] = ()
    key: str | None = field(default=None, repr=False)
    project: str | None = None

    def __post_init__(self) -> None:
        if sum((self.url is not None, self.db is not None, bool(self.files))) != 1:
            raise UsageError("name one source of data: --url URL, --db DIR or FILE...")

    @property
    def is_recorded(self) -> bool:
        """Files: nothing is added while one looks."""
        return bool(self.files)

    def describe(self) -> str:
        """One phrase for the page and the log."""
        if self.files:
            more = f" and {len(self.files) - 1} more" if len(self.files) > 1 else ""
            return f"file {self.files[0].name}{more}"
        where = f"data folder {self.db}" if self.db else self._where()
        return f"{where}, project {self.project}" if self.project else where

    def _where(self) -> str:
        url = self.url or ""
        if not clickhouse.is_address(url):
            return f"collector {url}"
        return f"store {parse(url)}"  # without the password that may stand in it

    def narrowed(self, project: str | None) -> Self:
        """One project of a data folder; the same source where that chooses nothing.

        A source that was narrowed before stays so: a login's project is never left.
        """
        if project is None or self.db is None or self.project is not None:
            return self
        return replace(self, db=project_folder(self.db, project), project=project)

    def open(self) -> Reader:
        """A reader over it.

        Raises:
            UsageError, Unreachable, BadInput: as :func:`longpole_collector.stores.open_reader`.
        """
        if self.url is not None and not clickhouse.is_address(self.url):
            return RemoteReader(self.url, self.key, LIMIT_S)
        if self.db is None or not self.db.is_dir():
            return self._opened()
        from longpole_collector.recovery import has_data
        from longpole_dashboard.awaited import Awaited

        return self._opened() if has_data(self.db) else Awaited(self.db, self._opened)

    def _opened(self) -> Reader:
        return stores.open_reader(db=self.db, url=self.url, files=self.files, timeout_s=LIMIT_S)


def _everybodys(source: Source) -> Source:
    return source


def _nobody() -> None:
    return None


_source: Source | None = None
_is_open = False
_seen: Callable[[Source], Source] = _everybodys
_viewer: Callable[[], str | None] = _nobody


def use(
    source: Source,
    *,
    is_open: bool = False,
    seen: Callable[[Source], Source] = _everybodys,
    viewer: Callable[[], str | None] = _nobody,
) -> None:
    """Name the source for this process.

    Args:
        source: what the dashboard itself may read.
        is_open: served beyond this machine, without a login.
        seen: what whoever looks may read of it, asked anew each time.
        viewer: who looks; ``None`` where nobody logs in.
    """
    global _source, _is_open, _seen, _viewer
    _source, _is_open, _seen, _viewer = source, is_open, seen, viewer


def source() -> Source:
    """The source of whoever looks.

    Raises:
        UsageError: the application was started without one, or whoever looks may see nothing.
    """
    if _source is None:
        raise UsageError("no source of data: start with `longpole serve` or `longpole open FILE`")
    return _seen(_source)


def is_open() -> bool:
    """Whether the dashboard is served beyond this machine, without a login."""
    return _is_open


def viewer() -> str | None:
    """Who looks; ``None`` where nobody logs in."""
    return _viewer()
