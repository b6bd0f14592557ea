"""Looks into a response cache of the application's own."""

from typing import Literal, overload

from longpole.context import Facts
from longpole.step import F, Step, StepKind
from longpole.vocab import keys

CacheKind = Literal["exact", "semantic"]
"""How a cache finds: by the same request, or by one that means the same."""


class CacheLookup(Step):
    """One look into a cache; without :meth:`hit` or :meth:`miss` its result is unknown."""

    def __init__(self, name: str, attributes: Facts, *, kind: CacheKind | None = None) -> None:
        kinds = {} if kind is None else {keys.APP_CACHE_KIND: kind}
        super().__init__(name, {**attributes, **kinds})

    def hit(
        self,
        similarity: float | None = None,
        *,
        is_stale: bool | None = None,
        saved_s: float | None = None,
        source_version: str | None = None,
    ) -> None:
        """It was there.

        Args:
            similarity: of the stored request to this one, by the cache's own measure.
            is_stale: whether its source has changed since it was stored; ``None`` is unknown.
            saved_s: seconds that making the answer anew would have taken.
            source_version: version of the source the stored answer was made from.
        """
        self.set(keys.APP_CACHE_HIT, True)
        facts = {
            keys.APP_CACHE_SIMILARITY: similarity,
            keys.APP_CACHE_STALE: is_stale,
            keys.APP_CACHE_SAVED: saved_s,
            keys.APP_CACHE_SOURCE_VERSION: source_version,
        }
        for key, value in facts.items():
            if value is not None:
                self.set(key, value)

    def miss(self) -> None:
        """It was not there."""
        self.set(keys.APP_CACHE_HIT, False)


class CacheLookupKind(StepKind[CacheLookup]):
    """The kind of step that is a look into a cache."""

    @overload
    def __call__(self, name: F) -> F: ...
    @overload
    def __call__(self, name: str | None = None, kind: CacheKind | None = None) -> CacheLookup: ...
    def __call__(
        self, name: F | str | None = None, kind: CacheKind | None = None
    ) -> F | CacheLookup:
        """A look into a cache.

        Args:
            name: what the cache is called; default for a decorator is the function's name.
            kind: ``exact`` or ``semantic``; ``None`` is unknown.
        """
        if callable(name):
            return super().__call__(name)
        return self.make(name, {"kind": kind})
