"""Discovery of plug-ins: one folder a family, one file a member, one constant a file.

Built-in members are the modules of a package; third parties (and wings above the one that owns
the family) register through the entry-point group ``longpole.<family>``.
"""

from collections.abc import Callable
from importlib import import_module
from importlib.metadata import entry_points
from pkgutil import iter_modules
from typing import TypeVar

from longpole.errors import UsageError

T = TypeVar("T")


def load(
    package: str | None,
    constant: str,
    kind: type[T],
    on_failure: Callable[[str, Exception], None] | None = None,
) -> dict[str, T]:
    """All members of a family, by name, built-ins first.

    Args:
        package: dotted package whose modules are members (``base`` and names that start with an
            underscore are not); ``None`` when a family has no built-in members.
        constant: module-level name each member defines, e.g. ``DIALECT``; its lower-case form
            names the entry-point group ``longpole.<family>``.
        kind: type the constant must have.
        on_failure: gets the name of a registered member that cannot be loaded, and why; the
            others are loaded. Without it the failure is raised.

    Raises:
        UsageError: a member lacks its constant or holds something else; it is named.
    """
    members: dict[str, T] = {}
    if package is not None:
        for info in iter_modules(import_module(package).__path__):
            if info.name == "base" or info.name.startswith("_"):
                continue
            module = import_module(f"{package}.{info.name}")
            members[info.name] = _checked(getattr(module, constant, None), kind, module.__name__)
    for point in entry_points(group=f"longpole.{constant.lower()}"):
        try:
            members.setdefault(point.name, _checked(point.load(), kind, point.value))
        except Exception as error:  # whatever somebody else's module raises
            if on_failure is None:
                raise
            on_failure(point.name, error)
    return members


def _checked(value: object, kind: type[T], where: str) -> T:
    if not isinstance(value, kind):
        raise UsageError(
            f"plug-in {where} holds {type(value).__name__}, not {kind.__name__}: "
            "define its constant"
        )
    return value
