"""What a running collector tells of its settings and of what is watched; nothing is changed here.

Keys are told by their ids: what is secret of them is kept nowhere. Everything is the project's
of the key that is shown.
"""

import asyncio
import platform
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Final

import duckdb
from fastapi import Depends, FastAPI
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from longpole.config import find_file, read_file
from longpole.redact import kinds
from longpole_collector.api import admit, refusals
from longpole_collector.doors import Door, Visit
from longpole_collector.keys import Key, Scope, listed
from longpole_collector.settings import PROJECTS_FOLDER, Settings
from longpole_collector.stores.migrations import SCHEMA_VERSION
from longpole_collector.watching import Watching

SETTINGS_PATH: Final = "/api/v1/settings"
WATCHED_PATH: Final = "/api/v1/watched"


class KeyState(BaseModel):
    """A key without its secret; times in ISO 8601, UTC."""

    id: str
    name: str | None
    scope: str
    created: str
    last_used: str | None


class ContentState(BaseModel):
    """What is done with prompts and answers.

    ``rules`` are the owner's expressions as they stand in the configuration, where a reference
    is not resolved; ``kinds`` what our own rules find. Both hold where ``policy`` is ``redact``.
    """

    policy: str
    keep_days: int
    kinds: list[str]
    rules: list[str]
    hook: str | None


class SettingsState(BaseModel):
    """The settings in force for a project."""

    project: str
    folder: str
    http: str
    grpc: str
    retention_days: int
    retention_bytes: int
    num_bytes: int
    content: ContentState
    keys: list[KeyState]
    versions: dict[str, str]


def settings_state(settings: Settings, project: str, folder: Path) -> SettingsState:
    """The settings of a project that lies in a folder, and what lies there."""
    return SettingsState(
        project=project,
        folder=str(folder.absolute()),
        http=settings.http,
        grpc=settings.grpc,
        retention_days=settings.retention_days,
        retention_bytes=settings.retention_bytes,
        num_bytes=num_bytes(folder),
        content=_content(settings, project),
        keys=[_key(key) for key in _own(listed(settings.db), project)],
        versions={
            "longpole": version("longpole"),
            "schema": str(SCHEMA_VERSION),
            "duckdb": duckdb.__version__,
            "python": platform.python_version(),
        },
    )


def num_bytes(folder: Path) -> int:
    """Bytes of a project's files: day files, log, what watches keep; not of projects below it."""
    total = 0
    others = folder / PROJECTS_FOLDER
    for path in folder.rglob("*"):
        if path.is_relative_to(others):
            continue
        try:
            total += path.stat().st_size if path.is_file() else 0
        except OSError:  # gone just now
            continue
    return total


def add_state(app: FastAPI, door: Door, settings: Settings, watching: Watching) -> None:
    """Add the routes; ``door`` says who may use them."""
    admin = Annotated[Visit, Depends(admit(door, Scope.ADMIN))]
    reading = Annotated[Visit, Depends(admit(door, Scope.READ))]

    async def tell_settings(visit: admin) -> SettingsState:
        """The settings in force for the key's project, its keys without their secrets."""
        project = visit.project
        return await asyncio.to_thread(settings_state, settings, project.name, project.folder)

    async def tell_watched(asked: str, visit: reading) -> Any:
        """What the plug-ins that watch the key's project know: ``alerts``, ``reports``."""
        found = await asyncio.to_thread(watching.answer, visit.project.name, asked)
        if found is None:
            return JSONResponse({"error": f"nothing that is watched here tells '{asked}'"}, 404)
        return JSONResponse(found)

    told = refusals(401, 403, 429, 503)
    app.get(SETTINGS_PATH, responses=told)(tell_settings)
    app.get(f"{WATCHED_PATH}/{{asked:path}}", responses=told | refusals(404))(tell_watched)


def _own(keys: Iterable[Key], project: str) -> list[Key]:
    return [key for key in keys if key.project == project]


def _key(key: Key) -> KeyState:
    return KeyState(
        id=key.id,
        name=key.name,
        scope=key.scope.value,
        created=key.created,
        last_used=key.last_used,
    )


def _content(settings: Settings, project: str) -> ContentState:
    own = settings.project(project)
    return ContentState(
        policy=own.content,
        keep_days=own.keep_days,
        kinds=list(kinds()),
        rules=_as_written(project, own.redact),
        hook=own.redact_hook,
    )


def _as_written(project: str, rules: tuple[str, ...]) -> list[str]:
    """The expressions as the file has them: what one refers to may be a secret."""
    found: Any = read_file(find_file()).get("collector", {}).get("projects", {})
    written = found.get(project, {}).get("redact", []) if isinstance(found, dict) else []
    return [str(rule) for rule in written] if len(written) == len(rules) else ["***"] * len(rules)
