"""``longpole users``: who may log in to the dashboard of a data folder, and what they see."""

import json
from contextlib import suppress
from pathlib import Path
from typing import IO, Final

import click

from longpole import config
from longpole.errors import UsageError
from longpole_collector.keys import Scope, create, revoke
from longpole_collector.settings import configured_folder
from longpole_dashboard.login.settings import OIDC, PROXY, set_link
from longpole_dashboard.login.store import LINK_S, Login, Logins
from longpole_dashboard.settings import DEFAULTS

_db = click.option("--db", type=click.Path(path_type=Path), help="Data folder [./.longpole].")
_json = click.option("--json", "as_json", is_flag=True, help="One JSON document.")
_ID: Final = 1
"""Which part of a key is its id."""


@click.group("users")
def users() -> None:
    """Add, list and remove those who log in to the dashboard; a running one follows at once."""


@users.command("add")
@click.argument("name")
@click.option("--project", help="The project they see [what the dashboard itself shows].")
@click.option(
    "--key-file",
    type=click.File("r"),
    help="A key to read with, for a collector elsewhere; - is standard input.",
)
@_db
@_json
def add(
    name: str, project: str | None, key_file: IO[str] | None, db: Path | None, as_json: bool
) -> None:
    """Add NAME and print the link with which they set a password, once.

    Where a proxy or an identity provider says who they are, NAME is what it calls them, or * for
    everybody else it vouches for; no link is needed then.
    """
    folder = configured_folder(db)
    logins = Logins(folder)
    if logins.find(name) is not None:
        raise UsageError(f"there is a login '{name}': remove it first")
    key = key_file.read().strip() if key_file is not None else None
    if key is None and project is not None:
        key = create(folder, project, Scope.READ, f"dashboard of {name}"[:60])[1]
    _tell(logins, logins.add(name, project, key), as_json)


@users.command("link")
@click.argument("name")
@_db
@_json
def link(name: str, db: Path | None, as_json: bool) -> None:
    """Print a link with which NAME sets a new password, once."""
    logins = Logins(configured_folder(db))
    _tell(logins, logins.known(name), as_json)


@users.command("list")
@_db
@_json
def list_users(db: Path | None, as_json: bool) -> None:
    """List who may log in."""
    found = [_document(login) for login in Logins(configured_folder(db)).listed()]
    if as_json:
        click.echo(json.dumps({"schema": "longpole.users/1", "users": found}))
        return
    for each in found:
        word = "password set" if each["has_password"] else "no password"
        click.echo(f"{each['name']}  {each['project'] or '-'}  {word}")


@users.command("remove")
@click.argument("name")
@_db
def remove(name: str, db: Path | None) -> None:
    """Take NAME's login and its key away; open pages of theirs close."""
    folder = configured_folder(db)
    login = Logins(folder).remove(name)
    if login.key is not None and login.key.count("_") > _ID:
        with suppress(UsageError):  # another folder's key, or revoked before
            revoke(folder, login.key.split("_")[_ID])
    click.echo(f"'{name}' may no longer log in", err=True)


def _tell(logins: Logins, login: Login, as_json: bool) -> None:
    """Print a new link, where passwords are what people log in with."""
    found = {key: setting.value for key, setting in config.settings("dashboard", DEFAULTS).items()}
    address = None
    if found["login"] not in (PROXY, OIDC):
        token = logins.new_link(login.name)
        address = set_link(str(found["host"]), int(found["port"] or 0), token)
    if as_json:
        document = {"schema": "longpole.users.add/1", **_document(login), "link": address}
        click.echo(json.dumps(document))
    elif address is not None:
        click.echo(address)
        click.echo(
            f"'{login.name}' sets a password there, once, within {LINK_S / 3_600:.0f} h", err=True
        )


def _document(login: Login) -> dict[str, str | bool | None]:
    return {
        "name": login.name,
        "project": login.project,
        "has_password": login.password is not None,
    }
