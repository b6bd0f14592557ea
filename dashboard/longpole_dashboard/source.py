"""Where the dashboard's data comes from, named once by the process that serves it.

Apart from ``data``, so that the server can be set up before Streamlit's caches exist.
"""

from dataclasses import dataclass
from pathlib import Path

from longpole.errors import UsageError


@dataclass(frozen=True)
class Source:
    """Where the data comes from: exactly one of a collector, a data folder, files.

    Raises:
        UsageError: none or more than one is given.
    """

    url: str | None = None
    db: Path | None = None
    files: tuple[Path, ...] = ()

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
        return f"data folder {self.db}" if self.db else f"collector {self.url}"


_source: Source | None = None
_is_open = False


def use(source: Source, *, is_open: bool = False) -> None:
    """Name the source for this process; ``is_open``: served beyond this machine."""
    global _source, _is_open
    _source, _is_open = source, is_open


def source() -> Source:
    """The source in use.

    Raises:
        UsageError: the application was started without one.
    """
    if _source is None:
        raise UsageError("no source of data: start with `longpole serve` or `longpole open FILE`")
    return _source


def is_open() -> bool:
    """Whether the dashboard is served beyond this machine, without a login."""
    return _is_open
