"""Python records that a library printed into an attribute instead of writing JSON."""

import json
import re
from typing import Any, Final

from longpole_collector.decode.raw import Value
from longpole_collector.dialects._payloads import MAX_CHARS, parse_map

_NAMES: Final = {"None": "null", "True": "true", "False": "false"}
_NAME: Final = re.compile(r"\b(?:None|True|False)\b")


def printed_map(value: Value | None) -> dict[str, Any]:
    """A dict printed by ``str``, or a JSON object; empty for anything else.

    Nothing is evaluated: only records of plain words, numbers and names are understood, those
    that become JSON by other quotes and names. One with quotes or escapes in its texts is not.
    """
    found = parse_map(value)
    if found or not isinstance(value, str) or not value.startswith("{"):
        return found
    if len(value) > MAX_CHARS or '"' in value or "\\" in value:
        return {}
    text = _NAME.sub(lambda name: _NAMES[name[0]], value.replace("'", '"'))
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
