"""``longpole keys``: who may send to or read from which project of a data folder."""

import json
from pathlib import Path
from typing import Final

import click

from longpole_collector.keys import DEFAULT_PROJECT, Key, Scope, create, listed, revoke
from longpole_collector.settings import configured_folder

_db = click.option("--db", type=click.Path(path_type=Path), help="Data folder [./.longpole].")
_json = click.option("--json", "as_json", is_flag=True, help="One JSON document.")
_LISTED: Final = ("id", "name", "project", "scope", "created", "last_used")


@click.group("keys")
def keys() -> None:
    """Make, list and revoke the keys of a data folder; a running collector follows at once."""


@keys.command("create")
@click.option("--project", default=DEFAULT_PROJECT, show_default=True, help="What it opens.")
@click.option(
    "--scope",
    type=click.Choice([scope.value for scope in Scope]),
    required=True,
    help="ingest: send spans; read: query; admin: everything in the project.",
)
@click.option("--name", help="What you call it.")
@_db
@_json
def create_key(project: str, scope: str, name: str | None, db: Path | None, as_json: bool) -> None:
    """Make a key and print it; it is shown this once."""
    key, secret = create(configured_folder(db), project, Scope(scope), name)
    if as_json:
        document = {"schema": "longpole.keys.create/1", **_document(key), "key": secret}
        click.echo(json.dumps(document))
        return
    click.echo(secret)
    click.echo(f"key {key.id} for '{key.scope}' in project '{key.project}'", err=True)
    click.echo(f"send it as: Authorization: Bearer {secret[:11]}...", err=True)


@keys.command("list")
@_db
@_json
def list_keys(db: Path | None, as_json: bool) -> None:
    """List the keys; never the secrets, which are kept nowhere."""
    found = [_document(key) for key in listed(configured_folder(db))]
    if as_json:
        click.echo(json.dumps({"schema": "longpole.keys/1", "keys": found}))
        return
    for key in found:
        words = (str(key[word] or "-") for word in ("id", "project", "scope", "created"))
        click.echo(f"{'  '.join(words)}  used {key['last_used'] or 'never'}  {key['name'] or ''}")


@keys.command("revoke")
@click.argument("key_id", metavar="ID")
@_db
def revoke_key(key_id: str, db: Path | None) -> None:
    """Make a key worthless."""
    revoke(configured_folder(db), key_id)
    click.echo(f"key {key_id} opens nothing any more", err=True)


def _document(key: Key) -> dict[str, str | None]:
    return {word: getattr(key, word) for word in _LISTED}
