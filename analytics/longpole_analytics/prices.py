"""Prices: one flat dated table, and which of its rows a model's name means.

The table ships with the package (``price_data``, see there for origin and licence) and is put
together with a user's own prices. A class of tokens without a price of its own is billed as the
class it is part of: cached and written input as input, a one-hour write as a write, reasoning as
output. Prices are US dollars a million tokens.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import date
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow.parquet as pq

CLASSES: Final = (
    "input",
    "cached_input",
    "cache_write",
    "cache_write_1h",
    "output",
    "reasoning",
    "cache_storage",
    "request",
)
"""What is billed; storage is per million token-hours, requests per million of them."""
STANDARD: Final = "standard"
TIER_NAMES: Final[Mapping[str, str]] = {
    "": STANDARD,
    "auto": STANDARD,
    "default": STANDARD,
    "on_demand": STANDARD,
    "standard_only": STANDARD,
}
"""Tiers by other names."""
PROVIDER_NAMES: Final[Mapping[str, str]] = {
    "x_ai": "x-ai",
    "gcp.gen_ai": "google",
    "azure.ai.openai": "azure",
    "azure.ai.inference": "azure",
    "azure_openai": "azure",
    "hugging_face": "huggingface",
}
"""Names of OpenTelemetry that the table's own rules would not understand."""
_PARENT: Final = {
    "cached_input": "input",
    "cache_write": "input",
    "cache_write_1h": "cache_write",
    "reasoning": "output",
}
_COMPACT_DATE: Final = re.compile(r"-(20\d\d)(0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01])(?=-|:|$)")
_DATA: Final = Path(__file__).parent / "price_data"
_DAY_NS: Final = 86_400 * 10**9
_FIRST_DAY: Final = date(1970, 1, 1)


class Row(NamedTuple):
    """One price of a flat table, US dollars a million tokens.

    It holds in a period [from, to) of UTC days, from a minute of the UTC day to another one, and
    for prompts longer than ``above_tokens``.
    """

    provider: str
    model: str
    token_class: str
    service_tier: str
    above_tokens: int
    valid_from: date | None
    valid_to: date | None
    from_minute: int
    to_minute: int
    usd_per_mtok: float


class Cell(NamedTuple):
    """The prices of all :data:`CLASSES` that hold together; ``None`` where there is none.

    ``model_key`` is ``provider/model``. Prompts are longer than ``above_tokens``, if that is not
    0, and up to ``up_to_tokens``.
    """

    model_key: str
    service_tier: str
    valid_from_ns: int | None
    valid_to_ns: int | None
    from_minute: int
    to_minute: int
    above_tokens: int
    up_to_tokens: int | None
    usd_per_mtok: tuple[float | None, ...]


class Name(NamedTuple):
    """One way to be meant: how a name compares (``kind``) and with what."""

    kind: str
    text: str

    def means(self, name: str) -> bool:
        """Whether a lower-case name is meant."""
        match self.kind:
            case "equals":
                return name == self.text
            case "starts_with":
                return name.startswith(self.text)
            case "ends_with":
                return name.endswith(self.text)
            case "contains":
                return self.text in name
        return re.search(self.text, name) is not None


@dataclass(frozen=True)
class Names:
    """Which provider and model a name means, by provider id and in the table's order."""

    providers: Mapping[str, tuple[Name, ...]]
    by_model: Mapping[str, tuple[Name, ...]]
    fallback: Mapping[str, tuple[str, ...]]
    models: Mapping[str, Mapping[str, tuple[Name, ...]]]

    def provider(self, name: str | None, model: str) -> str | None:
        """The provider's id; without a name the one whose models are called so."""
        if not name:
            return _first(self.by_model, model.lower())
        wanted = name.lower().strip()
        wanted = PROVIDER_NAMES.get(wanted, wanted)
        return wanted if wanted in self.providers else _first(self.providers, wanted)

    def key(self, provider: str | None, model: str) -> str | None:
        """``provider/model`` as the table has it; ``None`` if nothing there is meant."""
        if (provider or "").lower() == "litellm" and "/" in model:
            provider, model = model.split("/", 1)
        found = self.provider(provider, model)
        if found is None:
            return None
        for name in dict.fromkeys((model.lower(), _COMPACT_DATE.sub(r"-\1-\2-\3", model.lower()))):
            for home in (found, *self.fallback.get(found, ())):
                meant = _first(self.models.get(home, {}), name)
                if meant is not None:
                    return f"{home}/{meant}"
        return None


def _first(named: Mapping[str, tuple[Name, ...]], name: str) -> str | None:
    return next((key for key, ways in named.items() if any(w.means(name) for w in ways)), None)


