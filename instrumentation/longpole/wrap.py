"""``wrap(client)``: find the provider file, patch the client in place, return the same client.

Only the instance is touched: its methods are shadowed by instance attributes and its HTTP client
gets two hooks, so ``unwrap`` leaves no trace. Whatever is unknown is left alone, with a warning.
"""

import functools
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any, TypeVar

from longpole import emit, health, providers
from longpole.errors import UsageError
from longpole.measure import measured
from longpole.providers.base import Provider
from longpole.transport import hook, unhook

T = TypeVar("T")
Undo = list[Callable[[], None]]

_MARK = "_longpole_undo"
_constructors: Undo = []


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
            setattr(client, _MARK, undo)
            emit.warm()
    except Exception as error:  # noqa: BLE001 - counted; the client stays as it was
        health.swallow("wrap", error)
        _run(undo)
    return client


def unwrap(client: T) -> T:
    """Restore a wrapped client and return it; a client that is not wrapped stays as it is.

    Clients that were copied from it while it was wrapped stay wrapped.
    """
    undo: Undo | None = getattr(client, "__dict__", {}).pop(_MARK, None)
    if undo is not None:
        _run(undo)
    return client


def instrument(*names: str) -> None:
    """Wrap every client that is created from now on.

    Args:
        *names: client packages, for instance ``openai``; without names all supported packages
            that are installed.

    Raises:
        UsageError: an unknown package, or one that is not installed.
    """
    from pkgutil import iter_modules

    known = [info.name for info in iter_modules(providers.__path__) if info.name != "base"]
    for name in names or known:
        if name not in known:
            raise UsageError(f"instrument() knows no '{name}'; known: {', '.join(known)}")
        provider = _load(name)
        if find_spec(provider.package) is None:
            if names:
                raise UsageError(f"instrument('{name}'): {provider.package} is not installed")
            continue
        module = import_module(provider.package)
        if _is_supported(provider):
            for class_name in provider.classes:
                _patch_constructor(getattr(module, class_name))


def uninstrument() -> None:
    """Undo :func:`instrument`; clients that exist stay wrapped."""
    _run(_constructors)


# --- finding the provider ----------------------------------------------------------------------


def _provider_of(client: object) -> Provider | None:
    for cls in type(client).__mro__:
        parts = cls.__module__.split(".")
        for name in ("_".join(parts[:2]), parts[0]):
            if name != "base" and find_spec(f"{providers.__name__}.{name}") is not None:
                provider = _load(name)
                return provider if _is_supported(provider) else None
    kind = f"{type(client).__module__}.{type(client).__qualname__}"
    health.warn_once(f"client:{kind}", f"longpole.wrap() knows no {kind}: it is left as it is")
    return None


def _load(name: str) -> Provider:
    found = import_module(f"{providers.__name__}.{name}").PROVIDER
    if not isinstance(found, Provider):
        raise TypeError(f"providers/{name}.py defines no PROVIDER")
    return found


def _is_supported(provider: Provider) -> bool:
    version = str(getattr(sys.modules.get(provider.package), "__version__", "?"))
    major = version.partition(".")[0]
    if major.isdigit() and int(major) in provider.majors:
        return True
    known = ", ".join(f"{major}.x" for major in sorted(provider.majors))
    health.warn_once(
        f"version:{provider.package}",
        f"longpole knows {provider.package} {known}, not {version}: clients are left as they are",
    )
    return False


# --- patching ----------------------------------------------------------------------------------


def _patch(client: Any, provider: Provider, undo: Undo) -> None:
    for method in provider.methods:
        *path, name = method.path.split(".")
        owner = functools.reduce(getattr, path, client)
        original = getattr(owner, name)
        _shadow(owner, name, measured(original, client, provider, method), undo)
        _forget(owner, method.caches)  # they hold the method as it was
        undo.append(functools.partial(_forget, owner, method.caches))
    for name in provider.copies:
        _shadow(client, name, _wrapping(getattr(client, name)), undo)
    http_client = provider.http_client(client)
    if http_client is not None:
        hook(http_client)
        undo.append(functools.partial(unhook, http_client))


def _shadow(owner: Any, name: str, value: object, undo: Undo) -> None:
    """Set an instance attribute over a method, and note how to undo it."""
    own = vars(owner)
    if name in own:
        undo.append(functools.partial(setattr, owner, name, own[name]))
    else:
        undo.append(functools.partial(delattr, owner, name))
    setattr(owner, name, value)


def _forget(owner: Any, names: tuple[str, ...]) -> None:
    for name in names:
        vars(owner).pop(name, None)


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
        original(self, *args, **kwargs)
        wrap(self)

    setattr(__init__, _MARK, True)
    cls.__init__ = __init__
    _constructors.append(functools.partial(setattr, cls, "__init__", original))


def _run(undo: Undo) -> None:
    while undo:
        try:
            undo.pop()()
        except Exception as error:  # noqa: BLE001 - counted; the rest is still undone
            health.swallow("unwrap", error)
