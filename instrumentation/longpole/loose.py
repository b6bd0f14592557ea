"""JSON read like a client library's objects: ``doc.usage.prompt_tokens``, ``None`` where missing.

For bodies that the application reads itself, and for libraries that hand out plain dictionaries:
a provider file reads both forms with the same code.
"""

from collections.abc import Mapping
from typing import Any


class Loose:
    """A JSON object whose members are attributes; objects inside are made loose when read."""

    __slots__ = ("_members",)

    def __init__(self, members: Mapping[str, Any]) -> None:
        self._members = members

    def __getattr__(self, name: str) -> Any:
        return loosened(self._members.get(name))

    def get(self, name: str) -> Any:
        """A member by its name, for names that are no identifiers."""
        return loosened(self._members.get(name))

    def model_dump(self, **options: Any) -> Mapping[str, Any]:
        """The JSON object, by the name that libraries give it to."""
        return self._members

    @property
    def model_extra(self) -> "Loose":
        """Members beyond the ones a library declares: here all of them."""
        return self


def loosened(value: Any) -> Any:
    """``value`` with a JSON object as :class:`Loose`, also inside a list."""
    if isinstance(value, Mapping):
        return Loose(value)
    if isinstance(value, list):
        return [loosened(item) for item in value]
    return value
