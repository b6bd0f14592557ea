"""How others find the collector that runs on a data folder: ``collector.json`` in it."""

import json
import os
from pathlib import Path
from typing import Final, NamedTuple

_FILE_NAME: Final = "collector.json"


class Whereabouts(NamedTuple):
    """A running collector: its process, its addresses, a key to this folder's project.

    The key is for whoever may read the folder; it is good as long as that collector runs.
    """

    pid: int
    url: str
    grpc: str
    key: str | None = None


def announce(folder: Path, whereabouts: Whereabouts) -> None:
    """Write the file, readable by its owner only, all at once."""
    draft = folder / f"{_FILE_NAME}.{whereabouts.pid}"
    draft.touch(mode=0o600)
    draft.write_text(json.dumps(whereabouts._asdict()), encoding="utf-8")
    draft.replace(folder / _FILE_NAME)


def withdraw(folder: Path) -> None:
    """Remove the file."""
    (folder / _FILE_NAME).unlink(missing_ok=True)


def is_announced(folder: Path) -> bool:
    """Whether the file is there, whoever wrote it."""
    return (folder / _FILE_NAME).is_file()


def find(folder: Path) -> Whereabouts | None:
    """The collector that runs on a folder; ``None`` if none does or it was killed."""
    try:
        found = Whereabouts(**json.loads((folder / _FILE_NAME).read_text(encoding="utf-8")))
        os.kill(found.pid, 0)
    except (OSError, ValueError, TypeError):
        return None
    return found
