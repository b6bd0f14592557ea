"""What an admin's key may ask of a running collector: a backup, and to drop what is old."""

import asyncio
import time
from typing import Annotated, Any, Final

from fastapi import Depends, FastAPI
from pydantic import BaseModel, Field

from longpole_collector.api import admit, refusals
from longpole_collector.doors import Door, Visit
from longpole_collector.keys import Scope
from longpole_collector.stores.keeping import Retention, backup, copy_ledgers
from longpole_collector.upkeep import BACKUP_PATH, DRAFTS, PRUNE_PATH, Pruned, prune_store

_REFUSALS: Final = refusals(400, 401, 403, 429, 503)


class Backup(BaseModel):
    """Where a backup lies, in the project's data folder, and its files."""

    folder: str
    files: list[str]


class Prune(BaseModel):
    """What to drop: days of receipt older than ``days``, the oldest above ``max_bytes``, a user."""

    days: Annotated[int, Field(ge=0)] | None = None
    max_bytes: Annotated[int, Field(ge=0)] | None = None
    user: str | None = None
    compact: bool = False


def add_admin(app: FastAPI, door: Door) -> None:
    """Add the routes; ``door`` says who may use them."""
    admin = Annotated[Visit, Depends(admit(door, Scope.ADMIN))]

    async def make_backup(visit: admin) -> Backup:
        """Copy the project's day files, alerts and reports into a new folder below its own."""
        project = visit.project
        target = project.folder / DRAFTS / f"{time.time_ns()}"

        def work() -> list[str]:
            return backup(project.local, target) + copy_ledgers(project.folder, target)

        return Backup(folder=str(target.absolute()), files=await asyncio.to_thread(work))

    async def prune(asked: Prune, visit: admin) -> dict[str, Any]:
        """Drop old days or a user's traces; ``compact`` also rewrites every day in order."""
        project = visit.project

        def work() -> Pruned:
            retention = Retention(asked.days, asked.max_bytes)
            return prune_store(
                project.local,
                project.folder,
                retention,
                asked.user,
                project.content,
                compact=asked.compact,
            )

        return (await asyncio.to_thread(work))._asdict()

    app.post(BACKUP_PATH, responses=_REFUSALS)(make_backup)
    app.post(PRUNE_PATH, responses=_REFUSALS)(prune)
