"""Which model a server is asked for where nobody names one."""

import json
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Final

from longpole.errors import UsageError
from longpole_engine.load.client import Target

UNKNOWN: Final = "default"
"""Asked for where a server does not list its models: many take any name."""
_TIMEOUT_S: Final = 5.0
_MAX_BYTES: Final = 1_000_000
_MAX_NAMED: Final = 10


def model_of(target: Target, key: str | None) -> str:
    """The one model of a server; :data:`UNKNOWN` where it lists none.

    Args:
        target: the server.
        key: as for its requests.

    Raises:
        UsageError: it has several.
    """
    names = _listed(target, key)
    if len(names) > 1:
        some = ", ".join(names[:_MAX_NAMED]) + (", ..." if len(names) > _MAX_NAMED else "")
        raise UsageError(f"{target.host}:{target.port} has {len(names)} models: --model {some}")
    return names[0] if names else UNKNOWN


def _listed(target: Target, key: str | None) -> list[str]:
    kind = HTTPConnection if target.context is None else HTTPSConnection
    connection = kind(target.host, target.port, timeout=_TIMEOUT_S)
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    try:
        connection.request(
            "GET", target.path.removesuffix("/chat/completions") + "/models", headers=headers
        )
        answer = connection.getresponse()
        found = json.loads(answer.read(_MAX_BYTES)) if answer.status == 200 else {}
        return [str(each["id"]) for each in found.get("data", [])]
    except (OSError, HTTPException, ValueError, TypeError, KeyError, AttributeError):
        return []  # the requests will say what is wrong
    finally:
        connection.close()
