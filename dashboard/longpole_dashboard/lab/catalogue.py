"""All recipes, by name."""

from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from longpole.errors import UsageError
from longpole_dashboard.lab import recipes
from longpole_dashboard.lab.recipe import Recipe


@cache
def all_recipes() -> dict[str, Recipe]:
    """The catalogue, family by family."""
    found: dict[str, Recipe] = {}
    for info in iter_modules(recipes.__path__):
        for recipe in import_module(f"{recipes.__name__}.{info.name}").RECIPES:
            found[recipe.name] = recipe
    return found


def find(name: str) -> Recipe:
    """A recipe.

    Raises:
        UsageError: there is none of this name.
    """
    known = all_recipes()
    if name not in known:
        raise UsageError(f"no recipe '{name}': choose {', '.join(known)}")
    return known[name]
