"""``longpole backup`` and ``longpole prune``."""

import json
from pathlib import Path

import click

from longpole_collector.settings import configured_folder, load_settings

_db = click.option("--db", type=click.Path(path_type=Path), help="Data folder [./.longpole].")
_project = click.option("--project", help="A project in it.")
_json = click.option("--json", "as_json", is_flag=True, help="One JSON document.")


@click.command()
@click.argument("target", type=click.Path(path_type=Path))
@_db
@_project
@_json
def backup(target: Path, db: Path | None, project: str | None, as_json: bool) -> None:
    """Copy spans, alerts and reports' state into a new folder, which is a data folder itself.

    A collector may be running. What it acknowledged within the last second may be missing.
    """
    from longpole_collector.upkeep import backup_folder

    files = backup_folder(configured_folder(db, project), target)
    if as_json:
        click.echo(
            json.dumps({"schema": "longpole.backup/1", "folder": str(target), "files": files})
        )
    else:
        click.echo(f"files {len(files)}  folder {target}")


@click.command()
@click.option("--days", type=click.IntRange(min=0), help="Drop days of receipt older than this.")
@click.option("--max-bytes", type=click.IntRange(min=0), help="Drop the oldest above this size.")
@click.option("--user", help="Remove every trace of this user or session id.")
@click.option("--compact", is_flag=True, help="Rewrite every day in order, today's too.")
@_db
@_project
@_json
def prune(
    days: int | None,
    max_bytes: int | None,
    user: str | None,
    compact: bool,
    db: Path | None,
    project: str | None,
    as_json: bool,
) -> None:
    """Drop what is old, too much, or a person's; without options what the settings say.

    The space on disk is free at once. The day that is being filled stays.
    """
    from longpole_collector.stores.keeping import Retention
    from longpole_collector.upkeep import prune_folder

    retention = Retention(days, max_bytes)
    if (days, max_bytes, user) == (None, None, None):
        chosen = load_settings()
        retention = Retention(chosen.retention_days, chosen.retention_bytes)
    done = prune_folder(configured_folder(db, project), retention, user, compact=compact)
    if as_json:
        click.echo(json.dumps({"schema": "longpole.prune/1", **done._asdict()}))
    else:
        click.echo(
            f"days dropped {len(done.days)}  traces removed {done.num_traces}  "
            f"days rewritten {len(done.rewritten)}"
        )
