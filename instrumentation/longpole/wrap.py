"""``wrap(client)``: find the provider file, patch the client in place, return the same client.

Only the instance is touched: its methods are shadowed by instance attributes and its HTTP client
gets two hooks, so ``unwrap`` leaves no trace. Whatever is unknown is left alone, with a warning.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

from longpole import emit, health, imports, providers
from longpole.errors import UsageError

if TYPE_CHECKING:
    from longpole.providers.base import Provider

T = TypeVar("T")
Undo = list[Callable[[], None]]

_MARK = "_longpole_undo"
_constructors: Undo = []
_under_construction: set[int] = set()


def wrap(client: T) -> T:
    """Instrument one client instance and return it. A second call is a no-op.

    A client of an unknown library or version is returned untouched, with one warning. Never
    raises.
    """
    if _MARK in getattr(client, "__dict__", ()):
        return client
    undo: Undo = []
    try:
        provider = _provider_of(client)
        if provider is not None:
            _patch(client, provider, undo)
            vars(client)[_MARK] = undo
            emit.warm()
    except Exception as error:  # noqa: BLE001 - counted; the client stays as it was
        health.swallow("wrap", error)
        _run(undo)
    return client


def unwrap(client: T) -> T:
    """Restore a wrapped client and return it; a client that is not wrapped stays as it is.

    Clients that were copied from it while it was wrapped stay wrapped.
    """
    _unwrap(client)
    return client


def _unwrap(client: object) -> None:
    undo: Undo | None = getattr(client, "__dict__", {}).pop(_MARK, None)
    if undo is not None:
        _run(undo)


def instrument(*names: str) -> None:
    """Wrap every client that is created from now on; no client package is imported for it.

    What is not imported yet is patched right after the application imports it.

    Args:
        *names: client packages, for instance ``openai``; without names all supported packages
            that are installed.

    Raises:
        UsageError: an unknown package, or one that is not installed.
    """
    from pkgutil import iter_modules

    files = [info.name for info in iter_modules(providers.__path__)]
    known = [name for name in files if name != "base" and not name.startswith("_")]
    for name in names or known:
        if name not in known:
            raise UsageError(f"instrument() knows no '{name}'; known: {', '.join(known)}")
        provider = _load(name)
        if _is_installed(provider.package):
            home = provider.module or provider.package
            imports.when_imported(home, functools.partial(_instrument, provider, home))
        elif names:
            raise UsageError(f"instrument('{name}'): {provider.package} is not installed")


def _instrument(provider: Provider, home: str) -> None:
    """Patch what makes clients; what an older minor version lacks is skipped."""
    module = sys.modules[home]
    if not _is_supported(provider):
        return
    for path in provider.classes:
        with suppress(AttributeError, ModuleNotFoundError):
            _patch_constructor(functools.reduce(getattr, path.split("."), module))
    for path in provider.factories:
        *owners, method = path.split(".")
        with suppress(AttributeError, ModuleNotFoundError):
            _patch_factory(functools.reduce(getattr, owners, module), method, provider)
    if provider.is_module:
        wrap(module)
        _constructors.append(functools.partial(_unwrap, module))


def uninstrument() -> None:
    """Undo :func:`instrument`; clients that exist stay wrapped."""
    imports.forget()
    _run(_constructors)


# --- finding the provider ----------------------------------------------------------------------


def _provider_of(client: Any) -> Provider | None:
    is_module = isinstance(client, ModuleType)
    for home in [client] if is_module else type(client).__mro__:
        parts = (home.__name__ if is_module else home.__module__).split(".")
        for name in ("_".join(parts[:2]), parts[0]):
            if name != "base" and find_spec(f"{providers.__name__}.{name}") is not None:
                provider = _load(name)
                if not provider.is_client(client):
                    break
                return provider if _is_supported(provider) else None
    kind = f"{type(client).__module__}.{type(client).__qualname__}"
    health.warn_once(f"client:{kind}", f"longpole.wrap() knows no {kind}: it is left as it is")
    return None


def _load(name: str) -> Provider:
    from longpole.providers.base import Provider  # what calls need comes with the first client

    found = import_module(f"{providers.__name__}.{name}").PROVIDER
    if not isinstance(found, Provider):
        raise TypeError(f"providers/{name}.py defines no PROVIDER")
    return found


def _is_supported(provider: Provider) -> bool:
    version = str(getattr(sys.modules.get(provider.package), "__version__", None))
    if not version[:1].isdigit():
        from importlib import metadata  # slow to import, and rarely needed

        version = metadata.version(provider.distribution or provider.package)
    major = version.partition(".")[0]
    if major.isdigit() and int(major) in provider.majors:
        return True
    known = ", ".join(f"{major}.x" for major in sorted(provider.majors))
    health.warn_once(
        f"version:{provider.package}",
        f"longpole knows {provider.package} {known}, not {version}: clients are left as they are",
    )
    return False


def _is_installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # the package that holds it is missing
        return False


# --- patching ----------------------------------------------------------------------------------


def _patch(client: Any, provider: Provider, undo: Undo) -> None:
    from longpole.measure import measured

    for method in provider.methods:
        *path, name = method.path.split(".")
        owner = client
        for step in path:
            owner = getattr(owner, step, None)
        original = getattr(owner, name, None)
        if original is None:
            continue
        _shadow(owner, name, measured(original, client, provider, method), undo)
    for name in provider.copies:
        _shadow(client, name, _wrapping(getattr(client, name)), undo)
    if provider.prepare is not None:
        undo.extend(provider.prepare(client))
    undo.extend(provider.attach(client))


def _shadow(owner: Any, name: str, value: object, undo: Undo) -> None:
    """Set an instance attribute over a method, and note how to undo it."""
    own = vars(owner)
    if name in own:
        undo.append(functools.partial(own.__setitem__, name, own[name]))
    else:
        undo.append(functools.partial(own.pop, name))
    own[name] = value


def _wrapping(copy: Callable[..., Any]) -> Callable[..., Any]:
    """A method that returns another client: wrap that one too."""

    @functools.wraps(copy)
    def wrapping(*args: Any, **kwargs: Any) -> Any:
        return wrap(copy(*args, **kwargs))

    return wrapping


def _patch_constructor(cls: Any) -> None:
    original = vars(cls).get("__init__")
    if original is None or hasattr(original, _MARK):
        return

    @functools.wraps(original)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807 - it becomes one
        if id(self) in _under_construction:  # by a subclass that is patched too
            original(self, *args, **kwargs)
            return
        _under_construction.add(id(self))
        try:
            original(self, *args, **kwargs)
        finally:
            _under_construction.discard(id(self))
        wrap(self)

    setattr(__init__, _MARK, True)
    cls.__init__ = __init__
    _constructors.append(functools.partial(setattr, cls, "__init__", original))


def _patch_factory(owner: Any, name: str, provider: Provider) -> None:
    original = getattr(owner, name)
    if hasattr(original, _MARK):
        return

    @functools.wraps(original)
    def factory(*args: Any, **kwargs: Any) -> Any:
        made = original(*args, **kwargs)
        return wrap(made) if provider.is_client(made) else made

    setattr(factory, _MARK, True)
    setattr(owner, name, factory)
    _constructors.append(functools.partial(setattr, owner, name, original))


def _run(undo: Undo) -> None:
    while undo:
        try:
            undo.pop()()
        except Exception as error:  # noqa: BLE001 - counted; the rest is still undone
            health.swallow("unwrap", error)
