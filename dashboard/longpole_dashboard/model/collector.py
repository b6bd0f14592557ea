"""What a running collector tells besides rows; without one, what lies in the data folder."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from longpole.errors import LongpoleError
from longpole_collector.stores.base import Reader
from longpole_collector.stores.remote import RemoteReader

Document = dict[str, Any]


@dataclass(frozen=True)
class Told:
    """A document, or why there is none; ``is_absent``: nobody has it, which may be well."""

    document: Document | None
    reason: str = ""
    is_absent: bool = False


def told(reader: Reader, path: str, here: Callable[[], Document | None]) -> Told:
    """The document at a path of the collector that is read from, else what ``here`` finds.

    Args:
        reader: the store.
        path: of the collector's API.
        here: looks for it in the data folder; ``None`` where there is none.

    Raises:
        Unreachable: no collector answers.
    """
    if not isinstance(reader, RemoteReader):
        try:
            document = here()
        except LongpoleError as error:
            return Told(None, str(error))
        return Told(document, is_absent=document is None)
    answer = reader.get(path)
    if answer.status_code == 200:
        return Told(answer.json())
    if answer.status_code == 404:
        return Told(None, "the collector has no such document", is_absent=True)
    if answer.status_code in (401, 403):
        return Told(None, f"the dashboard's key may not ask that: {_error(answer)}")
    return Told(None, f"the collector answered {answer.status_code}: {_error(answer)}")


def _error(answer: Any) -> str:
    try:
        return str(answer.json()["error"])
    except (ValueError, KeyError, TypeError):
        return str(answer.text)[:200]
