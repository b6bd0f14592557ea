"""What a library changed in the clients' classes, to be taken off and put back in between.

So that the bare and the wrapped client are measured in one process, in turns: two processes
differ by more than a library costs.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from inspect import isclass, ismodule
from typing import Any, NamedTuple

_PACKAGES = ("openai", "httpx", "httpx2")
_MISSING = object()


class Patch(NamedTuple):
    """One attribute that was replaced."""

    owner: Any
    name: str
    before: Any
    after: Any


class Patches:
    """Made before the library is set up; ``find`` after it."""

    def __init__(self) -> None:
        self._before = [(owner, dict(vars(owner))) for owner in _owners()]
        self._found: list[Patch] = []

    def find(self) -> list[str]:
        """What was replaced, or set on a class, since."""
        for owner, before in self._before:
            for name, after in dict(vars(owner)).items():
                old = before.get(name, _MISSING)
                is_ours = callable(old) or (old is _MISSING and isclass(owner))
                if after is not old and callable(after) and is_ours:
                    self._found.append(Patch(owner, name, old, after))
        return sorted(f"{patch.owner.__name__}.{patch.name}" for patch in self._found)

    def put(self, is_on: bool) -> None:
        """Put the library's attributes in place, or those that were there before."""
        for owner, name, before, after in self._found:
            if is_on:
                setattr(owner, name, after)
            elif before is not _MISSING:
                setattr(owner, name, before)
            elif name in vars(owner):
                delattr(owner, name)


def _owners() -> Iterator[Any]:
    """The clients' modules, and the classes in them."""
    seen: set[int] = set()
    for module_name, module in list(sys.modules.items()):
        if module_name.partition(".")[0] not in _PACKAGES or not ismodule(module):
            continue
        yield module
        for value in list(vars(module).values()):
            if isclass(value) and value.__module__.startswith(_PACKAGES) and id(value) not in seen:
                seen.add(id(value))
                yield value
