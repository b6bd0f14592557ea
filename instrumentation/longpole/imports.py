"""Act on a package when the application imports it, and never import it for that.

Provider libraries take seconds to import, and some reach for the network while they do.
"""

import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING, Any

from longpole import health

if TYPE_CHECKING:
    from importlib.abc import Loader
else:
    Loader = object  # Python asks for no class, and that module loads a dozen others

_waiting: dict[str, list[Callable[[], None]]] = {}


def when_imported(package: str, act: Callable[[], None]) -> None:
    """Call ``act`` once the package is there: now, or right after its import.

    An exception of ``act`` is counted and never reaches the application.
    """
    if package in sys.modules:
        _do(act)
        return
    _waiting.setdefault(package, []).append(act)
    if _FINDER not in sys.meta_path:
        sys.meta_path.insert(0, _FINDER)


def forget() -> None:
    """Wait for nothing any more."""
    _waiting.clear()
    if _FINDER in sys.meta_path:
        sys.meta_path.remove(_FINDER)


class _Finder:
    """Finds nothing itself: it has the others find, and wraps the loader of what is awaited."""

    def __init__(self) -> None:
        self._asked: set[str] = set()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in _waiting or fullname in self._asked:
            return None
        self._asked.add(fullname)
        try:
            spec = find_spec(fullname)
        finally:
            self._asked.discard(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)
        return spec


_FINDER = _Finder()


class _Loader(Loader):
    """A package's own loader, and what waits for it after."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        made: ModuleType | None = self._inner.create_module(spec)
        return made

    def exec_module(self, module: ModuleType) -> None:
        spec = module.__spec__
        if spec is not None:
            spec.loader = module.__loader__ = self._inner
        self._inner.exec_module(module)
        for act in _waiting.pop(module.__name__, ()):
            _do(act)


def _do(act: Callable[[], None]) -> None:
    try:
        act()
    except Exception as error:  # noqa: BLE001 - counted; the import has succeeded
        health.swallow("instrument", error)
