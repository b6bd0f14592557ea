"""What a check of the doctor finds."""

from dataclasses import dataclass
from typing import Final

OK, WARN, FAIL = "ok", "warn", "fail"
SERVICE: Final = "longpole-doctor"
"""The service of the doctor's own spans."""


@dataclass(frozen=True)
class Check:
    """One finding: ``status`` is ok, warn or fail; ``fix`` is what to do, if anything."""

    name: str
    status: str
    detail: str
    fix: str | None = None
