"""Where the page's project lies, if this process reads its folder itself."""

import shlex

from longpole_dashboard.source import source
from longpole_dashboard.widgets import Selection


def folder(selected: Selection) -> str | None:
    """The data folder of the page's project; ``None`` where a collector or files are read."""
    db = source().narrowed(selected.project).db
    return None if db is None else str(db)


def command(*words: str) -> str:
    """A ``longpole`` command as a shell reads it, but for the source."""
    return shlex.join(["longpole", *words])
