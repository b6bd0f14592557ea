"""The doctor's look at the dashboard's settings: where it listens, and who has to log in there.

The dashboard may not be installed, so its table is read as it stands in the file.
"""

import os
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from longpole.config import find_file, read_file
from longpole.errors import UsageError
from longpole_collector.doctor_check import FAIL, OK, WARN, Check

LOGINS: Final = "logins"
"""The folder, in the data folder, with a file for each who may log in."""
_TABLE: Final = "dashboard"
_NAME: Final = "bind (dashboard)"
_LOOPBACK: Final = "127.0.0.1"


def where(default_port: int) -> tuple[str, int]:
    """Host and port that the dashboard would take; the default ones where no others can be read."""
    try:
        return _setting("host") or _LOOPBACK, int(_setting("port") or default_port)
    except (UsageError, ValueError):
        return _LOOPBACK, default_port


def login_checks(folder: Path) -> Iterator[Check]:
    """Whether a dashboard that others reach asks them to log in."""
    try:
        host, way = _setting("host") or _LOOPBACK, _setting("login")
        names = _setting("allowed_hosts")
    except UsageError:
        return  # the file is broken: the check of the settings says so
    num = len(list((folder / LOGINS).glob("*.json")))
    has_login = way not in ("", "none") or (num > 0 and way != "none")
    if _is_beyond(host):
        if not has_login:
            fix = 'login = "password" in [dashboard], or longpole users add NAME'
            yield Check(_NAME, FAIL, f"{host} is refused: nobody would have to log in", fix)
        elif way in ("", "password") and not num:
            fix = "longpole serve prints a link that sets the first password"
            yield Check(_NAME, WARN, f"{host} asks for a login, and nobody has one yet", fix)
        else:
            detail = f"{host} lets in who logs in ({way or 'password'}; {num} logins)"
            yield Check(_NAME, OK, detail)
    elif names and way in ("", "none"):
        detail = f"loopback, but a proxy may let others in by the name {names}, without a login"
        yield Check(_NAME, WARN, detail, 'login = "password" in [dashboard]')
    else:
        yield Check(_NAME, OK, "loopback only: no other machine reaches the dashboard")


def _setting(key: str) -> str:
    """One setting as text; empty where it is not set."""
    variable = f"LONGPOLE_{_TABLE}_{key}".upper()
    found = os.environ.get(variable)
    if found is None:
        found = str(read_file(find_file()).get(_TABLE, {}).get(key, ""))
    return found


def _is_beyond(host: str) -> bool:
    try:
        return host != "localhost" and not ip_address(host).is_loopback
    except ValueError:
        return False