@dataclass(frozen=True, eq=False)
class Prices:
    """A price table in force.

    Attributes:
        cells: the shipped prices.
        names: whom the names mean.
        version: of the shipped table.
        own: the user's own prices, which win where they apply.
        own_version: of these; ``None`` without any.
    """

    cells: tuple[Cell, ...]
    names: Names
    version: str
    own: tuple[Cell, ...] = ()
    own_version: str | None = None

    def with_own(self, rows: Iterable[Row], version: str | None) -> "Prices":
        """The table with these rows as the user's own, in place of any before.

        Args:
            rows: provider and model as the user wrote them.
            version: names them on every cost they give.
        """
        lower = (row._replace(provider=row[0].lower(), model=row[1].lower()) for row in rows)
        return replace(self, own=cells_of(lower), own_version=version)

    def keys(self, provider: str | None, model: str | None) -> tuple[str | None, str | None]:
        """What a call's names mean here: ``model_key`` of the shipped and of the own prices."""
        meant = self.names.key(provider, model) if model else None
        plain = f"{provider}/{model}".lower()
        return meant, _own_key(self._own_keys, plain, meant)

    @cached_property
    def _own_keys(self) -> frozenset[str]:
        return frozenset(cell.model_key for cell in self.own)


def _own_key(own: frozenset[str], plain: str, meant: str | None) -> str | None:
    """The user's own entry: by what the call says, what it means, or the longest start of it."""
    for name in (plain, (meant or "").lower()):
        if name in own:
            return name
    starts = [key for key in own if key.endswith("*") and plain.startswith(key[:-1])]
    return max(starts, key=len, default=None)


@lru_cache(maxsize=1)
def shipped() -> Prices:
    """The price table that came with the package."""
    rows = (Row._make(row) for row in _read("prices", Row._fields))
    names = _named(_read("names", ("scope", "provider", "model", "kind", "text")))
    return Prices(cells_of(rows), names, (_DATA / "VERSION").read_text().strip())


def _read(name: str, columns: Iterable[str]) -> Iterator[tuple[Any, ...]]:
    """The rows of a file of the package."""
    # read_table would import what takes three times the memory
    file = pq.ParquetFile(_DATA / f"{name}.parquet")
    table = file.read(columns=list(columns), use_threads=False)
    return zip(*(table[column].to_pylist() for column in columns), strict=True)


def _named(rows: Iterable[tuple[Any, ...]]) -> Names:
    providers: dict[str, list[Name]] = {}
    by_model: dict[str, list[Name]] = {}
    fallback: dict[str, list[str]] = {}
    models: dict[str, dict[str, list[Name]]] = {}
    for scope, provider, model, kind, text in rows:
        match scope:
            case "provider":
                providers.setdefault(provider, []).append(Name(kind, text))
            case "by_model":
                by_model.setdefault(provider, []).append(Name(kind, text))
            case "fallback":
                fallback.setdefault(provider, []).append(text)
            case _:
                of_provider = models.setdefault(provider, {})
                of_provider.setdefault(model, []).append(Name(kind, text))
    return Names(
        {key: tuple(ways) for key, ways in providers.items()},
        {key: tuple(ways) for key, ways in by_model.items()},
        {key: tuple(ids) for key, ids in fallback.items()},
        {
            key: {model: tuple(ways) for model, ways in inner.items()}
            for key, inner in models.items()
        },
    )


def cells_of(rows: Iterable[Row]) -> tuple[Cell, ...]:
    """A flat table with the classes side by side, a cell for each range of prompt sizes.

    A price without a threshold of its own holds in every range. Of several cells for one model
    the later ones hold from a later day, or up to one, so the last that applies is the one.
    """
    sizes: dict[tuple[Any, ...], dict[int, dict[str, float]]] = {}
    for row in rows:
        period = (_day_ns(row.valid_from), _day_ns(row.valid_to), row.from_minute, row.to_minute)
        found = sizes.setdefault((f"{row.provider}/{row.model}", row.service_tier, *period), {})
        found.setdefault(row.above_tokens, {})[row.token_class] = row.usd_per_mtok
    cells: list[Cell] = []
    for key in sorted(sizes, key=lambda key: [(part is not None, part) for part in key]):
        known: dict[str, float] = {}
        above = sorted(sizes[key])
        for size, next_size in zip(above, [*above[1:], None], strict=True):
            known |= sizes[key][size]
            prices: dict[str, float | None] = {**known}
            for token_class, parent in _PARENT.items():
                prices.setdefault(token_class, prices.get(parent))
            cells.append(Cell._make((*key, size, next_size, tuple(map(prices.get, CLASSES)))))
    return tuple(cells)


def _day_ns(day: date | None) -> int | None:
    return None if day is None else (day - _FIRST_DAY).days * _DAY_NS
