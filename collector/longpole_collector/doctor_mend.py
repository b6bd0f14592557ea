"""What the doctor can put right without asking further: rights, traces of a crash, broken files.

Each of these is a check, too: without ``--fix`` it says what would be done. Nothing is deleted
that holds data; only files that longpole itself makes are touched.
"""

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from longpole_collector.doctor_check import OK, WARN, Check
from longpole_collector.settings import PROJECTS_FOLDER
from longpole_collector.whereabouts import find, is_announced, withdraw

FIX: Final = "longpole doctor --fix"
SET_ASIDE: Final = ".broken"
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
_FOLDERS: Final = ("keys", "logins", "logins/ended", "logs", "tmp", "wal")
_FILES: Final = (
    *("lock", "collector.json", "pseudonym.key", "spans*.duckdb*"),
    *(f"{folder}/*" for folder in _FOLDERS),
)


def place_checks(folder: Path, *, is_fixing: bool) -> Iterator[Check]:
    """Who may look into a data folder, and whether a collector that is gone still stands there."""
    for each in folders(folder):
        yield from _stale(each, is_fixing=is_fixing)
    yield from _rights(folder, is_fixing=is_fixing)


def folders(folder: Path) -> tuple[Path, ...]:
    """A data folder and those of its projects."""
    return (folder, *sorted(folder.glob(f"{PROJECTS_FOLDER}/*/")))


def set_aside(path: Path) -> Path | None:
    """Move a file that the database cannot read out of its way; where it is now.

    ``None`` if it stays: the disk does not give it either, or does not let it be moved.
    """
    target = path.with_name(path.name + SET_ASIDE)
    number = 1
    while target.exists():
        number += 1
        target = path.with_name(f"{path.name}{SET_ASIDE}{number}")
    try:
        with path.open("rb") as file:
            while file.read(1 << 20):
                pass
        path.rename(target)
    except OSError:
        return None
    return target


def _stale(folder: Path, *, is_fixing: bool) -> Iterator[Check]:
    """A note of where a collector runs that no longer does: it was killed."""
    if not is_announced(folder) or (find(folder) is not None and _is_held(folder)):
        return
    name = "whereabouts"
    detail = f"{folder} names a collector that does not run: it was killed"
    if is_fixing:
        withdraw(folder)
        yield Check(name, OK, f"mended: {detail}; the note is removed")
    else:
        yield Check(name, WARN, detail, FIX)


def _is_held(folder: Path) -> bool:
    """Whether a process has the folder open: a pid alone may be another program's by now."""
    from longpole.errors import StoreBusy
    from longpole_collector.stores.connection import hold

    try:
        handle = hold(folder, is_read_only=False)
    except (StoreBusy, OSError):
        return True
    if handle is None:  # no locks here: the pid has to do
        return True
    os.close(handle)
    return False


def _rights(folder: Path, *, is_fixing: bool) -> Iterator[Check]:
    """Whether others than the owner may read what is stored."""
    if os.name != "posix" or not (folder.is_dir() and _is_ours(folder)):
        return
    name = "rights"
    loose = [path for path in _ours(folder) if path.stat().st_mode & _OTHERS]
    if not loose:
        yield Check(name, OK, f"only its owner may look into {folder}")
        return
    more = f" and {len(loose) - 1} more" if len(loose) > 1 else ""
    detail = f"others may look into {loose[0]}{more}"
    if not is_fixing:
        yield Check(name, WARN, detail, FIX)
        return
    try:
        for path in loose:
            path.chmod(stat.S_IMODE(path.stat().st_mode) & ~_OTHERS)
    except OSError as error:
        yield Check(name, WARN, f"{detail}: {error}", f"run it as the owner of {folder}")
        return
    yield Check(name, OK, f"mended: {detail}; now its owner only")


def _is_ours(folder: Path) -> bool:
    """Whether longpole made something there: a folder named by mistake keeps its rights."""
    return any(True for name in ("lock", "spans*.duckdb", "keys/*.json") for _ in folder.glob(name))


def _ours(folder: Path) -> Iterator[Path]:
    """The folder, and what longpole makes in it; what a link leads to is left alone."""
    for each in folders(folder):
        inner = [each / name for name in _FOLDERS]
        found = [path for pattern in _FILES for path in each.glob(pattern)]
        for path in (each, *inner, *found):
            if path.exists() and not path.is_symlink():
                yield path
    if (folder / PROJECTS_FOLDER).is_dir():
        yield folder / PROJECTS_FOLDER
